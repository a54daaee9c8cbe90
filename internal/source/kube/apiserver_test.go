package kube

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

// apiServer is what the tests read from. Resources are named "<group>/<resource>", those of the core group by the resource alone.
type apiServer struct {
	t       testing.TB
	server  *apiserver.Server
	streams bool // lists can be streamed

	mu        sync.Mutex
	held      map[string]chan struct{} // resources whose reads wait
	refused   map[string]bool          // resources that are forbidden
	forbidden map[string]bool          // resources that are forbidden in a namespace: namespace/resource
	unlisted  map[string]bool          // resources that cannot be listed or watched
	unwatched map[string]bool          // resources that cannot be watched
	failGet   int32                    // with what code single Secrets are answered; 0 for as they are
	gets      map[string]int           // of single Secrets
	reading   int                      // gets at the moment
	mostReads int
	agents    map[string]bool
	accepts   map[string]string // by path, what is preferred
	lists     int               // that were not streamed
	cached    int               // lists of whatever version a watch cache has
	whole     map[string]int    // of a resource: lists without a limit, also streamed ones
	failBegin int               // with what code a watch from a version, and the list of one object before it, are answered; 0 for as they are, -1 for not at all
	failed    int               // how often that was
}

func newAPIServer(t testing.TB, streams bool) *apiServer {
	s := &apiServer{
		t: t, server: apiserver.New(), streams: streams,
		held: map[string]chan struct{}{}, refused: map[string]bool{}, unlisted: map[string]bool{}, gets: map[string]int{}, agents: map[string]bool{}, accepts: map[string]string{}, whole: map[string]int{},
	}
	for _, k := range append([]*watchedKind{secretMetadata}, kinds...) {
		if !k.Optional {
			s.server.Serve(apiserver.Kind{Group: k.Group, Version: k.versions[0], Resource: k.Resource, Kind: k.Name, ClusterScoped: !k.Namespaced})
		}
	}
	s.server.Serve(apiserver.Kind{Group: crdGroup, Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition", ClusterScoped: true})
	s.server.Streams, s.server.Generations = streams, true
	s.server.Intercept = s.intercept
	s.server.Served = func(r *apiserver.Request) {
		if isSecretRead(r) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reading--
		}
	}
	s.start()
	return s
}

func (s *apiServer) config() *rest.Config { return &rest.Config{Host: s.server.URL()} }

// start lets it answer, at the address that it had.
func (s *apiServer) start() { s.server.Listen(s.t) }

// stop breaks all connections; what it knows stays.
func (s *apiServer) stop() { s.server.Stop() }

// install serves all optional kinds in their first version, or in that given.
func (s *apiServer) install(versions map[string]string) {
	for _, k := range kinds {
		if k.Custom {
			version := k.versions[0]
			if v := versions[k.Name]; v != "" {
				version = v
			}
			s.define(k, version)
		}
	}
}

// define creates a kind's CRD, or serves it in another version.
func (s *apiServer) define(k *watchedKind, version string) {
	s.server.Serve(apiserver.Kind{Group: k.Group, Version: version, Resource: k.Resource, Kind: k.Name, ClusterScoped: !k.Namespaced})
	s.put(crdGroup+"/customresourcedefinitions", "CustomResourceDefinition", "", k.Resource+"."+k.Group, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{
			"gateway.networking.k8s.io/bundle-version": "v1.7.0", "gateway.networking.k8s.io/channel": "standard",
		}},
	})
}

// unserve takes a kind out of discovery.
func (s *apiServer) unserve(k *watchedKind) {
	s.server.Unserve(apiserver.Kind{Group: k.Group, Resource: k.Resource})
}

func refOf(resource, namespace, name string) apiserver.Ref {
	group, plural, found := strings.Cut(resource, "/")
	if !found {
		group, plural = "", resource
	}
	return apiserver.Ref{Group: group, Resource: plural, Namespace: namespace, Name: name}
}

// resourceOf is the other way round.
func resourceOf(r apiserver.Ref) string { return strings.TrimPrefix(r.Group+"/"+r.Resource, "/") }

// put creates or replaces an object as given by fields, by the rules for generations.
func (s *apiServer) put(resource, kind, namespace, name string, given map[string]any) {
	object := fields{"kind": kind}
	for k, v := range given {
		object[k] = v
	}
	metadata := fields{"managedFields": []any{fields{"manager": "somebody", "operation": "Update"}}}
	if m, ok := given["metadata"].(fields); ok {
		for k, v := range m {
			metadata[k] = v
		}
	}
	object["metadata"] = metadata
	s.server.Put(refOf(resource, namespace, name), object)
}

func (s *apiServer) remove(resource, namespace, name string) {
	s.server.Remove(refOf(resource, namespace, name))
}

// get returns an object, nil where there is none.
func (s *apiServer) get(resource, namespace, name string) map[string]any {
	return s.server.Get(refOf(resource, namespace, name))
}

// count returns how many objects of a resource there are.
func (s *apiServer) count(resource string) (n int) {
	for _, ref := range s.server.Refs() {
		if resourceOf(ref) == resource {
			n++
		}
	}
	return n
}

// compact forgets what happened so far.
func (s *apiServer) compact() { s.server.Compact() }

// hold lets reads of a resource wait until the function that it returns is called.
func (s *apiServer) hold(resource string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{})
	s.held[resource] = c
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, resource)
		close(c)
	}
}

func isSecretRead(r *apiserver.Request) bool {
	return r.Verb == "get" && resourceOf(r.Ref) == "secrets"
}

func (s *apiServer) intercept(r *apiserver.Request) *metav1.Status {
	resource := resourceOf(r.Ref)
	collection, watch, initial := r.Resource != "" && r.Name == "", r.Verb == "watch", r.Query.Get("sendInitialEvents") != ""
	s.mu.Lock()
	s.agents[r.UserAgent()] = true
	s.accepts[r.URL.Path], _, _ = strings.Cut(r.Header.Get("Accept"), ",")
	held := s.held[resource]
	failing := 0
	if collection && resource == gatewayGroup+"/httproutes" {
		if watch && !initial && r.Query.Get("resourceVersion") != "" || r.Query.Get("limit") == "1" {
			if failing = s.failBegin; failing != 0 {
				s.failed++
			}
		} else {
			s.whole[resource]++
		}
	}
	refused := s.refused[resource] || s.forbidden[r.Namespace+"/"+resource] && collection || s.unlisted[resource] && collection || s.unwatched[resource] && watch
	s.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return apiserver.Broken
		}
	}
	switch {
	case failing < 0:
		return apiserver.Broken
	case failing > 0:
		return apiserver.Failure(failing, metav1.StatusReasonInternalError)
	case refused:
		return apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Verb == "list" {
		s.lists++
		if r.Query.Get("resourceVersion") == "0" {
			s.cached++
		}
	}
	if !isSecretRead(r) {
		return nil
	}
	s.gets[r.Namespace+"/"+r.Name]++
	reasons := map[int32]metav1.StatusReason{403: metav1.StatusReasonForbidden, 429: metav1.StatusReasonTooManyRequests, 503: metav1.StatusReasonServiceUnavailable}
	if s.failGet != 0 {
		return apiserver.Failure(int(s.failGet), reasons[s.failGet])
	}
	s.reading++
	s.mostReads = max(s.mostReads, s.reading)
	return nil
}
