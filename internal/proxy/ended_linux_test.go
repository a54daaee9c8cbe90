package proxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestResetBehindTheEnd: a backend that does not read the request body ends its response, which has no length, in order, and then
// closes, so that its system sends a reset. The client is slow: the gateway finds the end only when the reset has come. It is a whole
// response nevertheless.
func TestResetBehindTheEnd(t *testing.T) {
	t.Parallel()
	const size = 112 << 10 // more than the client takes and the gateway holds, and less than their sockets do
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	pair, err := tls.X509KeyPair(cert.GetCertificate().ChainPem, cert.GetCertificate().KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"socket": {}, "plain": {PlainIO: true}, "TLS": {}} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			ended := make(chan error, 1)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				socket := c.(*net.TCPConn)
				if name == "TLS" {
					secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
					c, r = secure, bufio.NewReaderSize(secure, 16)
				}
				if _, err := readHead(r); err != nil {
					ended <- err
					return
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+strings.Repeat("x", size))
				if secure, ok := c.(*tls.Conn); ok {
					secure.CloseWrite()
				}
				socket.CloseWrite()
				ended <- acknowledged(socket)
				socket.Close()
			})
			g := startGatewayWith(t, o)
			g.serve(addr, nil)
			if name == "TLS" {
				ca := cert.GetCertificate().ChainPem
				g.apply(overTLS("Service/default/b/80", "backend.example", ca, config.BackendProtocol_BACKEND_PROTOCOL_HTTP))
			}
			r := g.rawHTTP2()
			r.c.SetDeadline(time.Now().Add(testkit.Patience))
			r.fr.WriteSettingsAck()
			r.head(1, false, request2("POST", "/")...)
			for range 4 {
				r.fr.WriteData(1, false, make([]byte, 15<<10))
			}
			r.fr.WriteData(1, true, nil)
			got, status := 0, ""
			for {
				f, err := r.fr.ReadFrame()
				if err != nil {
					t.Fatalf("%s, %d bytes, then %v", status, got, err)
				}
				if reset, ok := f.(*http2.RSTStreamFrame); ok {
					t.Fatalf("%s, %d bytes, then %v", status, got, reset)
				}
				if f, ok := f.(*http2.MetaHeadersFrame); ok {
					status = f.PseudoValue("status")
				}
				data, ok := f.(*http2.DataFrame)
				if !ok {
					continue
				}
				got += len(data.Data())
				if data.StreamEnded() {
					break
				}
				if got == 65535 { // the window is used up: the gateway waits
					if err := <-ended; err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * time.Millisecond) // for the close, and the reset
					r.fr.WriteWindowUpdate(0, size)
					r.fr.WriteWindowUpdate(1, size)
				}
			}
			if status != "200" || got != size {
				t.Errorf("%s, %d bytes", status, got)
			}
			r.c.Close()
			if words := g.reasonsLogged(1); words[0] != "ok" {
				t.Errorf("logged %q", words)
			}
		})
	}
}

// acknowledged returns when the peer has acknowledged all that was written, and the end.
func acknowledged(c *net.TCPConn) error {
	const finWait2 = 5
	raw, err := c.SyscallConn()
	end := time.Now().Add(5 * time.Second)
	for state := uint8(0); err == nil && state != finWait2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return os.ErrDeadlineExceeded
		}
		var asked error
		if err = raw.Control(func(fd uintptr) {
			var info *unix.TCPInfo
			if info, asked = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); asked == nil {
				state = info.State
			}
		}); err == nil {
			err = asked
		}
	}
	return err
}
