// Package lint reports what is valid in a set of objects but probably not intended: certificates that clients will reject, Services
// without endpoints, rules without a backend, matches that never match a request, protection that clients can bypass. It is separate
// from package translate because a status must not report these: in a cluster, what is missing may be created later.
//
// It must not import translate, proxy or cli.
package lint

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
)

// Finding is something that is probably not intended.
type Finding struct {
	Object kind.ObjectKey
	// Field is a path such as spec.rules[0].matches[1]; "" is the whole object.
	Field string
	// Message is what was found, and Remedy what to do about it.
	Message, Remedy string
}

// Soon is how long before its expiry a certificate is reported.
const Soon = 14 * 24 * time.Hour

// Lint examines objects with the types of package kind; it ignores others. refused are objects that exist and are invalid, so they
// are not reported as missing. resources are what proxies would serve of the objects. now is the time with which certificates are
// compared. The findings are sorted by object and field.
func Lint(objects []metav1.Object, refused []kind.ObjectKey, resources []*config.Resource, now time.Time) []Finding {
	l := &linter{now: now, refused: refused, secrets: map[key]*corev1.Secret{}, grants: map[string][]*gwv1.ReferenceGrant{}, namespaces: map[string]labels.Set{}, services: map[key]*corev1.Service{}, slices: map[key][]*discoveryv1.EndpointSlice{},
		trustsNone: map[kind.ObjectKey]bool{}, taken: map[place]map[string]winner{}, originals: map[place]int{}}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Secret:
			l.secrets[keyOf(o)] = o
		case *corev1.Namespace:
			l.namespaces[o.Name] = o.Labels
		case *gwv1.ReferenceGrant:
			l.grants[o.Namespace] = append(l.grants[o.Namespace], o)
		case *corev1.Service:
			l.services[keyOf(o)] = o
		case *discoveryv1.EndpointSlice:
			of := key{o.Namespace, o.Labels[discoveryv1.LabelServiceName]}
			l.slices[of] = append(l.slices[of], o)
		}
	}
	routes, listeners := routesOf(resources), listenersOf(resources)
	for _, r := range routes {
		l.trustsNone[r.id] = !slices.ContainsFunc(r.attachments, func(a *config.Attachment) bool {
			listener := listeners[a.Listener]
			return len(listener.GetTrustedProxies())+len(listener.GetFilters()) > 0
		})
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *gwv1.Gateway:
			for i, listener := range o.Spec.Listeners {
				l.certificates(o, i, listener.Hostname, listener.TLS)
			}
		case *gwv1.ListenerSet:
			for i, listener := range o.Spec.Listeners {
				l.certificates(o, i, listener.Hostname, listener.TLS)
			}
		case *gwx.XListenerSet:
			l.replacedKind(o)
			for i, listener := range o.Spec.Listeners {
				if listener.TLS != nil {
					l.certificates(o, i, listener.Hostname, &gwv1.ListenerTLSConfig{Mode: listener.TLS.Mode, CertificateRefs: listener.TLS.CertificateRefs})
				}
			}
		case *discoveryv1.EndpointSlice:
			l.endpointSlice(o)
		case *gwv1.HTTPRoute:
			l.matchValues(o)
		case *eg.BackendTrafficPolicy:
			l.targetSelectors(o, objects)
		}
		for _, ref := range backendsOf(o) {
			l.backend(o.GetNamespace(), ref)
		}
		l.unserved(o)
		l.hostnames(o)
		l.headerNames(o)
		l.mirrors(o)
	}
	l.matches(objects, routes)
	l.redirects(objects, routes, listeners)
	l.protections(objects)
	slices.SortFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(a.Object.Compare(b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(l.findings) // a Service that several routes name
}

type linter struct {
	now     time.Time
	refused []kind.ObjectKey
	secrets map[key]*corev1.Secret
	grants  map[string][]*gwv1.ReferenceGrant // by namespace
	// namespaces are the labels of the Namespaces among the objects.
	namespaces map[string]labels.Set
	services   map[key]*corev1.Service
	slices     map[key][]*discoveryv1.EndpointSlice // by Service
	// trustsNone are the routes none of whose listeners trusts a proxy in front of it, or has filters that may set header fields.
	trustsNone map[kind.ObjectKey]bool
	taken      map[place]map[string]winner // the matches that take precedence
	originals  map[place]int               // the number of hostnames of routes by place.ofAnyOriginal
	findings   []Finding
}

// key identifies an object of a given kind.
type key struct{ namespace, name string }

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

func (l *linter) add(o metav1.Object, field, message, remedy string) {
	l.addTo(kind.KeyOf(o), field, message, remedy)
}

func (l *linter) addTo(id kind.ObjectKey, field, message, remedy string) {
	l.findings = append(l.findings, Finding{id, field, message, remedy})
}
