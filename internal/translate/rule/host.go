package rule

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Lengths in bytes; longer names cannot be resolved (RFC 1035 section 2.3.4).
const (
	maxHostname  = 253
	maxAuthority = 255
)

var (
	// hostname is the PreciseHostname of the API: a DNS name or an IPv4 address.
	hostname = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	// labels matches other values that users may write into a Host field.
	labels = regexp.MustCompile(`^[-_A-Za-z0-9]+(\.[-_A-Za-z0-9]+)*\.?$`)
)

func preciseHostname(s string) bool { return len(s) <= maxHostname && hostname.MatchString(s) }

// authority reports whether s is a valid value of a Host field (RFC 9110 section 7.2).
func authority(s string) bool {
	host := s
	if colon := strings.LastIndexByte(s, ':'); colon > strings.LastIndexByte(s, ']') {
		if port, err := strconv.ParseUint(s[colon+1:], 10, 16); err != nil || port == 0 {
			return false
		}
		host = s[:colon]
	}
	if bracketed, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(bracketed, "]")
		ip, err := netip.ParseAddr(inner)
		return closed && err == nil && ip.Is6() && ip.Zone() == ""
	}
	return len(host) <= maxAuthority && labels.MatchString(host)
}
