package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestMatchConsumedFields: rules match fields that the connection consumes, of requests by HTTP/1.1 and HTTP/2.
func TestMatchConsumedFields(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	answering := func(text string) string {
		return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
			head, err := readHead(r)
			if err != nil {
				return
			}
			if strings.Contains(head, "ontent-Length: 3\r\n") {
				io.CopyN(io.Discard, r, 3)
			}
			fmt.Fprintf(c, "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		})
	}
	g := startGateway(t, Timeouts{})
	ws := func(key, addr string) []*config.Resource {
		return append(backend(key, addr), &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Protocol: config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET}}})
	}
	resources := append(ws("Service/default/matched/80", answering("matched")), ws("Service/default/other/80", answering("other"))...)
	rule := func(to string, headers ...*config.ValueMatch) *config.Rule {
		return &config.Rule{Matches: []*config.Match{{Headers: headers}}, BackendRefs: []*config.BackendRef{{Backend: "Service/default/" + to + "/80", Weight: 1}}}
	}
	resources = append(resources, g.httpListener("http", ""))
	values := map[string]string{"upgrade": "websocket", "content-length": "3", "te": "trailers", "expect": "100-continue"}
	for name, value := range values {
		resources = append(resources, routeOf(name, "default/gw/http", name+".test", rule("matched", &config.ValueMatch{Name: name, Value: value}), rule("other")))
	}
	resources = append(resources, routeOf("empty", "default/gw/http", "empty.test", rule("matched", &config.ValueMatch{Name: "content-length", Value: "0"}), rule("other")))
	g.apply(resources)

	for name, fields := range map[string]string{
		"upgrade":        "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		"content-length": "Content-Length: 3\r\n\r\nabc",
		"te":             "Connection: TE\r\nTE: trailers\r\n\r\n",
		"expect":         "Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
	} {
		method := "GET"
		if strings.HasSuffix(fields, "abc") {
			method = "POST"
		}
		for fields, want := range map[string]string{fields: "matched", "X-A: b\r\n\r\n": "other"} {
			got := g.roundTrip(fmt.Sprintf("%s / HTTP/1.1\r\nHost: %s.test\r\nConnection: close\r\n%s", method, name, fields))
			if !strings.HasSuffix(got, "\r\n\r\n"+want) {
				t.Errorf("%s: %q, want %s", name, got, want)
			}
		}
	}

	p := g.connectPeer("")
	for _, te := range []string{"te", "x-te"} {
		s := p.open(true, ":method", "GET", ":scheme", "http", ":authority", "te.test", ":path", "/", te, "trailers")
		if got, _ := io.ReadAll(s); string(got) != map[string]string{"te": "matched", "x-te": "other"}[te] {
			t.Errorf("by HTTP/2, %s: %q", te, got)
		}
	}
	for _, length := range []string{"content-length", "x-length"} {
		s := p.open(true, ":method", "POST", ":scheme", "http", ":authority", "empty.test", ":path", "/", length, "0")
		if got, _ := io.ReadAll(s); string(got) != map[string]string{"content-length": "matched", "x-length": "other"}[length] {
			t.Errorf("by HTTP/2, %s: %q", length, got)
		}
	}
	body := func(c *streamTunnel) string {
		b, _ := io.ReadAll(c)
		return string(b)
	}
	if got := body(p.connect("websocket", "http://upgrade.test/")); got != "matched" {
		t.Errorf("an extended CONNECT: %q", got)
	}
	if got := body(p.connect("other", "http://upgrade.test/")); strings.Contains(got, "matched") {
		t.Errorf("an extended CONNECT for another protocol: %q", got)
	}
}
