package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// listenerTerms is what a Gateway says of all its listeners, those of ListenerSets among them.
type listenerTerms struct {
	Created                    int64 // in nanoseconds since the epoch
	Addresses                  []string
	Refused, Pending, Unserved bool
	ListenerSets               listener.Namespaces // those that may attach
}

func (t *Translator) declareListenerTerms() {
	t.listenerTerms = incremental.Map(t.engine, "Gateway's terms for listeners", t.in.gateways.Collection,
		func(v *incremental.View, n name, gw *gwv1.Gateway) (listenerTerms, bool) {
			g, managed := incremental.Fetch(v, t.gateways, n)
			if !managed {
				return listenerTerms{}, false
			}
			terms := listenerTerms{Created: g.Created, Refused: g.Refused != nil, Pending: g.Pending != nil, Unserved: g.Unserved}
			if !t.options.Cluster {
				terms.Addresses = g.Binds
			}
			terms.ListenerSets.From = gwv1.NamespacesFromNone
			if allowed := gw.Spec.AllowedListeners; allowed != nil && allowed.Namespaces != nil {
				terms.ListenerSets = listener.Namespaces{From: value(allowed.Namespaces.From, gwv1.NamespacesFromNone), Selector: allowed.Namespaces.Selector}
			}
			return terms, true
		}, sameDeeply[listenerTerms])
}

func (t *Translator) declareListeners() {
	t.ownListeners = incremental.FlatMap(t.engine, "listener", t.in.gateways.Collection,
		func(v *incremental.View, n name, gw *gwv1.Gateway) []incremental.Entry[listenerKey, *listener.Listener] {
			o, managed := t.listenerOptions(v, n)
			if !managed {
				return nil
			}
			list := listener.New(gw, o)
			entries := make([]incremental.Entry[listenerKey, *listener.Listener], len(list))
			for i, l := range list {
				entries[i] = incremental.Entry[listenerKey, *listener.Listener]{Key: listenerKey{Gateway: n, Name: l.Name}, Value: l}
			}
			return entries
		}, sameDeeply[*listener.Listener])
	t.declareListenersOfSets()
	t.listeners = incremental.Union(t.engine, "all listeners", t.ownListeners, t.setListeners)
	t.declarePortConflicts()
}

// listenerOptions returns what reading listeners needs to know of a Gateway, if it is managed.
func (t *Translator) listenerOptions(v *incremental.View, gateway name) (listener.Options, bool) {
	terms, managed := incremental.Fetch(v, t.listenerTerms, gateway)
	return listener.Options{
		Created: terms.Created, Addresses: terms.Addresses, Refused: terms.Refused, Pending: terms.Pending, Unserved: terms.Unserved,
		Reserved: t.options.ReservedPorts, Routes: routeKindsOf, Lacks: t.lacks(v),
	}, managed
}

// listenerState is all that is known of a listener.
type listenerState struct {
	Accepted, Resolved, Programmed bool
	Kinds                          []gwv1.RouteGroupKind
	Conditions                     []metav1.Condition
	Serve                          *config.Listener // nil: not to be served
}

func (t *Translator) declareListenerStates() {
	t.states = incremental.Map(t.engine, "listener state", t.listeners,
		func(v *incremental.View, k listenerKey, l *listener.Listener) (*listenerState, bool) {
			return t.listenerState(v, k, l), true
		}, func(a, b *listenerState) bool {
			return sameMessage(a.Serve, b.Serve) && sameDeeply(a.facts(), b.facts())
		})
	t.serving = incremental.Map(t.engine, "listener config", t.states,
		func(_ *incremental.View, _ listenerKey, s *listenerState) (*config.Listener, bool) {
			return s.Serve, s.Serve != nil
		}, sameMessage[*config.Listener])
	t.served = incremental.Map(t.engine, "listener is served", t.serving,
		func(*incremental.View, listenerKey, *config.Listener) (bool, bool) { return true, true }, same[bool])
	t.declareAcceptedListenerSets()
	t.declareCertificates()
}

// facts is the state without the message, which has its own equality.
func (s *listenerState) facts() listenerState {
	f := *s
	f.Serve = nil
	return f
}

func (t *Translator) listenerState(v *incremental.View, k listenerKey, l *listener.Listener) *listenerState {
	s := &listenerState{Kinds: l.Kinds}
	refs := l.BadKinds
	var certificates []string
	if l.Protocol == gwv1.HTTPSProtocolType {
		var p *condition.Problem
		if certificates, p = t.resolveCertificates(v, k, l); p != nil {
			refs = p
			certificates = t.keepCertificates(v, k, l, certificates)
		}
	}
	conflict := l.Conflict
	if conflict == nil && claims(l) {
		conflict = t.portConflict(v, k, l)
	}
	reserved := claims(l) && conflict == nil && (len(l.Kinds) > 0 || l.NoRoutes)
	if reserved {
		// Without a certificate too: the proxy fails its handshakes, where no other listener of
		// the port may answer for its hostname with a certificate of its own.
		s.Serve = listenerConfig(l, k, certificates)
	}
	servable := reserved && (l.Protocol != gwv1.HTTPSProtocolType || len(certificates) > 0)
	refused := l.Invalid
	if refused == nil {
		refused = conflict
	}
	fault, faulty := incremental.Fetch(v, t.in.listenerFaults.Collection, k)
	switch {
	case !faulty || !servable || fault.Others:
	case fault.Refused:
		refused = condition.NewProblem(gwv1.ListenerReasonInvalid, l.Field, "see the proxy's log", "%s", fault.Message)
	default:
		refused = condition.NewProblem(gwv1.ListenerReasonPortUnavailable, l.Field+".port", "free the port or use another", "%s", fault.Message)
	}
	program := l.Programmed(refused, servable, t.waits(v, k, l))
	if fault.Others && program.Status == metav1.ConditionTrue {
		program.Message = condition.NewProblem("", "", "", "%s", fault.Message).String()
	}
	s.Accepted, s.Resolved, s.Programmed = refused == nil, refs == nil, program.Status == metav1.ConditionTrue
	s.Conditions = l.Conditions(refused, refs, conflict, t.overlap(v, k, l), program)
	return s
}

// waits says why no client can reach the listener, whatever is right with it, or nil.
func (t *Translator) waits(v *incremental.View, k listenerKey, l *listener.Listener) *condition.Problem {
	if t.options.Cluster {
		if _, reached := incremental.Fetch(v, t.reachable, k.Gateway); !reached {
			return condition.NewProblem(gwv1.ListenerReasonPending, "", "", "the Gateway is not reached yet; see its condition Programmed")
		}
	} else if !t.usable(v, k.Gateway, l.Addresses) {
		return condition.NewProblem(gwv1.ListenerReasonInvalid, "", "", "no address of the Gateway can be used; see its condition Programmed")
	}
	return nil
}

// usable says whether any of the addresses can be bound; none are the default ones.
func (t *Translator) usable(v *incremental.View, gateway name, addresses []string) bool {
	for _, a := range addresses {
		if _, faulty := incremental.Fetch(v, t.in.addressFaults.Collection, addressKey{gateway, a}); !faulty {
			return true
		}
	}
	return len(addresses) == 0
}

// claims says whether the listener is to be served as far as its own Gateway tells.
func claims(l *listener.Listener) bool { return l.Valid() && !l.Unserved }

// protocols are the protocols of listeners that are served.
var protocols = map[gwv1.ProtocolType]config.Protocol{
	gwv1.HTTPProtocolType:  config.Protocol_PROTOCOL_HTTP,
	gwv1.HTTPSProtocolType: config.Protocol_PROTOCOL_HTTPS,
	gwv1.TCPProtocolType:   config.Protocol_PROTOCOL_TCP,
}

func listenerConfig(l *listener.Listener, k listenerKey, certificates []string) *config.Listener {
	return &config.Listener{
		Key: k.String(), Gateway: k.Gateway.String(), ListenerSet: k.Set, Name: k.Name,
		Addresses: l.Addresses, Port: uint32(l.Port), Protocol: protocols[l.Protocol], Hostname: l.Hostname,
		Certificates: certificates,
	}
}
