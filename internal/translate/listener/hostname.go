package listener

import (
	"cmp"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
)

// covers reports whether every host of specific is a host of general; "" is every host, and "*.suffix" any number of labels before
// the suffix.
func covers(general, specific string) bool {
	if general == "" || general == specific {
		return true
	}
	suffix, wildcard := strings.CutPrefix(general, "*")
	return wildcard && strings.HasSuffix(specific, suffix) && len(specific) > len(suffix)
}

// A route's hostname and a listener's have hosts in common if one covers the other: if one of the route's MatchingHostnameKeys is
// among the listener's HostnameKeys. These are strings for an index, so that a route need not be compared with each of thousands of
// listeners.

// HostnameKeys returns the hostname of a listener, and the suffixes, from the dot on, of the wildcards that cover it.
func HostnameKeys(hostname string) []string {
	return append([]string{hostname}, suffixes(hostname)...)
}

// MatchingHostnameKeys returns keys of the listeners whose hostnames cover a hostname of the route, or are covered by it; sorted,
// distinct.
func MatchingHostnameKeys(route []gwv1.Hostname) (keys []string) {
	for _, h := range route {
		hostname := strings.ToLower(string(h))
		if hostname == "" {
			continue
		}
		keys = append(keys, "", hostname)
		for _, suffix := range suffixes(hostname) {
			keys = append(keys, "*"+suffix)
		}
		if suffix, wildcard := strings.CutPrefix(hostname, "*"); wildcard {
			keys = append(keys, suffix)
		}
	}
	return distinct(keys)
}

// Intersection returns the hostnames that a route serves on a listener, sorted and distinct; if there are none, the listener does
// not accept the route.
func Intersection(listener string, route []gwv1.Hostname) []*config.Hostname {
	if len(route) == 0 {
		return []*config.Hostname{{Effective: listener}}
	}
	originals := map[string]string{}
	for _, h := range route {
		host := strings.ToLower(string(h))
		effective := host
		switch {
		case host == "":
			continue
		case covers(listener, host):
		case covers(host, listener):
			effective = listener
		default:
			continue
		}
		if known, again := originals[effective]; !again || CompareHostnames(host, known) < 0 {
			originals[effective] = host
		}
	}
	out := make([]*config.Hostname, 0, len(originals))
	for effective, original := range originals {
		out = append(out, &config.Hostname{Effective: effective, Original: original})
	}
	slices.SortFunc(out, func(a, b *config.Hostname) int { return cmp.Compare(a.Effective, b.Effective) })
	return out
}

// CompareHostnames orders the more specific first: an exact one, then the longer; "", which is every host, last.
func CompareHostnames(a, b string) int {
	rank := func(h string) int {
		switch {
		case h == "":
			return 2
		case strings.HasPrefix(h, "*"):
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
}
