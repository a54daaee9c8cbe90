package proxy

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

// TestMaxForwardsEnds: what may not be forwarded is answered, by HTTP/1.1 and HTTP/2, on a connection that goes on.
func TestMaxForwardsEnds(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if head, err := readHead(r); err == nil {
			t.Errorf("the backend got %q", head)
		}
	}), nil)
	got := g.roundTrip("OPTIONS * HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\nTRACE /secret HTTP/1.1\r\nHost: h\r\nCookie: secret\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n")
	first, rest, _ := strings.Cut(got, "\r\n\r\n")
	if !strings.HasPrefix(first, "HTTP/1.1 200 OK\r\n") || !strings.Contains(first, "\r\nContent-Length: 0") {
		t.Errorf("OPTIONS: %q", first)
	}
	if !strings.HasPrefix(rest, "HTTP/1.1 501 Not Implemented\r\n") || !strings.HasSuffix(rest, "\r\n\r\nmoongate: 501 not_implemented\n") || strings.Contains(rest, "secret") {
		t.Errorf("TRACE: %q", rest)
	}
	p := g.connectPeer("")
	for method, want := range map[string]string{"OPTIONS": "200", "TRACE": "501"} {
		s := p.open(true, ":method", method, ":scheme", "http", ":authority", "h", ":path", "/", "max-forwards", "0")
		if _, err := io.Copy(io.Discard, s); err != nil || s.status() != want {
			t.Errorf("%s by HTTP/2: %s, %v", method, s.status(), err)
		}
	}
	reasons := g.reasonsLogged(4)
	slices.Sort(reasons)
	if want := []string{"max_forwards", "max_forwards", "not_implemented", "not_implemented"}; !slices.Equal(reasons, want) {
		t.Errorf("reasons %q, want %q", reasons, want)
	}
}
