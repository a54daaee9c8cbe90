package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// TestAuthenticatedConnections: a connection that a backend may take for one client's, because of NTLM or Negotiate, serves no other client. Other schemes authenticate
// each request, and their connections are used again.
func TestAuthenticatedConnections(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		credentials, challenges string
		again                   bool
	}{
		{"Authorization: NTLM TlRMTVNTUAAB\r\n", "", false},
		{"Authorization: negotiate YII=\r\n", "", false},
		{"", "WWW-Authenticate: NTLM\r\n", false},
		{"", "WWW-Authenticate: Basic realm=\"a\"\r\nwww-authenticate: Digest nonce=\"n\", NEGOTIATE\r\n", false},
		{"Authorization: Basic YTpi\r\nauthorization: Negotiate\tYII=\r\n", "", false},
		{"Authorization: Basic YTpi\r\n", "", true},
		{"Authorization: NTLMv3 a\r\n", "", true},
		{"", "WWW-Authenticate: Basic realm=\"NTLM\"\r\n", true},
	} {
		t.Run(tc.credentials+tc.challenges, func(t *testing.T) {
			checkLeaks(t)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for before := "nobody"; ; before = "somebody" {
					head, err := readHead(r)
					if err != nil {
						return
					}
					status, challenges := "200 OK", ""
					if strings.Contains(head, " /first ") && tc.challenges != "" {
						status, challenges = "401 Unauthorized", tc.challenges
					}
					fmt.Fprintf(c, "HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, challenges, len(before), before)
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			c := g.dial()
			r := bufio.NewReader(c)
			io.WriteString(c, "GET /first HTTP/1.1\r\nHost: h\r\n"+tc.credentials+"\r\n")
			readHead(r)
			io.ReadFull(r, make([]byte, len("nobody")))
			want := "nobody"
			if tc.again {
				want = "somebody"
			}
			if got := g.roundTrip("GET /second HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n"+want) {
				t.Errorf("another client got %q, want %q of a connection", got, want)
			}
		})
	}
}
