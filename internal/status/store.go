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

// Store holds objects with their statuses, as a cluster would: where there is no
// cluster, it is what one can look at. It is safe for concurrent use.
type Store struct {
	merger   Merger
	mu       sync.RWMutex
	objects  map[kind.ObjectKey]stored
	statuses intern.Values[any] // most routes have the same
}

// stored is an object and its status, neither of which is ever modified.
type stored struct {
	object metav1.Object // as it came, its status being the CRD's default
	status any           // a pointer, as of kind.StatusOf; nil for the object's own
}

// now is the object with its status.
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

// NewStore makes an empty Store for one controller.
func NewStore(controllerName gwv1.GatewayController) *Store {
	return &Store{merger: Merger{ControllerName: controllerName}, objects: map[kind.ObjectKey]stored{}}
}

// Upsert adds an object or replaces it. It keeps the status that it has, unless
// its generation went down: then it is another object of that name.
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

// Apply merges a desired status, as Merger.Merge takes it, into the object; nil
// leaves it the status that it would have without us. It says whether the
// status changed; an object that is not there has none.
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

// Get returns an object with its status; nobody may modify it.
func (s *Store) Get(key kind.ObjectKey) (metav1.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[key]
	if !ok {
		return nil, false
	}
	return o.now(), true
}

// Items lists the objects with their statuses, sorted by kind, namespace and
// name. They encode to JSON as Kubernetes would show them.
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

// MarshalJSON is {"items": [...]}.
func (s *Store) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Items []Item `json:"items"`
	}{s.Items()})
}

// Item is an object that is shown.
type Item struct{ Object metav1.Object }

// MarshalJSON leaves out a status that nobody has written; the Go types would
// show an empty list that a cluster does not have. It says the kind, which objects of a cluster's list do not.
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

// withKind is the text of an object, begun with its kind where that is missing.
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

// statusOf is the status of an object; invalid where there is none. That of a
// route is the struct in it that all routes share.
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
