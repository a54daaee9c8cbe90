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

// name is an object's namespace and name; a cluster-scoped object has no namespace.
type name struct{ Namespace, Name string }

// Compare orders keys. For the precedence of objects see precedence.
func (n name) Compare(o name) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// precedence orders objects of the same age as the specification requires.
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

// listenerKey identifies a listener of a Gateway, or of a ListenerSet that is attached to it.
type listenerKey struct {
	Gateway name
	Set     string // the object that contains it, see setOf; "" for a listener of the Gateway itself
	Name    string
}

// Compare puts listeners of the Gateway itself first.
func (k listenerKey) Compare(o listenerKey) int {
	return cmp.Or(k.Gateway.Compare(o.Gateway), cmp.Compare(k.Set, o.Set), cmp.Compare(k.Name, o.Name))
}

// Owner returns the object whose spec contains the listener.
func (k listenerKey) Owner() kindName {
	switch parts := strings.Split(k.Set, "/"); len(parts) {
	case 2:
		return kindName{KindListenerSet, name{parts[0], parts[1]}}
	case 3:
		return kindName{Kind(parts[0]), name{parts[1], parts[2]}}
	}
	return kindName{KindGateway, k.Gateway}
}

// setOf returns the listenerKey.Set for the listeners of a ListenerSet, "<namespace>/<name>", or of another kind like it,
// "<kind>/<namespace>/<name>".
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

// parseListenerKey is the inverse of String.
func parseListenerKey(s string) (k listenerKey) {
	parts := strings.Split(s, "/")
	if len(parts) < 3 {
		return k
	}
	k.Gateway, k.Name = name{parts[0], parts[1]}, parts[len(parts)-1]
	k.Set = strings.Join(parts[2:len(parts)-1], "/")
	return k
}

// routeOfKey returns the route of a config.RouteKey or config.RoutePartKey.
func routeOfKey(key string) kindName {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) < 3 {
		return kindName{}
	}
	return kindName{Kind(parts[0]), name{parts[1], parts[2]}}
}

// backendKey identifies a port of a Service, or an XBackend, together with how it is reached.
type backendKey struct {
	Name name
	// XBackend is set if it is an XBackend.
	XBackend bool
	Port     int32
	// HTTP2 is set if it is reached over HTTP/2 because the object that refers to it requires this, not because of its appProtocol.
	HTTP2 bool
	// Passthrough is set if clients themselves speak TLS with it.
	Passthrough bool
	// UDP is set if it is a UDP port; a TCP port may have the same number.
	UDP bool
	// Policy is the policyPair.String of the policies that change how it is reached; "" if none.
	Policy string
}

// transport returns the protocol of the port.
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

// parseBackendKey is the inverse of String.
func parseBackendKey(id backendID) (k backendKey) {
	base, policies := config.SplitPolicy(string(id))
	parts := strings.SplitN(base, "/", 5) // the names contain no slash
	if len(parts) < 4 {
		return k
	}
	port, _ := strconv.ParseInt(parts[3], 10, 32)
	k = backendKey{Name: name{parts[1], parts[2]}, XBackend: parts[0] == string(KindXBackend), Port: int32(port), Policy: policies}
	if len(parts) == 5 {
		switch suffix := "/" + parts[4]; suffix {
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

// target returns the target by which policies refer to the object.
func (k backendKey) target() policy.Target {
	if k.XBackend {
		return xbackendTarget(k.Name)
	}
	return targetOf(k.Name, "")
}

// addressKey identifies an entry of a Gateway's spec.addresses.
type addressKey struct {
	Gateway name
	Address string
}

func (k addressKey) Compare(o addressKey) int {
	return cmp.Or(k.Gateway.Compare(o.Gateway), cmp.Compare(k.Address, o.Address))
}

// kindName identifies an object of any kind.
type kindName struct {
	Kind Kind
	Name name
}

func (k kindName) Compare(o kindName) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), k.Name.Compare(o.Name))
}

func (k kindName) String() string { return string(k.Kind) + " " + k.Name.String() }

// generationOf returns metadata.generation, or 1 if it is absent, as in a new object.
func generationOf(o metav1.Object) int64 { return max(1, o.GetGeneration()) }

// createdOf returns metadata.creationTimestamp in nanoseconds since the epoch, or 0 if it is absent.
func createdOf(o metav1.Object) int64 {
	if t := o.GetCreationTimestamp(); !t.IsZero() {
		return t.UnixNano()
	}
	return 0
}

// indexed returns the field path of an entry of a list.
func indexed(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
