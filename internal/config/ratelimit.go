package config

import "net/netip"

// MaxGlobalRateLimits bounds the global limits of a rule, also where those of two policies are in force: all that match are asked for each request.
const MaxGlobalRateLimits = 256

// MaxGlobalRateLimitsMet bounds those of them that one request can meet, each of which is a key that Redis reads and writes for it. Translation refuses limits
// of which a request can meet more that has each header and query parameter once; the proxy refuses a request that repeats these and so meets more.
const MaxGlobalRateLimitsMet = 32

// UnmapPrefix returns a range of IPv4-mapped IPv6 addresses as the range of IPv4 addresses that clients have, and any other as it is.
func UnmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
