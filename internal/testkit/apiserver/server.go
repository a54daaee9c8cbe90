// Package apiserver implements the part of a Kubernetes API server that tests of its clients need: discovery, one history of
// versions, reads, lists and watches (streamed or not, selected by labels), creation, server-side apply, merge patches of objects
// and of their status, and deletion. It exists so that these rules are written once: tests add what else they need, such as failures
// and counts, by Intercept.
//
// Server-side apply records which manager has applied which fields, but merges lists by position; there are no defaults and no
// validation. These are tested with a real cluster.
//
// It must be imported by tests only, and must import nothing of this module.
package apiserver

import (
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object is an object's JSON.
type Object = map[string]any

// Kind is a kind of a Server.
type Kind struct {
	Group, Version string
	Resource       string // its plural
	Kind           string
	ClusterScoped  bool
}

func (k Kind) groupVersion() string { return strings.TrimPrefix(k.Group+"/"+k.Version, "/") }

// Ref names an object, or a collection if Name is empty.
type Ref struct{ Group, Resource, Namespace, Name string }

// Request is a request of a client.
type Request struct {
	*http.Request
	// Verb is get, list, watch, create, apply, patch, delete or discover.
	Verb string
	Ref
	Version     string
	Subresource string
	Query       url.Values
	Body        []byte
}

// Event is a change in the history.
type Event struct {
	Version int
	Type    string // ADDED, MODIFIED or DELETED
	Ref
	Object Object // must not be modified
}

// Write is a request that changed something.
type Write struct {
	Verb string
	Ref
	Subresource string
	Body        string
	Object      Object // as it was stored, nil if it was deleted; must not be modified
}

// Server is an API server. Its options must be set before the first request. It is safe for concurrent use.
type Server struct {
	// Streams enables streamed lists; otherwise requests for them are rejected as invalid.
	Streams bool
	// Generations increments metadata.generation when spec changes.
	Generations bool
	// Strict rejects patches and deletes without a precondition.
	Strict bool
	// Intercept is called with each request before it is served, without a lock, and may block. If it returns a failure, that is the
	// response; Broken closes the connection. May be nil.
	Intercept func(*Request) *metav1.Status
	// Served is called after each request that Intercept let pass, without a lock. May be nil.
	Served func(*Request)
	// Admit is called, like an admission webhook, with what a client is about to store, and with all stored objects, with the Server
	// locked. May be nil.
	Admit func(ref Ref, o Object, all map[Ref]Object)
	// Stored is called with each object that was stored, with the Server locked. May be nil.
	Stored func(Ref, Object)

	addr string

	mu        sync.Mutex
	http      *http.Server
	listener  net.Listener
	kinds     []Kind
	version   int
	compacted int // versions up to it are no longer in the history
	objects   map[Ref]Object
	applied   map[Ref]map[string]Object // what a manager applied last
	history   []Event
	more      chan struct{} // closed with the next event
	writes    []Write
}

// Broken is returned by Intercept to close the connection.
var Broken = &metav1.Status{Code: -1}

// New returns a Server of these kinds. It does not listen yet.
func New(kinds ...Kind) *Server {
	return &Server{kinds: kinds, addr: "127.0.0.1:0", version: 100, objects: map[Ref]Object{}, applied: map[Ref]map[string]Object{}, more: make(chan struct{})}
}

// Listen listens on loopback, until the test ends, at the same address each time.
func (s *Server) Listen(t testing.TB) {
	t.Helper()
	var listener net.Listener
	var err error
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) { // the address may be in use for a moment
		if listener, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = listener.Addr().String()
	server := &http.Server{Handler: s}
	s.http, s.listener = server, listener
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(s.Stop)
}

// Stop closes all connections and stops listening; the state of the Server is kept.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http.Close()
	s.listener.Close() // s.http may not have it yet
}

// Disconnect closes all connections, as if the Server restarted.
func (s *Server) Disconnect(t testing.TB) {
	t.Helper()
	s.Stop()
	s.Listen(t)
}

// URL returns the URL of the Server.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "http://" + s.addr
}

// RoundTrip serves a request in memory, for tests with their own clock. It does not support watches.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	request := s.parse(r)
	if !s.serve(w, request) {
		return nil, errors.New("the connection is broken for the test")
	}
	if err := r.Context().Err(); err != nil {
		return nil, err // the request was served, but the connection broke before the response
	}
	return w.Result(), nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.serve(w, s.parse(r)) {
		panic(http.ErrAbortHandler)
	}
}

// serve answers a request, and returns false if the connection must be closed.
func (s *Server) serve(w http.ResponseWriter, r *Request) bool {
	if s.Intercept != nil {
		if status := s.Intercept(r); status == Broken {
			return false
		} else if status != nil {
			fail(w, status)
			return true
		}
	}
	if s.Served != nil {
		defer s.Served(r) // once s.mu is released
	}
	if r.Verb == "watch" {
		s.watch(w, r)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind, served := s.kind(r); {
	case r.Verb == "discover":
		s.discover(w, r)
	case !served:
		fail(w, Failure(http.StatusNotFound, metav1.StatusReasonNotFound))
	case r.Verb == "list":
		s.list(w, r, kind)
	case r.Verb == "create":
		s.create(w, r)
	case r.Verb == "apply":
		s.apply(w, r)
	case s.objects[r.Ref] == nil:
		fail(w, Failure(http.StatusNotFound, metav1.StatusReasonNotFound))
	case r.Verb == "get":
		answer(w, s.render(r, s.objects[r.Ref]))
	case r.Verb == "patch":
		s.patch(w, r)
	case r.Verb == "delete":
		s.delete(w, r)
	default:
		fail(w, Failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed))
	}
	return true
}

// parse returns what a request asks for.
func (s *Server) parse(r *http.Request) *Request {
	out := &Request{Request: r, Query: r.URL.Query()}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if path[0] == "apis" && len(path) > 1 {
		out.Group, path = path[1], path[1:]
	}
	path = path[1:]
	if len(path) > 0 {
		out.Version, path = path[0], path[1:]
	}
	if len(path) > 2 && path[0] == "namespaces" {
		out.Namespace, path = path[1], path[2:]
	}
	for i, field := range []*string{&out.Resource, &out.Name, &out.Subresource} {
		if i < len(path) {
			*field = path[i]
		}
	}
	if r.Body != nil {
		out.Body = readAll(r)
	}
	switch {
	case out.Resource == "":
		out.Verb = "discover"
	case r.Method == http.MethodPost:
		out.Verb = "create"
	case r.Method == http.MethodDelete:
		out.Verb = "delete"
	case r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch"):
		out.Verb = "apply"
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		out.Verb = "patch"
	case r.Method != http.MethodGet:
		out.Verb = r.Method
	case out.Query.Get("watch") != "":
		out.Verb = "watch"
	case out.Name == "":
		out.Verb = "list"
	default:
		out.Verb = "get"
	}
	return out
}

// Serve adds a kind, replacing the same resource in another version.
func (s *Server) Serve(k Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserve(k)
	s.kinds = append(s.kinds, k)
}

// Unserve removes a kind, in any version. Its objects are kept.
func (s *Server) Unserve(k Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserve(k)
}

func (s *Server) unserve(k Kind) {
	s.kinds = slices.DeleteFunc(s.kinds, func(o Kind) bool { return o.Group == k.Group && o.Resource == k.Resource })
}

func (s *Server) kind(r *Request) (Kind, bool) {
	i := slices.IndexFunc(s.kinds, func(k Kind) bool { return k.Group == r.Group && k.Version == r.Version && k.Resource == r.Resource })
	if i < 0 {
		return Kind{}, false
	}
	return s.kinds[i], true
}

// Put stores an object as a user would, in any version. The Server stores a copy.
func (s *Server) Put(ref Ref, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(ref, clone(o))
}

// Edit changes the newest version of an object; an absent one is created with metadata only.
func (s *Server) Edit(ref Ref, edit func(Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := clone(s.objects[ref])
	if s.objects[ref] == nil {
		o["metadata"] = Object{}
	}
	edit(o)
	s.store(ref, clone(o))
}

// Remove deletes an object, as another client.
func (s *Server) Remove(ref Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(ref)
}

// Get returns a copy of an object, nil if there is none.
func (s *Server) Get(ref Ref) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[ref] == nil {
		return nil
	}
	return clone(s.objects[ref])
}

// Refs returns the names of all objects, sorted.
func (s *Server) Refs() []Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refs()
}

func (s *Server) refs() []Ref {
	return slices.SortedFunc(maps.Keys(s.objects), func(a, b Ref) int {
		return slices.Compare([]string{a.Group, a.Resource, a.Namespace, a.Name}, []string{b.Group, b.Resource, b.Namespace, b.Name})
	})
}

// Compact drops the history.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted, s.history = s.version, nil
}

// Backup returns a function that restores the present objects and version; the history since is dropped.
func (s *Server) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, version := map[Ref]Object{}, s.version
	for ref, o := range s.objects {
		objects[ref] = clone(o)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.objects, s.version, s.history = objects, version, nil
	}
}

// Disown removes the ownership of a field that a manager has applied, as if another one had updated it.
func (s *Server) Disown(ref Ref, manager string, path ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.applied[ref][manager]
	for _, key := range path[:len(path)-1] {
		o, _ = o[key].(Object)
	}
	delete(o, path[len(path)-1])
}

// TakeWrites returns the requests that have changed something since the last call.
func (s *Server) TakeWrites() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.writes
	s.writes = nil
	return out
}

// store stores an object in a new version, and returns false if it has not changed. The caller must hold s.mu.
func (s *Server) store(ref Ref, o Object) bool {
	before, event := s.objects[ref], "MODIFIED"
	meta := metadata(o)
	meta["name"] = ref.Name
	if ref.Namespace != "" {
		meta["namespace"] = ref.Namespace
	}
	if i := slices.IndexFunc(s.kinds, func(k Kind) bool { return k.Group == ref.Group && k.Resource == ref.Resource }); i >= 0 && o["kind"] == nil {
		o["kind"], o["apiVersion"] = s.kinds[i].Kind, s.kinds[i].groupVersion()
	}
	generation := int64(1)
	if before == nil {
		event = "ADDED"
	} else {
		meta["resourceVersion"] = metadata(before)["resourceVersion"]
		generation = generationOf(before)
		if !reflect.DeepEqual(before["spec"], o["spec"]) {
			generation++
		}
	}
	if s.Generations {
		meta["generation"] = float64(generation) // the type to which json decodes numbers
	}
	if before != nil && reflect.DeepEqual(before, o) {
		return false
	}
	s.objects[ref] = o
	s.happened(event, ref, o)
	if s.Stored != nil {
		s.Stored(ref, o)
	}
	return true
}

func generationOf(o Object) int64 {
	generation, _ := metadata(o)["generation"].(float64)
	return int64(generation)
}

func (s *Server) remove(ref Ref) {
	o := s.objects[ref]
	if o == nil {
		return
	}
	delete(s.objects, ref)
	delete(s.applied, ref)
	s.happened("DELETED", ref, clone(o))
}

// happened adds an event to the history. The caller must hold s.mu.
func (s *Server) happened(event string, ref Ref, o Object) {
	s.version++
	metadata(o)["resourceVersion"] = strconv.Itoa(s.version)
	s.history = append(s.history, Event{s.version, event, ref, o})
	close(s.more)
	s.more = make(chan struct{})
}

// metadata returns an object's metadata, which is created if it is absent.
func metadata(o Object) Object {
	meta, _ := o["metadata"].(Object)
	if meta == nil {
		meta = Object{}
		o["metadata"] = meta
	}
	return meta
}

// clone copies an object; nil becomes an empty object.
func clone(o Object) Object {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	out := Object{}
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	if out == nil {
		out = Object{}
	}
	return out
}

// Failure returns the response to a failed request.
func Failure(code int, reason metav1.StatusReason, message ...string) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: strings.Join(append(message, "refused for the test: "+string(reason))[:1], "")}
}

func fail(w http.ResponseWriter, status *metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
