package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/gateway"
	"github.com/moongate-dev/moongate/internal/translate/listener"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// managedGateway contains what does not change of a Gateway whose class is managed by this controller.
type managedGateway struct {
	UID     types.UID // "" in manifests without one
	Created int64     // in nanoseconds since the epoch
	// DefaultScope is gateway.Gateway.DefaultScope.
	DefaultScope defaultScope
	// Merged is gateway.Gateway.Merged.
	Merged name
}

// gateways contains the Gateways of these classes, without their listeners.
type gateways struct {
	o                 *Options
	gatewayObjects    *incremental.Collection[name, *gwv1.Gateway]
	gatewayParameters *gatewayParameters
	gatewayClasses    *gatewayClasses

	all     *incremental.Collection[name, *gateway.Gateway]
	managed *incremental.Collection[name, managedGateway]
	// byMerged indexes the Gateways that are served together by gateway.Gateway.Merged.
	byMerged *incremental.Index[name, name, managedGateway]
	byScope  *incremental.Index[defaultScope, name, managedGateway] // default Gateways
	// defaults are the first maxDefaultGateways default Gateways of a scope, the oldest first.
	defaults *incremental.Collection[defaultScope, []name]
	terms    *incremental.Collection[name, listenerTerms]
}

func newGateways(e *incremental.Engine, o *Options,
	gatewayObjects *incremental.Collection[name, *gwv1.Gateway],
	gatewayParameters *gatewayParameters, gatewayClasses *gatewayClasses) *gateways {
	gs := &gateways{o: o, gatewayObjects: gatewayObjects, gatewayParameters: gatewayParameters, gatewayClasses: gatewayClasses}
	gs.declareGateways(e)
	gs.declareListenerTerms(e)
	return gs
}

func (gs *gateways) declareGateways(e *incremental.Engine) {
	gs.all = incremental.Map(e, "Gateway", gs.gatewayObjects,
		func(v *incremental.View, n name, gw *gwv1.Gateway) (*gateway.Gateway, bool) {
			c, managed := incremental.Fetch(v, gs.gatewayClasses.all, name{"", string(gw.Spec.GatewayClassName)})
			if gs.o.defect != nil {
				gs.o.defect(n)
			}
			if !managed {
				return nil, false
			}
			return gs.newGateway(v, gw, c), true
		}, sameDeeply[*gateway.Gateway])
	gs.managed = incremental.Map(e, "managed Gateway", gs.all,
		func(_ *incremental.View, _ name, g *gateway.Gateway) (managedGateway, bool) {
			return managedGateway{g.UID, g.Created, defaultScope(g.DefaultScope), name(g.Merged)}, true
		}, same[managedGateway])
	gs.byMerged = incremental.NewIndex(gs.managed, "merged Gateways by proxies",
		func(_ name, g managedGateway) []name {
			if g.Merged == (name{}) {
				return nil
			}
			return []name{g.Merged}
		})
	gs.byScope = incremental.NewIndex(gs.managed, "default Gateways by scope",
		func(_ name, g managedGateway) []defaultScope {
			if g.DefaultScope == "" {
				return nil
			}
			return []defaultScope{g.DefaultScope}
		})
	gs.defaults = incremental.Map(e, "default Gateways", incremental.Keys(gs.byScope, "scopes of default Gateways"),
		func(v *incremental.View, s defaultScope, _ struct{}) ([]name, bool) {
			all := slices.Clone(incremental.Lookup(v, gs.byScope, s))
			created := make(map[name]int64, len(all))
			for _, n := range all {
				g, _ := incremental.Fetch(v, gs.managed, n)
				created[n] = g.Created
			}
			slices.SortFunc(all, func(a, b name) int { return cmp.Or(cmp.Compare(created[a], created[b]), a.precedence(b)) })
			return all[:min(len(all), maxDefaultGateways)], true
		}, slices.Equal[[]name])
}

// proxiesOf returns the name of the proxies that serve a Gateway: its own, which have its name, or those of all Gateways of its
// class.
func (gs *gateways) proxiesOf(v *incremental.View, n name) name {
	if g, _ := incremental.Fetch(v, gs.managed, n); g.Merged != (name{}) {
		return g.Merged
	}
	return n
}

// maxDefaultGateways limits the default Gateways of a scope that routes attach to: any user who may create Gateways may create
// default ones, and each is examined for each route that asks for them.
const maxDefaultGateways = 64

// defaultScope is a scope of default Gateways.
type defaultScope gwv1.GatewayDefaultScope

func (s defaultScope) Compare(o defaultScope) int { return cmp.Compare(s, o) }

func (gs *gateways) newGateway(v *incremental.View, gw *gwv1.Gateway, c class) *gateway.Gateway {
	g := gateway.New(gw, gs.o.Cluster)
	if c.Problem != nil {
		g.Pending = condition.NewProblem(gwv1.GatewayReasonPending, "spec.gatewayClassName", "see the status of the GatewayClass",
			"GatewayClass %q is not accepted", gw.Spec.GatewayClassName)
	}
	gs.applyParameters(v, g, gw, c)
	return g
}

// applyParameters applies the parameters of the class and of the Gateway, and decides whether the Gateway is served. In a cluster,
// parameters only define how proxies run: if they cannot be used, the running proxies stay as they are and continue to serve.
func (gs *gateways) applyParameters(v *incremental.View, g *gateway.Gateway, gw *gwv1.Gateway, c class) {
	if infra := gw.Spec.Infrastructure; infra != nil && infra.ParametersRef != nil && isParameters(infra.ParametersRef.Group, infra.ParametersRef.Kind) {
		g.OwnParameters = infra.ParametersRef.Name
	}
	gs.applyClients(v, g, gw, c)
	if c.Merged != (name{}) {
		gs.applyMerged(g, gw, c)
		return
	}
	own, wrong := gs.gatewayParameters.ownParameters(v, gw)
	if gs.o.Cluster {
		g.Unserved = g.Refused != nil
		own, refused := parameters.Unlocked(c.Parameters, own)
		g.Notes = append(g.Notes, lockedNotes(gw, refused)...)
		g.Parameters = parameters.Merge(c.Parameters, own)
		if wrong == nil && c.Problem == nil {
			wrong = checkMergedService(g.Parameters.Service, g)
		}
		g.ParametersUnknown = wrong != nil || c.Problem != nil
		if infra := gw.Spec.Infrastructure; infra != nil && !g.ParametersUnknown {
			_, _, leftOut := parameters.Allowed(g.Parameters.ClassOnly, plain(infra.Labels), plain(infra.Annotations))
			for _, field := range leftOut {
				g.Notes = append(g.Notes, fmt.Sprintf("spec.infrastructure.%s: left out, because GatewayClass %q does not allow it; "+
					"remove it, or have it allowed by classOnly.infrastructure of the class's GatewayParameters", field, gw.Spec.GatewayClassName))
			}
		}
	} else {
		if wrong == nil && c.Problem == nil { // here it is served, but it would not be in a cluster
			own, _ := parameters.Unlocked(c.Parameters, own)
			merged := parameters.Merge(c.Parameters, own)
			if p := checkMergedService(merged.Service, g); p != nil {
				g.Notes = append(g.Notes, p.String())
			}
		}
		g.Unserved = g.Refused != nil || wrong != nil || c.Problem != nil || g.Unaddressed()
	}
	if wrong != nil {
		g.Refused = wrong
	}
}

// checkMergedService returns what is wrong with the parameters of a Gateway and its class together, each of which is valid alone; nil for nothing.
func checkMergedService(service *v1alpha1.Service, g *gateway.Gateway) *condition.Problem {
	p := parameters.DualStack(service)
	if p == nil {
		return nil
	}
	field := "spec.gatewayClassName"
	if g.OwnParameters != "" {
		field = "spec.infrastructure.parametersRef"
	}
	return condition.NewProblem(gwv1.GatewayReasonInvalidParameters, field, p.Remedy, "GatewayParameters, %s: %s", p.Field, p.What)
}

// applyMerged replaces the rest of applyParameters for a Gateway that is served together with all others of its class. Its own
// settings that would affect the others have no effect.
func (gs *gateways) applyMerged(g *gateway.Gateway, gw *gwv1.Gateway, c class) {
	g.Merged = types.NamespacedName(c.Merged)
	g.Parameters = parameters.Merge(c.Parameters, nil)
	g.ParametersUnknown = c.Problem != nil
	if infra := gw.Spec.Infrastructure; infra != nil {
		if infra.ParametersRef != nil && g.Refused == nil {
			g.Refused = condition.NewProblem(gwv1.GatewayReasonInvalidParameters, "spec.infrastructure.parametersRef", "remove it, or use a GatewayClass without mergeGateways",
				"GatewayClass %q has mergeGateways: its Gateways share proxies, and have no parameters of their own", gw.Spec.GatewayClassName)
		}
		for _, f := range []struct {
			field string
			set   int
		}{{"labels", len(infra.Labels)}, {"annotations", len(infra.Annotations)}} {
			if f.set > 0 {
				g.Notes = append(g.Notes, fmt.Sprintf("spec.infrastructure.%s: left out, because GatewayClass %q has mergeGateways: its Gateways share what they would be on; "+
					"remove it", f.field, gw.Spec.GatewayClassName))
			}
		}
	}
	g.Unserved = g.Refused != nil || g.Unaddressed() || !gs.o.Cluster && c.Problem != nil
}

// lockedNotes reports which fields of a Gateway's own parameters are not used because its class locks them.
func lockedNotes(gw *gwv1.Gateway, fields []string) (notes []string) {
	for _, field := range fields {
		notes = append(notes, fmt.Sprintf("spec.infrastructure.parametersRef: %s is not used, because GatewayClass %q locks it; remove it",
			field, gw.Spec.GatewayClassName))
	}
	return notes
}

// applyClients applies the parameters about clients and about the Redis server for rate limits. These apply also with files, and
// also if another field of the same parameters is invalid: if a Gateway stopped expecting PROXY headers, it would reject every
// client.
func (gs *gateways) applyClients(v *incremental.View, g *gateway.Gateway, gw *gwv1.Gateway, c class) {
	unchecked := gs.gatewayParameters.uncheckedOfGateway(v, gw)
	switch {
	case c.Merged != (name{}):
		unchecked = nil
	case c.Problem != nil && c.Unchecked == nil && unchecked != nil: // it is not known whether the class locks trustedProxies, so the Gateway's are not used
		untrusting := *unchecked
		untrusting.TrustedProxies = nil
		unchecked = &untrusting
	}
	own, refused := parameters.Unlocked(c.Unchecked, unchecked)
	merged := parameters.Merge(c.Unchecked, own)
	g.Clients = parameters.ClientsOf(&merged)
	redis := redisOf(c.Unchecked, c.Namespace)
	g.Redis, g.RedisKey = types.NamespacedName(redis.Secret), redis.Key
	if !gs.o.Cluster { // in a cluster applyParameters reports all locked fields
		refused = slices.DeleteFunc(refused, func(field string) bool { return !parameters.CountsInFiles(field) })
		g.Notes = append(g.Notes, lockedNotes(gw, refused)...)
	}
	for _, port := range g.Clients.Closed() {
		g.Notes = append(g.Notes, fmt.Sprintf("GatewayParameters, spec.ports: port %d has proxyProtocol, and trustedProxies is empty, so that "+
			"every connection is closed; name the load balancers in spec.trustedProxies", port))
	}
}

// listenerTerms is what a Gateway defines for all its listeners, including those of ListenerSets.
type listenerTerms struct {
	Created                    int64 // in nanoseconds since the epoch
	Addresses                  []string
	Refused, Pending, Unserved bool
	ListenerSets               listener.Namespaces // those that may attach
	Client                     *listener.CertificateRef
	Clients                    parameters.Clients
	Redis                      redisRef // that parameters name; the zero value if none
	Merged                     name     // gateway.Gateway.Merged
}

func (gs *gateways) declareListenerTerms(e *incremental.Engine) {
	gs.terms = incremental.Map(e, "Gateway's terms for listeners", gs.gatewayObjects,
		func(v *incremental.View, n name, gw *gwv1.Gateway) (listenerTerms, bool) {
			g, managed := incremental.Fetch(v, gs.all, n)
			if !managed {
				return listenerTerms{}, false
			}
			terms := listenerTerms{Created: g.Created, Refused: g.Refused != nil, Pending: g.Pending != nil, Unserved: g.Unserved,
				Client: listener.ClientCertificate(gw), Clients: g.Clients, Redis: redisRef{name(g.Redis), g.RedisKey}, Merged: name(g.Merged)}
			if !gs.o.Cluster && terms.Merged == (name{}) { // else the proxies have their own addresses
				terms.Addresses = distinct(g.Binds)
			}
			terms.ListenerSets.From = gwv1.NamespacesFromNone
			if allowed := gw.Spec.AllowedListeners; allowed != nil && allowed.Namespaces != nil {
				terms.ListenerSets = listener.Namespaces{From: ptr.Deref(allowed.Namespaces.From, gwv1.NamespacesFromNone), Selector: allowed.Namespaces.Selector}
			}
			return terms, true
		}, sameDeeply[listenerTerms])
}

// distinct removes addresses that another address of the list includes, because both could not be bound.
func distinct(addresses []string) []string {
	all4, all6 := slices.Contains(addresses, "0.0.0.0"), slices.Contains(addresses, "::")
	if !all4 && !all6 {
		return addresses
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool {
		ip, err := netip.ParseAddr(a)
		if err != nil || ip.IsUnspecified() {
			return false
		}
		if ip.Unmap().Is4() {
			return all4
		}
		return all6
	})
}

// gatewayOutcome is what ListenerSets need to know of the status of their Gateway. If all listeners of the Gateway itself are
// invalid, it is not accepted, but still serves listeners of ListenerSets.
type gatewayOutcome struct{ ServesSets, Programmed bool }

// gatewayStatuses computes the statuses of Gateways.
type gatewayStatuses struct {
	o                    *Options
	gateways             *gateways
	listeners            *listeners
	listenerCertificates *listenerCertificates
	clientValidations    *clientValidations
	infrastructure       *infrastructure
	listenerStates       *listenerStates
	routes               *routes
	policies             []*policyGateways // one for each kind of policy

	all      *incremental.Collection[name, *status[gwv1.GatewayStatus]]
	outcomes *incremental.Collection[name, gatewayOutcome]
}

func newGatewayStatuses(e *incremental.Engine, o *Options,
	gateways *gateways, listeners *listeners, listenerCertificates *listenerCertificates, clientValidations *clientValidations, infrastructure *infrastructure,
	listenerStates *listenerStates, routes *routes, policies ...*policyGateways) *gatewayStatuses {
	gst := &gatewayStatuses{o: o, gateways: gateways, listeners: listeners, listenerCertificates: listenerCertificates, clientValidations: clientValidations, infrastructure: infrastructure, listenerStates: listenerStates, routes: routes, policies: policies}
	gst.all = incremental.Map(e, "Gateway status", gateways.all,
		func(v *incremental.View, n name, g *gateway.Gateway) (*status[gwv1.GatewayStatus], bool) {
			return &status[gwv1.GatewayStatus]{g.Generation, gst.gatewayStatus(v, n, g)}, true
		}, sameDeeply[*status[gwv1.GatewayStatus]])
	gst.outcomes = incremental.Map(e, "Gateway's outcome", gst.all,
		func(_ *incremental.View, _ name, s *status[gwv1.GatewayStatus]) (gatewayOutcome, bool) {
			return gatewayOutcome{servesSets(s.Status.Conditions), meta.IsStatusConditionTrue(s.Status.Conditions, string(gwv1.GatewayConditionProgrammed))}, true
		}, same[gatewayOutcome])
	return gst
}

// servesSets reports whether a Gateway with these conditions serves valid listeners of ListenerSets.
func servesSets(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, string(gwv1.GatewayConditionAccepted))
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == string(gwv1.GatewayReasonListenersNotValid))
}

// gatewayStatus reads the listeners and the number of routes of each, but no route.
func (gst *gatewayStatuses) gatewayStatus(v *incremental.View, n name, g *gateway.Gateway) gwv1.GatewayStatus {
	var s gwv1.GatewayStatus
	var sum gateway.Summary
	for _, listener := range g.Listeners {
		key := listenerKey{Gateway: n, Name: listener}
		state, _ := incremental.Fetch(v, gst.listenerStates.all, key)
		sum.Add(listener, state.Accepted, state.Resolved, state.Programmed)
		s.Listeners = append(s.Listeners, gwv1.ListenerStatus{
			Name:           gwv1.SectionName(listener),
			SupportedKinds: state.Kinds,
			AttachedRoutes: gst.routes.attachedRoutes(v, key),
			Conditions:     condition.Observed(g.Generation, state.Conditions...),
		})
	}
	var reached assignment
	if gst.o.Cluster {
		reached = gst.infrastructure.clusterAddresses(v, n, g)
	} else {
		reached = gst.infrastructure.localAddresses(v, n, g)
	}
	s.Addresses = reached.Addresses
	terms, _ := incremental.Fetch(v, gst.gateways.terms, n)
	if terms.Client != nil {
		_, p := gst.listenerCertificates.resolveClientCertificate(v, n, *terms.Client)
		sum.Unresolved(p)
	}
	if len(g.Frontends) > 0 {
		own, all, won := gst.listeners.httpsPorts(v, n)
		g.NoteFrontends(won, &sum)
		sum.Unresolved(gst.clientValidations.unresolvedForSets(v, n, own, all))
	}
	for _, policies := range gst.policies {
		sum.Note(policies.unnamedPolicies(v, n))
	}
	conditions := g.Conditions(&sum, reached.Unreached, reached.Lagging)
	if reached.Assigned != nil && g.Refused == nil && g.Pending == nil {
		conditions = append(conditions, *reached.Assigned)
	}
	s.Conditions = condition.Observed(g.Generation, conditions...)
	s.AttachedListenerSets = gst.attachedListenerSets(v, n, terms.ListenerSets.From, s.Conditions)
	return s
}

// attachedListenerSets returns the number of accepted ListenerSets of a Gateway with these conditions. It returns nil if the Gateway allows none and none names it:
// versions of the API before ListenerSet do not have the field.
func (gst *gatewayStatuses) attachedListenerSets(v *incremental.View, n name, allowed gwv1.FromNamespaces, conditions []metav1.Condition) *int32 {
	if (allowed == "" || allowed == gwv1.NamespacesFromNone) && incremental.Count(v, gst.listeners.setsNaming, n) == 0 {
		return nil
	}
	count := int32(0)
	if servesSets(conditions) {
		count = int32(incremental.Count(v, gst.listenerStates.acceptedSets, n))
	}
	return &count
}
