package match

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// MaxCandidates bounds the result of Explain. If there are more, those that the request satisfies are kept first, then
// those whose path fits, then those whose path shares the longest prefix with the request's.
const MaxCandidates = 64

// Candidate is a match that was considered for a request.
type Candidate[V any] struct {
	Rule      *Rule[V]
	Effective string // config.Hostname.Effective it was found under
	Original  string // config.Hostname.Original
	// Matched means that the request satisfies the match. The first such Candidate is the one that Lookup returns,
	// unless Lookup returns ErrMatchLimit.
	Matched bool
	// Why is empty for the winner. For others it is the first predicate that failed, or the criterion by which the
	// winner takes precedence.
	Why string
}

// considered is a match that may become a Candidate.
type considered[V any] struct {
	match *match[V]
	group *group[V]
	order int // position in the order of precedence
	near  int // see nearness
}

// nearness is greatest for matches that the request satisfies, less for those whose path fits, and otherwise the length
// of the common prefix of path and value.
func (m *match[V]) nearness(req *message.Request) int {
	b := unlimited
	if !m.path.fits(req.Path, &b) {
		return commonPrefix(m.path.value, req.Path)
	}
	if !m.fitsRequest(req, &b) {
		return math.MaxInt - 1
	}
	return math.MaxInt
}

// Explain lists the matches whose hostname fits the request, in the order of precedence, at most MaxCandidates. A match
// with several hostnames is listed for the most specific one. It visits every route of these hostnames, so it must not
// be used to serve requests.
func (t *Table[V]) Explain(req *message.Request) []Candidate[V] {
	var winner *considered[V]
	list := t.consider(req)
	out := make([]Candidate[V], len(list))
	for i := range list {
		c := &list[i]
		out[i] = Candidate[V]{Rule: &c.match.Rule, Effective: c.group.effective, Original: c.group.original}
		out[i].Why = c.match.failure(req)
		if out[i].Why != "" {
			continue
		}
		out[i].Matched = true
		if winner == nil {
			winner = c
		} else {
			out[i].Why = lostTo(c, winner)
		}
	}
	return out
}

// consider collects the candidates in the order of precedence.
func (t *Table[V]) consider(req *message.Request) []considered[V] {
	if t == nil {
		return nil
	}
	var list []considered[V]
	seen := map[*match[V]]bool{}
	hosts := t.hosts.fitting(req.MatchHost)
	for groups := hosts.next(); groups != nil; groups = hosts.next() {
		for _, g := range *groups {
			for _, m := range g.sorted(req) {
				if seen[m] {
					continue
				}
				seen[m] = true
				list = append(list, considered[V]{match: m, group: g, order: len(list), near: m.nearness(req)})
			}
		}
	}
	if len(list) <= MaxCandidates {
		return list
	}
	slices.SortFunc(list, func(a, b considered[V]) int {
		return cmp.Or(cmp.Compare(b.near, a.near), cmp.Compare(a.order, b.order))
	})
	list = list[:MaxCandidates]
	slices.SortFunc(list, func(a, b considered[V]) int { return cmp.Compare(a.order, b.order) })
	return list
}

// sorted returns all matches of the group in the order of precedence for the request.
func (g *group[V]) sorted(req *message.Request) []*match[V] {
	if g.calls == nil {
		return g.requests.sorted()
	}
	first, second := g.inOrder(req)
	return append(first.sorted(), second.sorted()...)
}

func (p *paths[V]) sorted() []*match[V] {
	list := p.prefix.root.appendTo(p.regex.appendTo(nil))
	for _, c := range p.exact.all() {
		list = c.appendTo(list)
	}
	for _, c := range p.prefix.keys.all() {
		list = c.appendTo(list)
	}
	slices.SortFunc(list, func(a, b *match[V]) int {
		c, _ := compareMatches(a, b)
		return c
	})
	return list
}

func commonPrefix(value string, path []byte) int {
	n := 0
	for n < len(value) && n < len(path) && value[n] == path[n] {
		n++
	}
	return n
}

// lostTo names the criterion by which winner takes precedence over c.
func lostTo[V any](c, winner *considered[V]) string {
	switch {
	case c.group.effective != winner.group.effective:
		return byEffectiveHostname.lost()
	case c.group.original != winner.group.original:
		return byOriginalHostname.lost()
	case winner.match.call && !c.match.call:
		return "HTTPRoutes come after GRPCRoutes for gRPC calls"
	case c.match.call && !winner.match.call:
		return "GRPCRoutes come after HTTPRoutes for requests that are no gRPC calls"
	}
	_, by := compareMatches(winner.match, c.match)
	switch {
	case by == byPathType:
		return fmt.Sprintf("path type %s comes after %s", c.match.path.kind, winner.match.path.kind)
	case by == byPathLength && c.match.path.kind == prefixPath:
		return "shorter path prefix"
	case by == byPathLength:
		return "shorter regular expression"
	}
	return by.lost()
}

// failure describes the first predicate that the request does not satisfy, or returns "".
func (m *match[V]) failure(req *message.Request) string {
	b := unlimited
	if !m.path.fits(req.Path, &b) {
		return m.path.failure()
	}
	if m.method != "" && m.method != string(req.Method) {
		return fmt.Sprintf("method is not %s", m.method)
	}
	for i := range m.headers {
		v := &m.headers[i]
		if !v.fitsHeader(req, &b) {
			return v.failure("header", v.headerValue(req))
		}
	}
	for i := range m.query {
		v := &m.query[i]
		if !v.fitsQuery(req.Query, &b) {
			return v.failure("query parameter", v.queryValue(req))
		}
	}
	return ""
}

func (p *pathMatch) failure() string {
	switch p.kind {
	case exactPath:
		return fmt.Sprintf("path is not %q", p.value)
	case regexPath:
		return fmt.Sprintf("path does not match %q", p.value)
	}
	return fmt.Sprintf("path is neither %q nor below it", p.value)
}

func (k pathKind) String() string {
	return [...]string{exactPath: "Exact", regexPath: "RegularExpression", prefixPath: "PathPrefix"}[k]
}

// failure describes why the request's value does not fit; got is nil if there is none.
func (v *valueMatch) failure(what string, got []byte) string {
	switch {
	case got == nil:
		return fmt.Sprintf("no %s %q", what, v.name)
	case v.regex != nil:
		return fmt.Sprintf("%s %q is %.64q, which does not match %q", what, v.name, got, v.value)
	}
	return fmt.Sprintf("%s %q is %.64q, not %q", what, v.name, got, v.value)
}

func (v *valueMatch) headerValue(req *message.Request) []byte {
	if value, ok := pseudoHeader(req, v.name); ok {
		return append([]byte{}, value...)
	}
	first := nextLine(&req.Header, 0, v.name)
	if first < 0 {
		return nil
	}
	return appendJoined([]byte{}, &req.Header, first, v.name)
}

func (v *valueMatch) queryValue(req *message.Request) []byte {
	raw, ok := queryParam(req.Query, v.name)
	if !ok {
		return nil
	}
	return appendDecoded([]byte{}, raw)
}
