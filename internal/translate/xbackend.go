package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
	"github.com/moongate-dev/moongate/internal/translate/policy"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// xbackend is the result of an XBackend and of the objects to which its tls refers.
type xbackend struct {
	UID      types.UID
	Port     int32
	Hostname string // of type ExternalHostname; "" for the other type
	// Speaks is spec.protocol; Protocol is the corresponding protocol of requests.
	Speaks   apisx.BackendProtocol
	Protocol config.BackendProtocol
	TLS      *config.BackendTLS         // nil means cleartext
	Sessions *config.SessionPersistence // nil if it has no session persistence
	Invalid  *condition.Problem         // why it cannot be used
	// Unsecured is why connections to it cannot be secured as tls requires. It is ignored if clients themselves speak TLS with it.
	Unsecured *condition.Problem
	Refs      []*condition.Problem // references of tls that cannot be used
}

func (x *xbackend) same(o *xbackend) bool {
	return x.UID == o.UID && x.Port == o.Port && x.Hostname == o.Hostname && x.Speaks == o.Speaks && x.Protocol == o.Protocol && sameMessage(x.TLS, o.TLS) &&
		sameMessage(x.Sessions, o.Sessions) && sameDeeply(x.Invalid, o.Invalid) && sameDeeply(x.Unsecured, o.Unsecured) && sameDeeply(x.Refs, o.Refs)
}

// lacksProtocol reports whether it has no protocol, so that the object that refers to it decides.
func (x *xbackend) lacksProtocol() bool { return x.Speaks == "" }

// xbackends contains XBackends, without their effect on routes.
type xbackends struct {
	backendTLSPolicies *backendTLSPolicies
	certificates       *listenerCertificates

	objects *incremental.Collection[name, *apisx.XBackend]
	inUse   *incremental.Collection[name, *apisx.XBackend] // those that are named as backends
	all     *incremental.Collection[name, *xbackend]       // of inUse
}

func newXBackends(e *incremental.Engine, objects, inUse *incremental.Collection[name, *apisx.XBackend], backendTLSPolicies *backendTLSPolicies, certificates *listenerCertificates) *xbackends {
	xs := &xbackends{objects: objects, inUse: inUse, backendTLSPolicies: backendTLSPolicies, certificates: certificates}
	xs.all = incremental.Map(e, "XBackend", inUse,
		func(v *incremental.View, n name, x *apisx.XBackend) (*xbackend, bool) {
			return xs.read(v, n, x), true
		}, (*xbackend).same)
	return xs
}

// xbackendUsers contains the routes that managed Gateways accept, in namespaces with XBackends. An XBackend does not name its
// implementation: another one may use it too.
type xbackendUsers struct {
	byXBackend  *incremental.Index[name, kindName, []name]
	byNamespace *incremental.Index[string, kindName, []name]
}

func newXBackendUsers(e *incremental.Engine, objects *incremental.Collection[name, *apisx.XBackend],
	routeNamespaces *routeNamespaces, admissions *admissions) *xbackendUsers {
	namespaces := incremental.NewIndex(objects, "XBackends by namespace", func(n name, _ *apisx.XBackend) []string { return []string{n.Namespace} })
	routes := mapRoutesWhere(e, routeNamespaces, "route beside XBackends",
		func(v *incremental.View, k kindNamespace) bool {
			return incremental.Count(v, namespaces, k.Namespace) > 0
		},
		func(v *incremental.View, k kindName, o metav1.Object) ([]name, bool) {
			return namedXBackends(k, o), len(admissions.attach(v, factsOf(k, o)).Listeners) > 0
		}, slices.Equal[[]name])
	return &xbackendUsers{
		incremental.NewIndex(routes, "routes by XBackend that they name", func(_ kindName, named []name) []name { return named }),
		incremental.NewIndex(routes, "routes beside XBackends by namespace", func(k kindName, _ []name) []string { return []string{k.Name.Namespace} }),
	}
}

// xbackendsInUse returns those that routes, listeners or XTelemetryPolicies of managed Gateways name.
func xbackendsInUse(e *incremental.Engine, objects *incremental.Collection[name, *apisx.XBackend], users *xbackendUsers, listeners *listeners,
	collectors *incremental.Index[policy.Target, name, *apisx.XTelemetryPolicy]) *incremental.Collection[name, *apisx.XBackend] {
	return incremental.Map(e, "XBackend in use", objects,
		func(v *incremental.View, n name, x *apisx.XBackend) (*apisx.XBackend, bool) {
			target := xbackendTarget(n)
			return x, incremental.Count(v, users.byXBackend, n)+incremental.Count(v, listeners.byBackend, target)+incremental.Count(v, collectors, target) > 0
		}, sameDeeply[*apisx.XBackend])
}

// xbackendsByAuthorities indexes XBackends by the objects whose authorities verify them.
func xbackendsByAuthorities(xbackends *incremental.Collection[name, *apisx.XBackend]) *incremental.Index[kindName, name, *apisx.XBackend] {
	return incremental.NewIndex(xbackends, "XBackends by authorities", func(n name, x *apisx.XBackend) []kindName {
		if x.Spec.TLS == nil || x.Spec.TLS.Validation == nil {
			return nil
		}
		return authoritiesOf(n.Namespace, x.Spec.TLS.Validation)
	})
}

// xbackendTarget returns the target by which policies refer to an XBackend.
func xbackendTarget(n name) policy.Target {
	return policy.Target{Group: gwx.GroupName, Kind: string(KindXBackend), Namespace: n.Namespace, Name: n.Name}
}

func isXBackend(t policy.Target) bool {
	return t.Group == gwx.GroupName && t.Kind == string(KindXBackend)
}

// clusterDomain is the default domain of Services.
const clusterDomain = "cluster.local"

// xbackendProtocols are the values of spec.protocol. HTTP2 and WSS require TLS, H2C forbids it, and spec.tls decides for the others.
var xbackendProtocols = map[apisx.BackendProtocol]config.BackendProtocol{
	"":                          config.BackendProtocol_BACKEND_PROTOCOL_HTTP,
	apisx.BackendProtocolHTTP:   config.BackendProtocol_BACKEND_PROTOCOL_HTTP,
	apisx.BackendProtocolHTTP11: config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET, // WebSocket begins with an HTTP/1.1 request
	apisx.BackendProtocolHTTP2:  config.BackendProtocol_BACKEND_PROTOCOL_H2C,
	apisx.BackendProtocolH2C:    config.BackendProtocol_BACKEND_PROTOCOL_H2C,
	apisx.BackendProtocolGRPC:   config.BackendProtocol_BACKEND_PROTOCOL_H2C,
	apisx.BackendProtocolWSS:    config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET,
	apisx.BackendProtocolMCP:    config.BackendProtocol_BACKEND_PROTOCOL_HTTP, // the transport of MCP
	apisx.BackendProtocolTCP:    config.BackendProtocol_BACKEND_PROTOCOL_HTTP, // no requests are sent to it
}

// read validates an XBackend. It repeats the checks of the CustomResourceDefinition, which may not have been made.
func (xs *xbackends) read(v *incremental.View, n name, object *apisx.XBackend) *xbackend {
	spec := &object.Spec
	x := &xbackend{UID: object.UID, Port: int32(spec.Port.Number), Speaks: ptr.Deref(spec.Protocol, "")}
	if x.Port < 1 || x.Port > 65535 {
		x.invalid("spec.port.number", "use a number from 1 to 65535", "%d is not a port", x.Port)
	}
	protocol, known := xbackendProtocols[x.Speaks]
	if x.Protocol = protocol; !known {
		x.invalid("spec.protocol", "use TCP, HTTP, HTTP2, HTTP11, H2C, MCP, GRPC or WSS", "%q is not known", x.Speaks)
	}
	switch {
	case spec.Type == apisx.BackendTypeExternalHostname && spec.ExternalHostname != nil:
		x.readHostname(strings.ToLower(string(spec.ExternalHostname.Hostname)))
	case spec.Type == apisx.BackendTypeExternalHostname:
		x.invalid("spec.externalHostname", "add it", "there is no name of a host")
	case spec.Type == apisx.BackendTypeEndpointSelector && spec.EndpointSelector == nil:
		x.invalid("spec.endpointSelector", "add it", "no pods are selected")
	case spec.Type != apisx.BackendTypeEndpointSelector:
		x.invalid("spec.type", "use ExternalHostname or EndpointSelector", "%q is not known", spec.Type)
	}
	xs.readTLS(v, n, spec.TLS, x)
	if sp := spec.SessionPersistence; sp != nil {
		if x.Hostname != "" {
			x.invalid("spec.sessionPersistence", "remove it", "sessions persist with endpoints of type EndpointSelector alone")
		}
		sessions, wrong := rule.SessionPersistence(&gwx.SessionPersistence{AbsoluteTimeout: sp.AbsoluteTimeout, Type: sp.Type, Cookie: sp.Cookie, Header: sp.Header},
			"spec.sessionPersistence", kind.XBackend.Name+" "+n.String())
		if x.Sessions = sessions; wrong != nil {
			x.invalid(wrong.Field, wrong.Remedy, "%s", wrong.What)
		}
	}
	return x
}

// readHostname reads the name of a host outside of the cluster.
func (x *xbackend) readHostname(host string) {
	const field = "spec.externalHostname.hostname"
	x.Hostname = host
	_, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		x.invalid(field, "write the name of a host, or select endpoints", "%q is an address", host)
	case host == "" || strings.Contains(host, "*") || strings.HasSuffix(host, "."):
		x.invalid(field, "write the name of a host such as api.example.com", "%q is not the name of a host", host)
	case host == clusterDomain || strings.HasSuffix(host, "."+clusterDomain):
		x.invalid(field, "refer to the Service itself", "%q is a name within the cluster", host)
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		x.invalid(field, "write the name of another host", "%q is the machine itself", host)
	}
}

// readTLS reads the TLS settings.
func (xs *xbackends) readTLS(v *incremental.View, n name, spec *apisx.BackendTLS, x *xbackend) {
	mode := apisx.BackendTLSModeNone
	if spec != nil {
		mode = spec.Mode
	}
	switch mode {
	case apisx.BackendTLSModeNone:
		if x.Speaks == apisx.BackendProtocolHTTP2 || x.Speaks == apisx.BackendProtocolWSS {
			x.invalid("spec.tls.mode", "use ServerOnly or ClientAndServer, or another protocol", "protocol %s needs TLS", x.Speaks)
		}
		return
	case apisx.BackendTLSModeServerOnly:
	case apisx.BackendTLSModeClientAndServer:
		if spec.ClientCertificateRef == nil {
			x.invalid("spec.tls.clientCertificateRef", "add it, or use mode ServerOnly", "nothing is there to be shown to the backend")
		}
	default:
		x.invalid("spec.tls.mode", "use None, ServerOnly or ClientAndServer", "%q is not known", mode)
		return
	}
	if x.Speaks == apisx.BackendProtocolH2C {
		x.invalid("spec.tls.mode", "use None, or protocol HTTP2", "protocol H2C is without TLS")
	}
	if spec.Validation == nil {
		x.invalid("spec.tls.validation", "add it", "nothing says how the backend's certificate is verified")
		return
	}
	b := &backendTLS{}
	x.TLS = xs.backendTLSPolicies.readValidation(v, n, spec.Validation, "spec.tls.validation", b)
	x.Refs = b.Refs
	x.Unsecured = b.Invalid
	if mode != apisx.BackendTLSModeClientAndServer || spec.ClientCertificateRef == nil {
		return
	}
	ref := certificateRef(n, spec.ClientCertificateRef)
	key, p := xs.certificates.resolve(v, xbackendReferrer(n), ref, reasonInvalidCertificateRef)
	if p != nil {
		x.Refs = append(x.Refs, p)
		key = xs.certificates.secrets.unreadCertificate(v, xbackendReferrer(n), ref)
	}
	if x.TLS.Certificate = key; key == "" { // without it the backend would only refuse what it is sent
		x.Unsecured = cmp.Or(x.Unsecured, condition.NewProblem(gwv1.PolicyReasonInvalid, p.Field, p.Remedy, "%s", p.What))
	}
}

// reasonInvalidCertificateRef is a reason of ResolvedRefs=False, as for Gateways.
const reasonInvalidCertificateRef = string(gwv1.GatewayReasonInvalidClientCertificateRef)

// xbackendReferrer returns the referrer for the client certificate of an XBackend.
func xbackendReferrer(n name) referrer {
	return referrer{gwx.GroupName, string(KindXBackend), n}
}

// xbackendCertificate returns the reference to the client certificate for an XBackend; has is false if there is none.
func xbackendCertificate(n name, spec *apisx.BackendSpec) (ref listener.CertificateRef, has bool) {
	if spec.TLS == nil || spec.TLS.Mode != apisx.BackendTLSModeClientAndServer || spec.TLS.ClientCertificateRef == nil {
		return ref, false
	}
	return certificateRef(n, spec.TLS.ClientCertificateRef), true
}

func certificateRef(n name, ref *gwv1.SecretObjectReference) listener.CertificateRef {
	return listener.NewCertificateRef("spec.tls.clientCertificateRef", n.Namespace, ref)
}

// invalid records a problem unless there is one already: one is enough to act on.
func (x *xbackend) invalid(field, remedy, format string, args ...any) {
	if x.Invalid == nil {
		x.Invalid = condition.NewProblem(gwv1.PolicyReasonInvalid, field, remedy, format, args...)
	}
}

// resolve returns the XBackend to which a reference of from leads, like backendRefs.resolveBackend.
func (xs *xbackends) resolve(v *incremental.View, from referrer, rk *routeKind, ref gwv1.BackendObjectReference, passthrough, http2 bool, field string) (backendKey, *condition.Problem) {
	key := backendKey{XBackend: true, Name: name{string(ptr.Deref(ref.Namespace, gwv1.Namespace(from.Name.Namespace))), string(ref.Name)}, Passthrough: passthrough, UDP: rk.udp}
	if key.Name.Namespace != from.Name.Namespace {
		return key, condition.NewProblem(gwv1.RouteReasonRefNotPermitted, field+".namespace", "create one in namespace "+from.Name.Namespace,
			"XBackend %s is in another namespace, which no ReferenceGrant permits", key.Name)
	}
	x, read := incremental.Fetch(v, xs.all, key.Name)
	if !read {
		return xs.resolveUnread(v, key, field)
	}
	key.Port = x.Port
	unsupported := func(remedy, format string, args ...any) (backendKey, *condition.Problem) {
		return key, condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field+".name", remedy, format, args...)
	}
	switch over2 := rk.http2 || http2; {
	case ref.Port != nil:
		return key, condition.NewProblem(gwv1.RouteReasonBackendNotFound, field+".port", "remove it", "an XBackend says itself which port it has, which is %d", x.Port)
	case x.Invalid != nil:
		return unsupported("", "XBackend %s cannot be carried out: %s", key.Name, x.Invalid)
	case x.Unsecured != nil && !passthrough:
		return unsupported("", "XBackend %s cannot be carried out: %s", key.Name, x.Unsecured)
	case rk.udp:
		return unsupported("refer to a Service", "XBackend %s is reached by TCP", key.Name)
	case rk.connections:
	case x.Speaks == apisx.BackendProtocolTCP:
		return unsupported("use another protocol, or a TCPRoute", "XBackend %s has protocol TCP, by which no requests are sent", key.Name)
	case over2 && x.lacksProtocol():
		key.HTTP2 = true
	case over2 && !x.Protocol.Info().HTTP2 && (x.TLS == nil || x.Protocol != config.BackendProtocol_BACKEND_PROTOCOL_HTTP):
		return unsupported("use protocol GRPC", "gRPC needs HTTP/2, and XBackend %s has protocol %s", key.Name, x.Speaks)
	}
	return key, nil
}

// resolveUnread returns the result of a reference to an XBackend that is not read. One that exists although nothing uses it is named
// by an object that is not served, such as a route that no listener accepts, so its contents do not matter.
func (xs *xbackends) resolveUnread(v *incremental.View, key backendKey, field string) (backendKey, *condition.Problem) {
	if _, used := incremental.Fetch(v, xs.inUse, key.Name); used { // reading it panicked
		return key, condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field+".name", "see the controller's log", "XBackend %s could not be read", key.Name)
	}
	object, exists := incremental.Fetch(v, xs.objects, key.Name)
	if !exists {
		return key, condition.NewProblem(gwv1.RouteReasonBackendNotFound, field+".name", "create it or correct the name", "XBackend %s does not exist", key.Name)
	}
	key.Port = int32(object.Spec.Port.Number)
	return key, nil
}

// xbackendStatuses computes the statuses of XBackends: one entry for each Gateway that reaches them.
type xbackendStatuses struct {
	all *incremental.Collection[name, *status[apisx.BackendStatus]]
}

func newXBackendStatuses(e *incremental.Engine, o *Options, objects *incremental.Collection[name, *apisx.XBackend], xbackends *xbackends, gateways *policyGateways) *xbackendStatuses {
	return &xbackendStatuses{incremental.Map(e, "XBackend status", objects,
		func(v *incremental.View, n name, object *apisx.XBackend) (*status[apisx.BackendStatus], bool) {
			s := &status[apisx.BackendStatus]{Generation: generationOf(object)}
			x, ok := incremental.Fetch(v, xbackends.all, n)
			if !ok { // no object refers to it, or reading it panicked
				return s, false
			}
			conditions := x.conditions()
			named, _ := policy.Ancestors(gateways.reaching(v, xbackendTarget(n)), policy.MaxBackendAncestors)
			for _, a := range named {
				s.Status.Ancestors = append(s.Status.Ancestors, ancestorOf(a.Status(o.ControllerName, s.Generation, conditions...)))
			}
			return s, len(named) > 0
		}, sameDeeply[*status[apisx.BackendStatus]])}
}

// ancestorOf converts an ancestor status of policies to one of XBackends.
func ancestorOf(a gwv1.PolicyAncestorStatus) apisx.BackendAncestorStatus {
	return apisx.BackendAncestorStatus{AncestorRef: a.AncestorRef, ControllerName: a.ControllerName, Conditions: a.Conditions}
}

// conditionResolvedRefs reports for an XBackend whether the references of its tls can be used, as for BackendTLSPolicies.
const conditionResolvedRefs = gwv1.BackendTLSPolicyConditionResolvedRefs

func (x *xbackend) conditions() []metav1.Condition {
	accepted := condition.True(apisx.BackendConditionAccepted, apisx.BackendReasonAccepted)
	if x.Hostname != "" && x.TLS == nil {
		accepted.Message = fmt.Sprintf("requests to %s are sent in cleartext and can be read and changed on the way; add spec.tls", x.Hostname)
	}
	if p := cmp.Or(x.Invalid, x.Unsecured); p != nil {
		accepted = condition.False(apisx.BackendConditionAccepted, p.Reason, p.String())
	}
	conditions := []metav1.Condition{accepted}
	switch {
	case len(x.Refs) > 0:
		conditions = append(conditions, condition.False(conditionResolvedRefs, x.Refs[0].Reason, condition.List(x.Refs)))
	case x.TLS != nil:
		conditions = append(conditions, condition.True(conditionResolvedRefs, gwv1.BackendTLSPolicyReasonResolvedRefs))
	}
	return conditions
}
