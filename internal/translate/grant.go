package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// grantKey is one entry of a ReferenceGrant's from list and the namespace that grants.
type grantKey struct {
	FromGroup, FromKind, FromNamespace string
	ToNamespace                        string
}

// referrer is the object that contains a reference.
type referrer struct {
	Group, Kind string
	Name        name
}

// grants contains ReferenceGrants.
type grants struct {
	o            *Options
	grantObjects *incremental.Collection[name, *gwv1.ReferenceGrant]
	installation *installation

	byReferrer *incremental.Index[grantKey, name, *gwv1.ReferenceGrant]
}

func newGrants(e *incremental.Engine, o *Options,
	grantObjects *incremental.Collection[name, *gwv1.ReferenceGrant],
	installation *installation) *grants {
	gr := &grants{o: o, grantObjects: grantObjects, installation: installation}
	gr.byReferrer = incremental.NewIndex(gr.grantObjects, "grants by referrer",
		func(n name, g *gwv1.ReferenceGrant) []grantKey {
			keys := make([]grantKey, len(g.Spec.From))
			for i, f := range g.Spec.From {
				keys[i] = grantKey{string(f.Group), string(f.Kind), string(f.Namespace), n.Namespace}
			}
			return keys
		})
	return gr
}

// permitted reports whether from may refer to the object: it is in from's own namespace, or a ReferenceGrant in the object's
// namespace allows it. It does not check whether the object exists, so that the answer does not reveal it.
func (gr *grants) permitted(v *incremental.View, from referrer, group, kind string, to name) bool {
	if from.Name.Namespace == to.Namespace {
		return true
	}
	key := grantKey{from.Group, from.Kind, from.Name.Namespace, to.Namespace}
	for _, n := range incremental.Lookup(v, gr.byReferrer, key) {
		if g, _ := incremental.Fetch(v, gr.grantObjects, n); grantsTo(g, group, kind, to.Name) {
			return true
		}
	}
	return false
}

// permittedSecret is permitted for a Secret, as of the last Commit.
func (gr *grants) permittedSecret(from referrer, to name) bool {
	if from.Name.Namespace == to.Namespace {
		return true
	}
	return slices.ContainsFunc(gr.byReferrer.Get(grantKey{from.Group, from.Kind, from.Name.Namespace, to.Namespace}), func(n name) bool {
		g, exists := gr.grantObjects.Get(n)
		return exists && grantsTo(g, corev1.GroupName, string(KindSecret), to.Name)
	})
}

// grantsTo reports whether a grant is for an object of its namespace.
func grantsTo(g *gwv1.ReferenceGrant, group, kind, objectName string) bool {
	return slices.ContainsFunc(g.Spec.To, func(r gwv1.ReferenceGrantTo) bool {
		return string(r.Group) == group && string(r.Kind) == kind && (r.Name == nil || *r.Name == "" || string(*r.Name) == objectName)
	})
}

// granted is the set of objects of a kind in a namespace that a referrer may refer to. The zero value is empty.
type granted struct {
	all   bool
	names map[string]bool // in addition to all
}

func (g granted) allows(name string) bool { return g.all || g.names[name] }

func (g granted) none() bool { return !g.all && len(g.names) == 0 }

// granted returns the result of permitted for all objects of a kind in a namespace at once.
func (gr *grants) granted(v *incremental.View, from referrer, group, kind, namespace string) (g granted) {
	if from.Name.Namespace == namespace {
		return granted{all: true}
	}
	key := grantKey{from.Group, from.Kind, from.Name.Namespace, namespace}
	for _, n := range incremental.Lookup(v, gr.byReferrer, key) {
		object, _ := incremental.Fetch(v, gr.grantObjects, n)
		for _, r := range object.Spec.To {
			switch {
			case string(r.Group) != group || string(r.Kind) != kind:
			case r.Name == nil || *r.Name == "":
				return granted{all: true}
			case g.names == nil:
				g.names = map[string]bool{string(*r.Name): true}
			default:
				g.names[string(*r.Name)] = true
			}
		}
	}
	return g
}

// unseen returns the remedy if a namespace cannot be read, because it is not watched or forbidden, and "" otherwise.
func (gr *grants) unseen(v *incremental.View, namespace string) string {
	if len(gr.o.Namespaces) > 0 && !slices.Contains(gr.o.Namespaces, namespace) {
		return "namespace " + namespace + " is not watched: add it to --watch-namespaces of the controller, or refer to another"
	}
	if _, unread := incremental.Fetch(v, gr.installation.unreadNamespaces, name{"", namespace}); unread {
		return "allow the controller's ServiceAccount to list and watch what is in namespace " + namespace + ": nothing of it can be read"
	}
	return ""
}

// grantRemedy returns how to permit a reference. If the namespace cannot be read, it is not known whether a ReferenceGrant exists.
func (gr *grants) grantRemedy(v *incremental.View, from referrer, kind string, to name) string {
	if remedy := gr.unseen(v, to.Namespace); remedy != "" {
		return remedy
	}
	return "add a ReferenceGrant in namespace " + to.Namespace + " from " + from.Kind + " in namespace " +
		from.Name.Namespace + " to " + kind + " " + to.Name
}
