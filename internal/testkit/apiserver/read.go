package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func readAll(r *http.Request) []byte {
	body, _ := io.ReadAll(r.Body) // if the client disconnects, it gets no answer
	return body
}

// discover answers what a group and version contains, or which versions a group has.
func (s *Server) discover(w http.ResponseWriter, r *Request) {
	if r.Version == "" {
		group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: r.Group}
		for _, k := range s.kinds {
			version := metav1.GroupVersionForDiscovery{GroupVersion: k.groupVersion(), Version: k.Version}
			if k.Group == r.Group && !slices.Contains(group.Versions, version) {
				group.Versions = append(group.Versions, version)
			}
		}
		answer(w, group)
		return
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}}
	for _, k := range s.kinds {
		if k.Group == r.Group && k.Version == r.Version {
			list.GroupVersion = k.groupVersion()
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.Resource, Kind: k.Kind, Namespaced: !k.ClusterScoped})
		}
	}
	if list.APIResources == nil {
		fail(w, Failure(http.StatusNotFound, metav1.StatusReasonNotFound))
		return
	}
	answer(w, list)
}

// render returns an object in the requested version, or only its metadata if that was requested.
func (s *Server) render(r *Request, o Object) Object {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return Object{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o["metadata"]}
	}
	out := maps.Clone(o)
	out["apiVersion"] = strings.TrimPrefix(r.Group+"/"+r.Version, "/")
	return out
}

// among reports whether an object is in the requested collection.
func among(r *Request, ref Ref) bool {
	return ref.Group == r.Group && ref.Resource == r.Resource && (r.Namespace == "" || ref.Namespace == r.Namespace)
}

// selected reports whether an object has the requested labels.
func selected(r *Request, o Object) bool {
	selector, err := labels.Parse(r.Query.Get("labelSelector"))
	if err != nil {
		return false
	}
	have := labels.Set{}
	all, _ := metadata(o)["labels"].(Object)
	for key, value := range all {
		have[key] = fmt.Sprint(value)
	}
	return selector.Matches(have)
}

func (s *Server) list(w http.ResponseWriter, r *Request, k Kind) {
	out := Object{"apiVersion": k.groupVersion(), "kind": k.Kind + "List", "metadata": Object{"resourceVersion": strconv.Itoa(s.version)}}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		out["apiVersion"], out["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	items := []any{}
	for _, ref := range s.refs() {
		if among(r, ref) && selected(r, s.objects[ref]) {
			items = append(items, s.render(r, s.objects[ref]))
		}
	}
	out["items"] = items
	answer(w, out)
}

// watch sends the events of a collection until the client disconnects, or has missed an event.
func (s *Server) watch(w http.ResponseWriter, r *Request) {
	send := func(event string, o any) {
		_ = json.NewEncoder(w).Encode(Object{"type": event, "object": o})
	}
	from, _ := strconv.Atoi(r.Query.Get("resourceVersion"))
	seen := map[Ref]bool{} // objects that the client was sent and that are still selected
	initial := r.Query.Get("sendInitialEvents") != ""
	s.mu.Lock()
	kind, served := s.kind(r)
	switch {
	case !served:
		s.mu.Unlock()
		fail(w, Failure(http.StatusNotFound, metav1.StatusReasonNotFound))
		return
	case initial && !s.Streams:
		s.mu.Unlock()
		fail(w, Failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case initial:
		for _, ref := range s.refs() {
			if among(r, ref) && selected(r, s.objects[ref]) {
				send("ADDED", s.render(r, s.objects[ref]))
				seen[ref] = true
			}
		}
		from = s.version
		send("BOOKMARK", s.render(r, Object{"kind": kind.Kind, "metadata": Object{"resourceVersion": strconv.Itoa(from),
			"annotations": Object{metav1.InitialEventsAnnotationKey: "true"}}}))
	case from != 0 && from < s.compacted:
		send("ERROR", Failure(http.StatusGone, metav1.StatusReasonExpired))
		s.mu.Unlock()
		return
	}
	position := 0 // in the history; earlier events only determine what the client has seen
	if initial {
		position = from
	}
	for {
		if max(from, position) < s.compacted {
			s.mu.Unlock()
			return // the next watch gets an error that it is too late
		}
		for _, e := range s.history {
			if e.Version <= position {
				continue
			}
			position = e.Version
			if !among(r, e.Ref) {
				continue
			}
			matches, event := selected(r, e.Object), e.Type
			if !matches {
				event = "DELETED" // as if an object leaves the selection
			}
			if e.Version > from && (matches || seen[e.Ref]) {
				send(event, s.render(r, e.Object))
			}
			seen[e.Ref] = matches
		}
		more := s.more
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
		s.mu.Lock()
	}
}
