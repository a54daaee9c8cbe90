package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestMatchLimit sends a value that is too long for the regular expressions of a rule: the request ends with its own
// reason, the connection goes on.
func TestMatchLimit(t *testing.T) {
	g := startGateway(t, Timeouts{})
	g.serve(g.addr(), func(r *config.Rule) {
		r.Matches = nil
		for i := range 5 {
			r.Matches = append(r.Matches, &config.Match{Headers: []*config.ValueMatch{{Name: "x", Value: fmt.Sprintf("%d.{0,990}|.{0,990}!", i), RegularExpression: true}}})
		}
	})
	got := g.roundTrip("GET / HTTP/1.1\r\nHost: a.test\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n" +
		"GET / HTTP/1.1\r\nHost: a.test\r\nX: x\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 431 ") || !strings.Contains(got, "match_limit") || !strings.Contains(got, "HTTP/1.1 404 ") {
		t.Errorf("got %s", got)
	}
	if words := g.reasonsLogged(2); len(words) != 2 || words[0] != "match_limit" || words[1] != "route_not_found" {
		t.Errorf("%q", words)
	}
}
