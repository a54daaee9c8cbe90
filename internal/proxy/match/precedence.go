package match

import (
	"cmp"
	"strings"
)

// criterion is why one match takes precedence over another. The values are in the order in which they are compared.
type criterion uint8

const (
	byEffectiveHostname criterion = iota
	byOriginalHostname
	byPathType
	byPathLength
	byMethod
	byHeaders
	byQueryParams
	byPreflight
	byAge
	byName
	byRule
	byMatch
)

// lost describes the criterion for the match that comes later; lostTo describes those of the path.
func (c criterion) lost() string {
	return [...]string{
		byEffectiveHostname: "less specific hostname",
		byOriginalHostname:  "less specific hostname of the route",
		byMethod:            "no method match",
		byHeaders:           "fewer header matches",
		byQueryParams:       "fewer query parameter matches",
		byPreflight:         "takes OPTIONS only for preflight requests",
		byAge:               "newer route",
		byName:              "later in namespace/name order",
		byRule:              "later rule of the route",
		byMatch:             "later match of the rule",
	}[c]
}

// compareMatches orders matches of one hostname and of one kind of route: negative if a takes precedence over b, 0 if
// they are the same.
func compareMatches[V any](a, b *match[V]) (int, criterion) {
	if c := cmp.Compare(a.path.kind, b.path.kind); c != 0 {
		return c, byPathType
	}
	// Two Exact values that both equal the path are the same.
	if c := cmp.Compare(len(b.path.value), len(a.path.value)); c != 0 && a.path.kind != exactPath {
		return c, byPathLength
	}
	if c := cmp.Compare(min(len(b.method), 1), min(len(a.method), 1)); c != 0 {
		return c, byMethod
	}
	if c := cmp.Compare(b.counted, a.counted); c != 0 {
		return c, byHeaders
	}
	if c := cmp.Compare(len(b.query), len(a.query)); c != 0 {
		return c, byQueryParams
	}
	// A match added for preflight requests is not in any route, so whatever its age it comes after a match on OPTIONS
	// that is.
	if x, y := a.Rule.Match.GetPreflight(), b.Rule.Match.GetPreflight(); x != y {
		if x {
			return 1, byPreflight
		}
		return -1, byPreflight
	}
	if a.route != b.route {
		return compareRoutes(a.route, b.route)
	}
	if c := cmp.Compare(a.rule, b.rule); c != 0 {
		return c, byRule
	}
	return cmp.Compare(a.index, b.index), byMatch
}

func goesBefore[V any](a, b *match[V]) bool {
	c, _ := compareMatches(a, b)
	return c < 0
}

func compareRoutes[V any](a, b *Route[V]) (int, criterion) {
	if c := cmp.Compare(a.Config.CreatedUnixNano, b.Config.CreatedUnixNano); c != 0 {
		return c, byAge
	}
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c, byName
	}
	// Parts of one route are on different listeners, but during an Edit one may be present together with the one that
	// it replaces: only an order without ties finds the match to remove.
	return strings.Compare(a.Config.Key, b.Config.Key), byName
}

// compareHostnames is negative if a is more specific than b: exact before wildcard before "", longer before shorter,
// otherwise bytewise.
func compareHostnames(a, b string) int {
	if c := cmp.Compare(hostnameClass(a), hostnameClass(b)); c != 0 {
		return c
	}
	if c := cmp.Compare(len(b), len(a)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func hostnameClass(hostname string) int {
	switch {
	case hostname == "":
		return 2
	case strings.HasPrefix(hostname, "*."):
		return 1
	}
	return 0
}
