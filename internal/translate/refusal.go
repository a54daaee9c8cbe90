package translate

import (
	"fmt"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// Whoever may write EndpointSlices, as the role edit allowed for long, may write any address into them, and
// a gateway would carry requests there with its own place in the network (CVE-2021-25740). Addresses that
// mean the proxy itself or its node are never sent to, nor those that a class denies.

// reasonAddressesRefused goes with ResolvedRefs=False of a route.
const reasonAddressesRefused = "AddressesRefused"

// maxRefusals is how many addresses of a slice are told of.
const maxRefusals = 8

// refusal is what of an EndpointSlice no request is sent to.
type refusal struct {
	Service   name
	Addresses []string             // as they are written there; sorted, distinct
	Problems  []*condition.Problem // of the first ones
}

// refusals are the addresses in EndpointSlices that no request is sent to.
type refusals struct {
	o              *Options
	gatewayClasses *gatewayClasses

	denyingClasses *incremental.Index[bool, name, class]
	all            *incremental.Collection[name, *refusal]  // by EndpointSlice
	byService      *incremental.Index[name, name, *refusal] // by Service
}

func newRefusals(e *incremental.Engine, o *Options,
	endpointSlices *incremental.Collection[name, *discoveryv1.EndpointSlice],
	gatewayClasses *gatewayClasses) *refusals {
	rf := &refusals{o: o, gatewayClasses: gatewayClasses}
	rf.denyingClasses = incremental.NewIndex(rf.gatewayClasses.all, "GatewayClasses that deny endpoints",
		func(_ name, c class) []bool {
			if len(c.Denied) == 0 {
				return nil
			}
			return []bool{true}
		})
	rf.all = incremental.Map(e, "refused addresses", endpointSlices,
		func(v *incremental.View, n name, s *discoveryv1.EndpointSlice) (*refusal, bool) {
			r := rf.refuse(v, n, s)
			return r, len(r.Addresses) > 0
		}, sameDeeply[*refusal])
	rf.byService = incremental.NewIndex(rf.all, "refused addresses by Service",
		func(_ name, r *refusal) []name { return []name{r.Service} })
	return rf
}

// denied is a range with the class that denies it.
type denied struct {
	netip.Prefix
	class string
}

func (rf *refusals) refuse(v *incremental.View, n name, s *discoveryv1.EndpointSlice) *refusal {
	r := &refusal{Service: name{n.Namespace, s.Labels[discoveryv1.LabelServiceName]}}
	var all []denied
	for _, c := range incremental.Lookup(v, rf.denyingClasses, true) {
		class, _ := incremental.Fetch(v, rf.gatewayClasses.all, c)
		for _, text := range class.Denied {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				all = append(all, denied{prefix.Masked(), c.Name})
			}
		}
	}
	for i := range s.Endpoints {
		for _, a := range s.Endpoints[i].Addresses {
			ip, err := netip.ParseAddr(a)
			if err != nil {
				continue // it is not used anyway
			}
			why := rf.whyRefused(ip.Unmap(), all)
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

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")    // RFC 1122 section 3.2.1.3
	translated  = netip.MustParsePrefix("64:ff9b::/96") // IPv4 behind NAT64, RFC 6052
	// metadataServices are those of clouds that are not link-local: EC2 and its pod identities, Google Cloud, Oracle Cloud, Scaleway,
	// Azure, Alibaba Cloud.
	metadataServices = []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("fd00:c1::a9fe:a9fe"),
		netip.MustParseAddr("fd00:42::42"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("100.100.100.200"),
	}

	broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// whyRefused says why no request is sent to an address, or "". Of files, whose author looks after the
// machine, loopback is good: servers beside the gateway are there.
func (rf *refusals) whyRefused(ip netip.Addr, all []denied) string {
	switch {
	case ip.Zone() != "":
		return "has a zone"
	case ip.IsUnspecified() || thisNetwork.Contains(ip):
		return "is no address of a host"
	case ip.IsLoopback() && rf.o.Cluster && !rf.o.Loopback:
		return "is a loopback address: the proxy's own"
	case ip.IsLinkLocalUnicast():
		return "is a link-local address: of the proxy's node, or of a metadata service"
	case slices.Contains(metadataServices, ip):
		return "is the address of a metadata service"
	case ip.IsMulticast() || ip == broadcast:
		return "is an address of many hosts"
	}
	for _, d := range all {
		if d.Contains(ip) {
			return fmt.Sprintf("is in %s, denied by GatewayClass %q", d.Prefix, d.class)
		}
	}
	if translated.Contains(ip) {
		b := ip.As16()
		return rf.whyRefused(netip.AddrFrom4([4]byte(b[12:])), all)
	}
	return ""
}

// refusedOf are the refused addresses of Services.
func (rf *refusals) refusedOf(v *incremental.View, services []name) (out []*condition.Problem) {
	for _, svc := range services {
		for _, slice := range incremental.Lookup(v, rf.byService, svc) {
			r, _ := incremental.Fetch(v, rf.all, slice)
			out = append(out, r.Problems...)
		}
	}
	return out
}
