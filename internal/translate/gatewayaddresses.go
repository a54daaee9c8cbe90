package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/gateway"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// maxAddresses is the maximum length of status.addresses that the API server allows.
const maxAddresses = 16

// infrastructure contains the addresses of Gateways, and whether clients can reach them.
type infrastructure struct {
	o               *Options
	addressFaults   *incremental.Collection[addressKey, AddressFault]
	infrastructures *incremental.Collection[name, Infrastructure] // by the name of the proxies, see gateways.proxiesOf

	reachable *incremental.Collection[name, bool]          // Gateways in a cluster that clients can reach
	ranges    *incremental.Collection[name, []string]      // IP addresses of the infrastructure of Gateways, as ranges; sorted
	ranged    *incremental.Index[struct{}, name, []string] // all of these
}

// newInfrastructure declares reachable separately, so that listeners depend only on whether their Gateway can be reached.
func newInfrastructure(e *incremental.Engine, o *Options,
	addressFaults *incremental.Collection[addressKey, AddressFault],
	infrastructures *incremental.Collection[name, Infrastructure], gateways *gateways) *infrastructure {
	inf := &infrastructure{o: o, addressFaults: addressFaults, infrastructures: infrastructures}
	inf.reachable = incremental.FlatMap(e, "reachable Gateway", inf.infrastructures,
		func(v *incremental.View, proxies name, i Infrastructure) (all []incremental.Entry[name, bool]) {
			if !i.Ready || i.Waiting != "" {
				return nil
			}
			served, merged := []name{proxies}, name{}
			if _, of := config.MergedClass(proxies.Name); of {
				served, merged = incremental.Lookup(v, gateways.byMerged, proxies), proxies
			}
			for _, n := range served {
				g, managed := incremental.Fetch(v, gateways.all, n)
				if !managed || name(g.Merged) != merged { // proxies that remain from before the Gateway was merged, or the reverse, do not count
					continue
				}
				if assigned, _ := assign(g.Addresses, reported(&i)); len(assigned) > 0 {
					all = append(all, incremental.Entry[name, bool]{Key: n, Value: true})
				}
			}
			return all
		}, same[bool])
	inf.ranges = incremental.Map(e, "addresses of Gateway", inf.infrastructures,
		func(_ *incremental.View, _ name, i Infrastructure) (all []string, _ bool) {
			for _, a := range reported(&i) {
				if ip, err := netip.ParseAddr(a.Value); err == nil && ip.Zone() == "" {
					all = append(all, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()).String())
				}
			}
			slices.Sort(all)
			return all, len(all) > 0
		}, slices.Equal[[]string])
	inf.ranged = incremental.NewIndex(inf.ranges, "Gateways with addresses", func(name, []string) []struct{} { return []struct{}{{}} })
	return inf
}

// allRanges returns the addresses of all Gateways.
func (inf *infrastructure) allRanges(v *incremental.View) (all []string) {
	for _, n := range incremental.Lookup(v, inf.ranged, struct{}{}) {
		ranges, _ := incremental.Fetch(v, inf.ranges, n)
		all = append(all, ranges...)
	}
	return all
}

// reported returns the addresses of the infrastructure with the defaults of the API server and with a routability, which
// implementations that support the feature must always report.
func reported(infra *Infrastructure) []gwv1.GatewayStatusAddress {
	var all []gwv1.GatewayStatusAddress
	for _, a := range infra.Addresses[:min(len(infra.Addresses), maxAddresses)] {
		all = append(all, gwv1.GatewayStatusAddress{Type: new(ptr.Deref(a.Type, gwv1.IPAddressType)), Value: a.Value,
			Routability: new(ptr.Deref(a.Routability, gwv1.GatewayAddressRoutabilityDefault))})
	}
	return all
}

// assignment contains the addresses of a Gateway, and what is wrong with them.
type assignment struct {
	Addresses []gwv1.GatewayStatusAddress
	Unreached *condition.Problem // why clients cannot reach the Gateway, or not at all addresses
	Assigned  *metav1.Condition  // AddressesAssigned; nil while nothing is known
	Lagging   string             // see Infrastructure.Lagging
}

// localAddresses returns the addresses of a Gateway that this process serves.
func (inf *infrastructure) localAddresses(v *incremental.View, n name, g *gateway.Gateway) (as assignment) {
	if g.Refused != nil || g.Pending != nil {
		return as
	}
	shown := g.Binds
	if g.Default {
		shown = inf.o.DefaultAddresses
	}
	var found []gwv1.GatewayStatusAddress
	faults := map[string]string{}
	var faulty []string
	for _, a := range shown {
		if fault, is := incremental.Fetch(v, inf.addressFaults, addressKey{n, a}); is {
			faults[a] = fault.of(a)
			faulty = append(faulty, faults[a])
			continue
		}
		addressType := gwv1.IPAddressType
		if _, err := netip.ParseAddr(a); err != nil {
			addressType = gwv1.HostnameAddressType
		}
		found = append(found, gwv1.GatewayStatusAddress{Type: &addressType, Value: a, Routability: new(gwv1.GatewayAddressRoutabilityDefault)})
	}
	var missing []gateway.Address
	as.Addresses, missing = assign(g.Addresses, found[:min(len(found), maxAddresses)])
	why := "the gateway has no other address"
	if !g.Default {
		why = "no address can be assigned beside fixed ones"
	}
	as.Assigned = assignedCondition(g, &as, missing, faults, why+"; set its value or remove it")
	switch {
	case len(faulty) > 0:
		as.Unreached = notUsable(faulty)
	case len(as.Addresses) == 0 && len(g.Addresses) > 0:
		as.Unreached = condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, "", "", "%s", as.Assigned.Message)
	case len(as.Addresses) == 0:
		as.Unreached = condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, "", "set spec.addresses", "the Gateway has no address")
	case len(unassigned(missing)) > 0:
		as.Unreached = condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, strings.Join(unassigned(missing), ", "), "set its value or remove it", "%s", why)
	}
	return as
}

// assign selects an address for each entry of spec.addresses (GEP-5093), each address once, and returns the entries without one as
// missing. Entries that only few addresses suit select first. Without spec.addresses all addresses are assigned.
func assign(entries []gateway.Address, found []gwv1.GatewayStatusAddress) (out []gwv1.GatewayStatusAddress, missing []gateway.Address) {
	if len(entries) == 0 {
		return found, nil
	}
	entryOf := make([]int, len(found)) // index of the entry plus 1; 0 if not assigned
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	choice := func(a gateway.Address) int {
		switch {
		case a.Value != "":
			return 0
		case a.Routability == gwv1.GatewayAddressRoutabilityCluster:
			return 1
		case a.Routability != gwv1.GatewayAddressRoutabilityDefault:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(order, func(a, b int) int { return choice(entries[a]) - choice(entries[b]) })
	satisfied := make([]bool, len(entries))
	for _, e := range order {
		best := -1
		for i := range found {
			if entryOf[i] == 0 && suits(entries[e], found[i]) && (best < 0 || ofCluster(found[best]) && !ofCluster(found[i])) {
				best = i
			}
		}
		if best >= 0 {
			entryOf[best], satisfied[e] = e+1, true
		}
	}
	for i, a := range found {
		if entryOf[i] == 0 {
			continue
		}
		if r := entries[entryOf[i]-1].Routability; r != gwv1.GatewayAddressRoutabilityDefault {
			a.Routability = &r
		}
		out = append(out, a)
	}
	for e, entry := range entries {
		if !satisfied[e] {
			missing = append(missing, entry)
		}
	}
	return out, missing
}

// suits reports whether an address may be assigned to an entry.
func suits(entry gateway.Address, a gwv1.GatewayStatusAddress) bool {
	return entry.Unsatisfiable == "" && *a.Type == gwv1.IPAddressType && (entry.Value == "" || entry.Value == canonical(a.Value)) &&
		(entry.Routability != gwv1.GatewayAddressRoutabilityCluster || ofCluster(a))
}

func ofCluster(a gwv1.GatewayStatusAddress) bool {
	return ptr.Deref(a.Routability, gwv1.GatewayAddressRoutabilityDefault) == gwv1.GatewayAddressRoutabilityCluster
}

// unassigned returns the fields of the entries that ask for any address with any routability.
func unassigned(missing []gateway.Address) (fields []string) {
	for _, a := range missing {
		if a.Value == "" && a.Routability == gwv1.GatewayAddressRoutabilityDefault {
			fields = append(fields, a.Field)
		}
	}
	return fields
}

// assignedCondition returns the condition AddressesAssigned: faults contains why addresses cannot be used, waiting why there are no
// others.
func assignedCondition(g *gateway.Gateway, as *assignment, missing []gateway.Address, faults map[string]string, waiting string) *metav1.Condition {
	var reasons []string
	waits := len(g.Addresses) == 0
	for _, a := range missing {
		what := "no address"
		if a.Value != "" {
			what = "address " + a.Value
		}
		if a.Routability != gwv1.GatewayAddressRoutabilityDefault {
			what += fmt.Sprintf(" with routability %s", a.Routability)
		}
		why := what + " is assigned"
		if a.Value != "" {
			why = what + " is not assigned; use one that the cluster can assign"
		}
		switch {
		case a.Unsatisfiable != "":
			why = a.Unsatisfiable
		case a.Value != "" && faults[a.Value] != "":
			why = faults[a.Value]
		default:
			waits = true
		}
		reasons = append(reasons, a.Field+": "+why)
	}
	if waits {
		reasons = append(reasons, waiting)
	}
	var c metav1.Condition
	switch {
	case len(as.Addresses) == 0:
		c = condition.False(gwv1.GatewayConditionAddressesAssigned, gwv1.GatewayReasonAddressesNotAssigned, strings.Join(reasons, ". "))
	case len(missing) > 0:
		c = condition.False(gwv1.GatewayConditionAddressesAssigned, gwv1.GatewayReasonAddressesPartiallyAssigned, strings.Join(reasons, ". "))
	default:
		c = condition.True(gwv1.GatewayConditionAddressesAssigned, gwv1.GatewayReasonAddressesAssigned)
	}
	return &c
}

// of returns a sentence about the address that has the fault.
func (f AddressFault) of(address string) string {
	return fmt.Sprintf("address %s cannot be used: %s", address, f.Message)
}

func notUsable(faults []string) *condition.Problem {
	return condition.NewProblem(gwv1.GatewayReasonAddressNotUsable, "spec.addresses", "", "%s", strings.Join(faults, ". "))
}

// clusterAddresses returns the addresses of a Gateway in a cluster. An address that may still be assigned is reported as not
// assigned; once other addresses are assigned, it is reported as not usable.
func (inf *infrastructure) clusterAddresses(v *incremental.View, n name, g *gateway.Gateway) assignment {
	proxies := n
	if g.Merged.Name != "" {
		proxies = name(g.Merged)
	}
	infra, runs := incremental.Fetch(v, inf.infrastructures, proxies)
	if !runs {
		return assignment{Unreached: condition.NewProblem(gwv1.GatewayReasonPending, "", "see the controller's log if that lasts", "no proxy runs for the Gateway yet")}
	}
	return inf.assignedAddresses(v, n, g, &infra)
}

// assignedAddresses is clusterAddresses for a Gateway with infrastructure.
func (inf *infrastructure) assignedAddresses(v *incremental.View, n name, g *gateway.Gateway, infra *Infrastructure) assignment {
	var notUsed []string // sentences
	faults := map[string]string{}
	for _, a := range g.Binds {
		if fault, is := incremental.Fetch(v, inf.addressFaults, addressKey{n, a}); is {
			faults[a] = fault.of(a)
			notUsed = append(notUsed, faults[a])
		}
	}
	found := slices.DeleteFunc(reported(infra), func(a gwv1.GatewayStatusAddress) bool { return faults[canonical(a.Value)] != "" })
	as := assignment{Lagging: infra.Lagging}
	var missing []gateway.Address
	as.Addresses, missing = assign(g.Addresses, found)
	waiting := "no address is assigned to the Gateway yet; see the status of its Services"
	if len(found) > 0 {
		waiting = "the cluster has assigned no other address yet; see the status of the Gateway's Services"
	}
	waiting = cmp.Or(infra.Waiting, infra.Unassigned, waiting)
	as.Assigned = assignedCondition(g, &as, missing, faults, waiting)
	if len(found) == 0 && len(faults) == 0 {
		as.Unreached = condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, "", "", "%s", waiting)
		if g.Unaddressed() {
			as.Unreached = condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, "", "", "%s", as.Assigned.Message)
		}
		return as
	}
	for _, a := range missing {
		if a.Value != "" && a.Routability == gwv1.GatewayAddressRoutabilityDefault && faults[a.Value] == "" && len(found) > 0 {
			notUsed = append(notUsed, fmt.Sprintf("address %s is not assigned although others are; use one that the cluster can assign", a.Value))
		}
	}
	switch {
	case len(notUsed) > 0:
		as.Unreached = notUsable(notUsed)
	case len(unassigned(missing)) > 0:
		as.Unreached = condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, strings.Join(unassigned(missing), ", "), "", "%s", waiting)
	case len(as.Addresses) == 0:
		as.Unreached = condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, "", "", "%s", as.Assigned.Message)
	case infra.Waiting != "" || !infra.Ready:
		as.Unreached = condition.NewProblem(gwv1.GatewayReasonPending, "", "", "%s", cmp.Or(infra.Waiting, "no proxy of the Gateway is ready yet; see its Pods"))
	}
	return as
}

// canonical returns an IP address in its canonical form; other addresses are returned unchanged.
func canonical(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return gateway.Canonical(ip)
	}
	return address
}

// waits returns why no client can reach the listener even if the listener itself is valid, or nil.
func (inf *infrastructure) waits(v *incremental.View, k listenerKey, l *listener.Listener) *condition.Problem {
	if inf.o.Cluster {
		if _, reached := incremental.Fetch(v, inf.reachable, k.Gateway); !reached {
			return condition.NewProblem(gwv1.ListenerReasonPending, "", "", "the Gateway is not reached yet; see its condition Programmed")
		}
	} else if !inf.usable(v, k.Gateway, l.Addresses) {
		return condition.NewProblem(gwv1.ListenerReasonInvalid, "", "", "no address of the Gateway can be used; see its condition Programmed")
	}
	return nil
}

// usable reports whether any of the addresses can be bound; an empty list stands for the default addresses.
func (inf *infrastructure) usable(v *incremental.View, gateway name, addresses []string) bool {
	for _, a := range addresses {
		if _, faulty := incremental.Fetch(v, inf.addressFaults, addressKey{gateway, a}); !faulty {
			return true
		}
	}
	return len(addresses) == 0
}
