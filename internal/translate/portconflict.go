package translate

import (
	"slices"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// age orders Gateways: the oldest first, then by name.
type age struct {
	Created int64
	Gateway name
}

func (a age) before(b age) bool {
	return a.Created < b.Created || a.Created == b.Created && a.Gateway.Compare(b.Gateway) < 0
}

// claim is what a listener takes of a port that several Gateways may share.
type claim struct {
	Age      age
	Listener listener.Listener
}

func (t *Translator) declareClaims() {
	t.claims = incremental.Map(t.engine, "listener claim", t.listeners,
		func(_ *incremental.View, k listenerKey, l *listener.Listener) (claim, bool) {
			return claim{Age: age{l.Created, k.Gateway}, Listener: listener.Listener{
				Port: l.Port, Protocol: l.Protocol, Hostname: l.Hostname, Addresses: l.Addresses,
			}}, claims(l)
		}, sameDeeply[claim])
	t.claimsByPort = incremental.NewIndex(t.claims, "claims by port",
		func(_ listenerKey, c claim) []int32 { return []int32{c.Listener.Port} })
}

// taken says which older Gateway's listener has the port and hostname already.
// Between Gateways the oldest wins, so that a new one cannot break what is served.
func (t *Translator) portConflict(v *incremental.View, k listenerKey, l *listener.Listener) *condition.Problem {
	if t.options.Cluster {
		return nil // each has proxies, and so ports, of its own
	}
	keys := incremental.Lookup(v, t.claimsByPort, l.Port)
	if len(keys) < 2 {
		return nil
	}
	type contender struct {
		key listenerKey
		claim
	}
	var all []contender
	for _, key := range keys {
		c, _ := incremental.Fetch(v, t.claims, key)
		all = append(all, contender{key, c})
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
	var winners []contender
	for _, c := range all {
		i := slices.IndexFunc(winners, func(w contender) bool {
			return w.key.Gateway != c.key.Gateway && shareAddress(w.Listener.Addresses, c.Listener.Addresses) &&
				listener.Conflict(&w.Listener, &c.Listener) != ""
		})
		if c.key == k {
			if i < 0 {
				return nil
			}
			w := winners[i]
			return listener.ConflictProblem(listener.Conflict(&w.Listener, l), l, "a listener of an older Gateway")
		}
		if i < 0 {
			winners = append(winners, c)
		}
	}
	return nil
}

// shareAddress compares addresses to bind, of which none means the default ones.
func shareAddress(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
}
