// Package gateway reads a Gateway, apart from its listeners, and sums up in conditions what became
// of it and them. It exists apart from translate because it is pure functions of one
// Gateway, which read no other object.
//
// It must never import translate, nor anything that translate must not.
package gateway

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// Gateway is a Gateway of one of our classes, apart from its listeners.
type Gateway struct {
	UID        types.UID // "" in manifests that name none
	Created    int64     // in nanoseconds since the epoch
	Generation int64
	Refused    *condition.Problem // why it is not accepted, apart from its listeners
	Notes      []string           // what is left out of what it asks for
	Listeners  []string           // names in the order of the spec, distinct
	Binds      []string           // IP addresses of spec.addresses that may be had
	Addresses  []Address          // all of spec.addresses, each value once
	// Default says that the process's default addresses are used: there is no
	// spec.addresses, or only entries that leave the choice to us.
	Default bool

	// DefaultScope is that of the routes that need not name the Gateway to be attached to it; "" for none.
	DefaultScope gwv1.GatewayDefaultScope

	// Frontends are what it demands of clients.
	Frontends []listener.Frontend
	// Insecure are the fields in which clients are served whose certificates are not valid.
	Insecure []string

	// What other objects tell, which New leaves empty.

	Pending    *condition.Problem // its class is not accepted
	Unserved   bool               // no listener of it is served
	Parameters v1alpha1.GatewayParametersSpec
	// OwnParameters is the name of the GatewayParameters that the Gateway itself refers to, "" for none.
	OwnParameters     string
	ParametersUnknown bool
	// Merged names the proxies that serve the Gateway with all others of its class; the zero value where it has its own.
	Merged  types.NamespacedName
	Clients parameters.Clients
	// Redis is the Secret that has the address of the Redis in which global rate limits count, under RedisKey; the zero value where parameters name none.
	Redis    types.NamespacedName
	RedisKey string
}

// Address is an entry of spec.addresses.
type Address struct {
	Field       string
	Value       string // an IP address in canonical form; "" leaves the choice to us
	Routability gwv1.GatewayAddressRoutabilityType
	// Unsatisfiable says why no address can have the routability, and what helps; "" where one can.
	Unsatisfiable string
}

// RoutabilitySentinel is the value that GEP-5093 reserves for tests of conformance: it promises nothing, so any address may have it.
const RoutabilitySentinel gwv1.GatewayAddressRoutabilityType = "testing.x-k8s.io/sentinel"

// unsatisfiable is Address.Unsatisfiable. Another routability is never put in the place of the one that is asked for.
func unsatisfiable(r gwv1.GatewayAddressRoutabilityType, cluster bool) string {
	switch {
	case r == gwv1.GatewayAddressRoutabilityDefault, r == RoutabilitySentinel, r == gwv1.GatewayAddressRoutabilityCluster && cluster:
		return ""
	case r == gwv1.GatewayAddressRoutabilityCluster:
		return "routability Cluster is the address of a Service, which only a Gateway in Kubernetes has; remove routability"
	}
	remedy := "remove routability"
	if cluster {
		remedy = "use Cluster or " + remedy
	}
	return fmt.Sprintf("routability %q is not supported; %s", r, remedy)
}

// Unaddressed reports whether there is spec.addresses and no entry of it can be satisfied: the Gateway must not be reached anywhere else instead.
func (g *Gateway) Unaddressed() bool {
	return len(g.Addresses) > 0 && !slices.ContainsFunc(g.Addresses, func(a Address) bool { return a.Unsatisfiable == "" })
}

// New reads a Gateway of a cluster or of this process; what other objects tell of it is left empty.
func New(gw *gwv1.Gateway, cluster bool) *Gateway {
	g := &Gateway{UID: gw.UID, Generation: max(1, gw.Generation)}
	if t := gw.CreationTimestamp; !t.IsZero() {
		g.Created = t.UnixNano()
	}
	seen := make(map[gwv1.SectionName]bool, len(gw.Spec.Listeners))
	for _, l := range gw.Spec.Listeners {
		if !seen[l.Name] {
			seen[l.Name] = true
			g.Listeners = append(g.Listeners, string(l.Name))
		}
	}
	g.addresses(gw.Spec.Addresses, cluster)
	g.Default = len(g.Binds) == 0 && g.Refused == nil && !g.Unaddressed()
	g.Frontends = listener.FrontendsOf(gw)
	g.Insecure = listener.InsecureFrontends(gw)
	g.noteListenerSets(gw.Spec.AllowedListeners)
	if s := gw.Spec.DefaultScope; s != gwv1.GatewayDefaultScopeNone {
		g.DefaultScope = s
	}
	return g
}

// noteListenerSets says why a selector lets no ListenerSet attach, which these could not tell from one that does not select them.
func (g *Gateway) noteListenerSets(allowed *gwv1.AllowedListeners) {
	if allowed == nil || allowed.Namespaces == nil || allowed.Namespaces.From == nil || *allowed.Namespaces.From != gwv1.NamespacesFromSelector {
		return
	}
	const field = "spec.allowedListeners.namespaces.selector"
	if selector := allowed.Namespaces.Selector; selector == nil {
		g.Notes = append(g.Notes, field+": no ListenerSet may attach: from: Selector needs a selector; add one")
	} else if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		g.Notes = append(g.Notes, fmt.Sprintf("%s: no ListenerSet may attach: %v; correct it", field, err))
	}
}

// NoteFrontends says which demands on clients no HTTPS listener makes, of listeners with such ports.
func (g *Gateway) NoteFrontends(ports map[int32]bool, sum *Summary) {
	rest := maps.Clone(ports) // that have no entry of their own
	for _, f := range g.Frontends {
		delete(rest, f.Port)
	}
	for _, f := range g.Frontends {
		switch {
		case f.Validation == nil:
		case f.Port != 0 && !ports[f.Port]:
			sum.Note(fmt.Sprintf("%s: no client is verified by it: no HTTPS listener has port %d", f.Field, f.Port))
		case f.Port == 0 && len(ports) == 0:
			sum.Note(f.Field + ": no client is verified by it: there is no HTTPS listener")
		case f.Port == 0 && len(rest) == 0:
			sum.Note(f.Field + ": no client is verified by it: the ports of all HTTPS listeners stand in perPort")
		}
	}
}

// addresses sorts spec.addresses by what can be done with them.
func (g *Gateway) addresses(list []gwv1.GatewaySpecAddress, cluster bool) {
	for i, a := range list {
		field := fmt.Sprintf("spec.addresses[%d]", i)
		kind := kindOf(a)
		entry := Address{Field: field, Routability: a.Routability, Unsatisfiable: unsatisfiable(a.Routability, cluster)}
		switch ip, err := netip.ParseAddr(a.Value); {
		case kind != gwv1.IPAddressType:
			g.refuse(condition.NewProblem(gwv1.GatewayReasonUnsupportedAddress, field+".type", "use type IPAddress",
				"addresses of type %s are not supported", kind))
		case a.Value == "":
			g.Addresses = append(g.Addresses, entry)
		case err != nil:
			g.refuse(condition.NewProblem(gwv1.GatewayReasonUnsupportedAddress, field+".value", "write an IPv4 or IPv6 address",
				"%q is not an IP address", a.Value))
		case !slices.ContainsFunc(g.Addresses, func(b Address) bool { return b.Value == ip.String() }):
			entry.Value = ip.String()
			g.Addresses = append(g.Addresses, entry)
			if entry.Unsatisfiable == "" {
				g.Binds = append(g.Binds, entry.Value)
			}
		}
	}
}

// refuse keeps the first problem: one is enough to act on.
func (g *Gateway) refuse(p *condition.Problem) {
	if g.Refused == nil {
		g.Refused = p
	}
}

func kindOf(a gwv1.GatewaySpecAddress) gwv1.AddressType {
	if a.Type == nil {
		return gwv1.IPAddressType
	}
	return *a.Type
}
