// Package denial defines to which addresses no request is sent. It exists so that translation and name resolution apply the same
// rules: a user who may write EndpointSlices, or DNS records, may write any address into them, and a gateway would send requests
// there from its own position in the network (CVE-2021-25740, DNS rebinding).
//
// It consists of pure functions, and must import nothing of this module.
package denial

import (
	"net/netip"
	"slices"
)

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")    // RFC 1122 section 3.2.1.3
	translated  = netip.MustParsePrefix("64:ff9b::/96") // IPv4 behind NAT64, RFC 6052
	sixToFour   = netip.MustParsePrefix("2002::/16")    // IPv4 behind 6to4, RFC 3056
	// metadataServices are metadata services of clouds that are not link-local: EC2 and its pod identities, Google Cloud, Oracle
	// Cloud, Scaleway, Azure, Alibaba Cloud.
	metadataServices = []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("fd00:c1::a9fe:a9fe"),
		netip.MustParseAddr("fd00:42::42"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("100.100.100.200"),
	}
	broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

	// private are the networks that clusters use for pods, Services and nodes: RFC 1918, RFC 6598, RFC 4193, and the default range
	// of Services in GKE; the deprecated site-local addresses (RFC 3879); and other networks that cannot be reached from outside, or
	// that lead into one (RFC 6890): addresses of protocols, for benchmarks, for future use, of NAT64 in a private network (RFC
	// 8215), and of 6to4.
	private = []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("34.118.224.0/20"),
		netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("64:ff9b:1::/48"), sixToFour,
	}
)

// OfHost returns why no request is sent to an address, or "": it is that of the proxy itself or its node, or stands for many hosts.
// loopback allows addresses of the host itself.
func OfHost(ip netip.Addr, loopback bool) string {
	ip = ip.Unmap()
	switch {
	case !ip.IsValid() || ip.IsUnspecified() || thisNetwork.Contains(ip):
		return "is no address of a host"
	case ip.Zone() != "":
		return "has a zone"
	case ip.IsLoopback() && !loopback:
		return "is a loopback address: the proxy's own"
	case ip.IsLinkLocalUnicast():
		return "is a link-local address: of the proxy's node, or of a metadata service"
	case slices.Contains(metadataServices, ip):
		return "is the address of a metadata service"
	case ip.IsMulticast() || ip == broadcast:
		return "is an address of many hosts"
	}
	if inner, is := untranslated(ip); is {
		return OfHost(inner, loopback)
	}
	return ""
}

// OfName returns why no request is sent to an address of a name outside of the cluster, or "". Addresses in private networks are
// refused because they may belong to the cluster.
func OfName(ip netip.Addr) string {
	if why := OfHost(ip, false); why != "" {
		return why
	}
	for _, p := range private {
		if Within(ip, p) {
			return "is an address of private networks, such as those of pods and Services, or a special one"
		}
	}
	return ""
}

// Within reports whether an address is in a range, directly or behind NAT64 or 6to4. Neither has to be unmapped.
func Within(ip netip.Addr, p netip.Prefix) bool {
	ip = ip.Unmap().WithZone("")
	if p.Contains(ip) {
		return true
	}
	inner, is := untranslated(ip)
	return is && p.Contains(inner)
}

// untranslated returns the IPv4 address for which an address of NAT64 or 6to4 stands.
func untranslated(ip netip.Addr) (netip.Addr, bool) {
	b := ip.As16()
	switch {
	case translated.Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:])), true
	}
	return netip.Addr{}, false
}
