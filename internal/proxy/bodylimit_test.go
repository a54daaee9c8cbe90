//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestMaxRequestBody: a body that is too long is answered with 413, before the backend is asked where its length is known, and one that is as long as it may
// be is passed on, whatever its framing.
func TestMaxRequestBody(t *testing.T) {
	t.Parallel()
	const limit = 10
	var asked atomic.Int32
	web := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if b, err := io.ReadAll(r.Body); err == nil && len(b) > limit {
			t.Errorf("the backend got %q", b)
		}
	})
	for _, plain := range []bool{false, true} {
		g := startGatewayWith(t, Options{PlainIO: plain})
		l := g.httpListener("http", "")
		l.GetListener().MaxRequestBodyBytes = limit
		g.apply(append(backend("Service/default/b/80", web), l, routeOf("r", "default/gw/http", "", anyRule())))
		for _, tc := range []struct {
			name, framing string
			status        int
			unasked       bool
		}{
			{"as long", "Content-Length: 10\r\n\r\n0123456789", 200, false},
			{"none", "\r\n", 200, false},
			{"longer", "Content-Length: 11\r\n\r\n0123456789a", 413, true},
			{"longer, not sent yet", "Content-Length: 11\r\nExpect: 100-continue\r\n\r\n", 413, true},
			{"very long", "Content-Length: 9000000000000000000\r\n\r\n", 413, true},
			{"chunked, as long", "Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", 200, false},
			{"chunked, longer", "Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n", 413, false},
		} {
			t.Run(fmt.Sprint(tc.name, plain), func(t *testing.T) {
				before := asked.Load()
				c := g.dial()
				io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.test\r\n"+tc.framing)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || resp.StatusCode != tc.status {
					t.Fatalf("%v, %v", resp, err)
				}
				if tc.unasked && asked.Load() != before {
					t.Error("the backend was asked")
				}
			})
		}
		testkit.Eventually(t, "four are refused", func() bool { return g.log.Count(`"reason":"body_too_large"`) == 4 })
	}
}

// TestMaxRequestBodyLate: a body that becomes too long after the response has begun is cut off, and so is the response.
func TestMaxRequestBodyLate(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
		b, _ := io.ReadAll(r)
		got <- string(b)
	})
	g := startGateway(t, Timeouts{})
	l := g.httpListener("http", "")
	l.GetListener().MaxRequestBodyBytes = 10
	g.apply(append(backend("Service/default/b/80", addr), l, routeOf("r", "default/gw/http", "", anyRule())))
	c := g.dial()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	io.WriteString(c, "6\r\n56789a\r\n0\r\n\r\n")
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the response is complete: %q", b)
	}
	if b := <-got; strings.Contains(b, "56789a") || strings.HasSuffix(b, "0\r\n\r\n") {
		t.Errorf("the backend got %q", b)
	}
	if r := g.reasonsLogged(1); r[0] != "body_too_large" {
		t.Errorf("logged %q", r)
	}
}

// TestMaxRequestBodyHTTP2: a stream whose body is too long is answered with 413, and the connection goes on.
func TestMaxRequestBodyHTTP2(t *testing.T) {
	t.Parallel()
	web := httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	g := startGateway(t, Timeouts{})
	l := g.httpListener("http", "")
	l.GetListener().MaxRequestBodyBytes = 10
	g.apply(append(backend("Service/default/b/80", web), l, routeOf("r", "default/gw/http", "", anyRule())))
	h, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(g.dial())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		body   io.Reader
		status int
	}{
		{strings.NewReader("0123456789"), 200},
		{strings.NewReader("0123456789a"), 413},
		{io.MultiReader(strings.NewReader("0123456789a")), 413}, // of a length that is not known
		{io.MultiReader(strings.NewReader("0123456789")), 200},
		{nil, 200},
	} {
		req, _ := http.NewRequest("POST", "http://a.test/", tc.body)
		resp, err := h.RoundTrip(req)
		if err != nil || resp.StatusCode != tc.status {
			t.Fatalf("%v: %v, %v", tc.body, resp, err)
		}
		io.Copy(io.Discard, resp.Body)
	}
}
