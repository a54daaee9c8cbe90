package explain

import "testing"

// TestMaxForwards: a request that may not be forwarded ends as at the proxy.
func TestMaxForwards(t *testing.T) {
	w := world(t)
	for _, c := range []struct {
		method, value, reason string
		status                int
	}{
		{"OPTIONS", "0", "max_forwards", 200},
		{"TRACE", "0", "not_implemented", 501},
		{"OPTIONS", "1", "ok", 0},
		{"OPTIONS", "x", "ok", 0},
		{"GET", "0", "ok", 0},
	} {
		if e := explained(t, w, c.method, "http://a.test/api", "Max-Forwards: "+c.value); e.Answer.Reason != c.reason || e.Answer.Status != c.status {
			t.Errorf("%s with Max-Forwards %s: %+v, want %d %s", c.method, c.value, e.Answer, c.status, c.reason)
		}
	}
}
