package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/gateway"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// maxAddresses is the length that the API server allows for status.addresses.
const maxAddresses = 16

// infrastructure is where Gateways are reached, and whether they are.
type infrastructure struct {
	o               *Options
	addressFaults   *incremental.Collection[addressKey, AddressFault]
	infrastructures *incremental.Collection[name, Infrastructure]

	reachable *incremental.Collection[name, bool] // Gateways in a cluster that wait for nothing
}

// newInfrastructure declares reachable: whether the listeners of each Gateway of a cluster can be reached,
// apart from what that depends on.
func newInfrastructure(e *incremental.Engine, o *Options,
	addressFaults *incremental.Collection[addressKey, AddressFault],
	infrastructures *incremental.Collection[name, Infrastructure]) *infrastructure {
	inf := &infrastructure{o: o, addressFaults: addressFaults, infrastructures: infrastructures}
	inf.reachable = incremental.Map(e, "reachable Gateway", inf.infrastructures,
		func(_ *incremental.View, _ name, i Infrastructure) (bool, bool) {
			return true, i.Ready && i.Waiting == "" && len(i.Addresses) > 0
		}, same[bool])
	return inf
}

// localAddresses is where a Gateway of this process is reached, and why not everywhere it should be.
func (inf *infrastructure) localAddresses(v *incremental.View, n name, g *gateway.Gateway) (out []gwv1.GatewayStatusAddress, _ *condition.Problem) {
	if g.Refused != nil || g.Pending != nil {
		return nil, nil
	}
	shown := g.Binds
	if g.Default {
		shown = inf.o.DefaultAddresses
	}
	var faults []string
	for _, a := range shown {
		if fault, faulty := incremental.Fetch(v, inf.addressFaults, addressKey{n, a}); faulty {
			faults = append(faults, fault.of(a))
			continue
		}
		kind := gwv1.IPAddressType
		if _, err := netip.ParseAddr(a); err != nil {
			kind = gwv1.HostnameAddressType
		}
		out = append(out, gwv1.GatewayStatusAddress{Type: &kind, Value: a})
	}
	out = out[:min(len(out), maxAddresses)]
	switch {
	case len(faults) > 0:
		return out, notUsable(faults)
	case len(g.Unassigned) > 0 && !g.Default:
		return out, condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, strings.Join(g.Unassigned, ", "), "set its value or remove it",
			"no address can be assigned beside fixed ones")
	case len(out) == 0:
		return out, condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, "", "set spec.addresses", "the Gateway has no address")
	}
	return out, nil
}

// of is a sentence about the address that has the fault.
func (f AddressFault) of(address string) string {
	return fmt.Sprintf("address %s cannot be used: %s", address, f.Message)
}

func notUsable(faults []string) *condition.Problem {
	return condition.NewProblem(gwv1.GatewayReasonAddressNotUsable, "spec.addresses", "", "%s", strings.Join(faults, ". "))
}

// clusterAddresses is where the cluster says that a Gateway is reached, and why not everywhere it should
// be, or not yet. An address that somebody else could still assign is not assigned; once others are,
// it is not usable. lagging says which proxies do not serve what is current while others do.
func (inf *infrastructure) clusterAddresses(v *incremental.View, n name, g *gateway.Gateway) (out []gwv1.GatewayStatusAddress, _ *condition.Problem, lagging string) {
	infra, runs := incremental.Fetch(v, inf.infrastructures, n)
	if !runs {
		return nil, condition.NewProblem(gwv1.GatewayReasonPending, "", "see the controller's log if that lasts", "no proxy runs for the Gateway yet"), ""
	}
	out, problem := inf.assignedAddresses(v, n, g, &infra)
	return out, problem, infra.Lagging
}

// assignedAddresses is clusterAddresses for a Gateway of which something runs.
func (inf *infrastructure) assignedAddresses(v *incremental.View, n name, g *gateway.Gateway, infra *Infrastructure) (out []gwv1.GatewayStatusAddress, _ *condition.Problem) {
	var faults, faulty, assigned []string
	for _, a := range g.Binds {
		if fault, is := incremental.Fetch(v, inf.addressFaults, addressKey{n, a}); is {
			faulty, faults = append(faulty, a), append(faults, fault.of(a))
		}
	}
	chosen := 0 // IP addresses of the cluster's own choice
	for _, a := range infra.Addresses[:min(len(infra.Addresses), maxAddresses)] {
		address := canonical(a.Value)
		if slices.Contains(faulty, address) {
			continue
		}
		kind := value(a.Type, gwv1.IPAddressType) // told as the API server would default it
		out, assigned = append(out, gwv1.GatewayStatusAddress{Type: &kind, Value: a.Value}), append(assigned, address)
		if kind == gwv1.IPAddressType && !slices.Contains(g.Binds, address) {
			chosen++
		}
	}
	waiting := cmp.Or(infra.Waiting, "no address is assigned to the Gateway yet; see the status of its Services")
	if len(assigned) == 0 && len(faults) == 0 {
		return out, condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, "", "", "%s", waiting)
	}
	for _, a := range g.Binds {
		if len(assigned) > 0 && !slices.Contains(faulty, a) && !slices.Contains(assigned, a) {
			faults = append(faults, fmt.Sprintf("address %s is not assigned although others are; use one that the cluster can assign", a))
		}
	}
	switch {
	case len(faults) > 0:
		return out, notUsable(faults)
	case chosen < len(g.Unassigned):
		return out, condition.NewProblem(gwv1.GatewayReasonAddressNotAssigned, strings.Join(g.Unassigned[chosen:], ", "), "", "%s", waiting)
	case infra.Waiting != "" || !infra.Ready:
		return out, condition.NewProblem(gwv1.GatewayReasonPending, "", "", "%s", cmp.Or(infra.Waiting, "no proxy of the Gateway is ready yet; see its Pods"))
	}
	return out, nil
}

// canonical writes an IP address as it is compared; other addresses stay as they are.
func canonical(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.String()
	}
	return address
}

// waits says why no client can reach the listener, whatever is right with it, or nil.
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

// usable says whether any of the addresses can be bound; none are the default ones.
func (inf *infrastructure) usable(v *incremental.View, gateway name, addresses []string) bool {
	for _, a := range addresses {
		if _, faulty := incremental.Fetch(v, inf.addressFaults, addressKey{gateway, a}); !faulty {
			return true
		}
	}
	return len(addresses) == 0
}
