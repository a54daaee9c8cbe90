package translate

import (
	"cmp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// name is an object's namespace and name; a cluster-scoped one has no namespace.
type name struct{ Namespace, Name string }

// Compare is the order of keys. For what precedes what see precedence.
func (n name) Compare(o name) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// precedence compares objects of one age as the specification has it.
func (n name) precedence(o name) int {
	return policy.CompareNames(types.NamespacedName(n), types.NamespacedName(o))
}

func (n name) String() string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "/" + n.Name
}

func nameOf(o metav1.Object) name { return name{o.GetNamespace(), o.GetName()} }

// listenerKey names a listener of a Gateway, its own or one of a ListenerSet.
type listenerKey struct {
	Gateway name
	Set     string // the object that it is of, see setOf; "" for one of the Gateway's own
	Name    string
}

// Compare puts the Gateway's own listeners first.
func (k listenerKey) Compare(o listenerKey) int {
	return cmp.Or(k.Gateway.Compare(o.Gateway), cmp.Compare(k.Set, o.Set), cmp.Compare(k.Name, o.Name))
}

// Owner is the object that has the listener in its spec.
func (k listenerKey) Owner() kindName {
	switch parts := strings.Split(k.Set, "/"); len(parts) {
	case 2:
		return kindName{KindListenerSet, name{parts[0], parts[1]}}
	case 3:
		return kindName{Kind(parts[0]), name{parts[1], parts[2]}}
	}
	return kindName{KindGateway, k.Gateway}
}

// setOf is listenerKey.Set for the listeners of a ListenerSet, "<namespace>/<name>", or of another kind like it, "<kind>/<namespace>/<name>".
func setOf(owner kindName) string {
	if owner.Kind == KindListenerSet {
		return owner.Name.String()
	}
	return string(owner.Kind) + "/" + owner.Name.String()
}

func (k listenerKey) String() string {
	if k.Set != "" {
		return config.ListenerSetListenerKey(k.Gateway.Namespace, k.Gateway.Name, k.Set, k.Name)
	}
	return config.ListenerKey(k.Gateway.Namespace, k.Gateway.Name, k.Name)
}

// parseListenerKey undoes String.
func parseListenerKey(s string) (k listenerKey) {
	parts := strings.Split(s, "/")
	if len(parts) < 3 {
		return k
	}
	k.Gateway, k.Name = name{parts[0], parts[1]}, parts[len(parts)-1]
	k.Set = strings.Join(parts[2:len(parts)-1], "/")
	return k
}

// routeOfKey is the route that config.RouteKey is of, or a key of a part of it.
func routeOfKey(key string) kindName {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) < 3 {
		return kindName{}
	}
	return kindName{Kind(parts[0]), name{parts[1], parts[2]}}
}

// backendKey names a port of a Service, or an XBackend, and how it is spoken to.
type backendKey struct {
	Name name
	// XBackend says that it is one.
	XBackend bool
	Port     int32
	// HTTP2 says that HTTP/2 is spoken, because of who refers to the port and not because of its appProtocol.
	HTTP2 bool
	// Passthrough says that clients speak TLS with it themselves.
	Passthrough bool
	// UDP says that it is a port of UDP, which may have the number of another one of TCP.
	UDP bool
	// Policy has it spoken to as those policies say, policyPair.String; "" is as without any.
	Policy string
}

// transport is the protocol of the port.
func (k backendKey) transport() corev1.Protocol {
	if k.UDP {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

func (k backendKey) String() string {
	if k.Policy != "" {
		policies := k.Policy
		k.Policy = ""
		return config.ByPolicy(k.String(), policies)
	}
	key := config.ServiceBackendKey(k.Name.Namespace, k.Name.Name, k.Port)
	if k.XBackend {
		key = config.XBackendKey(k.Name.Namespace, k.Name.Name, k.Port)
	}
	switch {
	case k.UDP:
		return config.OfUDP(key)
	case k.HTTP2:
		return config.OverHTTP2(key)
	case k.Passthrough:
		return config.PassedThrough(key)
	}
	return key
}

// parseBackendKey undoes String.
func parseBackendKey(id backendID) (k backendKey) {
	base, policies := config.SplitPolicy(string(id))
	parts := strings.SplitN(base, "/", 5) // the names have no slash
	if len(parts) < 4 {
		return k
	}
	port, _ := strconv.ParseInt(parts[3], 10, 32)
	k = backendKey{Name: name{parts[1], parts[2]}, XBackend: parts[0] == string(KindXBackend), Port: int32(port), Policy: policies}
	if len(parts) == 5 {
		switch spoken := "/" + parts[4]; spoken {
		case config.OfUDP(""):
			k.UDP = true
		case config.OverHTTP2(""):
			k.HTTP2 = true
		case config.PassedThrough(""):
			k.Passthrough = true
		}
	}
	return k
}

// target is the object, as policies name it.
func (k backendKey) target() policy.Target {
	if k.XBackend {
		return xbackendTarget(k.Name)
	}
	return targetOf(k.Name, "")
}

// addressKey names an entry of a Gateway's spec.addresses.
type addressKey struct {
	Gateway name
	Address string
}

func (k addressKey) Compare(o addressKey) int {
	return cmp.Or(k.Gateway.Compare(o.Gateway), cmp.Compare(k.Address, o.Address))
}

// kindName names an object among several kinds.
type kindName struct {
	Kind Kind
	Name name
}

func (k kindName) Compare(o kindName) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), k.Name.Compare(o.Name))
}

func (k kindName) String() string { return string(k.Kind) + " " + k.Name.String() }

// generationOf is metadata.generation, 1 where absent as in a fresh object.
func generationOf(o metav1.Object) int64 { return max(1, o.GetGeneration()) }

// createdOf is metadata.creationTimestamp in nanoseconds since the epoch, 0 where absent.
func createdOf(o metav1.Object) int64 {
	if t := o.GetCreationTimestamp(); !t.IsZero() {
		return t.UnixNano()
	}
	return 0
}

// value is *p, or def where a field is absent.
func value[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}

// indexed is an entry of a list in an object.
func indexed(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
