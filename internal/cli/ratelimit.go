package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
)

// rateLimitFlags configure the Redis server of global rate limits, and the algorithm.
type rateLimitFlags struct {
	Redis       string
	KeyPrefix   string
	FailureMode string
	Algorithm   string
	Timeout     time.Duration
}

// The values of the flags.
const (
	failOpen    = "Open"
	failClosed  = "Closed"
	fixedWindow = "FixedWindow"
	gcra        = "GCRA"
)

// wrongRedis does not contain the address, which may contain a password.
const wrongRedis = "--redis: it is neither host:port nor a URL of Redis: write it like 192.0.2.1:6379"

const (
	defaultRedisTimeout = 20 * time.Millisecond
	maxRedisTimeout     = 10 * time.Second
	maxKeyPrefix        = 64
)

func (f *rateLimitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Redis, "redis", "", "Redis that stores the counters of rateLimit.global of BackendTrafficPolicies, as host:port or redis://user:password@host:port/0 (rediss for TLS); without it such policies are refused, unless GatewayParameters name one")
	flags.StringVar(&f.KeyPrefix, "redis-key-prefix", "", "prefix of the keys in Redis, if several installations share one")
	flags.StringVar(&f.FailureMode, "rate-limit-failure-mode", failOpen, "what happens to requests while Redis does not answer: Open (they pass) or Closed (they are refused)")
	flags.StringVar(&f.Algorithm, "rate-limit-algorithm", fixedWindow, "algorithm of global rate limits: FixedWindow (windows begin at each multiple of the unit since 1970) or GCRA (limits refill steadily)")
	durationVar(flags, &f.Timeout, "rate-limit-timeout", defaultRedisTimeout, "how long a request waits for Redis")
}

// service returns the configuration; without an address if the flags name no server.
func (f *rateLimitFlags) service() (*config.RateLimitService, error) {
	wrong := func(format string, args ...any) (*config.RateLimitService, error) {
		return nil, &exitError{exitUsage, fmt.Errorf(format, args...)}
	}
	if f.FailureMode == "" && f.Algorithm == "" && f.Redis == "" { // no flags are set, as in tests
		return nil, nil
	}
	switch {
	case f.FailureMode != failOpen && f.FailureMode != failClosed:
		return wrong("--rate-limit-failure-mode %q: use Open or Closed", f.FailureMode)
	case f.Algorithm != fixedWindow && f.Algorithm != gcra:
		return wrong("--rate-limit-algorithm %q: use FixedWindow or GCRA", f.Algorithm)
	case f.Timeout < time.Millisecond || f.Timeout > maxRedisTimeout:
		return wrong("--rate-limit-timeout %v: use a duration from 1ms to %v", f.Timeout, maxRedisTimeout)
	case len(f.KeyPrefix) > maxKeyPrefix || strings.ContainsFunc(f.KeyPrefix, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return wrong("--redis-key-prefix %q: use up to %d letters, digits and signs of ASCII, such as \"production:\"", f.KeyPrefix, maxKeyPrefix)
	}
	if _, err := ratelimit.RedisOptions(f.Redis); err != nil && f.Redis != "" {
		return wrong("%s", wrongRedis)
	}
	return &config.RateLimitService{Address: f.Redis, FailClosed: f.FailureMode == failClosed, Gcra: f.Algorithm == gcra, TimeoutNanos: int64(f.Timeout), KeyPrefix: f.KeyPrefix}, nil
}
