// Package kind lists the kinds of objects that Moongate reads, one row each (table.go), and names objects. It exists so that a kind
// is described once: what reads a cluster or files, what translates, what writes and shows statuses, and the
// permissions of the chart all derive from the table.
//
// It must never import source, translate, status or proxy.
package kind

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Kind is what is known of one kind of object.
type Kind struct {
	Group    string // "" for the core group
	Name     string // unique, whatever the group
	Resource string // as in paths
	// ShortName is another name for the resource, as kubectl takes it; "" is none.
	ShortName string
	// Versions are those that are served, preferred first. All are decoded as the first one: others have its fields, or fewer, by
	// the same names.
	Versions []string
	// Past are versions that only older CustomResourceDefinitions serve; they are read from a cluster, after Versions.
	Past []string
	// Namespaced says that objects are in namespaces.
	Namespaced bool
	// Custom says that the kind comes by a CustomResourceDefinition.
	Custom bool
	// Optional says that a cluster may not serve the kind: those that are Custom, and those of an API that can be turned off.
	Optional bool
	// Essential kinds are those that what is served depends on: to go on without their objects would take away what proxies
	// have, so the start waits for them.
	Essential bool
	// Cluster says how objects are read from a cluster. From files all are read.
	Cluster Reading
	// Finalizer says that the controller adds a finalizer to objects.
	Finalizer bool
	// NameRule is what metadata.name must be; a DNS subdomain where nil.
	NameRule validation.ValidateNameFunc

	list         runtime.Object
	goType       reflect.Type // a pointer
	status       func(metav1.Object) any
	parents      func(metav1.Object) []gwv1.ParentReference
	defaultScope func(metav1.Object) gwv1.GatewayDefaultScope
	view         func(metav1.Object) metav1.Object
	keep         func(runtime.Object) metav1.Object
	leftover     func(data []byte, u *Undecoded)
	shared       bool
}

// Reading is how the objects of a kind are read from a cluster.
type Reading int

const (
	// Unread objects are read from files only.
	Unread Reading = iota
	// Watched objects are listed and watched.
	Watched
	// WatchedMetadata is Watched, of the metadata alone.
	WatchedMetadata
	// Fetched objects are read one by one where something refers to them, and of all the metadata is watched.
	Fetched
)

// Typed is a Kind with the Go type of its objects.
type Typed[O metav1.Object] struct{ *Kind }

// object is the pointer to a Go type of objects.
type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

var (
	all    []*Kind
	byName = map[string]*Kind{}
	byType = map[reflect.Type]*Kind{}
)

// All returns the kinds, sorted by group and name; nobody may modify the slice.
func All() []*Kind { return all }

// Named returns the kind of that name, or nil.
func Named(name string) *Kind { return byName[name] }

// Find returns the kind of a group and name, or nil.
func Find(group, name string) *Kind {
	if k := byName[name]; k != nil && k.Group == group {
		return k
	}
	return nil
}

// Of returns the kind of a typed object, or nil. It needs no apiVersion and kind in the object.
func Of(o metav1.Object) *Kind { return byType[reflect.TypeOf(o)] }

// Groups are the API groups of the kinds that are custom resources, sorted.
func Groups() (groups []string) {
	for _, k := range all {
		if k.Custom && !slices.Contains(groups, k.Group) {
			groups = append(groups, k.Group)
		}
	}
	return groups
}

// New returns an empty object.
func (k *Kind) New() metav1.Object { return reflect.New(k.goType.Elem()).Interface().(metav1.Object) }

// Known returns a value of the Go type of objects and one of that of lists, for a runtime.Scheme.
func (k *Kind) Known() (object, list runtime.Object) { return k.New().(runtime.Object), k.list }

// ReadVersions are the versions that are read from a cluster, preferred first.
func (k *Kind) ReadVersions() []string { return slices.Concat(k.Versions, k.Past) }

// HasStatus reports whether objects have a status that is written.
func (k *Kind) HasStatus() bool { return k.status != nil }

// Shared reports whether several controllers write to the status, each entries of its own.
func (k *Kind) Shared() bool { return k.shared }

// Route reports whether the kind is one of routes.
func (k *Kind) Route() bool { return k.parents != nil }

// StatusOf returns a pointer to an object's status, nil where its kind has none that is written. It is a *gwv1.RouteStatus for every kind of
// route, a *gwv1.PolicyStatus for every kind of policy, an *apisx.BackendStatus for an XBackend, and of a type of the kind's own for others.
func StatusOf(o metav1.Object) any {
	if k := Of(o); k != nil && k.status != nil {
		return k.status(o)
	}
	return nil
}

// ParentsOf returns the parentRefs of a route of any kind; nil for other objects.
func ParentsOf(o metav1.Object) []gwv1.ParentReference {
	if k := Of(o); k != nil && k.parents != nil {
		return k.parents(o)
	}
	return nil
}

// DefaultScopeOf returns the scope of the default Gateways that a route of any kind asks to be attached to (GEP-3793), beside its parentRefs; "" for
// none, and for other objects.
func DefaultScopeOf(o metav1.Object) gwv1.GatewayDefaultScope {
	if k := Of(o); k != nil && k.defaultScope != nil {
		if scope := k.defaultScope(o); scope != gwv1.GatewayDefaultScopeNone {
			return scope
		}
	}
	return ""
}

// View returns a copy of an object without its status and what of its metadata nobody who translates reads.
func (k *Kind) View(o metav1.Object) metav1.Object { return k.view(o) }

// Keep takes what is needed from an object that was decoded, or from its metadata where only that is read. It may use up o.
func (k *Kind) Keep(o runtime.Object) metav1.Object { return k.keep(o) }

// Leftover takes from an object that cannot be read whole what it closes; nil for a kind that closes nothing.
func (k *Kind) Leftover(data []byte, meta metav1.ObjectMeta, err error) *Undecoded {
	if k.leftover == nil {
		return nil
	}
	u := &Undecoded{ObjectMeta: meta, Kind: k.Name, Error: err.Error()}
	k.leftover(data, u)
	return u
}
