package translate

import (
	"fmt"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/denial"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// A user who may write EndpointSlices, as the role edit allowed for long, may write any address into them, and a gateway would send
// requests there from its own position in the network (CVE-2021-25740). Therefore nothing is sent to addresses of the proxy itself
// or its node, or to those that a class denies.

// reasonAddressesRefused is a reason of ResolvedRefs=False of a route.
const reasonAddressesRefused = "AddressesRefused"

// maxRefusals is the maximum number of addresses of a slice that are reported.
const maxRefusals = 8

// refusal lists the addresses of an EndpointSlice to which no request is sent.
type refusal struct {
	Service name
	// XBackend is the slice's label for an XBackend, with the slice's namespace, and XBackendUID the one with its UID; both may be empty.
	XBackend    name
	XBackendUID string

	Addresses []string             // as written there; sorted, distinct
	Problems  []*condition.Problem // for the first ones
}

// refusals contains the addresses in EndpointSlices to which no request is sent.
type refusals struct {
	o              *Options
	gatewayClasses *gatewayClasses
	xbackends      *xbackends

	denyingClasses  *incremental.Index[bool, name, class]
	allowingClasses *incremental.Index[bool, name, class]
	all             *incremental.Collection[name, *refusal]         // by EndpointSlice
	buckets         *incremental.Collection[targetBucket, struct{}] // of Services with refused addresses, as targetBuckets has them
	byService       *incremental.Index[name, name, *refusal]        // by Service
	byXBackend      *incremental.Index[name, name, *refusal]        // by the label for an XBackend
}

func newRefusals(e *incremental.Engine, o *Options,
	endpointSlices *incremental.Collection[name, *discoveryv1.EndpointSlice],
	gatewayClasses *gatewayClasses, xbackends *xbackends) *refusals {
	rf := &refusals{o: o, gatewayClasses: gatewayClasses, xbackends: xbackends}
	rf.denyingClasses = incremental.NewIndex(rf.gatewayClasses.all, "GatewayClasses that deny endpoints",
		func(_ name, c class) []bool {
			if len(c.Denied) == 0 {
				return nil
			}
			return []bool{true}
		})
	rf.allowingClasses = incremental.NewIndex(rf.gatewayClasses.all, "GatewayClasses that allow addresses of hostnames",
		func(_ name, c class) []bool {
			if len(c.Allowed) == 0 {
				return nil
			}
			return []bool{true}
		})
	rf.all = incremental.Map(e, "refused addresses", endpointSlices,
		func(v *incremental.View, n name, s *discoveryv1.EndpointSlice) (*refusal, bool) {
			r := rf.refuse(v, n, s)
			return r, len(r.Addresses) > 0
		}, sameDeeply[*refusal])
	rf.buckets = incremental.Keys(incremental.NewIndex(rf.all, "refused addresses by bucket of their Service",
		func(_ name, r *refusal) []targetBucket { return []targetBucket{bucketOf(targetOf(r.Service, ""))} }), "buckets with refused addresses")
	rf.byService = incremental.NewIndex(rf.all, "refused addresses by Service",
		func(_ name, r *refusal) []name { return []name{r.Service} })
	rf.byXBackend = incremental.NewIndex(rf.all, "refused addresses by XBackend",
		func(_ name, r *refusal) []name {
			if r.XBackend.Name == "" {
				return nil
			}
			return []name{r.XBackend}
		})
	return rf
}

// deniedRange is a range and the class that denies it.
type deniedRange struct {
	netip.Prefix
	class string
}

type deniedRanges []deniedRange

// why returns which range contains an address, or "".
func (all deniedRanges) why(ip netip.Addr) string {
	for _, d := range all {
		if denial.Within(ip, d.Prefix) {
			return fmt.Sprintf("is in %s, denied by GatewayClass %q", d.Prefix, d.class)
		}
	}
	return ""
}

// denied returns the ranges that classes deny.
func (rf *refusals) denied(v *incremental.View) (all deniedRanges) {
	for _, c := range incremental.Lookup(v, rf.denyingClasses, true) {
		class, _ := incremental.Fetch(v, rf.gatewayClasses.all, c)
		for _, text := range class.Denied {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				all = append(all, deniedRange{prefix.Masked(), c.Name})
			}
		}
	}
	return all
}

// hostname returns a host with the ranges that are denied and allowed for its addresses; denied contains ranges in addition to those
// that classes deny.
func (rf *refusals) hostname(v *incremental.View, host string, denied []string) *config.ExternalHostname {
	h := &config.ExternalHostname{Name: host, Denied: denied}
	for _, d := range rf.denied(v) {
		h.Denied = append(h.Denied, d.Prefix.String())
	}
	for _, c := range incremental.Lookup(v, rf.allowingClasses, true) {
		class, _ := incremental.Fetch(v, rf.gatewayClasses.all, c)
		h.Allowed = append(h.Allowed, class.Allowed...)
	}
	for _, ranges := range []*[]string{&h.Denied, &h.Allowed} {
		slices.Sort(*ranges)
		*ranges = slices.Compact(*ranges)
	}
	return h
}

func (rf *refusals) refuse(v *incremental.View, n name, s *discoveryv1.EndpointSlice) *refusal {
	r := &refusal{Service: serviceOf(n, s),
		XBackend: name{n.Namespace, s.Labels[v1alpha1.LabelXBackend]}, XBackendUID: s.Labels[v1alpha1.LabelXBackendUID]}
	all := rf.denied(v)
	for i := range s.Endpoints {
		for _, a := range s.Endpoints[i].Addresses {
			ip, err := netip.ParseAddr(a)
			if err != nil {
				continue // it is not used anyway
			}
			// Loopback is allowed with files, whose author administers the host: servers next to the gateway listen there.
			why := denial.OfHost(ip, !rf.o.Cluster || rf.o.Loopback)
			if why == "" {
				why = all.why(ip)
			}
			if why == "" {
				continue
			}
			r.Addresses = append(r.Addresses, a)
			if len(r.Problems) == maxRefusals {
				continue
			}
			r.Problems = append(r.Problems, condition.NewProblem(reasonAddressesRefused, "", "remove it from the slice",
				"EndpointSlice %s: no request is sent to %s, which %s", n, a, why))
		}
	}
	slices.Sort(r.Addresses)
	r.Addresses = slices.Compact(r.Addresses)
	return r
}

// serviceOf returns the Service of an EndpointSlice.
func serviceOf(n name, s *discoveryv1.EndpointSlice) name {
	return name{n.Namespace, s.Labels[discoveryv1.LabelServiceName]}
}

// mayConcern reports whether a Service may have refused addresses. Functions read this first, because what it reads is shared by many Services, and most
// then need nothing of their own Service.
func (rf *refusals) mayConcern(v *incremental.View, svc name) (some bool) {
	_, some = incremental.Fetch(v, rf.buckets, bucketOf(targetOf(svc, "")))
	return some
}

// ofSlice returns the refused addresses of an EndpointSlice.
func (rf *refusals) ofSlice(v *incremental.View, n name, s *discoveryv1.EndpointSlice) []string {
	if !rf.mayConcern(v, serviceOf(n, s)) {
		return nil
	}
	if r, some := incremental.Fetch(v, rf.all, n); some {
		return r.Addresses
	}
	return nil
}

// refusedOf returns the refused addresses of the Services and XBackends that a route may mention.
func (rf *refusals) refusedOf(v *incremental.View, c *compiled) (out []*condition.Problem) {
	for _, svc := range c.Services {
		if !rf.mayConcern(v, svc) {
			continue
		}
		for _, slice := range incremental.Lookup(v, rf.byService, svc) {
			r, _ := incremental.Fetch(v, rf.all, slice)
			out = append(out, r.Problems...)
		}
	}
	for _, n := range c.XBackends {
		x, read := incremental.Fetch(v, rf.xbackends.all, n)
		if !read || x.Hostname != "" { // a host has no slices
			continue
		}
		for _, slice := range incremental.Lookup(v, rf.byXBackend, name{n.Namespace, v1alpha1.XBackendLabel(n.Name)}) {
			if r, _ := incremental.Fetch(v, rf.all, slice); r.XBackendUID == "" || r.XBackendUID == string(x.UID) {
				out = append(out, r.Problems...)
			}
		}
	}
	return out
}
