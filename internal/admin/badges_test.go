package admin

import "testing"

// TestBadges: a condition is shown as what its status means for its type.
func TestBadges(t *testing.T) {
	for _, tc := range []struct{ condition, status, want string }{
		{"Accepted", "True", "ok"},
		{"Accepted", "False", "bad"},
		{"Accepted", "Unknown", "unknown"},
		{"Conflicted", "True", "bad"},
		{"Conflicted", "False", "ok"},
		{"Degraded", "True", "bad"},
		{"Overridden", "True", "unknown"},
	} {
		if got := badges([]condition{{Type: tc.condition, Status: tc.status}}); len(got) != 1 || got[0].Class != tc.want {
			t.Errorf("%s %s: %+v, want %s", tc.condition, tc.status, got, tc.want)
		}
	}
}
