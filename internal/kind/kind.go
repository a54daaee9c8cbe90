// Package kind lists the kinds of objects that Moongate reads, one row each (table.go), and names objects. It exists so that a kind
// is described once: reading from a cluster or from files, translation, statuses, and the permissions in the chart all derive from
// the table.
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

// Kind describes one kind of object.
type Kind struct {
	Group    string // "" for the core group
	Name     string // unique among all groups
	Resource string // as in URL paths
	// ShortName is another name of the resource, as in kubectl; "" if none.
	ShortName string
	// Versions are those that are served, in order of preference. All are decoded as the first one: the others have the same fields,
	// or fewer.
	Versions []string
	// Past are versions that only older CustomResourceDefinitions serve; they are read from a cluster if none of Versions is served.
	Past []string
	// Namespaced is set if objects are in namespaces.
	Namespaced bool
	// Custom is set if the kind is defined by a CustomResourceDefinition.
	Custom bool
	// Optional is set if a cluster may not serve the kind: those that are Custom, and those of an API that can be disabled.
	Optional bool
	// Essential is set if what is served depends on the kind: without its objects proxies would lose configuration, so the start
	// waits for them.
	Essential bool
	// Cluster defines how objects are read from a cluster. All kinds are read from files.
	Cluster Reading
	// Finalizer is set if the controller adds a finalizer to objects.
	Finalizer bool
	// NameRule validates metadata.name; nil means that it must be a DNS subdomain.
	NameRule validation.ValidateNameFunc

	list         runtime.Object
	goType       reflect.Type // a pointer type
	status       func(metav1.Object) any
	parents      func(metav1.Object) []gwv1.ParentReference
	defaultScope func(metav1.Object) gwv1.GatewayDefaultScope
	view         func(metav1.Object) metav1.Object
	renew        func(known, o metav1.Object) metav1.Object // nil if there is no status
	keep         func(runtime.Object) metav1.Object
	leftover     func(data []byte, u *Undecoded)
	shared       bool
}

// Reading defines how the objects of a kind are read from a cluster.
type Reading int

const (
	// Unread objects are read from files only.
	Unread Reading = iota
	// Watched objects are listed and watched.
	Watched
	// WatchedMetadata objects are watched by their metadata only.
	WatchedMetadata
	// Fetched objects are read one by one if another object refers to them, and the metadata of all is watched.
	Fetched
)

// Typed is a Kind with the Go type of its objects.
type Typed[O metav1.Object] struct{ *Kind }

// object is a pointer to a Go type of objects.
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

// All returns the kinds, sorted by group and name; the slice must not be modified.
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

// Of returns the kind of a typed object, or nil. The object need not contain apiVersion and kind.
func Of(o metav1.Object) *Kind { return byType[reflect.TypeOf(o)] }

// Groups returns the API groups of the kinds that are custom resources, sorted.
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

// ReadVersions returns the versions that are read from a cluster, in order of preference.
func (k *Kind) ReadVersions() []string { return slices.Concat(k.Versions, k.Past) }

// HasStatus reports whether objects have a status that Moongate writes.
func (k *Kind) HasStatus() bool { return k.status != nil }

// Shared reports whether several controllers write to the status, each its own entries.
func (k *Kind) Shared() bool { return k.shared }

// Route reports whether the kind is a kind of route.
func (k *Kind) Route() bool { return k.parents != nil }

// StatusOf returns a pointer to an object's status, nil if Moongate writes none for its kind. It is a *gwv1.RouteStatus for every
// kind of route, a *gwv1.PolicyStatus for every kind of policy, an *apisx.BackendStatus for an XBackend, and the kind's own type for
// others.
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

// DefaultScopeOf returns the scope of the default Gateways to which a route of any kind asks to be attached (GEP-3793), in addition
// to its parentRefs; "" for none, and for other objects.
func DefaultScopeOf(o metav1.Object) gwv1.GatewayDefaultScope {
	if k := Of(o); k != nil && k.defaultScope != nil {
		if scope := k.defaultScope(o); scope != gwv1.GatewayDefaultScopeNone {
			return scope
		}
	}
	return ""
}

// View returns a copy of an object without its status and without metadata that translation does not read.
func (k *Kind) View(o metav1.Object) metav1.Object { return k.view(o) }

// Renew returns an object equal to o that shares memory with an earlier version, known. Their views must be equal: what was written
// since then is the status, mostly, and what translation reads would be in memory twice.
func (k *Kind) Renew(known, o metav1.Object) metav1.Object {
	if k.renew == nil {
		return known
	}
	return k.renew(known, o)
}

// Keep returns what is needed of a decoded object, or of its metadata if only that is read. It may modify o.
func (k *Kind) Keep(o runtime.Object) metav1.Object { return k.keep(o) }

// Leftover returns what an object that cannot be decoded denies; nil for a kind that denies nothing.
func (k *Kind) Leftover(data []byte, meta metav1.ObjectMeta, err error) *Undecoded {
	if k.leftover == nil {
		return nil
	}
	u := &Undecoded{ObjectMeta: meta, Kind: k.Name, Error: err.Error()}
	k.leftover(data, u)
	return u
}
