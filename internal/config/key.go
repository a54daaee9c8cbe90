// Package config is the contract between control plane and data plane: plain
// data, immutable once published. The messages are in the .proto files; this
// package adds their keys, their grouping into updates and a printed form.
//
// It imports nothing of Kubernetes and no other package of this module, so that
// both sides can depend on it.
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

// Kind orders Resources as they must be applied: what others refer to first, but for KindAuthorities. Its numbers are
// on the wire between a controller and proxies of other versions: they never change.
type Kind uint8

// The kinds of Resource; removals are applied in the reverse order.
const (
	KindCertificate Kind = iota + 1
	KindBackend
	KindEndpoints
	KindListener
	KindRoute
	KindTicketKeys // nothing refers to them
	KindL4Route
	KindAuthorities      // Backends and Listeners refer to them, so that they are applied first, and removed last
	KindRateLimitService // nothing refers to them
)

var kindNames = [...]string{KindCertificate: "Certificate", KindBackend: "Backend", KindEndpoints: "Endpoints", KindListener: "Listener", KindRoute: "Route",
	KindTicketKeys: "TicketKeys", KindL4Route: "L4Route", KindAuthorities: "Authorities", KindRateLimitService: "RateLimitService"}

// String is the message's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// IsRoute reports whether Resources of the kind are attached to listeners, and their keys those of RouteKey.
func (k Kind) IsRoute() bool { return k == KindRoute || k == KindL4Route }

// Attachments are those of a route of either kind; nil for other Resources, and for nil.
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

// String is "<Kind> <key>".
func (id ID) String() string { return id.Kind.String() + " " + id.Key }

// CompareID orders by kind, then key.
func CompareID(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

// ID is the resource's name; it panics on a Resource without a kind, which only a
// programming error can make.
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

// Update is one generation: it is applied as a whole or not at all.
type Update struct {
	// Generation grows by one from Update to Update of one sender.
	Generation uint64
	// Upserts are new or changed Resources, sorted by CompareID.
	Upserts []*Resource
	// Removals are Resources that are gone, sorted by CompareID; disjoint from Upserts.
	Removals []ID
}

// Empty says that nothing changes.
func (u *Update) Empty() bool { return len(u.Upserts) == 0 && len(u.Removals) == 0 }

// OfListeners reports whether other listeners may serve after the Update: no other Resources than these decide that.
func (u *Update) OfListeners() bool {
	of := func(id ID) bool { return id.Kind == KindListener || id.Kind == KindCertificate }
	return slices.ContainsFunc(u.Upserts, func(r *Resource) bool { return of(r.ID()) }) || slices.ContainsFunc(u.Removals, of)
}

// ServerCertificates returns the keys of the Certificates that a listener shows, in the order of certificateRefs.
func (l *Listener) ServerCertificates() []string {
	if v := l.GetClientValidation(); v != nil {
		return v.Certificates
	}
	return l.GetCertificates()
}

// GatewayKey is Listener.gateway, TicketKeys.key and RateLimitService.key.
func GatewayKey(namespace, name string) string { return namespace + "/" + name }

// MergedName stands in the place of a Gateway's name for the proxies that serve all Gateways of a class. No Gateway can have it, because of the colon.
func MergedName(class string) string { return mergedPrefix + class }

const mergedPrefix = "gatewayclass:"

// MergedClass undoes MergedName; false for the name of a Gateway.
func MergedClass(name string) (class string, ok bool) { return strings.CutPrefix(name, mergedPrefix) }

// ListenerKey is Listener.key of one of a Gateway's own listeners.
func ListenerKey(gatewayNamespace, gatewayName, listener string) string {
	return gatewayNamespace + "/" + gatewayName + "/" + listener
}

// ListenerSetListenerKey is Listener.key of a listener of a ListenerSet, which is Listener.listener_set.
func ListenerSetListenerKey(gatewayNamespace, gatewayName, listenerSet, listener string) string {
	return gatewayNamespace + "/" + gatewayName + "/" + listenerSet + "/" + listener
}

// SplitListenerKey parts Listener.key into Listener.gateway and what names the listener beside others of the Gateway: its name, or
// "<namespace>/<ListenerSet>/<name>".
func SplitListenerKey(key string) (gateway, listener string) {
	if i := strings.IndexByte(key, '/'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '/'); j >= 0 {
			return key[:i+1+j], key[i+1+j+1:]
		}
	}
	return "", key
}

// RouteKey is Route.key and L4Route.key.
func RouteKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// ServiceBackendKey is Backend.key of a Service's port.
func ServiceBackendKey(namespace, name string, port int32) string {
	return "Service/" + namespace + "/" + name + "/" + strconv.Itoa(int(port))
}

// OverHTTP2 is Backend.key of what is spoken to in HTTP/2 although it does not say so itself, from the key that it has else.
func OverHTTP2(key string) string { return key + overHTTP2 }

const overHTTP2 = "/http2"

// PassedThrough is Backend.key of that with which clients speak TLS themselves, whatever is said of TLS with it.
func PassedThrough(key string) string { return key + passthrough }

const passthrough = "/passthrough"

// OfUDP is Backend.key of a port of protocol UDP, which may have the number of another one of TCP.
func OfUDP(key string) string { return key + overUDP }

const overUDP = "/udp"

// ByPolicy is Backend.key of what is spoken to as a BackendTrafficPolicy says, or several that are merged, from the key that it has else.
func ByPolicy(key, policies string) string { return key + byPolicy + policies }

const byPolicy = "/by/"

// SplitPolicy undoes ByPolicy; policies is "" of a key that is not such.
func SplitPolicy(key string) (base, policies string) {
	port, rest := splitPort(key)
	spoken, policies, _ := strings.Cut(rest, byPolicy)
	return key[:len(port)+len(spoken)], policies
}

// splitPort parts Backend.key behind the port: what stands before are names, which may be the words that have a meaning behind it.
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

// RoutePartKey is Route.key and L4Route.key of a part of a route, beside the first: what differs between listeners that the route is attached to stands in Resources of its own.
func RoutePartKey(key string, part int) string { return key + "/" + strconv.Itoa(part) }

// WholeRouteKey is RouteKey of the route that a Resource is of, or a part of.
func WholeRouteKey(key string) string {
	parts := strings.SplitN(key, "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}

// XBackendKey is Backend.key of an XBackend, to which what is said of the ports of Services applies, too.
func XBackendKey(namespace, name string, port int32) string {
	return "XBackend/" + namespace + "/" + name + "/" + strconv.Itoa(int(port))
}

// ServicePort is the Backend.key of a Service's port, or of an XBackend, as it is spoken to by itself, from that of any Backend of it.
func ServicePort(key string) string {
	port, rest := splitPort(key)
	if spoken, _, _ := strings.Cut(rest, byPolicy); spoken == overUDP { // another port
		return key[:len(port)+len(overUDP)]
	}
	return port
}

// SecretKey is Certificate.key of a Secret.
func SecretKey(namespace, name string) string { return "Secret/" + namespace + "/" + name }

// AuthoritiesKey is Authorities.key of certificates in PEM, and of revocation lists in DER.
func AuthoritiesKey(pem string, lists ...[]byte) string {
	h := sha256.New()
	io.WriteString(h, pem) //nolint:errcheck // a hash takes all
	for _, l := range lists {
		sum := sha256.Sum256(l)
		h.Write(sum[:])
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil))
}

// Certificates returns the authorities' certificates in PEM, whether they have revocation lists or not.
func (a *Authorities) Certificates() string {
	if a.Revocable != nil {
		return a.Revocable.Pem
	}
	return a.Pem
}
