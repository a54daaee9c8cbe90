package provision

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// server is as much of an API server as a Provisioner uses. Its server-side apply knows who
// applied which fields, but merges lists by position and has no defaults; what these
// do is tested on a real cluster.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	objects map[string]tree            // by "<resource>/<namespace>/<name>"
	applied map[string]map[string]tree // what a manager applied last, by object
	events  []event
	more    chan struct{} // closed with the next event
	writes  []string      // "<verb> <object>", those that were carried out
	listed  []string      // namespaces, "" for all
	// forbidden are resources that may not be listed or watched, or namespace/resource.
	forbidden map[string]bool
	missing   string // a resource that is not served
	unwatched bool   // nothing may be watched
	// fail makes a request fail; mutate is an admission webhook. Both may be nil.
	fail   func(verb, object string) *metav1.Status
	mutate func(object string, t tree)
}

type tree = map[string]any

type event struct {
	version  int
	resource string
	kind     string // of event
	object   tree
}

func newServer(t *testing.T) *server {
	s := &server{objects: map[string]tree{}, applied: map[string]map[string]tree{}, more: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *server) config() *rest.Config {
	return &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// path splits a request's path into a resource, the namespace of a list, "" for all, and the object's name, "" for a list.
func path(p string) (resource, namespace, object string) {
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(p, "/apis/"), "/api/"), "/")
	if i := slices.Index(parts, "namespaces"); i >= 0 && len(parts) == i+3 {
		return parts[i+2], parts[i+1], ""
	} else if i >= 0 {
		return parts[i+2], "", strings.Join([]string{parts[i+2], parts[i+1], parts[i+3]}, "/")
	}
	return parts[len(parts)-1], "", ""
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, namespace, object := path(r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	verb := map[string]string{"GET": "get", "PATCH": "apply", "DELETE": "delete"}[r.Method]
	s.mu.Lock()
	forbidden := s.unwatched && r.URL.Query().Get("watch") != "" || object == "" && (s.forbidden[resource] || s.forbidden[namespace+"/"+resource])
	missing := s.missing != "" && s.missing == resource
	s.mu.Unlock()
	if missing {
		http.NotFound(w, r)
		return
	}
	if forbidden {
		w.WriteHeader(http.StatusForbidden)
		json.NewEncoder(w).Encode(status(http.StatusForbidden, metav1.StatusReasonForbidden, resource+" is forbidden"))
		return
	}
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r, resource, namespace)
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.refusal(verb, object)
	switch {
	case answer != nil:
	case object == "":
		s.listed = append(s.listed, namespace)
		s.list(w, r, resource, namespace)
		return
	case verb == "apply":
		answer = s.apply(resource, object, r.URL.Query().Get("fieldManager"), body)
	case s.objects[object] == nil:
		answer = status(http.StatusNotFound, metav1.StatusReasonNotFound, object+" not found")
	case verb == "get":
		answer = s.objects[object]
	default:
		answer = s.remove(resource, object, body)
	}
	if st, ok := answer.(*metav1.Status); ok && st.Code != 0 {
		w.WriteHeader(int(st.Code))
	}
	json.NewEncoder(w).Encode(answer)
}

func (s *server) refusal(verb, object string) any {
	if s.fail != nil {
		if st := s.fail(verb, object); st != nil {
			return st
		}
	}
	return nil
}

func status(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}

func selected(t tree, r *http.Request) bool {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return false
	}
	have := labels.Set{}
	meta, _ := t["metadata"].(tree)
	all, _ := meta["labels"].(tree)
	for key, value := range all {
		have[key] = fmt.Sprint(value)
	}
	return selector.Matches(have)
}

func (s *server) list(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	items := []tree{}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(name, resource+"/") && (namespace == "" || strings.HasPrefix(name, resource+"/"+namespace+"/")) && selected(s.objects[name], r) {
			items = append(items, s.objects[name])
		}
	}
	for kind, known := range resources {
		if known.resource == resource {
			json.NewEncoder(w).Encode(tree{"kind": kind + "List", "apiVersion": known.version.String(),
				"metadata": tree{"resourceVersion": strconv.Itoa(s.version)}, "items": items})
		}
	}
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		json.NewEncoder(w).Encode(status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "this server can only list"))
		return
	}
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.(http.Flusher).Flush()
	seen := map[any]bool{} // what the watcher was told of and is still selected
	for {
		s.mu.Lock()
		events, more := s.events, s.more
		for _, e := range events {
			name := e.object["metadata"].(tree)["name"]
			if e.resource != resource || namespace != "" && e.object["metadata"].(tree)["namespace"] != namespace {
				continue
			}
			matches, told := selected(e.object, r), e.kind
			if !matches {
				told = "DELETED" // as the real one does where an object leaves the selection
			}
			if e.version > since && (matches || seen[name]) {
				json.NewEncoder(w).Encode(tree{"type": told, "object": e.object})
			}
			seen[name] = matches
			since = max(since, e.version)
		}
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// happened tells the watchers; s.mu is held.
func (s *server) happened(kind, resource, object string, t tree) {
	s.version++
	t["metadata"].(tree)["resourceVersion"] = strconv.Itoa(s.version)
	s.events = append(s.events, event{s.version, resource, kind, t})
	close(s.more)
	s.more = make(chan struct{})
}

func (s *server) apply(resource, object, manager string, body []byte) any {
	var wanted tree
	if err := json.Unmarshal(body, &wanted); err != nil {
		return status(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	before := s.objects[object]
	after := clone(before)
	if before == nil {
		after = tree{"metadata": tree{"uid": "uid-" + strconv.Itoa(s.version+1)}}
		s.applied[object] = map[string]tree{}
	}
	given := clone(s.applied[object][manager])
	for other, fields := range s.applied[object] {
		if other != manager {
			subtract(given, fields)
		}
	}
	subtract2(after, given, wanted)
	merge(after, clone(wanted))
	if s.mutate != nil {
		s.mutate(object, after)
	}
	s.applied[object][manager] = wanted
	s.writes = append(s.writes, "apply "+object)
	kind := "MODIFIED"
	if before == nil {
		kind = "ADDED"
	}
	s.objects[object] = after
	s.happened(kind, resource, object, after)
	return after
}

// clone copies a tree; an absent one becomes an empty one.
func clone(t tree) tree {
	body, _ := json.Marshal(t)
	out := tree{}
	json.Unmarshal(body, &out)
	if out == nil {
		out = tree{}
	}
	return out
}

// subtract takes from a what is in b.
func subtract(a, b tree) {
	for key, value := range b {
		inA, okA := a[key].(tree)
		inB, okB := value.(tree)
		if okA && okB {
			subtract(inA, inB)
		} else {
			delete(a, key)
		}
	}
}

// subtract2 takes from a what is in given and not in wanted.
func subtract2(a, given, wanted tree) {
	for key, value := range given {
		below, isTree := value.(tree)
		inA, _ := a[key].(tree)
		still, kept := wanted[key].(tree)
		switch {
		case isTree && kept && inA != nil:
			subtract2(inA, below, still)
		case wanted[key] == nil:
			delete(a, key)
		}
	}
}

func merge(into, from tree) {
	for key, value := range from {
		a, okA := into[key].(tree)
		b, okB := value.(tree)
		if okA && okB {
			merge(a, b)
		} else {
			into[key] = value
		}
	}
}

func (s *server) remove(resource, object string, body []byte) any {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil {
		return status(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	gone := clone(s.objects[object])
	if p := options.Preconditions; p == nil || string(*p.UID) != gone["metadata"].(tree)["uid"] {
		return status(http.StatusConflict, metav1.StatusReasonConflict, "another uid")
	}
	delete(s.objects, object)
	delete(s.applied, object)
	s.writes = append(s.writes, "delete "+object)
	s.happened("DELETED", resource, object, gone)
	return &metav1.Status{Status: metav1.StatusSuccess, TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}
}

// set changes an object as somebody else; edit nil removes it.
func (s *server) set(object string, edit func(tree)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, _, _ := strings.Cut(object, "/")
	after := clone(s.objects[object])
	if edit == nil {
		delete(s.objects, object)
		s.happened("DELETED", resource, object, after)
		return
	}
	kind := "MODIFIED"
	if s.objects[object] == nil {
		parts := strings.Split(object, "/")
		after["metadata"], kind = tree{"namespace": parts[1], "name": parts[2], "uid": "uid-" + parts[2]}, "ADDED"
		for k, r := range resources {
			if r.resource == resource {
				after["kind"], after["apiVersion"] = k, r.version.String()
			}
		}
	}
	edit(after)
	s.objects[object] = after
	s.happened(kind, resource, object, after)
}

// written are the writes since the last call.
func (s *server) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes
	s.writes = nil
	return writes
}

func (s *server) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// at reads a field of an object, nil for none.
func (s *server) at(object string, path ...string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var value any = clone(s.objects[object])
	for _, key := range path {
		t, _ := value.(tree)
		value = t[key]
	}
	return value
}
