package translate

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// listener is a listener as far as its Gateway alone tells.
type listener struct {
	Field      string // spec.listeners[i]
	Age        age    // of the Gateway
	Port       int32
	Protocol   gwv1.ProtocolType
	Hostname   string // lower case
	Addresses  []string
	Kinds      []gwv1.RouteGroupKind // supportedKinds
	Namespaces namespaces
	Notes      []string
	// Invalid is why it is not accepted, whatever else there is.
	Invalid *condition.Problem
	// Conflict is why it is not accepted beside others of the same Gateway.
	Conflict *condition.Problem
	// Overlap names HTTPS listeners on the port whose hostnames share hosts.
	Overlap *condition.Problem
	// BadKinds is what is wrong in allowedRoutes.kinds.
	BadKinds *condition.Problem
	// Refused says that the Gateway as a whole is not served.
	Refused bool
	// Pending says that the Gateway waits for its class.
	Pending bool

	Certificates []certificateRef // HTTPS only
}

// age orders Gateways: the oldest first, then by name.
type age struct {
	Created int64
	Gateway name
}

func (a age) before(b age) bool {
	return a.Created < b.Created || a.Created == b.Created && a.Gateway.Compare(b.Gateway) < 0
}

// namespaces is allowedRoutes.namespaces.
type namespaces struct {
	From     gwv1.FromNamespaces
	Selector *metav1.LabelSelector
}

func (t *Translator) declareListeners() {
	t.listeners = incremental.FlatMap(t.engine, "listener", t.in.gateways.Collection,
		func(v *incremental.View, n name, gw *gwv1.Gateway) []incremental.Entry[listenerKey, *listener] {
			g, ours := incremental.Fetch(v, t.gateways, n)
			if !ours {
				return nil
			}
			list := newListeners(n, gw, g)
			entries := make([]incremental.Entry[listenerKey, *listener], len(list))
			for i, l := range list {
				entries[i] = incremental.Entry[listenerKey, *listener]{Key: listenerKey{n, string(gw.Spec.Listeners[i].Name)}, Value: l}
			}
			return entries
		}, sameDeeply[*listener])
	t.declareClaims()
}

func newListeners(n name, gw *gwv1.Gateway, g *gateway) []*listener {
	list := make([]*listener, len(gw.Spec.Listeners))
	for i := range gw.Spec.Listeners {
		l := &listener{
			Field: fmt.Sprintf("spec.listeners[%d]", i), Age: age{createdOf(gw), n}, Addresses: g.Binds,
			Refused: g.Refused != nil, Pending: g.Pending != nil,
		}
		l.read(n, gw, &gw.Spec.Listeners[i])
		list[i] = l
		for j := range i {
			if gw.Spec.Listeners[j].Name == gw.Spec.Listeners[i].Name {
				list[j].Invalid = condition.NewProblem(gwv1.ListenerReasonUnsupportedValue, l.Field+".name", "give each listener its own name",
					"two listeners are named %q", gw.Spec.Listeners[i].Name)
			}
		}
	}
	findConflicts(list, gw)
	return list
}

func (l *listener) read(gateway name, gw *gwv1.Gateway, spec *gwv1.Listener) {
	l.Port, l.Protocol = spec.Port, spec.Protocol
	l.Hostname = strings.ToLower(string(value(spec.Hostname, "")))
	l.Kinds = []gwv1.RouteGroupKind{}
	l.checkProtocol(spec)
	if l.Invalid == nil || l.Invalid.Reason != string(gwv1.ListenerReasonUnsupportedProtocol) {
		l.readKinds(spec.AllowedRoutes)
	}
	l.readNamespaces(spec.AllowedRoutes)
	if l.Protocol == gwv1.HTTPSProtocolType {
		l.readTLS(gateway, gw, spec)
	}
}

func (l *listener) invalid(reason gwv1.ListenerConditionReason, field, remedy, format string, args ...any) {
	if l.Invalid == nil {
		l.Invalid = condition.NewProblem(reason, l.Field+field, remedy, format, args...)
	}
}

func (l *listener) checkProtocol(spec *gwv1.Listener) {
	switch l.Protocol {
	case gwv1.HTTPProtocolType, gwv1.HTTPSProtocolType:
	case gwv1.TLSProtocolType, gwv1.TCPProtocolType, gwv1.UDPProtocolType:
		l.invalid(gwv1.ListenerReasonUnsupportedProtocol, ".protocol", "use HTTP or HTTPS", "protocol %s is not supported yet", l.Protocol)
	default:
		l.invalid(gwv1.ListenerReasonUnsupportedProtocol, ".protocol", "use HTTP or HTTPS", "protocol %q is not known", l.Protocol)
	}
	if l.Port < 1 || l.Port > 65535 {
		l.invalid(gwv1.ListenerReasonPortUnavailable, ".port", "use a port from 1 to 65535", "%d is not a port", l.Port)
	}
	if spec.Filters != nil && len(spec.Filters.Requests) > 0 {
		l.invalid(gwv1.ListenerReasonUnsupportedValue, ".filters.requests[0]", "move the filter to the routes' rules",
			"filters of listeners are not supported yet, and a filter must not be skipped")
	}
	if spec.TLS != nil && l.Protocol == gwv1.HTTPProtocolType {
		l.invalid(gwv1.ListenerReasonUnsupportedValue, ".tls", "use protocol HTTPS, or remove tls", "a listener of protocol HTTP has no TLS")
	}
}

// routeKinds are the kinds that a protocol allows, by protocol; the ones without
// support here are refused with a word of explanation.
var routeKinds = map[gwv1.ProtocolType][]Kind{
	gwv1.HTTPProtocolType:  {KindHTTPRoute, KindGRPCRoute},
	gwv1.HTTPSProtocolType: {KindHTTPRoute, KindGRPCRoute},
}

func (l *listener) readKinds(allowed *gwv1.AllowedRoutes) {
	group := gwv1.Group(gwv1.GroupName)
	httpRoute := gwv1.RouteGroupKind{Group: &group, Kind: gwv1.Kind(KindHTTPRoute)}
	if allowed == nil || len(allowed.Kinds) == 0 {
		l.Kinds = append(l.Kinds, httpRoute)
		return
	}
	for i, k := range allowed.Kinds {
		native := value(k.Group, gwv1.GroupName) == gwv1.GroupName
		if native && k.Kind == httpRoute.Kind {
			if len(l.Kinds) == 0 {
				l.Kinds = append(l.Kinds, httpRoute)
			}
			continue
		}
		if l.BadKinds != nil {
			continue
		}
		what := "is not allowed on a listener of protocol " + string(l.Protocol)
		if native && slices.Contains(routeKinds[l.Protocol], Kind(k.Kind)) {
			what = "is not supported yet"
		}
		l.BadKinds = condition.NewProblem(gwv1.ListenerReasonInvalidRouteKinds, fmt.Sprintf("%s.allowedRoutes.kinds[%d].kind", l.Field, i),
			"allow HTTPRoute of group "+gwv1.GroupName, "kind %s of group %q %s", k.Kind, value(k.Group, gwv1.GroupName), what)
	}
}

func (l *listener) readNamespaces(allowed *gwv1.AllowedRoutes) {
	l.Namespaces.From = gwv1.NamespacesFromSame
	if allowed == nil || allowed.Namespaces == nil {
		return
	}
	field := ".allowedRoutes.namespaces"
	l.Namespaces.From = value(allowed.Namespaces.From, gwv1.NamespacesFromSame)
	switch l.Namespaces.From {
	case gwv1.NamespacesFromAll, gwv1.NamespacesFromSame:
	case gwv1.NamespacesFromSelector:
		selector := allowed.Namespaces.Selector
		if selector == nil {
			l.invalid(gwv1.ListenerReasonUnsupportedValue, field+".selector", "add a selector", "from: Selector needs one")
		} else if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			l.invalid(gwv1.ListenerReasonUnsupportedValue, field+".selector", "correct it", "%v", err)
		}
		l.Namespaces.Selector = selector
	default:
		l.invalid(gwv1.ListenerReasonUnsupportedValue, field+".from", "use All, Same or Selector", "%q is not known", l.Namespaces.From)
	}
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
		func(v *incremental.View, k listenerKey, l *listener) (*listenerState, bool) {
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
	t.declareCertificates()
}

// facts is the state without the message, which has its own equality.
func (s *listenerState) facts() listenerState {
	f := *s
	f.Serve = nil
	return f
}

func (t *Translator) listenerState(v *incremental.View, k listenerKey, l *listener) *listenerState {
	s := &listenerState{Kinds: l.Kinds}
	refs := l.BadKinds
	var certificates []string
	if l.Protocol == gwv1.HTTPSProtocolType {
		var p *condition.Problem
		if certificates, p = t.resolveCertificates(v, k, l); p != nil {
			refs = p
		}
	}
	conflict := l.Conflict
	if conflict == nil && l.claims() {
		conflict = t.taken(v, k, l)
	}
	reserved := l.claims() && conflict == nil && len(l.Kinds) > 0
	if reserved {
		// Without a certificate too: the proxy fails its handshakes, where no other listener of
		// the port may answer for its hostname with a certificate of its own.
		s.Serve = l.config(k, certificates)
	}
	servable := reserved && (l.Protocol != gwv1.HTTPSProtocolType || len(certificates) > 0)
	refused := l.Invalid
	if refused == nil {
		refused = conflict
	}
	if fault, faulty := incremental.Fetch(v, t.in.listenerFaults.Collection, k); faulty && servable {
		refused = condition.NewProblem(gwv1.ListenerReasonPortUnavailable, l.Field+".port", "free the port or use another", "%s", fault.Message)
	}
	bound := t.usable(v, k.Gateway, l.Addresses)
	s.Accepted, s.Resolved, s.Programmed = refused == nil, refs == nil, refused == nil && servable && bound
	s.Conditions = l.conditions(refused, refs, conflict, s.Programmed, bound)
	return s
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
func (l *listener) claims() bool {
	return l.Invalid == nil && l.Conflict == nil && !l.Refused && !l.Pending
}

func (l *listener) conditions(refused, refs, conflict *condition.Problem, programmed, bound bool) []metav1.Condition {
	accepted := condition.True(gwv1.ListenerConditionAccepted, gwv1.ListenerReasonAccepted)
	accepted.Message = strings.Join(l.Notes, ". ")
	if refused != nil {
		accepted = condition.False(gwv1.ListenerConditionAccepted, refused.Reason, refused.String())
	}
	program := condition.True(gwv1.ListenerConditionProgrammed, gwv1.ListenerReasonProgrammed)
	switch {
	case programmed:
	case refused != nil:
		program = condition.False(gwv1.ListenerConditionProgrammed, gwv1.ListenerReasonInvalid, "the listener is not accepted; see condition Accepted")
	case l.Pending:
		program = condition.False(gwv1.ListenerConditionProgrammed, gwv1.ListenerReasonPending, "the Gateway waits for its GatewayClass")
	case l.Refused:
		program = condition.False(gwv1.ListenerConditionProgrammed, gwv1.ListenerReasonInvalid, "the Gateway is not accepted; see its condition Accepted")
	case !bound:
		program = condition.False(gwv1.ListenerConditionProgrammed, gwv1.ListenerReasonInvalid, "no address of the Gateway can be used; see its condition Programmed")
	default:
		program = condition.False(gwv1.ListenerConditionProgrammed, gwv1.ListenerReasonInvalid, "references do not resolve; see condition ResolvedRefs")
	}
	resolved := condition.True(gwv1.ListenerConditionResolvedRefs, gwv1.ListenerReasonResolvedRefs)
	if refs != nil {
		resolved = condition.False(gwv1.ListenerConditionResolvedRefs, refs.Reason, refs.String())
	}
	out := []metav1.Condition{accepted, program, resolved}
	for _, negative := range []struct {
		kind gwv1.ListenerConditionType
		p    *condition.Problem
	}{{gwv1.ListenerConditionConflicted, conflict}, {gwv1.ListenerConditionOverlappingTLSConfig, l.Overlap}} {
		if negative.p != nil {
			c := condition.True(negative.kind, negative.p.Reason)
			c.Message = negative.p.String()
			out = append(out, c)
		}
	}
	return out
}

func (l *listener) config(k listenerKey, certificates []string) *config.Listener {
	protocol := config.Protocol_PROTOCOL_HTTP
	if l.Protocol == gwv1.HTTPSProtocolType {
		protocol = config.Protocol_PROTOCOL_HTTPS
	}
	return &config.Listener{
		Key: k.String(), Gateway: k.Gateway.String(), Name: k.Name,
		Addresses: l.Addresses, Port: uint32(l.Port), Protocol: protocol, Hostname: l.Hostname,
		Certificates: certificates,
	}
}
