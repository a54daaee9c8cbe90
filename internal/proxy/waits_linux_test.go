package proxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
)

// TestWaitsHoldNoBuffer: what waits for a client or a backend that is slow holds no large buffer, over TLS neither.
func TestWaitsHoldNoBuffer(t *testing.T) {
	cert := certificate(t, "c", newECDSA(t), "a.example")
	pair, err := tls.X509KeyPair(cert.GetCertificate().ChainPem, cert.GetCertificate().KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, tc := range []struct {
		name                string
		overTLS, clientTLS  bool
		asks, answers, seen string // seen is what the client has, or else the backend, before the wait
		rest, end           string // what the backend, or for an upload the client, says behind it, and what comes of it
	}{
		{name: "a response", asks: get, answers: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", seen: "ab", rest: "cd", end: "cd"},
		{name: "a response over TLS", overTLS: true, asks: get, answers: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", seen: "ab", rest: "cd", end: "cd"},
		{name: "behind an interim response", asks: get, answers: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", seen: "Link: x", rest: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\ncd", end: "cd"},
		{name: "behind an interim response over TLS", overTLS: true, asks: get, answers: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", seen: "Link: x",
			rest: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\ncd", end: "cd"},
		{name: "an upload", asks: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab", seen: "ab", rest: "cd", end: "abcd"},
		{name: "an upload over TLS", clientTLS: true, asks: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab", seen: "ab", rest: "cd", end: "abcd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			var lent atomic.Int64
			buffer.Count(&lent)
			defer buffer.Count(nil)
			upload := tc.answers == ""
			got, goOn := make(chan string, 1), make(chan struct{})
			addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
				if tc.overTLS {
					c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
				}
				r := bufio.NewReader(c)
				if _, err := readHead(r); err != nil {
					return
				}
				if !upload {
					io.WriteString(c, tc.answers)
					<-goOn
					io.WriteString(c, tc.rest)
					return
				}
				var b [4]byte
				io.ReadFull(r, b[:2])
				got <- string(b[:2])
				io.ReadFull(r, b[2:])
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"+string(b[:]))
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			if tc.overTLS {
				g.apply(overTLS("Service/default/b/80", "a.example", cert.GetCertificate().ChainPem, config.BackendProtocol_BACKEND_PROTOCOL_HTTP))
			}
			var c net.Conn
			if tc.clientTLS {
				g.apply([]*config.Resource{cert, g.httpsListener("http", "", "c")})
				over, _, err := g.dialTLS("a.example", nil)
				if err != nil {
					t.Fatal(err)
				}
				c = over
			} else {
				c = g.dial()
			}
			defer c.Close()
			io.WriteString(c, tc.asks)
			r := bufio.NewReader(c)
			until := func(want string) {
				t.Helper()
				for said := ""; !strings.Contains(said, want); {
					b, err := r.ReadByte()
					if err != nil {
						t.Fatalf("%v behind %q", err, said)
					}
					said += string(b)
				}
			}
			if upload {
				if first := <-got; first != tc.seen {
					t.Errorf("the backend has %q", first)
				}
			} else {
				until(tc.seen)
			}
			g.eventually("nothing is held", func() bool { return lent.Load() == 0 })
			if upload {
				io.WriteString(c, tc.rest)
			} else {
				close(goOn)
			}
			until(tc.end)
		})
	}
}
