package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestAnsweredEarly: a backend that answers without reading the body takes the rest of it for a request. Its connection carries no other one.
func TestAnsweredEarly(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			head, err := readHead(r)
			if err != nil {
				return
			}
			_, target, ok := strings.Cut(head, " /") // a chunk may begin before the method
			if !ok {
				continue
			}
			path, _, _ := strings.Cut("/"+target, " ")
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
		}
	}), nil)
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, framed := range []struct{ field, begin, end string }{
		{fmt.Sprintf("Content-Length: %d", len(smuggled)), "", ""},
		{"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n", len(smuggled)), "\r\n0\r\n\r\n"},
	} {
		for range 5 {
			c := g.dial()
			r := bufio.NewReader(c)
			answer := func() string {
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return string(body)
			}
			fmt.Fprintf(c, "POST /early HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", framed.field)
			if got := answer(); got != "/early" {
				t.Fatalf("%s: got %q", framed.field, got)
			}
			io.WriteString(c, framed.begin+smuggled+framed.end+"GET /own HTTP/1.1\r\nHost: h\r\n\r\n")
			if got := answer(); got != "/own" { // the rest was taken from the client, as ever
				t.Errorf("%s: the client gets %q", framed.field, got)
			}
			if got := g.roundTrip("GET /other HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n/other") {
				t.Errorf("%s: another client gets %q", framed.field, got)
			}
			c.Close()
		}
	}
}

// TestAnsweredInTime: a connection whose backend has read the body goes on, however late the body has come.
func TestAnsweredInTime(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	asked := make(chan bool, 1)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- true
		io.Copy(io.Discard, r.Body)
	}), nil)
	c := g.dial()
	r := bufio.NewReader(c)
	for _, framed := range []struct{ field, body string }{
		{"Content-Length: 3", "abc"},
		{"Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"},
		{"Content-Length: 100000", strings.Repeat("x", 100_000)},
	} {
		for range 20 {
			fmt.Fprintf(c, "PUT / HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", framed.field)
			<-asked
			io.WriteString(c, framed.body)
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
		}
	}
	if n := g.upstreams.Get("Service/default/b/80").Stats().Dialled; n != 1 {
		t.Errorf("%d connections, want one for all requests", n)
	}
}
