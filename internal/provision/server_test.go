package provision

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

type tree = map[string]any

// server is an API server whose objects are named "<resource>/<namespace>/<name>", with the failures that tests want.
type server struct {
	*apiserver.Server

	mu     sync.Mutex
	listed []string // namespaces, "" for all
	// watched are the resources that are watched in all namespaces.
	watched map[string]bool
	// forbidden are resources that may not be listed or watched, or namespace/resource.
	forbidden map[string]bool
	missing   string // a resource that is not served
	unwatched bool   // nothing may be watched
	cached    int    // lists of whatever version a watch cache has
	// fail makes a request fail; mutate is an admission webhook, which is also given all that is stored. Both may be nil.
	fail   func(verb, object string) *metav1.Status
	mutate func(object string, t tree, all map[string]tree)
}

func newServer(t *testing.T) *server {
	s := &server{Server: apiserver.New(), watched: map[string]bool{}}
	for kind, r := range resources {
		s.Serve(apiserver.Kind{Group: r.version.Group, Version: r.version.Version, Resource: r.resource, Kind: kind})
	}
	s.Strict = true
	s.Intercept = s.intercept
	s.Admit = func(ref apiserver.Ref, o tree, all map[apiserver.Ref]tree) {
		if s.mutate == nil {
			return
		}
		byName := map[string]tree{}
		for other, o := range all {
			byName[objectOf(other)] = o
		}
		s.mutate(objectOf(ref), o, byName)
	}
	s.Listen(t)
	return s
}

func (s *server) config() *rest.Config {
	return &rest.Config{Host: s.URL(), ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// objectOf is the name of an object as tests have it; "" for a collection.
func objectOf(ref apiserver.Ref) string {
	if ref.Name == "" {
		return ""
	}
	return ref.Resource + "/" + ref.Namespace + "/" + ref.Name
}

// refOf is objectOf the other way round.
func refOf(object string) apiserver.Ref {
	parts := strings.Split(object, "/")
	ref := apiserver.Ref{Resource: parts[0], Namespace: parts[1], Name: parts[2]}
	for _, r := range resources {
		if r.resource == ref.Resource {
			ref.Group = r.version.Group
		}
	}
	return ref
}

func (s *server) intercept(r *apiserver.Request) *metav1.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.missing == r.Resource:
		return apiserver.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	case s.unwatched && r.Verb == "watch", r.Name == "" && (s.forbidden[r.Resource] || s.forbidden[r.Namespace+"/"+r.Resource]):
		return apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, r.Resource+" is forbidden")
	case r.Verb == "watch":
		if r.Namespace == "" && r.Query.Get("sendInitialEvents") == "" {
			s.watched[r.Resource] = true
		}
		return nil
	}
	verb := r.Verb
	if verb == "list" {
		verb = "get"
	}
	if s.fail != nil {
		if failure := s.fail(verb, objectOf(r.Ref)); failure != nil {
			return failure
		}
	}
	if r.Verb == "list" {
		s.listed = append(s.listed, r.Namespace)
		if r.Query.Get("resourceVersion") == "0" && r.Resource != "nodes" { // of whose zones an older version does no harm
			s.cached++
		}
	}
	return nil
}

// set changes an object as somebody else; edit nil removes it.
func (s *server) set(object string, edit func(tree)) {
	ref := refOf(object)
	if edit == nil {
		s.Remove(ref)
		return
	}
	created := s.Get(ref) == nil
	s.Edit(ref, func(o tree) {
		if created {
			o["metadata"] = tree{"namespace": ref.Namespace, "name": ref.Name, "uid": "uid-" + ref.Name}
		}
		edit(o)
	})
}

// written are the writes since the last call, "<verb> <object>".
func (s *server) written() (out []string) {
	for _, w := range s.TakeWrites() {
		out = append(out, w.Verb+" "+objectOf(w.Ref))
	}
	return out
}

// names are those of all objects, sorted.
func (s *server) names() (out []string) {
	for _, ref := range s.Refs() {
		out = append(out, objectOf(ref))
	}
	slices.Sort(out)
	return out
}

// at returns a field of an object, nil for none.
func (s *server) at(object string, path ...string) any {
	var value any = s.Get(refOf(object))
	if value.(tree) == nil {
		value = tree{}
	}
	for _, key := range path {
		t, _ := value.(tree)
		value = t[key]
	}
	return value
}
