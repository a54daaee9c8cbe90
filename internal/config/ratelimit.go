package config

import (
	"net/netip"
	"strconv"
	"strings"
)

// MaxGlobalRateLimits bounds the global limits of a rule, also where those of two policies are in force: all that match are asked for each request.
const MaxGlobalRateLimits = 256

// MaxGlobalRateLimitsMet bounds those of them that one request can meet, each of which is a key that Redis reads and writes for it. Translation refuses limits
// of which a request can meet more that has each header and query parameter once; the proxy refuses a request that repeats these and so meets more.
const MaxGlobalRateLimitsMet = 32

// ruleInName stands in RateLimit.name behind the policy; a policy may be called rule.
const ruleInName = "/rule/"

// RateLimitName is RateLimit.name of a rule of a policy, which is "<namespace>/<name>".
func RateLimitName(policy string, rule int) string { return policy + ruleInName + strconv.Itoa(rule) }

// RateLimitPolicy is the policy in RateLimit.name.
func RateLimitPolicy(name string) string {
	if at := strings.LastIndex(name, ruleInName); at >= 0 {
		return name[:at]
	}
	return name
}

// UnmapPrefix returns a range of IPv4-mapped IPv6 addresses as the range of IPv4 addresses that clients have, and any other as it is.
func UnmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
