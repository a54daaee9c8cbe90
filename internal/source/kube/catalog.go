package kube

import (
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/consts"

	"github.com/moongate-dev/moongate/internal/kind"
)

type name = types.NamespacedName

func nameOf(o metav1.Object) name { return name{Namespace: o.GetNamespace(), Name: o.GetName()} }

// catalog contains all objects, and what the next Change includes. Source.mu guards it.
type catalog struct {
	log    *slog.Logger
	tables map[kind.ObjectKey]*table // by group and kind
	// pending are objects that differ from what the last Changes included; true if any did.
	pending  map[kind.ObjectKey]bool
	observed map[kind.ObjectKey]bool
	// definitions are the CRDs of the groups that are read, by name.
	definitions map[string]CRD
	secrets     secrets
	// withheld are the namespaces that the start did not wait for. Changes do not include them before all essential kinds there are
	// known.
	withheld map[string]bool
	// telling are the Secrets in the last Change, which may still be passed on.
	telling map[name]bool
}

// table contains the objects of one kind.
type table struct {
	*watchedKind
	catalog *catalog
	objects map[name]metav1.Object // as kept
	// undecoded are the objects that exist and do not fit their type; for some, an older version is in objects.
	undecoded map[name]bool
	// statusless are the objects whose status cannot be decoded. None is in undecoded.
	statusless map[name]bool
}

func newCatalog(log *slog.Logger) *catalog {
	return &catalog{
		log: log, tables: map[kind.ObjectKey]*table{}, pending: map[kind.ObjectKey]bool{}, observed: map[kind.ObjectKey]bool{}, definitions: map[string]CRD{},
		secrets: secrets{needed: map[name]*secret{}, retired: map[name]*corev1.Secret{}}, telling: map[name]bool{}, withheld: map[string]bool{},
	}
}

func (c *catalog) table(k *watchedKind) *table {
	key := kind.ObjectKey{Group: k.Group, Kind: k.Name}
	if c.tables[key] == nil {
		c.tables[key] = &table{k, c, map[name]metav1.Object{}, map[name]bool{}, map[name]bool{}}
	}
	return c.tables[key]
}

// mark includes an object in the next Change; known is set if an earlier one included it.
func (c *catalog) mark(id kind.ObjectKey, known bool) {
	if _, ok := c.pending[id]; !ok {
		c.pending[id] = known
	}
}

// get returns an object as it is kept.
func (c *catalog) get(id kind.ObjectKey) (metav1.Object, *watchedKind, bool) {
	if id.Group == "" && id.Kind == kind.Secret.Name {
		w := c.secrets.needed[name{Namespace: id.Namespace, Name: id.Name}]
		if w == nil || w.object == nil {
			return nil, nil, false
		}
		return w.object, secretMetadata, true
	}
	t := c.tables[kind.ObjectKey{Group: id.Group, Kind: id.Kind}]
	if t == nil {
		return nil, nil, false
	}
	o, ok := t.objects[name{Namespace: id.Namespace, Name: id.Name}]
	return o, t.watchedKind, ok
}

// take returns a Change with everything pending.
func (c *catalog) take() Change {
	var change Change
	// New maps, because one that was large once stays large.
	pending, observed := map[kind.ObjectKey]bool{}, map[kind.ObjectKey]bool{}
	ids := make([]kind.ObjectKey, 0, len(c.pending))
	for id, known := range c.pending {
		if c.withheld[id.Namespace] {
			pending[id] = known
		} else {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, kind.ObjectKey.Compare)
	clear(c.telling)
	clear(c.secrets.retired)
	for _, id := range ids {
		if id.Kind == kind.Secret.Name {
			c.telling[name{Namespace: id.Namespace, Name: id.Name}] = true
		}
		if o, k, ok := c.get(id); ok {
			change.Upserts = append(change.Upserts, k.seen(o))
		} else if c.pending[id] && !(id.Kind == kind.Secret.Name && c.secrets.unknown(name{Namespace: id.Namespace, Name: id.Name})) {
			change.Deletes = append(change.Deletes, id)
		}
	}
	for id := range c.observed {
		if c.withheld[id.Namespace] {
			observed[id] = true
		} else {
			change.Observed = append(change.Observed, id)
		}
	}
	slices.SortFunc(change.Observed, kind.ObjectKey.Compare)
	c.pending, c.observed = pending, observed
	return change
}

func (t *table) set(o metav1.Object) {
	n := nameOf(o)
	if s, is := o.(*statusless); is {
		o = s.object
		if !t.statusless[n] {
			t.statusless[n] = true
			t.catalog.log.Warn("a field of an object cannot be decoded: its spec is served as usual, and its status is not written, because entries of other controllers would be lost: "+
				"does the CustomResourceDefinition have another schema than this version expects?", "object", t.key(n).String(), "field", s.field, "error", s.err)
		}
	} else {
		delete(t.statusless, n)
	}
	old, known := t.objects[n]
	t.objects[n] = o
	delete(t.undecoded, n)
	if t.HasStatus() && (!known || old.GetResourceVersion() != o.GetResourceVersion()) {
		t.catalog.observed[t.key(n)] = true
	}
	if !known || !t.same(old, o) {
		t.catalog.mark(t.key(n), known)
	} else {
		t.objects[n] = t.Renew(old, o)
	}
}

func (t *table) unreadable(u *unreadable) {
	n, part := nameOf(u), u.part
	old, known := t.objects[n]
	// It was deleted and created again, and nothing of the new one is known.
	another := known && u.UID != "" && old.GetUID() != "" && u.UID != old.GetUID()
	// The last version of a grant may permit what the newest does not.
	if another || t.watchedKind == grantKind {
		t.remove(n)
		old, known = nil, false
	}
	t.undecoded[n] = true
	delete(t.statusless, n)
	if part == nil {
		return
	}
	if known && !partial(old) {
		return // the last version that could be decoded is kept
	}
	t.objects[n] = part
	if !known || !reflect.DeepEqual(old, part) {
		t.catalog.mark(t.key(n), known)
	}
}

// partial reports whether an object stands for one that cannot be decoded.
func partial(o metav1.Object) bool {
	_, is := o.(*kind.Undecoded)
	return is
}

func (t *table) remove(n name) {
	delete(t.undecoded, n)
	delete(t.statusless, n)
	if _, known := t.objects[n]; known {
		delete(t.objects, n)
		delete(t.catalog.observed, t.key(n))
		t.catalog.mark(t.key(n), true)
	}
}

func (t *table) replace(namespace string, all []metav1.Object, unreadable map[name]*unreadable) {
	there := make(map[name]bool, len(all))
	for _, o := range all {
		there[nameOf(o)] = true
		t.set(o)
	}
	for n := range t.objects {
		if _, undecoded := unreadable[n]; !there[n] && !undecoded && (namespace == "" || n.Namespace == namespace) {
			t.remove(n)
		}
	}
	maps.DeleteFunc(t.undecoded, func(n name, _ bool) bool { return namespace == "" || n.Namespace == namespace })
	for _, u := range unreadable {
		t.unreadable(u)
	}
}

// definitions receives the CRDs from the watch.
type definitions struct {
	catalog *catalog
	changed func()
}

// crdOf returns the CRD if it belongs to one of the groups that are read.
func crdOf(o metav1.Object) (CRD, bool) {
	_, group, _ := strings.Cut(o.GetName(), ".")
	if !slices.ContainsFunc(kinds, func(k *watchedKind) bool { return k.Custom && k.Group == group }) {
		return CRD{}, false
	}
	annotations := o.GetAnnotations()
	return CRD{o.GetName(), annotations[consts.BundleVersionAnnotation], annotations[consts.ChannelAnnotation]}, true
}

func (d definitions) set(o metav1.Object) {
	if crd, ok := crdOf(o); ok {
		d.catalog.definitions[crd.Name] = crd
		// What it serves may differ, even if nothing that is kept does.
		d.changed()
	}
}

func (d definitions) remove(n name) {
	if _, ok := d.catalog.definitions[n.Name]; ok {
		delete(d.catalog.definitions, n.Name)
		d.changed()
	}
}

// unreadable does nothing: the metadata of a CRD can always be decoded.
func (d definitions) unreadable(*unreadable) {}

func (d definitions) replace(_ string, all []metav1.Object, _ map[name]*unreadable) {
	clear(d.catalog.definitions)
	for _, o := range all {
		d.set(o)
	}
	d.changed()
}

// crds returns the CRDs of the Gateway API, sorted by name.
func (c *catalog) crds() (list []CRD) {
	for _, crd := range c.definitions {
		if strings.HasSuffix(crd.Name, "."+gwv1.GroupName) {
			list = append(list, crd)
		}
	}
	slices.SortFunc(list, func(a, b CRD) int { return strings.Compare(a.Name, b.Name) })
	return list
}
