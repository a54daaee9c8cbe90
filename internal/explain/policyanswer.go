package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
)

// injectsFault ends the decision if fault injection answers every request of the rule, and reports whether it does.
func (d *decision) injectsFault() bool {
	traffic := d.rule.Config.GetTraffic()
	abort := traffic.GetFaultInjection().GetAbort()
	if abort.GetPerMillion() < 1_000_000 {
		return false
	}
	status := int(abort.HttpStatus)
	if abort.GrpcStatus != nil {
		status = exchange.HTTPStatusOf(int(*abort.GrpcStatus))
	}
	d.Settings = settings(d.rule.Config)
	reason := observe.ReasonFaultInjected
	d.Answer = Answer{Status: status, Reason: reason.String(), Text: fmt.Sprintf("%d %s: %s; %s has it answer every request of the rule", status, reason, reason.Description(), traffic.Policy)}
	return true
}

// clientFamilies are an address of each family that clients may have, and its name.
var clientFamilies = []struct {
	client netip.Addr
	all    string // the range of all addresses of the family
	name   string
}{
	{netip.MustParseAddr("192.0.2.1"), "0.0.0.0/0", "IPv4"},
	{netip.MustParseAddr("2001:db8::1"), "::/0", "IPv6"},
}

// refusesAll ends the decision if a rate limit rejects every request like this one, and reports whether it does. If that depends on
// whether the client has an IPv4 or an IPv6 address, it becomes an exception of the answer. The path and query must be those by
// which the rule was selected.
func (d *decision) refusesAll(path, query []byte) (bool, error) {
	limits := d.rule.Config.GetTraffic().GetRateLimits()
	refused, passes := "", false
	var by string
	for _, family := range clientFamilies {
		if !d.mayBeOf(family.client) {
			continue
		}
		r := &ratelimit.Request{Request: &d.req, Path: path, Query: query, Client: family.client}
		name, err := refusing(limits, r, family.all)
		switch {
		case err != nil:
			return false, err
		case name == "":
			passes = true
		default:
			refused, by = family.name, name
		}
	}
	switch {
	case refused == "":
		return false, nil
	case passes:
		d.Answer.Except = fmt.Sprintf("%d %s for clients with an address of %s, by rate limit %s", observe.ReasonRateLimited.Status(), observe.ReasonRateLimited, refused, by)
		return false, nil
	}
	d.Settings = settings(d.rule.Config)
	d.answerWith(observe.ReasonRateLimited, "rate limit "+by+" lets none pass")
	return true, nil
}

// mayBeOf reports whether a client may have an address of a family: that of the address to which it connects, unless another proxy
// sets the client's address.
func (d *decision) mayBeOf(family netip.Addr) bool {
	switch l := d.listener; {
	case len(l.TrustedProxies) > 0:
		return true
	case d.ask.address.IsValid():
		return d.ask.address.Unmap().Is4() == family.Is4()
	case len(l.Addresses) > 0:
		return slices.ContainsFunc(l.Addresses, func(a string) bool {
			ip, err := netip.ParseAddr(a)
			return err != nil || ip.Unmap().Is4() == family.Is4()
		})
	}
	return true
}

// refusing returns the name of a limit that rejects every request like this one, for all client addresses of a family; "" if there
// is none.
func refusing(limits *config.RateLimits, r *ratelimit.Request, all string) (string, error) {
	for i, l := range slices.Concat(limits.GetLocal(), limits.GetGlobal()) {
		if !passesNone(l) || !forEvery(l, r.Client) {
			continue
		}
		asked := []*config.RateLimit{l}
		if i < len(limits.GetLocal()) { // a local limit without conditions is not checked if another one matches
			for _, other := range limits.GetLocal() {
				if other != l && !passesNone(other) {
					asked = append(asked, forAll(other, all))
				}
			}
		}
		rules, release, err := new(ratelimit.Store).Compile(&config.RateLimits{Local: asked}, "")
		if err != nil {
			release()
			return "", err
		}
		var decision ratelimit.Decision
		rules.Check(r, nil, &decision) // nothing has been consumed from the others
		release()
		if decision.Limited {
			return l.Name, nil
		}
	}
	return "", nil
}

// passesNone reports whether a limit rejects all requests to which it applies.
func passesNone(l *config.RateLimit) bool { return !l.Shadow && max(l.RequestCost, 1) > l.Requests }

// forEvery reports whether each address range of a limit contains all clients of the family of an address.
func forEvery(l *config.RateLimit, client netip.Addr) bool {
	return !slices.ContainsFunc(l.Sources, func(s *config.RateLimitSource) bool {
		p, err := netip.ParsePrefix(s.Cidr)
		if err != nil {
			return true
		}
		p = config.UnmapPrefix(p)
		sameFamily := p.Addr().Is4() == client.Is4()
		if s.Invert {
			return sameFamily
		}
		return !sameFamily || p.Bits() > 0
	})
}

// forAll returns a limit whose address ranges are replaced by that of all clients of a family.
func forAll(l *config.RateLimit, all string) *config.RateLimit {
	if len(l.Sources) == 0 {
		return l
	}
	l = proto.CloneOf(l)
	l.Sources = []*config.RateLimitSource{{Cidr: all}}
	return l
}
