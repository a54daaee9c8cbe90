package cli

import (
	"strings"
	"testing"
	"time"
)

// TestRateLimitFlags: what the flags of global rate limits say, and what is refused of them.
func TestRateLimitFlags(t *testing.T) {
	good := rateLimitFlags{Redis: "[::1]:6379", KeyPrefix: "production:", FailureMode: failClosed, Algorithm: gcra, Timeout: time.Second}
	s, err := good.service()
	if err != nil || s.Address != "[::1]:6379" || s.KeyPrefix != "production:" || !s.FailClosed || !s.Gcra || s.TimeoutNanos != int64(time.Second) {
		t.Errorf("%v, %v", s, err)
	}
	without := good
	without.Redis = "" // GatewayParameters may name one
	if s, err := without.service(); err != nil || s.Address != "" || s.KeyPrefix != "production:" || !s.FailClosed {
		t.Errorf("without a server: %v, %v", s, err)
	}
	for want, change := range map[string]func(*rateLimitFlags){
		"--rate-limit-failure-mode": func(f *rateLimitFlags) { f.FailureMode = "Half" },
		"--rate-limit-algorithm":    func(f *rateLimitFlags) { f.Algorithm = "Leaky" },
		"--rate-limit-timeout":      func(f *rateLimitFlags) { f.Timeout = time.Minute },
		"--redis: it is neither":    func(f *rateLimitFlags) { f.Redis = "redis.example" },
		`--redis-key-prefix "a b"`:  func(f *rateLimitFlags) { f.KeyPrefix = "a b" },
		`--redis-key-prefix "é"`:    func(f *rateLimitFlags) { f.KeyPrefix = "é" },
		"--redis-key-prefix \"xxx":  func(f *rateLimitFlags) { f.KeyPrefix = strings.Repeat("x", 65) },
	} {
		f := good
		change(&f)
		if _, err := f.service(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
