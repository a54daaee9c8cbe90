package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestResetUnderUpload: a response without a length that a reset of the backend's breaks off is not taken for a whole one, though
// the write of the request body that is under way may be the only call that hears of the reset.
func TestResetUnderUpload(t *testing.T) {
	t.Parallel()
	for _, plainIO := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain %v", plainIO), func(t *testing.T) {
			checkLeaks(t)
			orderly := make(chan bool, 1)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				defer c.Close()
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				whole := <-orderly
				io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+strings.Repeat("x", 100<<10))
				if whole {
					c.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, r)
				} else {
					r.Discard(64 << 10)
					c.(*net.TCPConn).SetLinger(0)
				}
			})
			g := startGatewayWith(t, Options{PlainIO: plainIO})
			g.serve(addr, func(*config.Rule) {})
			for i := range 60 {
				whole := i%20 == 19
				orderly <- whole
				c := g.dial()
				go func() { // until the gateway has closed the connection
					io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n")
					part := "8000\r\n" + strings.Repeat("y", 0x8000) + "\r\n"
					for range 10 {
						if _, err := io.WriteString(c, part); err != nil {
							return
						}
					}
					if whole {
						io.WriteString(c, "0\r\n\r\n")
					}
				}()
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					if whole {
						t.Errorf("request %d: %v", i, err)
					}
					c.Close()
					continue
				}
				n, err := io.Copy(io.Discard, resp.Body)
				if (err == nil) != whole || whole && n != 100<<10 {
					t.Errorf("request %d, which the backend ends in order %v: %d bytes, error %v", i, whole, n, err)
				}
				c.Close()
			}
		})
	}
}
