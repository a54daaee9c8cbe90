package writer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

const (
	ours    = gwv1.GatewayController("moongate.dev/gateway-controller")
	foreign = gwv1.GatewayController("example.com/other")
)

// apiServer serves in memory, so that tests run on a clock of their own.
type apiServer struct {
	server *apiserver.Server

	mu sync.Mutex
	// fail answers for the server, if it is not nil; a code of 0 breaks the connection.
	fail func(r *http.Request) (code int, reason metav1.StatusReason)
	// stored is called with each object after a change, with the server locked.
	stored func(key kind.ObjectKey, object map[string]any)
	// writes are the bodies of the patches that changed something; attempts count all, and reads.
	writes          []string
	attempts, reads int
}

func newAPIServer() *apiServer {
	s := &apiServer{server: apiserver.New()}
	for _, k := range kind.All() {
		s.server.Serve(apiserver.Kind{Group: k.Group, Version: (&client{}).versionOf(k.Key("", "")), Resource: k.Resource, Kind: k.Name})
	}
	s.server.Strict = true
	s.server.Intercept = func(r *apiserver.Request) *metav1.Status {
		there := s.server.Get(r.Ref) != nil
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case !there:
		case r.Verb == "get":
			s.reads++
		default:
			s.attempts++
		}
		return nil
	}
	s.server.Stored = func(ref apiserver.Ref, object map[string]any) {
		s.mu.Lock()
		stored := s.stored
		s.mu.Unlock()
		if stored == nil {
			return
		}
		for _, k := range kind.All() {
			if k.Group == ref.Group && k.Resource == ref.Resource {
				stored(k.Key(ref.Namespace, ref.Name), object)
			}
		}
	}
	return s
}

// RoundTrip serves a request, or fails as the test wants it.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail != nil && r.Context().Err() == nil {
		switch code, reason := fail(r); {
		case code == 0 && reason != "":
			return nil, fmt.Errorf("dial tcp: %s", reason)
		case code != 0:
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			json.NewEncoder(w).Encode(apiserver.Failure(code, reason))
			return w.Result(), nil
		}
	}
	return s.server.RoundTrip(r)
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func refOf(key kind.ObjectKey) apiserver.Ref {
	return apiserver.Ref{Group: key.Group, Resource: kind.Named(key.Kind).Resource, Namespace: key.Namespace, Name: key.Name}
}

// set stores an object as a user would, whatever its version.
func (s *apiServer) set(key kind.ObjectKey, object metav1.Object) {
	var fields map[string]any
	if err := json.Unmarshal(encode(object), &fields); err != nil {
		panic(err)
	}
	s.server.Put(refOf(key), fields)
}

// edit changes an object as another client would that has the newest version.
func edit[T metav1.Object](s *apiServer, key kind.ObjectKey, change func(T)) {
	s.server.Edit(refOf(key), func(fields map[string]any) {
		object := decode(key, fields).(T)
		change(object)
		clear(fields)
		if err := json.Unmarshal(encode(object), &fields); err != nil {
			panic(err)
		}
	})
}

func (s *apiServer) remove(key kind.ObjectKey) { s.server.Remove(refOf(key)) }

// object is what is stored; nil where nothing is.
func (s *apiServer) object(key kind.ObjectKey) metav1.Object {
	fields := s.server.Get(refOf(key))
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

// written returns how many patches changed something.
func (s *apiServer) written() int { return len(s.patches()) }

// patches returns the bodies of those that changed something.
func (s *apiServer) patches() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.server.TakeWrites() {
		s.writes = append(s.writes, w.Body)
	}
	return s.writes
}

func (s *apiServer) setFail(fail func(*http.Request) (int, metav1.StatusReason)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *apiServer) setStored(stored func(kind.ObjectKey, map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = stored
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
	log *testkit.Log
	// unread are the Gateways and ListenerSets that are unknown, by name; "" for some Gateways.
	unread sync.Map
	// unwritable are the objects whose status cannot be decoded, by key.
	unwritable sync.Map
	stop       context.CancelFunc
	done       chan struct{}
}

// newSite makes a site on a server; call it in a bubble of synctest.
func newSite(t *testing.T, server *apiServer) *site {
	t.Helper()
	c := &cache{server: server, seen: map[kind.ObjectKey]metav1.Object{}}
	s := &site{apiServer: server, cache: c, log: &testkit.Log{}}
	var err error
	s.Writer, err = New(Options{
		Config: &rest.Config{Host: "http://api.test", Transport: server}, ControllerName: ours, Objects: c,
		Unknown: func(_ string, ref gwv1.ParentReference) bool {
			_, is := s.unread.Load(string(ref.Name))
			return is
		},
		Watched: func(namespace string) bool { return namespace != "elsewhere" },
		GatewaysUnread: func() bool {
			_, are := s.unread.Load("")
			return are
		},
		Unwritable: func(k kind.ObjectKey) bool {
			_, is := s.unwritable.Load(k)
			return is
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
