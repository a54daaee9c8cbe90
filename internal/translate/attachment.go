package translate

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/intern"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// admission contains what decides whether a listener accepts a route, and nothing else. Other changes of a listener therefore do not
// cause its routes to be translated again.
type admission struct {
	Port        int32
	Hostname    string
	Kinds       []gwv1.RouteGroupKind
	Namespaces  listener.Namespaces
	Passthrough bool
}

// attachment is the result of a route's parentRefs.
type attachment struct {
	Parents   []parent        // the parentRefs whose Gateway is managed, in the order of the spec, then the default Gateways
	Listeners []listenerKey   // the listeners that accept the route; sorted, distinct
	Hosts     []attachedHosts // one for each of Listeners
	Invalid   bool            // the route is not accepted although listeners allow it
	Gateways  []name          // of Parents; sorted, distinct

	Expressions int   // size of the route's regular expressions, for the limit of each of Listeners
	Created     int64 // in nanoseconds since the epoch
}

// reaching returns the Gateways that accept the route and so reach its backends; sorted, distinct. With passthrough it includes
// those that only forward TLS without terminating it: policies for TLS to backends do not apply to them.
func (a *attachment) reaching(passthrough bool) (gateways []name) {
	for _, p := range a.Parents {
		if p.Problem == nil && (passthrough || !p.Passthrough) {
			gateways = append(gateways, p.Gateway)
		}
	}
	slices.SortFunc(gateways, name.Compare)
	return slices.Compact(gateways)
}

type attachedHosts struct {
	Hostnames   []*config.Hostname
	Passthrough bool // the listener forwards TLS without terminating it
}

// parent is a parentRef whose Gateway is managed by this controller.
type parent struct {
	Ref     gwv1.ParentReference
	Gateway name               // the Gateway that it names, or that the ListenerSet is attached to
	Problem *condition.Problem // nil if the route is accepted
	// Default is set if the route does not name the Gateway, but asks for default Gateways.
	Default bool
	// Passthrough is set if all listeners that accept the route forward TLS without terminating it, so that policies for TLS to
	// backends do not apply.
	Passthrough bool
}

// admissions decides which listeners accept a route.
type admissions struct {
	namespaces *namespaces
	gateways   *gateways
	listeners  *listeners

	all        *incremental.Collection[listenerKey, admission]
	byOwner    *incremental.Index[kindName, listenerKey, admission]
	byPort     *incremental.Index[portKey, listenerKey, admission]
	byHostname *incremental.Index[hostnameKey, listenerKey, admission]

	same struct { // used in most attachments
		parents   intern.Values[[]parent]
		listeners intern.Values[[]listenerKey]
		gateways  intern.Values[[]name]
	}
}

func newAdmissions(e *incremental.Engine, namespaces *namespaces, gateways *gateways, listeners *listeners) *admissions {
	ad := &admissions{namespaces: namespaces, gateways: gateways, listeners: listeners}
	ad.all = incremental.Map(e, "listener admission", ad.listeners.all,
		func(_ *incremental.View, _ listenerKey, l *listener.Listener) (admission, bool) {
			return admission{l.Port, l.Hostname, l.Kinds, l.Namespaces, l.Passthrough}, true
		}, sameDeeply[admission])
	ad.byOwner = incremental.NewIndex(ad.all, "listeners by owner",
		func(k listenerKey, _ admission) []kindName { return []kindName{k.Owner()} })
	ad.byPort = incremental.NewIndex(ad.all, "listeners by port",
		func(k listenerKey, a admission) []portKey { return []portKey{{k.Owner(), a.Port}} })
	ad.byHostname = incremental.NewIndex(ad.all, "listeners by hostname",
		func(k listenerKey, a admission) (keys []hostnameKey) {
			if !slices.ContainsFunc(a.Kinds, haveHostnames) {
				return nil
			}
			for _, h := range listener.HostnameKeys(a.Hostname) {
				keys = append(keys, hostnameKey{k.Owner(), h})
			}
			return keys
		})
	return ad
}

// portKey is a port of a Gateway or ListenerSet.
type portKey struct {
	Owner kindName
	Port  int32
}

// hostnameKey is one of listener.HostnameKeys for the listeners of a Gateway or ListenerSet.
type hostnameKey struct {
	Owner    kindName
	Hostname string
}

// routeFacts contains what attachment needs to know about a route of any kind.
type routeFacts struct {
	Kind      Kind
	Name      name
	Parents   []gwv1.ParentReference
	Scope     gwv1.GatewayDefaultScope // of the default Gateways that it asks for, "" if none
	Hostnames []gwv1.Hostname
	// Invalid is why no Gateway accepts the route, nil if one may.
	Invalid *condition.Problem
}

// factsOf returns the facts of a route without its rules.
func factsOf(k kindName, o metav1.Object) *routeFacts {
	facts := &routeFacts{Kind: k.Kind, Name: k.Name, Parents: kind.ParentsOf(o), Scope: kind.DefaultScopeOf(o)}
	if rk := routeKindOf(k.Kind); rk.hostnames != nil {
		facts.Hostnames = rk.hostnames(o)
	}
	return facts
}

// attach decides about each parentRef whose Gateway is managed, and ignores the others. It treats the default Gateways of the
// route's scope as if the route named all of them (GEP-3793).
func (ad *admissions) attach(v *incremental.View, r *routeFacts) *attachment {
	a := &attachment{}
	hosts := map[listenerKey]attachedHosts{}
	add := func(ref gwv1.ParentReference, field string, byDefault bool) {
		on, managed, p := ad.parentObject(v, r, ref)
		if !managed || !byDefault && a.names(ref) {
			return
		}
		if !slices.Contains(a.Gateways, on.Gateway) {
			a.Gateways = append(a.Gateways, on.Gateway)
		}
		passthrough := false
		if p != nil {
			p.Field = field + p.Field
		} else if passthrough, p = ad.attachTo(v, r, on, ref, field, hosts); p == nil {
			p = r.Invalid
		}
		a.Parents = append(a.Parents, parent{ref, on.Gateway, p, byDefault, passthrough})
	}
	for i, ref := range r.Parents {
		add(ref, fmt.Sprintf("spec.parentRefs[%d]", i), false)
	}
	named := len(a.Parents)
	for _, ref := range ad.defaults(v, r) {
		add(ref, "spec.useDefaultGateways", true)
	}
	// A status has room for few entries: Gateways that serve the route come first, because any user may create further default
	// Gateways.
	slices.SortStableFunc(a.Parents[named:], func(a, b parent) int {
		return compareBool(a.Problem != nil, b.Problem != nil)
	})
	slices.SortFunc(a.Gateways, name.Compare)
	a.Invalid = r.Invalid != nil
	for k := range hosts {
		a.Listeners = append(a.Listeners, k)
	}
	slices.SortFunc(a.Listeners, listenerKey.Compare)
	if len(a.Listeners) > 0 {
		a.Hosts = make([]attachedHosts, len(a.Listeners))
	}
	for i, k := range a.Listeners {
		if a.Hosts[i] = hosts[k]; i > 0 && sameHostnames(a.Hosts[i].Hostnames, a.Hosts[i-1].Hostnames) {
			a.Hosts[i].Hostnames = a.Hosts[i-1].Hostnames
		}
	}
	a.Parents, a.Listeners, a.Gateways = ad.same.parents.Of(a.Parents), ad.same.listeners.Of(a.Listeners), ad.same.gateways.Of(a.Gateways)
	return a
}

func sameHostnames(a, b []*config.Hostname) bool {
	return slices.EqualFunc(a, b, sameMessage[*config.Hostname])
}

// names reports whether the attachment already contains the parentRef.
func (a *attachment) names(ref gwv1.ParentReference) bool {
	return slices.ContainsFunc(a.Parents, func(p parent) bool { return sameDeeply(p.Ref, ref) })
}

// defaults returns references to the default Gateways of the route's scope, without duplicates, and without those that a parentRef
// of the route names as a whole.
func (ad *admissions) defaults(v *incremental.View, r *routeFacts) (refs []gwv1.ParentReference) {
	if r.Scope == "" {
		return nil
	}
	first, _ := incremental.Fetch(v, ad.gateways.defaults, defaultScope(r.Scope))
	for _, gw := range first {
		if !slices.ContainsFunc(r.Parents, func(ref gwv1.ParentReference) bool { return namesWhole(ref, r.Name.Namespace, gw) }) {
			refs = append(refs, gatewayRef(gw))
		}
	}
	return refs
}

// namesWhole reports whether a parentRef of an object in a namespace selects all listeners of a Gateway.
func namesWhole(ref gwv1.ParentReference, namespace string, gw name) bool {
	return ptr.Deref(ref.Group, gwv1.GroupName) == gwv1.GroupName && ptr.Deref(ref.Kind, gwv1.Kind(KindGateway)) == gwv1.Kind(KindGateway) &&
		string(ptr.Deref(ref.Namespace, gwv1.Namespace(namespace))) == gw.Namespace && string(ref.Name) == gw.Name &&
		ptr.Deref(ref.SectionName, "") == "" && ref.Port == nil
}

// gatewayRef returns the parentRef of a Gateway, with all defaults of the CRDs.
func gatewayRef(gw name) gwv1.ParentReference {
	return gwv1.ParentReference{Group: new(gwv1.Group(gwv1.GroupName)), Kind: new(gwv1.Kind(KindGateway)),
		Namespace: new(gwv1.Namespace(gw.Namespace)), Name: gwv1.ObjectName(gw.Name)}
}

// parentObject is the object that a parentRef names: a Gateway, or a ListenerSet of one.
type parentObject struct {
	Kind    Kind
	Name    name
	Gateway name // equals Name if it is a Gateway
}

// listener returns the key of one of its listeners.
func (p parentObject) listener(listenerName string) listenerKey {
	k := listenerKey{Gateway: p.Gateway, Name: listenerName}
	if p.Kind != KindGateway {
		k.Set = setOf(p.owner())
	}
	return k
}

func (p parentObject) owner() kindName { return kindName{p.Kind, p.Name} }

func (p parentObject) String() string { return string(p.Kind) + " " + p.Name.String() }

// parentObject returns the object that a parentRef names, and whether it is managed by this controller.
func (ad *admissions) parentObject(v *incremental.View, r *routeFacts, ref gwv1.ParentReference) (parentObject, bool, *condition.Problem) {
	n := name{string(ptr.Deref(ref.Namespace, gwv1.Namespace(r.Name.Namespace))), string(ref.Name)}
	on := parentObject{Kind(ptr.Deref(ref.Kind, gwv1.Kind(KindGateway))), n, n}
	if k := kind.Named(string(on.Kind)); k == nil || ptr.Deref(ref.Group, gwv1.GroupName) != gwv1.Group(k.Group) {
		return on, false, nil
	}
	switch on.Kind {
	case KindGateway:
		_, managed := incremental.Fetch(v, ad.gateways.managed, n)
		return on, managed, nil
	case KindListenerSet, KindXListenerSet:
		set, managed := incremental.Fetch(v, ad.listeners.sets, on.owner())
		if !managed {
			return on, false, nil
		}
		on.Gateway = set.Gateway
		if set.Refused != nil {
			return on, true, condition.NewProblem(gwv1.RouteReasonNotAllowedByListeners, "", "see its status",
				"%s is not served: %s", on, set.Refused.What)
		}
		return on, true, nil
	}
	return on, false, nil
}

// attachTo adds to hosts what the parent's listeners accept for one parentRef; the problem says why none accepts the route.
// passthrough is parent.Passthrough.
func (ad *admissions) attachTo(v *incremental.View, r *routeFacts, on parentObject, ref gwv1.ParentReference,
	field string, hosts map[listenerKey]attachedHosts) (passthrough bool, _ *condition.Problem) {
	accepted := false
	passthrough = true
	for _, k := range ad.listenersFor(v, r, on, ref) {
		a, exists := incremental.Fetch(v, ad.all, k)
		if !exists || !onPort(ref, &a) || ad.refusal(v, r, k, &a) != "" {
			continue
		}
		if list := listener.Intersection(a.Hostname, r.Hostnames); len(list) > 0 {
			hosts[k] = attachedHosts{list, a.Passthrough}
			accepted, passthrough = true, passthrough && a.Passthrough
		}
	}
	if accepted {
		return passthrough, nil
	}
	return false, ad.notAttached(v, r, on, ref, field)
}

// maxHostnameKeys limits the keys that are looked up, and remembered, for each parentRef of a route: hostnames with a hundred labels
// have thousands of suffixes, while a Gateway has at most 64 listeners.
const maxHostnameKeys = 128

// listenersFor returns the listeners that may accept the route: all that do, and few others. Because it reads no more than these, a
// new listener does not cause every route of its Gateway to be translated again.
func (ad *admissions) listenersFor(v *incremental.View, r *routeFacts, on parentObject, ref gwv1.ParentReference) (keys []listenerKey) {
	if ref.SectionName != nil && *ref.SectionName != "" || len(r.Hostnames) == 0 {
		return ad.selected(v, on, ref)
	}
	hostnames := listener.MatchingHostnameKeys(r.Hostnames)
	if len(hostnames) > maxHostnameKeys {
		return ad.selected(v, on, ref)
	}
	for _, h := range hostnames {
		keys = append(keys, incremental.Lookup(v, ad.byHostname, hostnameKey{on.owner(), h})...)
	}
	return keys
}

// selected returns the listeners that a parentRef selects. A listener that it names may be absent, or have another port.
func (ad *admissions) selected(v *incremental.View, on parentObject, ref gwv1.ParentReference) []listenerKey {
	switch section := ptr.Deref(ref.SectionName, ""); {
	case section != "":
		return []listenerKey{on.listener(string(section))}
	case ref.Port != nil:
		return incremental.Lookup(v, ad.byPort, portKey{on.owner(), *ref.Port})
	}
	return incremental.Lookup(v, ad.byOwner, on.owner())
}

// onPort reports whether the port of a parentRef, if it has one, is that of the listener.
func onPort(ref gwv1.ParentReference, a *admission) bool {
	return ref.Port == nil || *ref.Port == a.Port
}

// notAttached returns why no listener accepts the route. It reads all listeners that the parentRef selects, to report on each.
func (ad *admissions) notAttached(v *incremental.View, r *routeFacts, on parentObject, ref gwv1.ParentReference, field string) *condition.Problem {
	candidates := ad.candidates(v, on, ref)
	if len(candidates) == 0 {
		return noMatchingParent(on, ref, field)
	}
	var refusals []string
	allowing := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool {
		refusal := ad.refusal(v, r, c.key, &c.admission)
		if refusal != "" {
			refusals = append(refusals, refusal)
		}
		return refusal != ""
	})
	if len(allowing) > 0 {
		return condition.NewProblem(gwv1.RouteReasonNoMatchingListenerHostname, "spec.hostnames",
			"change spec.hostnames or a listener's hostname", "no listener of %s that allows the route has a hostname in common with it (%s)",
			on, hostnamesOf(allowing))
	}
	remedy := "change allowedRoutes of the " + string(on.Kind) + " or attach elsewhere"
	if !slices.ContainsFunc(candidates, func(c candidate) bool { return c.takes(r.Kind) }) {
		remedy = fmt.Sprintf("attach to a listener of protocol %s that takes %ss", protocolsOf[r.Kind], r.Kind)
	}
	return condition.NewProblem(gwv1.RouteReasonNotAllowedByListeners, field, remedy,
		"%s does not allow it: %s", on, strings.Join(refusals, ", "))
}

// candidate is a listener that a parentRef selects.
type candidate struct {
	key listenerKey
	admission
}

func (ad *admissions) candidates(v *incremental.View, on parentObject, ref gwv1.ParentReference) (out []candidate) {
	for _, k := range ad.selected(v, on, ref) {
		a, exists := incremental.Fetch(v, ad.all, k)
		if exists && onPort(ref, &a) {
			out = append(out, candidate{k, a})
		}
	}
	return out
}

func hostnamesOf(candidates []candidate) string {
	var out []string
	for _, c := range candidates {
		out = append(out, fmt.Sprintf("%q has %q", c.key.Name, c.Hostname))
	}
	return "listener " + strings.Join(out, ", ")
}

func noMatchingParent(on parentObject, ref gwv1.ParentReference, field string) *condition.Problem {
	var asked []string
	remedy := "add a listener to the " + string(on.Kind)
	switch {
	case ref.SectionName != nil && ref.Port != nil:
		field, remedy = field+".sectionName", "name a listener with that port, or leave one of both out"
	case ref.SectionName != nil:
		field, remedy = field+".sectionName", "correct the name"
	case ref.Port != nil:
		field, remedy = field+".port", "correct the port"
	}
	if ref.SectionName != nil {
		asked = append(asked, fmt.Sprintf(" named %q", *ref.SectionName))
	}
	if ref.Port != nil {
		asked = append(asked, fmt.Sprintf(" on port %d", *ref.Port))
	}
	return condition.NewProblem(gwv1.RouteReasonNoMatchingParent, field, remedy, "%s has no listener%s", on, strings.Join(asked, ""))
}

// protocolsOf names, for a kind of route, the protocols of the listeners that can take it.
var protocolsOf = map[Kind]string{
	KindHTTPRoute: "HTTP or HTTPS", KindGRPCRoute: "HTTP or HTTPS", KindTLSRoute: "TLS", KindTCPRoute: "TCP", KindUDPRoute: "UDP",
}

// takes reports whether the listener takes routes of a kind.
func (a *admission) takes(k Kind) bool {
	return slices.ContainsFunc(a.Kinds, func(g gwv1.RouteGroupKind) bool { return Kind(g.Kind) == k })
}

// refusal returns why a listener does not allow a route at all, or "".
func (ad *admissions) refusal(v *incremental.View, r *routeFacts, k listenerKey, a *admission) string {
	if !a.takes(r.Kind) {
		return fmt.Sprintf("listener %q takes no %s", k.Name, r.Kind)
	}
	refused := fmt.Sprintf("listener %q takes no routes of namespace %s", k.Name, r.Name.Namespace)
	switch a.Namespaces.From {
	case gwv1.NamespacesFromAll:
		return ""
	case gwv1.NamespacesFromSame:
		if k.Owner().Name.Namespace == r.Name.Namespace {
			return ""
		}
	case gwv1.NamespacesFromSelector:
		if ad.namespaces.selects(v, a.Namespaces.Selector, r.Name.Namespace) {
			return ""
		}
		return refused + ", whose labels its selector does not select"
	}
	return refused
}
