package explain

import (
	"fmt"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
)

// periods are the units of limits by seconds.
var periods = map[uint32]string{1: "second", 60: "minute", 3600: "hour", 86400: "day", 604800: "week", 2592000: "month", 31536000: "year"}

// rateLimits describes the rate limits of a rule, one line each.
func rateLimits(l *config.RateLimits) (lines []string) {
	for _, scope := range []struct {
		name   string
		limits []*config.RateLimit
	}{{"local", l.GetLocal()}, {"global", l.GetGlobal()}} {
		for _, r := range scope.limits {
			lines = append(lines, scope.name+" rate limit "+rateLimit(r))
		}
	}
	return lines
}

func rateLimit(r *config.RateLimit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d requests a %s", r.Name, r.Requests, periods[r.PeriodSeconds])
	var of, where []string
	value := func(kind string, v *config.RateLimitValue) {
		switch {
		case v.Type == config.RateLimitMatch_RATE_LIMIT_MATCH_DISTINCT:
			of = append(of, kind+" "+v.Name)
			return
		case v.Type == config.RateLimitMatch_RATE_LIMIT_MATCH_REGULAR_EXPRESSION:
			where = append(where, fmt.Sprintf("%s %s %s %q", kind, v.Name, inverted(v.Invert, "matches", "does not match"), v.Value))
			return
		}
		where = append(where, fmt.Sprintf("%s %s %s %q", kind, v.Name, inverted(v.Invert, "is", "is not"), v.Value))
	}
	for _, v := range r.HeaderFields {
		value("header", v)
	}
	for _, m := range r.Methods {
		var any []string
		for _, o := range m.AnyOf {
			any = append(any, inverted(o.Invert, "", "not ")+o.Value)
		}
		where = append(where, "method is "+strings.Join(any, " or "))
	}
	for _, p := range r.Paths {
		switch v := p.Path.(type) {
		case *config.RateLimitPath_Exact:
			where = append(where, "path "+inverted(p.Invert, "is ", "is not ")+v.Exact)
		case *config.RateLimitPath_Prefix:
			where = append(where, "path "+inverted(p.Invert, "is below ", "is not below ")+v.Prefix)
		case *config.RateLimitPath_RegularExpression:
			where = append(where, fmt.Sprintf("path %s %q", inverted(p.Invert, "matches", "does not match"), v.RegularExpression))
		}
	}
	for _, s := range r.Sources {
		if s.Distinct {
			of = append(of, "client address")
		}
		where = append(where, "client "+inverted(s.Invert, "is in ", "is not in ")+s.Cidr)
	}
	for _, v := range r.QueryParams {
		value("query parameter", v)
	}
	if of != nil {
		b.WriteString(" for each " + strings.Join(of, " and "))
	}
	if where != nil {
		b.WriteString(", where " + strings.Join(where, " and "))
	}
	if r.RequestCost != 1 {
		fmt.Fprintf(&b, ", a request counts as %d", r.RequestCost)
	}
	if r.ResponseCost != 0 {
		fmt.Fprintf(&b, ", a response counts as %d", r.ResponseCost)
	}
	b.WriteString(inverted(r.Shared, ", counted for each route", ", shared by all routes"))
	if r.Shadow {
		b.WriteString(", in shadow mode: it refuses nothing")
	}
	return b.String()
}

// inverted returns one of two phrases.
func inverted(is bool, no, yes string) string {
	if is {
		return yes
	}
	return no
}

// noteRedis notes what happens to requests with global rate limits if it is not known whether there is a Redis server for these.
func (d *decision) noteRedis() {
	traffic := d.rule.Config.GetTraffic()
	if d.in.UnknownRedis == "" || len(traffic.GetRateLimits().GetGlobal()) == 0 {
		return
	}
	for _, r := range d.in.Resources {
		if s := r.GetRateLimitService(); s.GetKey() == d.listener.Gateway && s.GetAddress() == d.in.UnknownRedis {
			d.needsRedis = true
			d.Notes = append(d.Notes, fmt.Sprintf("%s: spec.rateLimit.global: it counts in a Redis, which nothing here names: without one every request of the rule is answered %d %s; "+
				"start Moongate with --redis ADDRESS and give explain the same flag, or name one in spec.classOnly.rateLimit.redis of the class's GatewayParameters",
				traffic.Policy, observe.ReasonPolicyInvalid.Status(), observe.ReasonPolicyInvalid))
			return
		}
	}
}
