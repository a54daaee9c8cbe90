package config

import (
	"net/netip"
	"strconv"
	"strings"
)

// MaxGlobalRateLimits is the maximum number of global limits of a rule, including those of two policies in force together: all that
// match are checked for each request.
const MaxGlobalRateLimits = 256

// MaxGlobalRateLimitsMet is the maximum number of global limits that one request can match: each is a key that Redis reads and
// writes for the request. Translation rejects limits of which more could match a request that has each header and query parameter
// once; the proxy refuses a request that repeats these and so matches more.
const MaxGlobalRateLimitsMet = 32

// ruleInName follows the policy in RateLimit.name; a policy may be called rule.
const ruleInName = "/rule/"

// RateLimitName returns the RateLimit.name of a rule of a policy, where policy is "<namespace>/<name>".
func RateLimitName(policy string, rule int) string { return policy + ruleInName + strconv.Itoa(rule) }

// RateLimitPolicy returns the policy of a RateLimit.name.
func RateLimitPolicy(name string) string {
	if at := strings.LastIndex(name, ruleInName); at >= 0 {
		return name[:at]
	}
	return name
}

// UnmapPrefix converts a range of IPv4-mapped IPv6 addresses to the range of IPv4 addresses, and returns any other range unchanged.
func UnmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
