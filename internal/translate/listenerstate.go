package translate

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// listenerStates computes the conditions of listeners, and how they are served.
type listenerStates struct {
	o                    *Options
	listenerFaults       *incremental.Collection[listenerKey, ListenerFault]
	mergedFaults         *incremental.Collection[listenerFaultKey, ListenerFault]
	listeners            *listeners
	secrets              *secrets
	listenerCertificates *listenerCertificates
	listenerOverlaps     *listenerOverlaps
	clientValidations    *clientValidations
	infrastructure       *infrastructure
	backendRefs          *backendRefs
	telemetryPolicies    *telemetryPolicies
	httpFilters          *httpFilters

	all          *incremental.Collection[listenerKey, *listenerState]
	serving      *incremental.Collection[listenerKey, *config.Listener]
	served       *incremental.Collection[listenerKey, string]    // the keys of their configs
	acceptedSets *incremental.Index[name, attachedSet, struct{}] // by Gateway
}

func newListenerStates(e *incremental.Engine, o *Options,
	listenerFaults *incremental.Collection[listenerKey, ListenerFault], mergedFaults *incremental.Collection[listenerFaultKey, ListenerFault],
	listeners *listeners, secrets *secrets, listenerCertificates *listenerCertificates, listenerOverlaps *listenerOverlaps,
	clientValidations *clientValidations, infrastructure *infrastructure, backendRefs *backendRefs, telemetryPolicies *telemetryPolicies, httpFilters *httpFilters) *listenerStates {
	st := &listenerStates{o: o, listenerFaults: listenerFaults, mergedFaults: mergedFaults, listeners: listeners, secrets: secrets, listenerCertificates: listenerCertificates,
		listenerOverlaps: listenerOverlaps, clientValidations: clientValidations, infrastructure: infrastructure, backendRefs: backendRefs, telemetryPolicies: telemetryPolicies, httpFilters: httpFilters}
	st.all = incremental.Map(e, "listener state", st.listeners.all,
		func(v *incremental.View, k listenerKey, l *listener.Listener) (*listenerState, bool) {
			return st.listenerState(v, k, l), true
		}, func(a, b *listenerState) bool {
			return sameMessage(a.Serve, b.Serve) && sameDeeply(a.facts(), b.facts())
		})
	st.serving = incremental.Map(e, "listener config", st.all,
		func(_ *incremental.View, _ listenerKey, s *listenerState) (*config.Listener, bool) {
			return s.Serve, s.Serve != nil
		}, sameMessage[*config.Listener])
	st.served = incremental.Map(e, "listener is served", st.serving,
		func(_ *incremental.View, k listenerKey, _ *config.Listener) (string, bool) { return k.String(), true }, same[string])
	st.declareAcceptedListenerSets(e)
	return st
}

// listenerState is the result for a listener.
type listenerState struct {
	Accepted, Resolved, Programmed bool
	// Valid reports that it is accepted and has a certificate if it needs one.
	Valid      bool
	Kinds      []gwv1.RouteGroupKind
	Conditions []metav1.Condition
	Serve      *config.Listener // nil: not served
}

// facts returns the state without the message, which is compared separately.
func (s *listenerState) facts() listenerState {
	f := *s
	f.Serve = nil
	return f
}

func (st *listenerStates) listenerState(v *incremental.View, k listenerKey, l *listener.Listener) *listenerState {
	s := &listenerState{Kinds: l.Kinds}
	var refs []*condition.Problem
	var certificates []string
	if l.Terminates() {
		if certificates, refs = st.listenerCertificates.resolveCertificates(v, k, l); len(refs) > 0 {
			certificates = st.secrets.keepCertificates(v, k, l, certificates)
		}
	}
	if l.BadKinds != nil {
		refs = append(refs, l.BadKinds)
	}
	clients := st.clientValidations.of(v, k, l)
	refs = append(refs, clients.Refs...)
	if clients.Invalid != nil {
		certificates = nil // every handshake fails
	}
	filters := st.filters(v, k, l)
	if filters.UnknownKind { // two conditions report that the kind is not supported and that the reference does not resolve (GEP-5224)
		p := *filters.Invalid
		p.Reason = reasonListenerFilterRef
		refs = append(refs, &p)
	}
	if filters.Missing != nil {
		refs = append(refs, filters.Missing)
	}
	conflict := l.Conflict
	if conflict == nil && claims(l) {
		conflict = st.listeners.portConflict(v, k, l)
	}
	terms, _ := incremental.Fetch(v, st.listeners.gateways.terms, k.Gateway)
	merged := terms.Merged != (name{})
	var unavailable *condition.Problem                                                    // the port
	if conflict != nil && conflict.Reason == string(gwv1.ListenerReasonPortUnavailable) { // which is not a reason of condition Conflicted
		unavailable, conflict = conflict, nil
	}
	if merged && unavailable == nil && claims(l) {
		unavailable = st.listeners.portExcess(v, terms.Merged, l)
	}
	routable := len(l.Kinds) > 0 || l.NoRoutes
	reserved := claims(l) && conflict == nil && unavailable == nil && (routable || l.DistinctByHostname())
	if reserved {
		// It is served even without a certificate or an allowed kind of route: the proxy fails its handshakes, or has no route for
		// its requests. Otherwise another listener of the port would answer for its hostname.
		s.Serve = listenerConfig(l, k, certificates, clients.Config)
		s.Serve.Identity = st.listenerCertificates.identity(v, k, l)
		applyClients(s.Serve, k, &terms.Clients)
		s.Serve.Merged = terms.Merged.String()
		if p := s.Serve.Protocol; p == config.Protocol_PROTOCOL_HTTP || p == config.Protocol_PROTOCOL_HTTPS {
			s.Serve.Tracing = st.telemetryPolicies.tracing(v, k.Gateway)
		}
		s.Serve.Filters = filters.Filters
		if filters.Missing != nil || filters.Invalid != nil { // no filter may be skipped
			s.Serve.Filters, s.Serve.Failure = nil, &config.Failure{Status: 500, Reason: listenerInvalid}
		}
	}
	servable := reserved && routable && (!l.Terminates() || len(certificates) > 0) && filters.Missing == nil
	refused := l.Invalid
	if refused == nil {
		refused = conflict
	}
	if refused == nil {
		refused = unavailable
	}
	if refused == nil {
		refused = clients.Invalid
	}
	if refused == nil {
		refused = filters.Invalid
	}
	lacking := false // the only certificates are some that the proxies do not have either
	var fault ListenerFault
	var faulty bool
	if merged {
		fault, faulty = incremental.Fetch(v, st.mergedFaults, listenerFaultKey{k, terms.Merged})
	} else {
		fault, faulty = incremental.Fetch(v, st.listenerFaults, k)
	}
	switch {
	case !faulty || !servable || fault.Others:
	case fault.Refused:
		refused = condition.NewProblem(gwv1.ListenerReasonInvalid, l.Field, "see the proxy's log", "%s", fault.Message)
	case l.Terminates() && st.secrets.allUnread(v, certificates):
		servable, lacking = false, true
	default:
		refused = condition.NewProblem(gwv1.ListenerReasonPortUnavailable, l.Field+".port", cmp.Or(fault.Remedy, "free the port or use another"), "%s", fault.Message)
	}
	program := l.Programmed(refused, servable, st.infrastructure.waits(v, k, l))
	if lacking && program.Reason == string(gwv1.ListenerReasonInvalid) {
		program.Message += ". " + fault.Message
	}
	if fault.Others && program.Status == metav1.ConditionTrue {
		program.Message = condition.NewProblem("", "", "", "%s", fault.Message).String()
	}
	if refused == conflict && conflict != nil && k.Set != "" { // the conformance tests require this for ListenerSets, but not for Gateways
		program.Reason = conflict.Reason
	}
	s.Valid = refused == nil && (!l.Terminates() || len(certificates) > 0) && !lacking
	s.Accepted, s.Resolved, s.Programmed = refused == nil, len(refs) == 0, program.Status == metav1.ConditionTrue
	s.Conditions = l.Conditions(refused, refs, conflict, st.listenerOverlaps.overlap(v, k, l), program, filters.Notes...)
	return s
}

// Reasons of listener conditions for their filters (GEP-5224); the specification has no constants for them.
const (
	reasonListenerFilterInvalid = "InvalidListenerFilter"
	reasonListenerFilterRef     = "InvalidListenerFilterRef"
)

// listenerInvalid is the reason word in the access log for requests to a listener with a filter that cannot be applied.
const listenerInvalid = "listener_invalid"

// filters returns the filters of a listener. The first that cannot be applied fails all requests.
func (st *listenerStates) filters(v *incremental.View, k listenerKey, l *listener.Listener) (all rule.Extension) {
	for i := range l.Filters {
		x := st.filter(v, k, &l.Filters[i], fmt.Sprintf("%s.filters.requests[%d]", l.Field, i))
		if all.Invalid, all.Missing, all.UnknownKind = x.Invalid, x.Missing, x.UnknownKind; x.Invalid != nil || x.Missing != nil {
			return all
		}
		all.Filters, all.Notes = append(all.Filters, x.Filters...), append(all.Notes, x.Notes...)
	}
	return all
}

// filter returns one filter, with the reasons that the specification defines for listeners.
func (st *listenerStates) filter(v *incremental.View, k listenerKey, f *gwv1.ListenerFilter, field string) (x rule.Extension) {
	switch f.Type {
	case gwv1.ListenerFilterExtensionRef:
		x = rule.ReadExtension(f.ExtensionRef, field, st.httpFilters.beside(v, k.Owner().Name.Namespace), true)
	case gwv1.ListenerFilterExternalAuth:
		x = rule.ReadExternalAuth(f.ExternalAuth, field, func(ref gwv1.BackendObjectReference, http2 bool, field string) (rule.Backend, *condition.Problem) {
			key, _, p := st.backendRefs.resolveBackend(v, listenerReferrer(k), httpRoutes, ref, false, http2, field)
			return st.backendRefs.named(v, key), p
		})
	default:
		x.Invalid = condition.NewProblem(gwv1.ListenerReasonUnsupportedValue, field+".type", "remove the filter", "filters of type %s are not supported yet", f.Type)
		return x
	}
	if p := x.Missing; p != nil && p.Reason != string(gwv1.ListenerReasonRefNotPermitted) {
		p.Reason = reasonListenerFilterRef
	}
	if p := x.Invalid; p != nil && !x.UnknownKind { // for which the specification has UnsupportedValue
		p.Reason = reasonListenerFilterInvalid
	}
	return x
}

// protocols are the protocols of listeners that can be served.
var protocols = map[gwv1.ProtocolType]config.Protocol{
	gwv1.HTTPProtocolType:  config.Protocol_PROTOCOL_HTTP,
	gwv1.HTTPSProtocolType: config.Protocol_PROTOCOL_HTTPS,
	gwv1.TLSProtocolType:   config.Protocol_PROTOCOL_TLS,
	gwv1.TCPProtocolType:   config.Protocol_PROTOCOL_TCP,
	gwv1.UDPProtocolType:   config.Protocol_PROTOCOL_UDP,
}

func listenerConfig(l *listener.Listener, k listenerKey, certificates []string, clients *config.ClientValidation) *config.Listener {
	c := &config.Listener{
		Key: k.String(), Gateway: k.Gateway.String(), ListenerSet: k.Set, Name: k.Name,
		Addresses: l.Addresses, Port: uint32(l.Port), Protocol: protocols[l.Protocol], Hostname: l.Hostname,
		TlsOptions: l.TLSOptions,
	}
	if l.Passthrough {
		c.Protocol = config.Protocol_PROTOCOL_TLS_PASSTHROUGH
	}
	if clients == nil {
		c.Certificates = certificates
	} else {
		c.ClientValidation = &config.ClientValidation{Certificates: certificates, Authorities: clients.Authorities, Optional: clients.Optional}
	}
	return c
}

// applyClients sets what a Gateway's parameters define for clients.
func applyClients(c *config.Listener, k listenerKey, clients *parameters.Clients) {
	if c.Protocol == config.Protocol_PROTOCOL_UDP {
		return
	}
	c.Connections = connections(clients.Port(int32(c.Port)))
	http := c.Protocol == config.Protocol_PROTOCOL_HTTP || c.Protocol == config.Protocol_PROTOCOL_HTTPS
	if http || c.Connections.GetProxyProtocol() {
		c.TrustedProxies = clients.TrustedProxies
	}
	if http {
		c.MaxRequestBodyBytes = ptr.Deref(clients.Listener(k.Name, k.Set != "").MaxRequestBodyBytes, 0)
	}
}

// connections returns the settings for connections to a port, nil if there are none.
func connections(p v1alpha1.Port) *config.Connections {
	nanos := func(d *metav1.Duration) int64 { return int64(ptr.Deref(d, metav1.Duration{}).Duration) }
	c := &config.Connections{
		ProxyProtocol:    p.ProxyProtocol,
		IdleTimeoutNanos: nanos(p.IdleTimeout), RequestHeadTimeoutNanos: nanos(p.RequestHeadTimeout), RequestBodyIdleTimeoutNanos: nanos(p.RequestBodyIdleTimeout),
		MaxConnections: uint32(ptr.Deref(p.MaxConnections, 0)),
	}
	if proto.Equal(c, &config.Connections{}) {
		return nil
	}
	return c
}

// attachedSet is a ListenerSet that is attached to a Gateway.
type attachedSet struct {
	Gateway name
	Set     string // as in listenerKey
}

func (s attachedSet) Compare(o attachedSet) int {
	return cmp.Or(s.Gateway.Compare(o.Gateway), cmp.Compare(s.Set, o.Set))
}

// declareAcceptedListenerSets finds the ListenerSets with at least one valid listener.
func (st *listenerStates) declareAcceptedListenerSets(e *incremental.Engine) {
	valid := incremental.NewIndex(st.all, "valid listeners by ListenerSet",
		func(k listenerKey, s *listenerState) []attachedSet {
			if k.Set == "" || !s.Valid {
				return nil
			}
			return []attachedSet{{k.Gateway, k.Set}}
		})
	st.acceptedSets = incremental.NewIndex(incremental.Keys(valid, "accepted ListenerSets"), "accepted ListenerSets by Gateway",
		func(s attachedSet, _ struct{}) []name { return []name{s.Gateway} })
}
