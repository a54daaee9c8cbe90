//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"testing"
)

// TestHandshakeAllocatesLittle compares a new TLS connection and its first request with the least that a server
// over crypto/tls could do: what is more is ours.
func TestHandshakeAllocatesLittle(t *testing.T) {
	g := startGateway(t, Timeouts{})
	c := certificate(t, "c", newECDSA(t), "a.example")
	g.apply(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)), ticketKeys(1, 2, 3), c,
		g.httpsListener("https", "a.example", "c"), routeOf("r", "default/gw/https", "a.example", anyRule())))

	pair, err := tls.X509KeyPair(c.GetCertificate().ChainPem, c.GetCertificate().KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}}
	least := rawBackend(t, func(conn net.Conn, _ *bufio.Reader) {
		s := tls.Server(conn, cfg)
		if _, err := s.Read(make([]byte, 1024)); err == nil {
			s.Write(cannedResponse(2))
		}
		io.Copy(io.Discard, conn)
	})

	r := bufio.NewReader(nil)
	perConnection := func(addr string) float64 {
		client := &tls.Config{ServerName: "a.example", InsecureSkipVerify: true}
		visit := func() {
			raw, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			conn := tls.Client(raw, client)
			r.Reset(conn)
			if got := statusOf(t, conn, r, "a.example", "/"); got != "200" {
				t.Fatal(got)
			}
		}
		const warm, counted = 10, 40
		for range warm {
			visit()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range counted {
			visit()
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / counted
	}
	// The gateway's way to its backend costs no allocation; the server's buffers are a few.
	ours, theirs := perConnection(g.addr()), perConnection(least)
	t.Logf("%.0f allocations, crypto/tls alone %.0f", ours, theirs)
	if ours > theirs+20 {
		t.Errorf("%.0f allocations for a new TLS connection, %.0f of them by crypto/tls; want at most 20 of ours", ours, theirs)
	}
}
