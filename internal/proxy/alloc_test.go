package proxy

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// cannedBackend answers every request with the same bytes and allocates nothing while it does. Requests
// end with an empty line and body bytes.
func cannedBackend(t testing.TB, response []byte, body int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 256<<10)
				have := 0
				for {
					n, err := c.Read(buf[have:])
					if err != nil {
						return
					}
					have += n
					at := bytes.Index(buf[:have], []byte("\r\n\r\n"))
					if at < 0 || have < at+4+body {
						continue
					}
					have = 0
					c.Write(response)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func cannedResponse(body int) []byte {
	return []byte("HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Mon, 05 Jan 2026 10:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(body) + "\r\nCache-Control: private\r\nETag: \"5f2c\"\r\n\r\n" + string(bytes.Repeat([]byte("a"), body)))
}

func cannedRequest(method string, body int) []byte {
	head := method + " /api/v2/items?id=7 HTTP/1.1\r\nHost: api.example.test\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nCookie: a=b; c=d\r\n"
	if body > 0 {
		head += "Content-Length: " + strconv.Itoa(body) + "\r\n"
	}
	return []byte(head + "\r\n" + string(bytes.Repeat([]byte("b"), body)))
}

// roundTrip sends request and reads size bytes of response into buf.
func roundTrip(t testing.TB, c net.Conn, request, buf []byte, size int) {
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf[:size]); err != nil {
		t.Fatal(err)
	}
}

// responseSize is how long the gateway's response to request is.
func responseSize(t testing.TB, c net.Conn, request, buf []byte, body int) int {
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	for have := 0; ; {
		n, err := c.Read(buf[have:])
		if err != nil {
			t.Fatal(err)
		}
		have += n
		if at := bytes.Index(buf[:have], []byte("\r\n\r\n")); at >= 0 && have >= at+4+body {
			return have
		}
	}
}

func headerFilters(t testing.TB) func(*config.Rule) {
	return func(r *config.Rule) {
		r.Filters = append(r.Filters,
			filterOf(t, &config.RequestHeaderModifier{
				Set:    []*config.HeaderField{{Name: "X-Set", Value: "1"}},
				Add:    []*config.HeaderField{{Name: "Accept", Value: "text/html"}},
				Remove: []string{"Cookie"},
			}),
			filterOf(t, &config.ResponseHeaderModifier{Set: []*config.HeaderField{{Name: "Server", Value: "none"}}}),
			filterOf(t, &config.UrlRewrite{Hostname: "b.example", Path: &config.PathModifier{
				Kind: &config.PathModifier_ReplacePrefix{ReplacePrefix: &config.ReplacePrefix{Prefix: "/api", Replacement: "/v3"}}}}),
		)
	}
}
