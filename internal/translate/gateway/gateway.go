// Package gateway reads a Gateway without its listeners, and computes its conditions. It is separate from translate because it is
// pure functions of one Gateway.
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

// Gateway is a Gateway of a managed class, without its listeners.
type Gateway struct {
	UID        types.UID // "" in manifests without one
	Created    int64     // in nanoseconds since the epoch
	Generation int64
	Refused    *condition.Problem // why it is not accepted, apart from its listeners
	Notes      []string           // settings that are ignored
	Listeners  []string           // names in the order of the spec, distinct
	Binds      []string           // usable IP addresses of spec.addresses
	Addresses  []Address          // all of spec.addresses, without duplicate values
	// Default is set if the default addresses of the process are used: there is no spec.addresses, or only entries without a value.
	Default bool

	// DefaultScope is the scope of routes that attach to the Gateway without naming it; "" if none.
	DefaultScope gwv1.GatewayDefaultScope

	// Frontends are its requirements for client certificates.
	Frontends []listener.Frontend
	// Insecure are the fields that allow clients with invalid certificates.
	Insecure []string

	// The following fields depend on other objects. New leaves them empty.

	Pending    *condition.Problem // its class is not accepted
	Unserved   bool               // none of its listeners is served
	Parameters v1alpha1.GatewayParametersSpec
	// OwnParameters is the name of the GatewayParameters that the Gateway itself refers to, "" if none.
	OwnParameters     string
	ParametersUnknown bool
	// Merged names the proxies that serve the Gateway together with all others of its class; the zero value if it has its own.
	Merged  types.NamespacedName
	Clients parameters.Clients
	// Redis is the Secret that contains the address of the Redis server for global rate limits, under RedisKey; the zero value if
	// parameters name none.
	Redis    types.NamespacedName
	RedisKey string
}

// Address is an entry of spec.addresses.
type Address struct {
	Field       string
	Value       string // an IP address in canonical form; "" means any
	Routability gwv1.GatewayAddressRoutabilityType
	// Unsatisfiable is why no address can have the routability, and the remedy; "" if one can.
	Unsatisfiable string
}

// RoutabilitySentinel is the value that GEP-5093 reserves for conformance tests: it guarantees nothing, so any address may have it.
const RoutabilitySentinel gwv1.GatewayAddressRoutabilityType = "testing.x-k8s.io/sentinel"

// unsatisfiable returns Address.Unsatisfiable for a routability. The requested routability is never replaced by another.
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

// Unaddressed reports whether spec.addresses has entries of which none can be satisfied: then the Gateway must not be reachable at
// other addresses.
func (g *Gateway) Unaddressed() bool {
	return len(g.Addresses) > 0 && !slices.ContainsFunc(g.Addresses, func(a Address) bool { return a.Unsatisfiable == "" })
}

// New reads a Gateway of a cluster or of this process. Fields that depend on other objects are left empty.
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

// noteListenerSets adds a note if a malformed selector prevents all ListenerSets from attaching: their statuses could not
// distinguish that from a selector that does not match.
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

// NoteFrontends notes which requirements for client certificates apply to no HTTPS listener; ports are those of HTTPS listeners.
func (g *Gateway) NoteFrontends(ports map[int32]bool, sum *Summary) {
	rest := maps.Clone(ports) // ports without their own entry
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

// addresses sorts the entries of spec.addresses by how they can be used.
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
		case !slices.ContainsFunc(g.Addresses, func(b Address) bool { return b.Value == Canonical(ip) }):
			entry.Value = Canonical(ip)
			g.Addresses = append(g.Addresses, entry)
			if entry.Unsatisfiable == "" {
				g.Binds = append(g.Binds, entry.Value)
			}
		}
	}
}

// Canonical returns the text of an address that is the same for every way to write it: an IPv4 address written as one of IPv6 is bound
// as what it is.
func Canonical(ip netip.Addr) string { return ip.Unmap().String() }

// refuse records a problem unless there is one already: one is enough to act on.
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
