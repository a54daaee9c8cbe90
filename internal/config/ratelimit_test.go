package config

import "testing"

// TestRateLimitPolicy: the policy of a limit is found whatever it is called.
func TestRateLimitPolicy(t *testing.T) {
	for _, policy := range []string{"default/p", "default/rule", "rule/rule", "rule/p"} {
		if got := RateLimitPolicy(RateLimitName(policy, 12)); got != policy {
			t.Errorf("%s: %q", policy, got)
		}
	}
}
