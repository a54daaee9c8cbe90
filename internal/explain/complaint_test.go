package explain

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/status/show"
)

// TestWarningsAreNoCause: what only warns is named where TLS is why a request fails, and nowhere else.
func TestWarningsAreNoCause(t *testing.T) {
	for _, c := range []struct {
		condition, reason string
		want              bool
	}{
		{"OverlappingTLSConfig=True", "route_not_found", false},
		{"OverlappingTLSConfig=True", "misdirected", true},
		{"InsecureFrontendValidationMode=True", "tls_handshake_failed", true},
		{"InsecureFrontendValidationMode=True", "", false},
		{"Accepted=False", "route_not_found", true},
	} {
		d := &decision{Explanation: Explanation{Answer: Answer{Reason: c.reason}}}
		if got := d.mayCause(show.Complaint{Condition: c.condition}); got != c.want {
			t.Errorf("%s with %q: %v", c.condition, c.reason, got)
		}
	}
}
