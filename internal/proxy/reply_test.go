package proxy

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestFiltersSeeFailures: what the gateway answers in a backend's stead passes the response filters of the rule and of the backendRef, as
// far as they are chosen, once.
func TestFiltersSeeFailures(t *testing.T) {
	t.Parallel()
	const ofRule, ofRef = "\r\nX-Rule: 1\r\n", "\r\nX-Ref: 1\r\n"
	closing := rawBackend(t, func(net.Conn, *bufio.Reader) {})
	malformed := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		c.Write([]byte("HTTP/1.1 200 OK\r\nX-Origin: 1\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n"))
		r.ReadByte()
	})
	silent := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		r.ReadByte()
	})
	for _, tc := range []struct {
		name, backend, want string
		rule                func(*config.Rule)
		has                 []string
	}{
		{"rule with a failure", "127.0.0.1:1", "500", func(r *config.Rule) { r.Failure = &config.Failure{Status: 500, Reason: "no_backend"} }, []string{ofRule}},
		{"no backendRef", "127.0.0.1:1", "500", func(r *config.Rule) { r.BackendRefs = nil }, []string{ofRule}},
		{"invalid backendRef", "127.0.0.1:1", "500", func(r *config.Rule) {
			r.BackendRefs[0].Backend, r.BackendRefs[0].Failure = "", &config.Failure{Status: 500, Reason: "backend_invalid"}
		}, []string{ofRule, ofRef}},
		{"connection refused", "127.0.0.1:1", "502", func(*config.Rule) {}, []string{ofRule, ofRef}},
		{"reset", closing, "502", func(*config.Rule) {}, []string{ofRule, ofRef}},
		{"malformed behind its head", malformed, "502", func(*config.Rule) {}, []string{ofRule, ofRef}},
		{"timeouts.backendRequest", silent, "504", func(r *config.Rule) { r.BackendRequestTimeoutNanos = int64(50 * time.Millisecond) }, []string{ofRule, ofRef}},
		{"no rule", closing, "404", func(r *config.Rule) { r.Matches[0].Method = "PATCH" }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serve(tc.backend, func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.ResponseHeaderModifier{Add: fields("X-Rule=1"), Remove: []string{"X-Ref-Gone"}}))
				r.BackendRefs[0].Filters = append(r.BackendRefs[0].Filters, filterOf(t, &config.ResponseHeaderModifier{Add: fields("X-Ref=1", "X-Ref-Gone=1")}))
				tc.rule(r)
			})
			// The second request shows that the first has left nothing to it.
			got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			if strings.Count(got, "HTTP/1.1 "+tc.want+" ") != 2 || strings.Count(got, "\r\n\r\nmoongate: "+tc.want+" ") != 2 ||
				strings.Count(got, "Content-Type: ") != 2 || strings.Contains(got, "X-Origin") || strings.Contains(got, "Gone") {
				t.Errorf("want %s twice: %q", tc.want, got)
			}
			for _, field := range []string{ofRule, ofRef} {
				want := 0
				for _, has := range tc.has {
					if has == field {
						want = 2
					}
				}
				if n := strings.Count(got, field); n != want {
					t.Errorf("%d of %q, want %d: %q", n, field, want, got)
				}
			}
		})
	}
}

// TestStatusWithoutBody: a response of the gateway's own whose status has no body is sent without one, since the client would take it for the next response.
func TestStatusWithoutBody(t *testing.T) {
	t.Parallel()
	for _, status := range []uint32{204, 304} {
		g := startGateway(t, Timeouts{})
		g.serve("127.0.0.1:1", func(r *config.Rule) { r.Failure = &config.Failure{Status: status, Reason: "rule_invalid"} })
		got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		if strings.Count(got, fmt.Sprintf("HTTP/1.1 %d ", status)) != 2 || strings.Count(got, "\r\n\r\n") != 2 || !strings.HasSuffix(got, "\r\n\r\n") ||
			strings.Contains(got, "Content-Length") || strings.Contains(got, "moongate:") {
			t.Errorf("%d: %q", status, got)
		}
	}
}
