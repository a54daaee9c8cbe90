package translate

import (
	"cmp"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// age orders the listeners of Gateways and of their ListenerSets: the oldest first, then by name of the Gateway.
type age struct {
	Created int64 // listener.Listener.Created
	Gateway name
}

func (a age) before(b age) bool {
	return a.Created < b.Created || a.Created == b.Created && a.Gateway.Compare(b.Gateway) < 0
}

// claim is what a listener takes of a port that several Gateways may share.
type claim struct {
	Age      age
	Listener *listener.Listener
}

// same compares what is claimed.
func (c claim) same(o claim) bool {
	a, b := c.Listener, o.Listener
	return c.Age == o.Age && a.Port == b.Port && a.Protocol == b.Protocol && a.Hostname == b.Hostname && slices.Equal(a.Addresses, b.Addresses)
}

// portNumber is the key of what is known of a port.
type portNumber int32

func (p portNumber) Compare(o portNumber) int { return cmp.Compare(p, o) }

// declarePortConflicts finds the listeners whose port and hostname an older listener of another Gateway has already. Between Gateways the oldest
// wins, so that a new one cannot break what is served, nor can a new ListenerSet of an old one. In a cluster each Gateway has proxies, and so ports, of its own.
func (lis *listeners) declarePortConflicts(e *incremental.Engine) {
	if lis.o.Cluster || lis.o.OwnPorts {
		return
	}
	lis.claims = incremental.Map(e, "listener claim", lis.all,
		func(_ *incremental.View, k listenerKey, l *listener.Listener) (claim, bool) {
			return claim{age{l.Created, k.Gateway}, l}, claims(l)
		}, claim.same)
	lis.claimsByPort = incremental.NewIndex(lis.claims, "claims by port",
		func(_ listenerKey, c claim) []portNumber { return []portNumber{portNumber(c.Listener.Port)} })
	lis.portConflicts = incremental.FlatMap(e, "port conflicts", incremental.Keys(lis.claimsByPort, "claimed ports"),
		func(v *incremental.View, port portNumber, _ struct{}) []incremental.Entry[listenerKey, gwv1.ListenerConditionReason] {
			return lis.conflictsOf(v, port)
		}, same[gwv1.ListenerConditionReason])
}

// conflictsOf are the conflicts between Gateways on a port, by the listener that loses.
func (lis *listeners) conflictsOf(v *incremental.View, port portNumber) (lost []incremental.Entry[listenerKey, gwv1.ListenerConditionReason]) {
	keys := incremental.Lookup(v, lis.claimsByPort, port) // sorted, so by Gateway
	if keys[0].Gateway == keys[len(keys)-1].Gateway {
		return nil // it has judged its own listeners
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
	slices.SortStableFunc(all, func(a, b contender) int {
		switch {
		case a.Age.before(b.Age):
			return -1
		case b.Age.before(a.Age):
			return 1
		}
		return 0
	})
	var ports listener.Ports
	for _, c := range all {
		if reason := ports.Claim(c.Listener); reason != "" {
			lost = append(lost, incremental.Entry[listenerKey, gwv1.ListenerConditionReason]{Key: c.key, Value: reason})
		}
	}
	return lost
}

// portConflict returns why an older Gateway, or an older ListenerSet of one, keeps the listener from its port, or nil.
func (lis *listeners) portConflict(v *incremental.View, k listenerKey, l *listener.Listener) *condition.Problem {
	if lis.o.Cluster || lis.o.OwnPorts {
		return nil
	}
	reason, lost := incremental.Fetch(v, lis.portConflicts, k)
	if !lost {
		return nil
	}
	return listener.ConflictProblem(reason, l, "a listener of an older Gateway or ListenerSet")
}
