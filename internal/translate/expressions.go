package translate

import (
	"cmp"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// shareKey identifies the limit of regular expressions that the routes of a namespace have on a listener.
type shareKey struct {
	listenerKey
	Namespace string
}

func (k shareKey) Compare(o shareKey) int {
	return cmp.Or(k.listenerKey.Compare(o.listenerKey), cmp.Compare(k.Namespace, o.Namespace))
}

// excessKey identifies a route that exceeds the limit of its namespace on a listener.
type excessKey struct {
	listenerKey
	Route kindName
}

func (k excessKey) Compare(o excessKey) int {
	return cmp.Or(k.listenerKey.Compare(o.listenerKey), k.Route.Compare(o.Route))
}

// declareExpressions limits the regular expressions of a listener. Each namespace has its own limit, which routes of other
// namespaces do not use up. Older routes come first, so that a new one cannot stop what is served.
func (rs *routes) declareExpressions(e *incremental.Engine) {
	rs.expressions = incremental.NewIndex(rs.attachments, "routes with regular expressions by listener",
		func(k kindName, a *attachment) (keys []shareKey) {
			if a.Expressions == 0 {
				return nil
			}
			for _, l := range a.Listeners {
				keys = append(keys, shareKey{l, k.Name.Namespace})
			}
			return keys
		})
	rs.shares = incremental.Keys(rs.expressions, "namespaces with regular expressions")
	rs.excess = incremental.FlatMap(e, "regular expressions beyond a limit", rs.shares,
		func(v *incremental.View, k shareKey, _ struct{}) (out []incremental.Entry[excessKey, struct{}]) {
			for _, n := range rs.beyondLimit(v, incremental.Lookup(v, rs.expressions, k)) {
				out = append(out, incremental.Entry[excessKey, struct{}]{Key: excessKey{k.listenerKey, n}})
			}
			return out
		}, same[struct{}])
	// They are computed after the attachments, on which the limit depends.
	excessive := incremental.NewIndex(rs.excess, "regular expressions beyond a limit by route", func(k excessKey, _ struct{}) []kindName { return []kindName{k.Route} })
	rs.refused = incremental.Map(e, "route refused for regular expressions", incremental.Keys(excessive, "routes with regular expressions beyond a limit"),
		func(v *incremental.View, n kindName, _ struct{}) ([]listenerKey, bool) {
			a, _ := incremental.Fetch(v, rs.attachments, n)
			c, _ := incremental.Fetch(v, rs.compiled, n)
			return a.Listeners, !a.Invalid && rs.within(v, n, c, a).Invalid != nil
		}, slices.Equal[[]listenerKey])
	rs.refusedOn = incremental.NewIndex(rs.refused, "routes refused for regular expressions by listener", func(_ kindName, on []listenerKey) []listenerKey { return on })
}

// attachedRoutes returns the number of accepted routes of a listener.
func (rs *routes) attachedRoutes(v *incremental.View, k listenerKey) int32 {
	n := incremental.Count(v, rs.attached, k)
	if n > 0 { // most listeners of a large Gateway have none
		n -= incremental.Count(v, rs.refusedOn, k)
	}
	return int32(n)
}

// beyondLimit returns the routes that exceed the limit; routes must be sorted by age. A route after a rejected one that fits into
// the rest is accepted.
func (rs *routes) beyondLimit(v *incremental.View, routes []kindName) (excess []kindName) {
	type sized struct {
		kindName
		size    int
		created int64
	}
	all, total := make([]sized, 0, len(routes)), 0
	for _, n := range routes {
		a, _ := incremental.Fetch(v, rs.attachments, n)
		all = append(all, sized{n, a.Expressions, a.Created})
		total += a.Expressions
	}
	if total <= rule.MaxShareSize {
		return nil
	}
	slices.SortFunc(all, func(a, b sized) int {
		return cmp.Or(cmp.Compare(a.created, b.created), a.Name.precedence(b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	total = 0
	for _, r := range all {
		if total+r.size > rule.MaxShareSize {
			excess = append(excess, r.kindName)
		} else {
			total += r.size
		}
	}
	return excess
}

// bounded returns a route without the rules with regular expressions if one of its listeners has no room for these. The rules are
// dropped for all of its listeners, because a route is one resource in the data plane. The calling function must run for route n.
func (rs *routes) bounded(v *incremental.View, n kindName, a *attachment) *compiled {
	c, _ := incremental.Join(v, rs.compiled)
	return rs.within(v, n, c, a)
}

// within is bounded for a function that runs for another key; c is the compiled route.
func (rs *routes) within(v *incremental.View, n kindName, c *compiled, a *attachment) *compiled {
	if len(c.Expressions) == 0 {
		return c
	}
	for _, k := range a.Listeners {
		if _, is := incremental.Fetch(v, rs.excess, excessKey{k, n}); is {
			return c.withoutExpressions(k)
		}
	}
	return c
}

// withoutExpressions drops the rules with regular expressions, for which listener k has no room. A dropped rule with filters is
// replaced by one that fails more requests than its own: none of its requests may reach a rule without these filters.
func (c *compiled) withoutExpressions(k listenerKey) *compiled {
	out, of := *c, *c.findings
	out.findings = &of
	out.Route = &config.Route{Key: c.Route.Key, Namespace: c.Route.Namespace, Name: c.Route.Name, CreatedUnixNano: c.Route.CreatedUnixNano}
	has := func(index int) (is, filtered bool) {
		i := slices.IndexFunc(c.Expressions, func(e expressions) bool { return e.Rule == index })
		return i >= 0, i >= 0 && c.Expressions[i].Filtered
	}
	for _, r := range c.Route.Rules {
		switch is, filtered := has(int(r.Index)); {
		case !is:
			out.Route.Rules = append(out.Route.Rules, r)
		case filtered:
			out.Route.Rules = append(out.Route.Rules, rule.Widened(r))
		}
	}
	if c.Invalid != nil {
		return &out // the route is invalid, so none of its rules is served anyway
	}
	out.Dropped = slices.DeleteFunc(slices.Clone(c.Dropped), func(d *dropped) bool { is, _ := has(d.Rule); return is })
	for _, e := range c.Expressions {
		what := ""
		if e.Filtered {
			what = "; since the rule has filters, whatever begins like what its expressions match fails"
		}
		out.Dropped = append(out.Dropped, &dropped{Rule: e.Rule, Fails: e.Filtered, Problem: *condition.NewProblem(gwv1.RouteReasonUnsupportedValue, e.Field,
			"shorten it, or attach the route to another listener",
			"listener %q of Gateway %s has no room for the regular expressions of this route, %s and what follows, of size %d when compiled: with those of older routes of its namespace they would exceed %d%s",
			k.Name, k.Gateway, rule.QuotePattern(e.Pattern), c.size(), rule.MaxShareSize, what)})
	}
	slices.SortFunc(out.Dropped, func(a, b *dropped) int { return cmp.Compare(a.Rule, b.Rule) })
	out.judge()
	return &out
}
