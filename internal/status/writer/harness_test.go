package writer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

const (
	ours    = gwv1.GatewayController("moongate.dev/gateway-controller")
	foreign = gwv1.GatewayController("example.com/other")
)

// apiServer has the semantics of an API server that the writer depends on: one
// sequence of versions, preconditions, the status subresource, 404 and 409.
type apiServer struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]any // by path
	// fail answers for the server, if it is not nil; a code of 0 breaks the connection.
	fail func(r *http.Request) (code int, reason metav1.StatusReason)
	// stored is told each object after a change, with the lock held.
	stored func(path string, object map[string]any)
	// writes are the bodies of the patches that changed something; attempts count all, and reads.
	writes          []string
	attempts, reads int
}

func newAPIServer() *apiServer { return &apiServer{objects: map[string]map[string]any{}} }

// RoundTrip serves a request in memory, so that tests run on a clock of their own.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		switch code, reason := fail(r); {
		case code == 0 && reason != "":
			return nil, fmt.Errorf("dial tcp: %s", reason)
		case code != 0:
			w := httptest.NewRecorder()
			refuse(w, code, reason)
			return w.Result(), nil
		}
	}
	w := httptest.NewRecorder()
	s.serve(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err // it was done, and nobody hears of it
	}
	return w.Result(), nil
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "refused for the test: " + string(reason),
	})
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, subresource := strings.CutSuffix(r.URL.Path, "/status")
	object := s.objects[path]
	if object == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if r.Method == http.MethodGet {
		s.reads++
	} else {
		s.attempts++
		body, _ := io.ReadAll(r.Body)
		var patch map[string]any
		if err := json.Unmarshal(body, &patch); err != nil || r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/merge-patch+json" {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		if v, ok := patch["metadata"].(map[string]any)["resourceVersion"]; !ok || v != object["metadata"].(map[string]any)["resourceVersion"] {
			refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		if subresource {
			patch = map[string]any{"status": patch["status"]}
		} else {
			delete(patch, "status")
		}
		if object = s.put(path, mergePatch(object, patch).(map[string]any)); object != nil {
			s.writes = append(s.writes, string(body))
		}
		object = s.objects[path]
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(object)
}

// put stores an object under a new version, or answers nil where nothing changed.
// Called with mu held.
func (s *apiServer) put(path string, object map[string]any) map[string]any {
	meta := object["metadata"].(map[string]any)
	if before := s.objects[path]; before != nil {
		meta["resourceVersion"] = before["metadata"].(map[string]any)["resourceVersion"]
		if string(encode(before)) == string(encode(object)) {
			return nil
		}
	}
	s.version++
	meta["resourceVersion"] = strconv.Itoa(s.version)
	s.objects[path] = object
	if s.stored != nil {
		s.stored(path, object)
	}
	return object
}

func mergePatch(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, _ := target.(map[string]any)
	merged := maps.Clone(t)
	if merged == nil {
		merged = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(merged, k)
		} else {
			merged[k] = mergePatch(merged[k], v)
		}
	}
	return merged
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func pathOf(key kind.ObjectKey) string {
	path := "/apis/" + key.Group + "/" + (&client{}).versionOf(key) + "/"
	if key.Namespace != "" {
		path += "namespaces/" + key.Namespace + "/"
	}
	return path + kind.Named(key.Kind).Resource + "/" + key.Name
}

// set stores an object as a user would, whatever its version.
func (s *apiServer) set(key kind.ObjectKey, object metav1.Object) {
	var fields map[string]any
	if err := json.Unmarshal(encode(object), &fields); err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(pathOf(key), fields)
}

// edit changes an object as another client would that has the newest version.
func edit[T metav1.Object](s *apiServer, key kind.ObjectKey, change func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := decode(key, s.objects[pathOf(key)]).(T)
	change(object)
	var fields map[string]any
	if err := json.Unmarshal(encode(object), &fields); err != nil {
		panic(err)
	}
	s.put(pathOf(key), fields)
}

func (s *apiServer) remove(key kind.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, pathOf(key))
}

// object is what is stored; nil where nothing is.
func (s *apiServer) object(key kind.ObjectKey) metav1.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	fields := s.objects[pathOf(key)]
	if fields == nil {
		return nil
	}
	return decode(key, fields)
}

func decode(key kind.ObjectKey, fields map[string]any) metav1.Object {
	object := map[string]func() metav1.Object{
		"GatewayClass": func() metav1.Object { return &gwv1.GatewayClass{} }, "Gateway": func() metav1.Object { return &gwv1.Gateway{} },
		"ListenerSet": func() metav1.Object { return &gwv1.ListenerSet{} }, "HTTPRoute": func() metav1.Object { return &gwv1.HTTPRoute{} },
		"BackendTLSPolicy":  func() metav1.Object { return &gwv1.BackendTLSPolicy{} },
		"GatewayParameters": func() metav1.Object { return &v1alpha1.GatewayParameters{} },
	}[key.Kind]()
	if err := json.Unmarshal(encode(fields), object); err != nil {
		panic(err)
	}
	return object
}

func (s *apiServer) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.writes)
}

func (s *apiServer) setFail(fail func(*http.Request) (int, metav1.StatusReason)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// cache is what a controller has seen of the server, which may be less than there is.
type cache struct {
	server *apiServer
	mu     sync.Mutex
	seen   map[kind.ObjectKey]metav1.Object
}

func (c *cache) Get(key kind.ObjectKey) (metav1.Object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.seen[key]
	return o, ok
}

// see brings the cache up to date in some objects.
func (c *cache) see(keys ...kind.ObjectKey) {
	for _, key := range keys {
		object := c.server.object(key)
		c.mu.Lock()
		if c.seen[key] = object; object == nil {
			delete(c.seen, key)
		}
		c.mu.Unlock()
	}
}

// site is a writer with an API server and what it has seen of it.
type site struct {
	*apiServer
	*cache
	*Writer
	log *lines
	// unread are the Gateways and ListenerSets that are unknown, by name; "" for some Gateways.
	unread sync.Map
	stop   context.CancelFunc
	done   chan struct{}
}

// lines is a log that may be written from anywhere.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// newSite makes a site on a server; call it in a bubble of synctest.
func newSite(t *testing.T, server *apiServer) *site {
	t.Helper()
	c := &cache{server: server, seen: map[kind.ObjectKey]metav1.Object{}}
	s := &site{apiServer: server, cache: c, log: &lines{}}
	var err error
	s.Writer, err = New(Options{
		Config: &rest.Config{Host: "http://api.test", Transport: server}, ControllerName: ours, Objects: c,
		Unknown: func(_ string, ref gwv1.ParentReference) bool {
			_, is := s.unread.Load(string(ref.Name))
			return is
		},
		GatewaysUnread: func() bool {
			_, are := s.unread.Load("")
			return are
		},
		Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs the writer until end, at the latest until the test ends.
func (s *site) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s.stop, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
}

func (s *site) end() {
	s.stop()
	<-s.done
}

// settle waits until the writer has nothing to do, for at most an hour of the
// test's own clock.
func (s *site) settle(t *testing.T) {
	t.Helper()
	for range 3600 * 10 {
		if s.Idle() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the writer does not come to rest")
}

func key(kindName, name string) kind.ObjectKey {
	k := kind.Named(kindName)
	if k.Namespaced {
		return k.Key("default", name)
	}
	return k.Key("", name)
}

func meta(k kind.ObjectKey, generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, Generation: generation}
}

func conditions(generation int64, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: "Accepted", Status: "True", Reason: reason, ObservedGeneration: generation}}
}

func parents(controller gwv1.GatewayController, gateway string, generation int64, reason string) []gwv1.RouteParentStatus {
	return []gwv1.RouteParentStatus{{
		ParentRef: gwv1.ParentReference{Name: gwv1.ObjectName(gateway)}, ControllerName: controller, Conditions: conditions(generation, reason),
	}}
}

var web = key("HTTPRoute", "web")

// addRoute stores a route with a foreign entry, and sees it.
func (s *site) addRoute(k kind.ObjectKey, generation int64) {
	route := &gwv1.HTTPRoute{ObjectMeta: meta(k, generation)}
	route.Status.Parents = parents(foreign, "other", generation, "Theirs")
	s.set(k, route)
	s.see(k)
}

func wanted(k kind.ObjectKey, generation int64, reason string) Change {
	return Change{Key: k, Desired: &gwv1.RouteStatus{Parents: parents(ours, "gw", generation, reason)}, Generation: generation}
}

// reasons are "<controller> <reason>" of the parents of a route, as stored.
func (s *apiServer) reasons(k kind.ObjectKey) string {
	var all []string
	for _, p := range s.object(k).(*gwv1.HTTPRoute).Status.Parents {
		who, _, _ := strings.Cut(string(p.ControllerName), ".")
		for _, c := range p.Conditions {
			all = append(all, who+" "+c.Reason)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
