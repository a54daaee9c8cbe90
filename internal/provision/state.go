package provision

import (
	"iter"
	"reflect"
	"time"

	"github.com/moongate-dev/moongate/internal/translate"
)

// gatewayState is what the leader remembers about one Gateway. The end of its leadership drops all of it.
type gatewayState struct {
	// These are dropped with the spec. A new spec in its place keeps them.

	spec        *translate.ProxySpec // nil if there is none
	problem     problem
	refused     string // the last argument of Options.Problem
	history     map[objectName]*history
	replacement replacement // of a former workload
	room        room        // made for a workload of which no proxy was available yet

	// These are set by abandon while something runs for a Gateway without a spec, and dropped by it once nothing does. A new spec
	// drops the times too, and so does abandon if the Gateway cannot be read.

	absent       time.Time // since when there is no spec
	mergeAwaited time.Time // when awaitsMerge was last true
	unreadLogged bool      // the Gateway was logged as unreadable; dropped once it can be read

	failure string // why the last attempt failed, as logged; dropped by a success only
}

// setSpec sets another spec.
func (s *gatewayState) setSpec(spec *translate.ProxySpec) {
	s.spec = spec
	s.absent, s.mergeAwaited = time.Time{}, time.Time{}
}

// dropSpec drops the spec, and everything else that is not listed here.
func (s *gatewayState) dropSpec() {
	*s = gatewayState{absent: s.absent, mergeAwaited: s.mergeAwaited, unreadLogged: s.unreadLogged, failure: s.failure}
}

// state returns the state of a Gateway to change it. If a field was dropped, call tidy afterwards. The caller must hold p.mu, and must
// not use the result any more after unlocking it.
func (p *Provisioner) state(g gatewayName) *gatewayState {
	s := p.gateways[g]
	if s == nil {
		s = &gatewayState{}
		p.gateways[g] = s
	}
	return s
}

// peek returns a copy of the state of a Gateway, zero if there is none. The caller must hold p.mu.
func (p *Provisioner) peek(g gatewayName) gatewayState {
	if s := p.gateways[g]; s != nil {
		return *s
	}
	return gatewayState{}
}

// tidy deletes the state of a Gateway if nothing is in it. The caller must hold p.mu. It uses reflection because a
// struct with a map cannot be compared with ==, and a list of its fields could lack a new one.
func (p *Provisioner) tidy(g gatewayName) {
	if s := p.gateways[g]; s != nil && reflect.ValueOf(s).Elem().IsZero() {
		delete(p.gateways, g)
	}
}

// specs iterates over the Gateways that have a spec. The caller must hold p.mu.
func (p *Provisioner) specs() iter.Seq2[gatewayName, *translate.ProxySpec] {
	return func(yield func(gatewayName, *translate.ProxySpec) bool) {
		for g, s := range p.gateways {
			if s.spec != nil && !yield(g, s.spec) {
				return
			}
		}
	}
}
