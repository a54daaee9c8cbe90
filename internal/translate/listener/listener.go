// Package listener reads a Gateway's listeners, and finds what is wrong with them as far as the Gateway alone determines. It is
// separate from translate because it is a pure function of one Gateway.
//
// It must never import translate, nor anything that translate must not.
package listener

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// Options is what is needed to read a listener in addition to its Gateway.
type Options struct {
	// Created is the creation time of the Gateway in nanoseconds since the epoch; 0 if not known.
	Created int64
	// Addresses are those to bind; empty means the default ones.
	Addresses []string
	// Reserved are TCP ports that listeners cannot use.
	Reserved []int32
	// Routes returns the kinds of route that listeners of a protocol support, which are also the defaults of a listener that names
	// none; a protocol without any is not supported. passthrough means that such a listener does not terminate TLS.
	Routes func(protocol gwv1.ProtocolType, passthrough bool) []gwv1.Kind
	// Lacks reports whether a kind of route is not installed; nil if all are.
	Lacks func(gwv1.Kind) bool
	// Refused is set if the Gateway is not accepted, Pending if it waits for its class, Unserved if none of its listeners is served.
	Refused, Pending, Unserved bool
	// Client is the client certificate that the Gateway presents to backends, nil if none.
	Client *CertificateRef
}

// Listener is a listener as far as its Gateway alone determines it.
type Listener struct {
	Name     string
	Field    string // spec.listeners[i]
	Created  int64  // of the Gateway, or see OfSet; in nanoseconds since the epoch
	Port     int32
	Protocol gwv1.ProtocolType
	// Passthrough is set if TLS is forwarded without being terminated, with protocol TLS only.
	Passthrough bool
	Hostname    string // lower case
	Addresses   []string
	Kinds       []gwv1.RouteGroupKind // supportedKinds
	NoRoutes    bool                  // Kinds is empty because none of them is installed
	Filters     []gwv1.ListenerFilter // of requests, in order
	Namespaces  Namespaces
	Notes       []string
	// Invalid is why it is not accepted, independent of other listeners.
	Invalid *condition.Problem
	// Conflict is why it is not accepted together with others of the same Gateway.
	Conflict *condition.Problem
	// BadKinds is what is wrong in allowedRoutes.kinds.
	BadKinds *condition.Problem
	// Refused, Pending and Unserved are those of Options.
	Refused, Pending, Unserved bool

	Certificates []CertificateRef   // if it Terminates
	Client       *CertificateRef    // that of Options
	TLSOptions   *config.TLSOptions // if it Terminates; nil means the defaults
}

// Namespaces is allowedRoutes.namespaces.
type Namespaces struct {
	From     gwv1.FromNamespaces
	Selector *metav1.LabelSelector
}

// New returns the Gateway's listeners in the order of the spec.
func New(gw *gwv1.Gateway, o Options) []*Listener {
	list, byName := make([]*Listener, len(gw.Spec.Listeners)), map[string]*Listener{}
	for i := range gw.Spec.Listeners {
		l := &Listener{
			Name: string(gw.Spec.Listeners[i].Name), Field: fmt.Sprintf("spec.listeners[%d]", i), Created: o.Created, Addresses: o.Addresses,
			Refused: o.Refused, Pending: o.Pending, Unserved: o.Unserved, Client: o.Client,
		}
		l.read(gw, &gw.Spec.Listeners[i], &o)
		list[i] = l
		if before := byName[l.Name]; before != nil {
			before.Invalid = condition.NewProblem(gwv1.ListenerReasonUnsupportedValue, l.Field+".name", "give each listener its own name",
				"two listeners are named %q", l.Name)
		}
		byName[l.Name] = l
	}
	findConflicts(list)
	return list
}

// Valid reports whether the listener can be served, as far as its Gateway determines.
func (l *Listener) Valid() bool { return l.Invalid == nil && l.Conflict == nil }

// DistinctByHostname reports whether listeners of one port are distinguished by their hostnames, which those of TCP and UDP are not.
func (l *Listener) DistinctByHostname() bool {
	return l.Protocol != gwv1.TCPProtocolType && l.Protocol != gwv1.UDPProtocolType
}

// Terminates reports whether the listener terminates TLS.
func (l *Listener) Terminates() bool {
	return l.Protocol == gwv1.HTTPSProtocolType || l.Protocol == gwv1.TLSProtocolType && !l.Passthrough
}

func (l *Listener) read(gw *gwv1.Gateway, spec *gwv1.Listener, o *Options) {
	l.Port, l.Protocol = spec.Port, spec.Protocol
	l.Hostname = strings.ToLower(string(ptr.Deref(spec.Hostname, "")))
	l.Kinds = []gwv1.RouteGroupKind{}
	l.readMode(spec.TLS)
	l.checkProtocol(spec, o)
	l.checkReserved(o.Reserved)
	if l.Invalid == nil || l.Invalid.Reason != string(gwv1.ListenerReasonUnsupportedProtocol) {
		l.readKinds(spec.AllowedRoutes, o)
	}
	l.readNamespaces(spec.AllowedRoutes)
	l.readTLS(gw, spec.TLS)
}

func (l *Listener) invalid(reason gwv1.ListenerConditionReason, field, remedy, format string, args ...any) {
	if l.Invalid == nil {
		l.Invalid = condition.NewProblem(reason, l.Field+field, remedy, format, args...)
	}
}

func (l *Listener) checkProtocol(spec *gwv1.Listener, o *Options) {
	switch {
	case o.serves(l.Protocol):
	case slices.Contains(protocols, l.Protocol):
		l.invalid(gwv1.ListenerReasonUnsupportedProtocol, ".protocol", o.served(), "protocol %s is not supported yet", l.Protocol)
	default:
		l.invalid(gwv1.ListenerReasonUnsupportedProtocol, ".protocol", o.served(), "protocol %q is not known", l.Protocol)
	}
	if l.Port < 1 || l.Port > 65535 {
		l.invalid(gwv1.ListenerReasonPortUnavailable, ".port", "use a port from 1 to 65535", "%d is not a port", l.Port)
	}
	if spec.Filters != nil {
		l.Filters = spec.Filters.Requests
		if len(l.Filters) > 0 && l.Protocol != gwv1.HTTPProtocolType && l.Protocol != gwv1.HTTPSProtocolType {
			l.invalid(gwv1.ListenerReasonUnsupportedValue, ".filters", "use protocol HTTP or HTTPS, or remove filters", "a listener of protocol %s has no requests to filter", l.Protocol)
		}
	}
	if spec.TLS != nil && (l.Protocol == gwv1.HTTPProtocolType || l.Protocol == gwv1.TCPProtocolType || l.Protocol == gwv1.UDPProtocolType) {
		l.invalid(gwv1.ListenerReasonUnsupportedValue, ".tls", "use protocol HTTPS, or remove tls", "a listener of protocol %s has no TLS", l.Protocol)
	}
}

// protocols are those of the specification, in the order in which messages list them.
var protocols = []gwv1.ProtocolType{gwv1.HTTPProtocolType, gwv1.HTTPSProtocolType, gwv1.TLSProtocolType, gwv1.TCPProtocolType, gwv1.UDPProtocolType}

// serves reports whether listeners of a protocol are served.
func (o *Options) serves(protocol gwv1.ProtocolType) bool { return len(o.Routes(protocol, false)) > 0 }

// served returns the remedy for a listener with an unsupported protocol.
func (o *Options) served() string {
	return "use " + condition.AnyOf(slices.DeleteFunc(slices.Clone(protocols), func(p gwv1.ProtocolType) bool { return !o.serves(p) }))
}

// checkReserved rejects ports that the data plane itself listens on.
func (l *Listener) checkReserved(ports []int32) {
	if t := transportOf(l.Protocol); t != transportUDP && t != transportUnknown && slices.Contains(ports, l.Port) {
		l.invalid(gwv1.ListenerReasonPortUnavailable, ".port", "use another port", "port %d is reserved for the proxy's own use", l.Port)
	}
}

// routeKinds are the kinds that the specification allows for a protocol; those that are not supported are rejected with an
// explanation.
var routeKinds = map[gwv1.ProtocolType][]gwv1.Kind{
	gwv1.HTTPProtocolType:  {"HTTPRoute", "GRPCRoute"},
	gwv1.HTTPSProtocolType: {"HTTPRoute", "GRPCRoute"},
	gwv1.TLSProtocolType:   {"TLSRoute", "TCPRoute"},
	gwv1.TCPProtocolType:   {"TCPRoute"},
	gwv1.UDPProtocolType:   {"UDPRoute"},
}

func (l *Listener) readKinds(allowed *gwv1.AllowedRoutes, o *Options) {
	group := gwv1.Group(gwv1.GroupName)
	supported := o.Routes(l.Protocol, l.Passthrough)
	lacks := func(k gwv1.Kind) bool { return o.Lacks != nil && o.Lacks(k) }
	if allowed == nil || len(allowed.Kinds) == 0 {
		for _, k := range supported {
			if !lacks(k) {
				l.Kinds = append(l.Kinds, gwv1.RouteGroupKind{Group: &group, Kind: k})
			}
		}
		l.NoRoutes = len(l.Kinds) == 0
		return
	}
	var others []string // further kinds that are rejected
	for i, k := range allowed.Kinds {
		native := ptr.Deref(k.Group, gwv1.GroupName) == gwv1.GroupName
		compatible := native && slices.Contains(supported, k.Kind)
		if compatible && !lacks(k.Kind) {
			if !slices.ContainsFunc(l.Kinds, func(known gwv1.RouteGroupKind) bool { return known.Kind == k.Kind }) {
				l.Kinds = append(l.Kinds, gwv1.RouteGroupKind{Group: &group, Kind: k.Kind})
			}
			continue
		}
		if l.BadKinds != nil {
			others = append(others, fmt.Sprintf("kinds[%d]", i))
			continue
		}
		what, remedy := "is not allowed on a listener of protocol "+string(l.Protocol), "allow "+condition.AnyOf(supported)+" of group "+gwv1.GroupName
		switch {
		case compatible:
			what, remedy = "is not installed", "install its CustomResourceDefinition"
		case native && l.Passthrough && slices.Contains(o.Routes(l.Protocol, false), k.Kind):
			what = "is not allowed on a listener that does not terminate TLS"
		case native && slices.Contains(routeKinds[l.Protocol], k.Kind):
			what = "is not supported yet"
		}
		l.BadKinds = condition.NewProblem(gwv1.ListenerReasonInvalidRouteKinds, fmt.Sprintf("%s.allowedRoutes.kinds[%d].kind", l.Field, i),
			remedy, "kind %s of group %q %s", k.Kind, ptr.Deref(k.Group, gwv1.GroupName), what)
	}
	if len(others) > 0 {
		l.BadKinds.What += "; " + strings.Join(others, ", ") + " cannot be used either"
	}
}

func (l *Listener) readNamespaces(allowed *gwv1.AllowedRoutes) {
	l.Namespaces.From = gwv1.NamespacesFromSame
	if allowed == nil || allowed.Namespaces == nil {
		return
	}
	field := ".allowedRoutes.namespaces"
	l.Namespaces.From = ptr.Deref(allowed.Namespaces.From, gwv1.NamespacesFromSame)
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
