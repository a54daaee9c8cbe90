package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTrustedProxies: what a trusted proxy says of a request's provenance reaches the backend with the proxy itself added, and the access log has the client
// that it names. Of anybody else, also of one who disguises it, nothing does.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, trusted, lines string
		want                 []string // of the fields below, sorted
		client               string   // in the access log, "" for the connection's address
	}{
		{"nobody trusted", "", "X-Forwarded-For: 192.0.2.1\r\nForwarded: for=6.6.6.6\r\nX-Forwarded-Proto: https\r\n",
			[]string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: a.test", "X-Forwarded-Proto: http"}, ""},
		{"somebody else trusted", "192.0.2.0/24", "X-Forwarded-For: 192.0.2.1\r\nX-Real-Ip: 192.0.2.1\r\n",
			[]string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: a.test", "X-Forwarded-Proto: http"}, ""},
		{"nothing said", "127.0.0.0/8", "", []string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: a.test", "X-Forwarded-Proto: http"}, ""},
		{"all said", "127.0.0.0/8", "x-forwarded-for: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.test\r\nX-Forwarded-Port: 443\r\n" +
			"Forwarded: for=192.0.2.1\r\nX-Real-Ip: 192.0.2.1\r\n",
			[]string{"Forwarded: for=192.0.2.1", "X-Forwarded-For: 6.6.6.6, 192.0.2.1, 127.0.0.1", "X-Forwarded-Host: shop.test", "X-Forwarded-Port: 443", "X-Forwarded-Proto: https",
				"X-Real-Ip: 192.0.2.1"}, "192.0.2.1"},
		{"in several lines", "127.0.0.0/8", "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For:\r\nX-Forwarded-For: 192.0.2.1:81, 127.0.0.2\r\n",
			[]string{"X-Forwarded-For: 6.6.6.6, 192.0.2.1:81, 127.0.0.2, 127.0.0.1", "X-Forwarded-Host: a.test", "X-Forwarded-Proto: http"}, "192.0.2.1:81"},
		{"garbage", "127.0.0.0/8", "X-Forwarded-For: 192.0.2.1, unknown\r\n",
			[]string{"X-Forwarded-For: 192.0.2.1, unknown, 127.0.0.1", "X-Forwarded-Host: a.test", "X-Forwarded-Proto: http"}, ""},
		{"disguised", "127.0.0.0/8", "X_Forwarded_For: 6.6.6.6\r\nX-Forwarded_Proto: https\r\nX_Real-Ip: 6.6.6.6\r\nX.Forwarded.For: 6.6.6.6\r\nX-Forwarded-Proto.: https\r\nX+Real~Ip: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.1\r\n",
			[]string{"X-Forwarded-For: 192.0.2.1, 127.0.0.1", "X-Forwarded-Host: a.test", "X-Forwarded-Proto: http"}, "192.0.2.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			saw := make(chan []string, 1)
			g := startGateway(t, Timeouts{})
			l := g.httpListener("http", "")
			if tc.trusted != "" {
				l.GetListener().TrustedProxies = []string{tc.trusted}
			}
			g.apply(append(backend("Service/default/b/80", httpBackend(t, func(w http.ResponseWriter, r *http.Request) { saw <- provenanceOf(r.Header) })),
				l, routeOf("r", "default/gw/http", "", anyRule())))
			c := g.dial()
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a.test\r\n%s\r\n", tc.lines)
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			if got := <-saw; !slices.Equal(got, tc.want) {
				t.Errorf("the backend sees %q, want %q", got, tc.want)
			}
			want := tc.client
			if want == "" {
				want = c.LocalAddr().String()
			}
			if g.reasonsLogged(1); !strings.Contains(g.log.String(), `"client_address":"`+want+`"`) {
				t.Errorf("logged %s, want %s", g.log, want)
			}
		})
	}
}

// provenanceOf returns the fields that tell where a request comes from.
func provenanceOf(h http.Header) (lines []string) {
	for name, values := range h {
		plain := cgiName(strings.ToLower(name))
		if strings.HasPrefix(plain, "x-forwarded") || plain == "forwarded" || plain == "x-real-ip" {
			for _, v := range values {
				lines = append(lines, name+": "+v)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// TestTrustedProxiesBehindBalancer: the client of a PROXY header may be a trusted proxy itself, whose X-Forwarded-For counts then.
func TestTrustedProxiesBehindBalancer(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		g := startGateway(t, Timeouts{})
		saw := make(chan string, 1)
		ranges := []string{"127.0.0.0/8"}
		want := "192.0.2.1"
		if both {
			ranges, want = append(ranges, "192.0.2.0/24"), "203.0.113.9, 192.0.2.1"
		}
		g.apply(append(backend("Service/default/b/80", httpBackend(t, func(w http.ResponseWriter, r *http.Request) { saw <- r.Header.Get("X-Forwarded-For") })),
			proxied(g.httpListener("http", ""), ranges...), routeOf("r", "default/gw/http", "", anyRule())))
		c := g.dial()
		io.WriteString(c, headerV2+"GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n")
		testkit.Eventually(t, "the backend is asked", func() bool { return len(saw) > 0 })
		if got := <-saw; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestTrustedProxiesMalformed: a range that is none, which only a sender of another version could send, refuses the listener.
func TestTrustedProxiesMalformed(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	l := g.httpListener("http", "")
	l.GetListener().TrustedProxies = []string{"192.0.2.1"}
	r := g.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{l}})
	if err := r.Listeners["default/gw/http"]; err == nil || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("%v", r.Listeners)
	}
}
