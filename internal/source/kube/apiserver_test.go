package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// apiServer is what the tests read from: lists, watches, streamed lists, discovery and
// single Secrets, with one history of all writes, as of a real one.
type apiServer struct {
	t    testing.TB
	addr string

	mu        sync.Mutex
	http      *http.Server
	listener  net.Listener
	version   int
	compacted int                                              // versions up to it are forgotten
	objects   map[string]map[string]*unstructured.Unstructured // by group/resource, then namespace/name
	history   []event
	written   chan struct{}                   // closed at each write
	served    map[string][]metav1.APIResource // by group/version
	streams   bool                            // lists can be streamed
	held      map[string]chan struct{}        // resources whose reads wait
	refused   map[string]bool                 // resources that are forbidden
	forbidden map[string]bool                 // resources that are forbidden in a namespace: namespace/resource
	unlisted  map[string]bool                 // resources that cannot be listed or watched
	unwatched map[string]bool                 // resources that cannot be watched
	failGet   int32                           // with what code single Secrets are answered; 0 for as they are
	gets      map[string]int                  // of single Secrets
	reading   int                             // gets at the moment
	mostReads int
	agents    map[string]bool
	accepts   map[string]string // by path, what is preferred
	lists     int               // that were not streamed
	whole     map[string]int    // of a resource: lists without a limit, also streamed ones
	failBegin int               // with what code a watch from a version, and the list of one object before it, are answered; 0 for as they are, -1 for not at all
	failed    int               // how often that was
}

type event struct {
	version        int
	kind, resource string
	object         *unstructured.Unstructured
}

func newAPIServer(t testing.TB, streams bool) *apiServer {
	s := &apiServer{
		t: t, addr: "127.0.0.1:0", streams: streams, version: 100, written: make(chan struct{}),
		objects: map[string]map[string]*unstructured.Unstructured{}, served: map[string][]metav1.APIResource{},
		held: map[string]chan struct{}{}, refused: map[string]bool{}, unlisted: map[string]bool{}, gets: map[string]int{}, agents: map[string]bool{}, accepts: map[string]string{}, whole: map[string]int{},
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *apiServer) config() *rest.Config { return &rest.Config{Host: "http://" + s.addr} }

// start lets it answer, at the address that it had.
func (s *apiServer) start() {
	var l net.Listener
	eventually(s.t, "the API server has its address again", func() bool {
		var err error
		l, err = net.Listen("tcp", s.addr)
		return err == nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = l.Addr().String()
	s.http, s.listener = &http.Server{Handler: s}, l
	go s.http.Serve(l)
}

// stop breaks all connections; what it knows stays.
func (s *apiServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http.Close()
	s.listener.Close() // which s.http may not have yet
}

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
	s.mu.Lock()
	s.unserve(k)
	gv := k.Group + "/" + version
	s.served[gv] = append(s.served[gv], metav1.APIResource{Name: k.Resource, Kind: k.Name, Namespaced: k.Name != "GatewayClass"})
	s.mu.Unlock()
	s.put(crdGroup+"/customresourcedefinitions", "CustomResourceDefinition", "", k.Resource+"."+k.Group, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{
			"gateway.networking.k8s.io/bundle-version": "v1.7.0", "gateway.networking.k8s.io/channel": "standard",
		}},
	})
}

// unserve takes a kind out of discovery. s.mu is held.
func (s *apiServer) unserve(k *watchedKind) {
	for gv, list := range s.served {
		s.served[gv] = slices.DeleteFunc(list, func(r metav1.APIResource) bool { return r.Name == k.Resource })
		if len(s.served[gv]) == 0 {
			delete(s.served, gv)
		}
	}
}

// put creates or replaces an object as given by fields, by the rules for generations.
func (s *apiServer) put(resource, kind, namespace, name string, fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o := &unstructured.Unstructured{Object: fields}
	o = o.DeepCopy()
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetResourceVersion(strconv.Itoa(s.version))
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "somebody", Operation: "Update"}})
	key := namespace + "/" + name
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]*unstructured.Unstructured{}
	}
	what, generation := "ADDED", int64(1)
	if old := s.objects[resource][key]; old != nil {
		what, generation = "MODIFIED", old.GetGeneration()
		if fmt.Sprint(old.Object["spec"]) != fmt.Sprint(o.Object["spec"]) {
			generation++
		}
	}
	o.SetGeneration(generation)
	s.objects[resource][key] = o
	s.write(event{s.version, what, resource, o})
}

func (s *apiServer) remove(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	o := s.objects[resource][key]
	if o == nil {
		return
	}
	delete(s.objects[resource], key)
	s.version++
	o = o.DeepCopy()
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.write(event{s.version, "DELETED", resource, o})
}

// compact forgets what happened so far.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted, s.history = s.version, nil
}

func (s *apiServer) write(e event) {
	s.history = append(s.history, e)
	close(s.written)
	s.written = make(chan struct{})
}

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

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group, rest := "", path[1:]
	if path[0] == "apis" {
		group, rest = path[1], path[2:]
	}
	version := rest[0]
	rest = rest[1:]
	s.mu.Lock()
	s.agents[r.UserAgent()] = true
	s.accepts[r.URL.Path], _, _ = strings.Cut(r.Header.Get("Accept"), ",")
	resource, namespace := "", ""
	if len(rest) > 0 {
		resource = strings.TrimPrefix(group+"/"+rest[len(rest)-1], "/")
		if len(rest) == 4 {
			resource = rest[2]
		}
		if len(rest) == 3 && rest[0] == "namespaces" {
			namespace, rest = rest[1], rest[2:]
		}
	}
	held := s.held[resource]
	from := r.URL.Query().Get("resourceVersion") != "" && r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == ""
	failing := 0
	if len(rest) == 1 && resource == gatewayGroup+"/httproutes" {
		switch {
		case from || r.URL.Query().Get("limit") == "1":
			if failing = s.failBegin; failing != 0 {
				s.failed++
			}
		default:
			s.whole[resource]++
		}
	}
	refused := s.refused[resource] || s.forbidden[namespace+"/"+resource] || s.unlisted[resource] && len(rest) == 1 ||
		s.unwatched[resource] && r.URL.Query().Get("watch") != ""
	s.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	switch q := r.URL.Query(); {
	case failing < 0:
		panic(http.ErrAbortHandler)
	case failing > 0:
		fail(w, failing, metav1.StatusReasonInternalError)
	case refused:
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case len(rest) == 0:
		s.discovery(w, group+"/"+version)
	case len(rest) == 4:
		s.secret(w, rest[1], rest[3])
	case !s.serves(group, version, rest[0]):
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case q.Get("watch") == "true" || q.Get("watch") == "1":
		s.watch(w, r, resource, namespace, strings.TrimPrefix(group+"/"+version, "/"))
	default:
		s.list(w, r, resource, namespace, strings.TrimPrefix(group+"/"+version, "/"))
	}
}

func (s *apiServer) serves(group, version, resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return group == "" || group == crdGroup || group == "discovery.k8s.io" ||
		slices.ContainsFunc(s.served[group+"/"+version], func(r metav1.APIResource) bool { return r.Name == resource })
}

func (s *apiServer) discovery(w http.ResponseWriter, gv string) {
	s.mu.Lock()
	list := slices.Clone(s.served[gv])
	s.mu.Unlock()
	if list == nil {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	answer(w, metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv, APIResources: list,
	})
}

func (s *apiServer) secret(w http.ResponseWriter, namespace, name string) {
	s.mu.Lock()
	key := namespace + "/" + name
	s.gets[key]++
	s.reading++
	s.mostReads = max(s.mostReads, s.reading)
	o, code := s.objects["secrets"][key], s.failGet
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reading--
	}()
	reasons := map[int32]metav1.StatusReason{403: metav1.StatusReasonForbidden, 429: metav1.StatusReasonTooManyRequests, 503: metav1.StatusReasonServiceUnavailable}
	if code != 0 {
		fail(w, int(code), reasons[code])
		return
	}
	if o == nil {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	answer(w, render(o, "v1", false))
}

// render is an object in a version, or its metadata.
func render(o *unstructured.Unstructured, apiVersion string, partial bool) map[string]any {
	out := maps.Clone(o.Object)
	out["apiVersion"] = apiVersion
	if partial {
		out = map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": out["metadata"]}
	}
	return out
}

// among reports whether a key is in a namespace; all are in "".
func among(namespace, key string) bool {
	return namespace == "" || strings.HasPrefix(key, namespace+"/")
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, resource, namespace, apiVersion string) {
	partial := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList")
	s.mu.Lock()
	s.lists++
	kind := "List"
	for _, k := range kinds {
		if strings.TrimPrefix(k.Group+"/"+k.Resource, "/") == resource {
			kind = k.Name + "List"
		}
	}
	out := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}}
	if partial {
		out["apiVersion"], out["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(s.objects[resource])) {
		if among(namespace, key) {
			items = append(items, render(s.objects[resource][key], apiVersion, partial))
		}
	}
	s.mu.Unlock()
	out["items"] = items
	answer(w, out)
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource, namespace, apiVersion string) {
	partial := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	send := func(what string, object any) {
		raw, _ := json.Marshal(map[string]any{"type": what, "object": object})
		_, _ = w.Write(append(raw, '\n'))
	}
	s.mu.Lock()
	expired := from != 0 && from < s.compacted
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	if initial && !s.streams {
		s.mu.Unlock()
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if expired && !initial {
		send("ERROR", status(http.StatusGone, metav1.StatusReasonExpired))
		s.mu.Unlock()
		return
	}
	if initial {
		for _, key := range slices.Sorted(maps.Keys(s.objects[resource])) {
			if among(namespace, key) {
				send("ADDED", render(s.objects[resource][key], apiVersion, partial))
			}
		}
		from = s.version
		mark := &unstructured.Unstructured{Object: map[string]any{}}
		mark.SetKind(s.kindOf(resource))
		mark.SetResourceVersion(strconv.Itoa(from))
		mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		send("BOOKMARK", render(mark, apiVersion, partial))
	}
	s.mu.Unlock()
	s.follow(r.Context(), w, from, resource, func(e event) {
		if among(namespace, e.object.GetNamespace()+"/") {
			send(e.kind, render(e.object, apiVersion, partial))
		}
	})
}

func (s *apiServer) kindOf(resource string) string {
	for _, k := range kinds {
		if strings.TrimPrefix(k.Group+"/"+k.Resource, "/") == resource {
			return k.Name
		}
	}
	return "Thing"
}

func (s *apiServer) follow(ctx context.Context, w http.ResponseWriter, from int, resource string, send func(event)) {
	for {
		s.mu.Lock()
		if from < s.compacted {
			s.mu.Unlock()
			return // the next watch is told that it is too late
		}
		for _, e := range s.history {
			if e.version > from {
				if from = e.version; e.resource == resource {
					send(e)
				}
			}
		}
		written := s.written
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-written:
		case <-ctx.Done():
			return
		}
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func status(code int32, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code,
		Reason: reason, Message: "test: " + string(reason),
	}
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(int32(code), reason))
}
