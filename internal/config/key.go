// Package config is the contract between control plane and data plane: plain data, immutable once published. The messages are in
// the .proto files; this package adds their keys, the check for fields that a build does not know, and the tables and syntax that
// both sides share: protocols of backends, operators of response bodies, attributes of traces, names of fields.
//
// It imports nothing of Kubernetes and no other package of this module, so that both sides can depend on it.
package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Kind is the kind of a Resource. Its numbers are sent between controllers and proxies of different versions: they never change.
// Upserts and Removals are sorted by it.
type Kind uint8

// The kinds of Resource.
const (
	KindCertificate Kind = iota + 1
	KindBackend
	KindEndpoints
	KindListener
	KindRoute
	KindTicketKeys // no other Resource refers to it
	KindL4Route
	KindAuthorities      // Backends and Listeners refer to it: the proxy applies it first and removes it last
	KindRateLimitService // no other Resource refers to it
)

var kindNames = [...]string{KindCertificate: "Certificate", KindBackend: "Backend", KindEndpoints: "Endpoints", KindListener: "Listener", KindRoute: "Route",
	KindTicketKeys: "TicketKeys", KindL4Route: "L4Route", KindAuthorities: "Authorities", KindRateLimitService: "RateLimitService"}

// String returns the name of the message, or "Kind(n)" if the kind is unknown.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// IsRoute reports whether Resources of this kind attach to listeners; their keys are made by RouteKey and RoutePartKey.
func (k Kind) IsRoute() bool { return k == KindRoute || k == KindL4Route }

// Attachments returns the attachments of a route of either kind. It returns nil for other Resources and for a nil Resource.
func (r *Resource) Attachments() []*Attachment {
	switch k := r.GetKind().(type) {
	case *Resource_Route:
		return k.Route.Attachments
	case *Resource_L4Route:
		return k.L4Route.Attachments
	}
	return nil
}

// ID names one Resource.
type ID struct {
	Kind Kind
	Key  string
}

// String returns "<Kind> <key>".
func (id ID) String() string { return id.Kind.String() + " " + id.Key }

// CompareID orders by kind, then key.
func CompareID(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

// ID returns the kind and key of the Resource. It panics if the Resource has no kind, which only a programming error can cause.
func (r *Resource) ID() ID {
	switch k := r.Kind.(type) {
	case *Resource_Certificate:
		return ID{KindCertificate, k.Certificate.Key}
	case *Resource_Backend:
		return ID{KindBackend, k.Backend.Key}
	case *Resource_Endpoints:
		return ID{KindEndpoints, k.Endpoints.Key}
	case *Resource_Listener:
		return ID{KindListener, k.Listener.Key}
	case *Resource_Route:
		return ID{KindRoute, k.Route.Key}
	case *Resource_TicketKeys:
		return ID{KindTicketKeys, k.TicketKeys.Key}
	case *Resource_L4Route:
		return ID{KindL4Route, k.L4Route.Key}
	case *Resource_Authorities:
		return ID{KindAuthorities, k.Authorities.Key}
	case *Resource_RateLimitService:
		return ID{KindRateLimitService, k.RateLimitService.Key}
	}
	panic(fmt.Sprintf("config: resource of unknown kind %T", r.Kind))
}

// Unread reports whether a Resource stands for one whose Secret cannot be read at present: a proxy that has it keeps what it has, and another one
// goes without. Proxies of versions that do not know this reject it, with the same effect.
func (r *Resource) Unread() bool {
	switch k := r.GetKind().(type) {
	case *Resource_Certificate:
		return len(k.Certificate.ChainPem) == 0 && len(k.Certificate.KeyPem) == 0
	case *Resource_RateLimitService:
		return k.RateLimitService.Address == ""
	}
	return false
}

// Update is one generation. It becomes visible to requests with one atomic store. A Resource that the proxy cannot apply is reported
// in proxy.Result.Rejected, and does not hold up the others.
type Update struct {
	// Generation increases by one with each Update of one sender.
	Generation uint64
	// Upserts are new or changed Resources, sorted by CompareID.
	Upserts []*Resource
	// Removals are the IDs of Resources that no longer exist, sorted by CompareID; disjoint from Upserts.
	Removals []ID
}

// Empty reports whether the Update changes nothing.
func (u *Update) Empty() bool { return len(u.Upserts) == 0 && len(u.Removals) == 0 }

// OfListeners reports whether the Update can change which listeners are served: only Listeners and Certificates decide that.
func (u *Update) OfListeners() bool {
	of := func(id ID) bool { return id.Kind == KindListener || id.Kind == KindCertificate }
	return slices.ContainsFunc(u.Upserts, func(r *Resource) bool { return of(r.ID()) }) || slices.ContainsFunc(u.Removals, of)
}

// ServerCertificates returns the keys of the Certificates that a listener presents to clients, in the order of certificateRefs.
func (l *Listener) ServerCertificates() []string {
	if v := l.GetClientValidation(); v != nil {
		return v.Certificates
	}
	return l.GetCertificates()
}

// GatewayKey returns the key of a Gateway: Listener.gateway, TicketKeys.key and RateLimitService.key.
func GatewayKey(namespace, name string) string { return namespace + "/" + name }

// MergedName is used in place of a Gateway's name for the proxies that serve all Gateways of a class. Because of its colon it cannot
// be the name of a Gateway.
func MergedName(class string) string { return mergedPrefix + class }

const mergedPrefix = "gatewayclass:"

// MergedClass returns the class of a name made by MergedName; ok is false if name is the name of a Gateway.
func MergedClass(name string) (class string, ok bool) { return strings.CutPrefix(name, mergedPrefix) }

// ListenerKey returns the Listener.key of a listener of a Gateway itself.
func ListenerKey(gatewayNamespace, gatewayName, listener string) string {
	return gatewayNamespace + "/" + gatewayName + "/" + listener
}

// ListenerSetListenerKey returns the Listener.key of a listener of a ListenerSet; listenerSet is Listener.listener_set.
func ListenerSetListenerKey(gatewayNamespace, gatewayName, listenerSet, listener string) string {
	return gatewayNamespace + "/" + gatewayName + "/" + listenerSet + "/" + listener
}

// SplitListenerKey splits a Listener.key into Listener.gateway and the name of the listener within the Gateway: its name, or
// "<namespace>/<ListenerSet>/<name>".
func SplitListenerKey(key string) (gateway, listener string) {
	if i := strings.IndexByte(key, '/'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '/'); j >= 0 {
			return key[:i+1+j], key[i+1+j+1:]
		}
	}
	return "", key
}

// RouteKey returns the Route.key or L4Route.key of a route.
func RouteKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// ServiceBackendKey returns the Backend.key of a port of a Service.
func ServiceBackendKey(namespace, name string, port int32) string {
	return "Service/" + namespace + "/" + name + "/" + strconv.Itoa(int(port))
}

// OverHTTP2 returns the Backend.key for the backend with the given key if it is reached over HTTP/2 because the object that refers
// to it requires this, although the port's own appProtocol does not.
func OverHTTP2(key string) string { return key + overHTTP2 }

const overHTTP2 = "/http2"

// PassedThrough returns the Backend.key for the backend with the given key if clients themselves speak TLS with its endpoints. A
// BackendTLSPolicy for the port does not apply to it.
func PassedThrough(key string) string { return key + passthrough }

const passthrough = "/passthrough"

// OfUDP returns the Backend.key for the UDP port that has the same number as the TCP port with the given key.
func OfUDP(key string) string { return key + overUDP }

const overUDP = "/udp"

// ByPolicy returns the Backend.key for the backend with the given key if a BackendTrafficPolicy, or several merged ones, change how
// it is reached.
func ByPolicy(key, policies string) string { return key + byPolicy + policies }

const byPolicy = "/by/"

// SplitPolicy splits a key made by ByPolicy; policies is "" if the key was not made by it.
func SplitPolicy(key string) (base, policies string) {
	port, rest := splitPort(key)
	suffix, policies, _ := strings.Cut(rest, byPolicy)
	return key[:len(port)+len(suffix)], policies
}

// splitPort splits a Backend.key after the port. The part before it holds names, which may be equal to the words that have a meaning
// after it.
func splitPort(key string) (port, rest string) {
	at := 0
	for range 4 { // kind, namespace, name, port
		i := strings.IndexByte(key[at:], '/')
		if i < 0 {
			return key, ""
		}
		at += i + 1
	}
	return key[:at-1], key[at-1:]
}

// RoutePartKey returns the Route.key or L4Route.key of a further part of a route. A route has several parts if it differs between
// the listeners that it is attached to.
func RoutePartKey(key string, part int) string { return key + "/" + strconv.Itoa(part) }

// WholeRouteKey returns the RouteKey of the route that a Resource, or its part, belongs to.
func WholeRouteKey(key string) string {
	slashes := 0
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		if slashes++; slashes == 3 {
			return key[:i]
		}
	}
	return key
}

// XBackendKey returns the Backend.key of an XBackend. What applies to the ports of Services applies to it too.
func XBackendKey(namespace, name string, port int32) string {
	return "XBackend/" + namespace + "/" + name + "/" + strconv.Itoa(int(port))
}

// ServicePort returns, from the key of any Backend of a Service's port or of an XBackend, the key without the suffixes of OverHTTP2,
// PassedThrough and ByPolicy.
func ServicePort(key string) string {
	port, rest := splitPort(key)
	if suffix, _, _ := strings.Cut(rest, byPolicy); suffix == overUDP { // the UDP port of the same number is another port
		return key[:len(port)+len(overUDP)]
	}
	return port
}

// SecretKey returns the Certificate.key of a Secret.
func SecretKey(namespace, name string) string { return "Secret/" + namespace + "/" + name }

// AuthoritiesKey returns the Authorities.key of certificates in PEM and of revocation lists in DER.
func AuthoritiesKey(pem string, lists ...[]byte) string {
	h := sha256.New()
	io.WriteString(h, pem) //nolint:errcheck // a hash never returns an error
	for _, l := range lists {
		sum := sha256.Sum256(l)
		h.Write(sum[:])
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil))
}

// Certificates returns the certificates of the authorities in PEM, with or without revocation lists.
func (a *Authorities) Certificates() string {
	if a.Revocable != nil {
		return a.Revocable.Pem
	}
	return a.Pem
}
