package translate

import (
	"cmp"
	"fmt"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// claim is the use of a port by a listener, if several Gateways may share the port.
type claim struct {
	// Shared names the proxies to which the port belongs; the zero value is this process.
	Shared   name
	Listener *listener.Listener
}

// same compares what is claimed.
func (c claim) same(o claim) bool {
	a, b := c.Listener, o.Listener
	return c.Shared == o.Shared && a.Created == b.Created && a.Port == b.Port && a.Protocol == b.Protocol && a.Hostname == b.Hostname && slices.Equal(a.Addresses, b.Addresses)
}

// sharedPort is a port on which several Gateways may have listeners.
type sharedPort struct {
	Shared name // claim.Shared
	Port   int32
}

func (p sharedPort) Compare(o sharedPort) int {
	return cmp.Or(p.Shared.Compare(o.Shared), cmp.Compare(p.Port, o.Port))
}

// declarePortConflicts finds the listeners whose port and hostname an older listener of another Gateway already uses. Among Gateways
// the oldest wins, so that neither a new Gateway nor a new ListenerSet of an old one can break what is served. The same applies if
// one Gateway binds all addresses and another some of them, because both cannot be bound. In a cluster each Gateway has its own
// proxies and so its own ports, unless it is merged with others of its class.
func (lis *listeners) declarePortConflicts(e *incremental.Engine) {
	lis.claims = incremental.Map(e, "listener claim", lis.all,
		func(v *incremental.View, k listenerKey, l *listener.Listener) (claim, bool) {
			c := claim{Listener: l}
			if lis.o.Cluster || lis.o.OwnPorts {
				g, _ := incremental.Fetch(v, lis.gateways.managed, k.Gateway)
				if c.Shared = g.Merged; c.Shared == (name{}) {
					return claim{}, false
				}
			}
			return c, claims(l)
		}, claim.same)
	lis.claimsByPort = incremental.NewIndex(lis.claims, "claims by port",
		func(_ listenerKey, c claim) []sharedPort { return []sharedPort{{c.Shared, c.Listener.Port}} })
	lis.portConflicts = incremental.FlatMap(e, "port conflicts", incremental.Keys(lis.claimsByPort, "claimed ports"),
		func(v *incremental.View, port sharedPort, _ struct{}) []incremental.Entry[listenerKey, lostPort] {
			return lis.conflictsOf(v, port)
		}, same[lostPort])
	lis.declareExcessPorts(e)
}

// maxMergedPorts limits the ports of merged Gateways together. Each is a port of their one Service, for which a cluster may need a
// NodePort, of which there are 2768 by default: if one cannot be allocated, the API server rejects all changes of the Service.
const maxMergedPorts = 256

// portAge is the age of the first Gateway that claimed a port.
type portAge struct {
	Created int64
	Gateway name
}

func (a portAge) compare(b portAge) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), a.Gateway.precedence(b.Gateway))
}

// declareExcessPorts finds the ports of merged Gateways that exceed the limit: ports of older Gateways come first.
func (lis *listeners) declareExcessPorts(e *incremental.Engine) {
	ages := incremental.Map(e, "ages of ports", incremental.Keys(lis.claimsByPort, "ports of merged Gateways by age"),
		func(v *incremental.View, port sharedPort, _ struct{}) (first portAge, _ bool) {
			if port.Shared == (name{}) {
				return first, false
			}
			for i, key := range incremental.Lookup(v, lis.claimsByPort, port) {
				c, _ := incremental.Fetch(v, lis.claims, key)
				if age := (portAge{c.Listener.Created, key.Gateway}); i == 0 || age.compare(first) < 0 {
					first = age
				}
			}
			return first, true
		}, same[portAge])
	byShared := incremental.NewIndex(ages, "ages of ports by merged Gateways", func(p sharedPort, _ portAge) []name { return []name{p.Shared} })
	lis.excessPorts = incremental.FlatMap(e, "excess ports", incremental.Keys(byShared, "merged Gateways with ports"),
		func(v *incremental.View, shared name, _ struct{}) (excess []incremental.Entry[sharedPort, struct{}]) {
			ports := slices.Clone(incremental.Lookup(v, byShared, shared))
			if len(ports) <= maxMergedPorts {
				return nil
			}
			of := make(map[sharedPort]portAge, len(ports))
			for _, p := range ports {
				of[p], _ = incremental.Fetch(v, ages, p)
			}
			slices.SortStableFunc(ports, func(a, b sharedPort) int {
				return of[a].compare(of[b])
			})
			for _, p := range ports[maxMergedPorts:] {
				excess = append(excess, incremental.Entry[sharedPort, struct{}]{Key: p})
			}
			return excess
		}, same[struct{}])
}

// portExcess returns why the port of a listener exceeds the limit of merged Gateways, or nil.
func (lis *listeners) portExcess(v *incremental.View, shared name, l *listener.Listener) *condition.Problem {
	if _, excess := incremental.Fetch(v, lis.excessPorts, sharedPort{shared, l.Port}); !excess {
		return nil
	}
	return condition.NewProblem(gwv1.ListenerReasonPortUnavailable, l.Field+".port", "use a port that another Gateway of the class has already, or another GatewayClass",
		"the Gateways of the class share proxies, and older ones have %d ports, which is as many as they may have together", maxMergedPorts)
}

// conflictsOf returns the conflicts between Gateways on a port, by the listener that loses: the oldest Gateway or ListenerSet comes
// first, then the first Gateway by name.
func (lis *listeners) conflictsOf(v *incremental.View, port sharedPort) (lost []incremental.Entry[listenerKey, lostPort]) {
	keys := incremental.Lookup(v, lis.claimsByPort, port) // sorted, so by Gateway
	if keys[0].Gateway == keys[len(keys)-1].Gateway {
		return nil // a Gateway checks its own listeners itself
	}
	type contender struct {
		key listenerKey
		claim
	}
	all := make([]contender, len(keys))
	for i, key := range keys {
		c, _ := incremental.Fetch(v, lis.claims, key)
		all[i] = contender{key, c}
	}
	slices.SortStableFunc(all, func(a, b contender) int { // stable, so that listeners of one Gateway stay in the order of their keys
		return cmp.Or(cmp.Compare(a.Listener.Created, b.Listener.Created), a.key.Gateway.precedence(b.key.Gateway))
	})
	ports := listener.Ports{Default: lis.o.Bind}
	owners := make(map[*listener.Listener]listenerKey, len(all))
	for _, c := range all {
		reason, winner := ports.Claim(c.Listener)
		if reason == "" {
			owners[c.Listener] = c.key
			continue
		}
		lost = append(lost, incremental.Entry[listenerKey, lostPort]{Key: c.key, Value: lostPort{reason, owners[winner], winner.Created < c.Listener.Created}})
	}
	return lost
}

// lostPort is why a listener does not get its port, and the Gateway that has it.
type lostPort struct {
	Reason gwv1.ListenerConditionReason
	Winner listenerKey
	Older  bool // else it is as old, and comes first by name
}

// portConflict returns why another Gateway, or a ListenerSet of one, keeps the listener from its port, or nil. In a cluster it does
// not name Gateways of other namespaces, which the owner of this one must not learn about.
func (lis *listeners) portConflict(v *incremental.View, k listenerKey, l *listener.Listener) *condition.Problem {
	lost, is := incremental.Fetch(v, lis.portConflicts, k)
	if !is {
		return nil
	}
	why := "which is as old and comes first by name"
	if lost.Older {
		why = "which is older"
	}
	owner := lost.Winner.Owner()
	if (lis.o.Cluster || lis.o.OwnPorts) && owner.Name.Namespace != k.Owner().Name.Namespace {
		return listener.ConflictProblem(lost.Reason, l, fmt.Sprintf("a listener of a %s of another namespace, %s", owner.Kind, why))
	}
	return listener.ConflictProblem(lost.Reason, l, fmt.Sprintf("listener %q of %s, %s", lost.Winner.Name, owner, why))
}
