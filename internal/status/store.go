package status

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/intern"
	"github.com/moongate-dev/moongate/internal/kind"
)

// Store contains objects with their statuses, as a cluster would, for processes without one. It is safe for concurrent use.
type Store struct {
	merger   Merger
	mu       sync.RWMutex
	objects  map[kind.ObjectKey]stored
	statuses intern.Values[any] // most routes have equal statuses
}

// stored is an object and its status, which are never modified.
type stored struct {
	object metav1.Object // as it was received, with the CRD's default status
	status any           // a pointer, as returned by kind.StatusOf; nil means the object's own
}

// now returns the object with its status.
func (s stored) now() metav1.Object {
	if s.status == nil {
		return s.object
	}
	v := reflect.ValueOf(s.object).Elem()
	out := reflect.New(v.Type())
	out.Elem().Set(v)
	now := out.Interface().(metav1.Object)
	statusOf(now).Set(reflect.ValueOf(s.status).Elem())
	return now
}

// NewStore returns an empty Store for one controller.
func NewStore(controllerName gwv1.GatewayController) *Store {
	return &Store{merger: Merger{ControllerName: controllerName}, objects: map[kind.ObjectKey]stored{}}
}

// Upsert adds or replaces an object. The existing status is kept, unless the generation has decreased: then it is another object
// with the same name.
func (s *Store) Upsert(object metav1.Object) {
	key := kind.KeyOf(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	is := stored{object: object}
	if before := s.objects[key]; before.object != nil && before.object.GetGeneration() <= object.GetGeneration() {
		is.status = before.status
	}
	s.objects[key] = is
}

// Delete removes an object and its status.
func (s *Store) Delete(key kind.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
}

// Apply merges a desired status, as accepted by Merger.Merge, into the object; nil sets the status that it would have without this
// controller. It reports whether the status has changed; it returns false if the object does not exist.
func (s *Store) Apply(key kind.ObjectKey, desired any, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.objects[key]
	if is.object == nil {
		return false
	}
	if isNil(desired) {
		s.objects[key] = stored{object: is.object}
		return is.status != nil && !reflect.DeepEqual(is.status, kind.StatusOf(is.object))
	}
	m := s.merger
	m.Now = now
	merged, changed, ok := m.Merge(is.now(), desired)
	if !ok || !changed {
		return false
	}
	s.objects[key] = stored{is.object, s.statuses.Of(merged)}
	return true
}

// Get returns an object with its status; it must not be modified.
func (s *Store) Get(key kind.ObjectKey) (metav1.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[key]
	if !ok {
		return nil, false
	}
	return o.now(), true
}

// Items returns the objects with their statuses, sorted by kind, namespace and name. They encode to JSON as in Kubernetes.
func (s *Store) Items() []Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	keys := make([]kind.ObjectKey, 0, len(s.objects))
	for k := range s.objects {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, kind.ObjectKey.Compare)
	items := make([]Item, len(keys))
	for i, k := range keys {
		items[i] = Item{s.objects[k].now()}
	}
	return items
}

// MarshalJSON returns {"items": [...]}.
func (s *Store) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Items []Item `json:"items"`
	}{s.Items()})
}

// Item is an object that is shown.
type Item struct{ Object metav1.Object }

// MarshalJSON omits a status that was never written; the Go types would include an empty list that a cluster does not have. It adds
// the kind, which objects in a list of a cluster do not contain.
func (i Item) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(i.Object)
	if err == nil {
		text = withKind(i.Object, text)
	}
	status := statusOf(i.Object)
	if err != nil || !status.IsValid() || !status.IsZero() {
		return text, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	return json.Marshal(fields)
}

// withKind returns the JSON of an object, with its kind added if it is missing.
func withKind(object metav1.Object, text []byte) []byte {
	k := kind.Of(object)
	typed, ok := object.(runtime.Object)
	if k == nil || !ok || typed.GetObjectKind().GroupVersionKind().Kind != "" {
		return text
	}
	out := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q`, schema.GroupVersion{Group: k.Group, Version: k.Versions[0]}, k.Name)
	if len(text) > len("{}") {
		out = append(out, ',')
	}
	return append(out, text[1:]...)
}

// statusOf returns the status of an object; invalid if it has none. That of a route is the struct that all kinds of routes share.
func statusOf(object metav1.Object) reflect.Value {
	if s := kind.StatusOf(object); s != nil {
		return reflect.ValueOf(s).Elem()
	}
	return reflect.Value{}
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
