package apiserver

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stored stores the object of a client, records the write, and answers. An apply that changes nothing is recorded too. The caller
// must hold s.mu.
func (s *Server) stored(w http.ResponseWriter, r *Request, o Object) {
	if s.Admit != nil {
		s.Admit(r.Ref, o, s.objects)
	}
	if changed := s.store(r.Ref, o); changed || r.Verb == "apply" {
		s.writes = append(s.writes, Write{r.Verb, r.Ref, r.Subresource, string(r.Body), s.objects[r.Ref]})
	}
	answer(w, s.render(r, s.objects[r.Ref]))
}

func (s *Server) create(w http.ResponseWriter, r *Request) {
	var o Object
	if err := json.Unmarshal(r.Body, &o); err != nil {
		fail(w, Failure(http.StatusBadRequest, metav1.StatusReasonBadRequest))
		return
	}
	if r.Name, _ = metadata(o)["name"].(string); r.Name == "" {
		prefix, _ := metadata(o)["generateName"].(string)
		r.Name = prefix + strconv.Itoa(s.version+1)
	}
	if s.objects[r.Ref] != nil {
		fail(w, Failure(http.StatusConflict, metav1.StatusReasonAlreadyExists))
		return
	}
	s.stored(w, r, o)
}

// patch applies a merge patch (RFC 7396), to the status only, or to everything except the status.
func (s *Server) patch(w http.ResponseWriter, r *Request) {
	var patch Object
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		fail(w, Failure(http.StatusBadRequest, metav1.StatusReasonBadRequest))
		return
	}
	before := s.objects[r.Ref]
	version, given := metadata(patch)["resourceVersion"]
	if s.Strict && !given || given && version != metadata(before)["resourceVersion"] {
		fail(w, Failure(http.StatusConflict, metav1.StatusReasonConflict))
		return
	}
	if r.Subresource == "status" {
		patch = Object{"status": patch["status"]}
	} else {
		delete(patch, "status")
	}
	s.stored(w, r, mergePatch(clone(before), patch).(Object))
}

func mergePatch(target, patch any) any {
	p, ok := patch.(Object)
	if !ok {
		return patch
	}
	t, _ := target.(Object)
	merged := maps.Clone(t)
	if merged == nil {
		merged = Object{}
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

// apply implements server-side apply: what a manager applied before and no longer applies is removed, unless another manager applied
// it too.
func (s *Server) apply(w http.ResponseWriter, r *Request) {
	var wanted Object
	if err := json.Unmarshal(r.Body, &wanted); err != nil {
		fail(w, Failure(http.StatusBadRequest, metav1.StatusReasonBadRequest))
		return
	}
	manager := r.Query.Get("fieldManager")
	before := s.objects[r.Ref]
	after := clone(before)
	if before == nil {
		after = Object{"metadata": Object{"uid": "uid-" + strconv.Itoa(s.version+1)}}
		s.applied[r.Ref] = map[string]Object{}
	} else if s.applied[r.Ref] == nil {
		s.applied[r.Ref] = map[string]Object{}
	}
	given := clone(s.applied[r.Ref][manager])
	for other, fields := range s.applied[r.Ref] {
		if other != manager {
			subtract(given, fields)
		}
	}
	removeUnwanted(after, given, wanted)
	merge(after, clone(wanted))
	s.applied[r.Ref][manager] = wanted
	s.stored(w, r, after)
}

// subtract removes from a what is in b.
func subtract(a, b Object) {
	for key, value := range b {
		inA, okA := a[key].(Object)
		inB, okB := value.(Object)
		if okA && okB {
			subtract(inA, inB)
		} else {
			delete(a, key)
		}
	}
}

// removeUnwanted removes from a what is in given and not in wanted.
func removeUnwanted(a, given, wanted Object) {
	for key, value := range given {
		below, isObject := value.(Object)
		inA, _ := a[key].(Object)
		still, kept := wanted[key].(Object)
		switch {
		case isObject && kept && inA != nil:
			removeUnwanted(inA, below, still)
		case wanted[key] == nil:
			delete(a, key)
		}
	}
}

func merge(into, from Object) {
	for key, value := range from {
		a, okA := into[key].(Object)
		b, okB := value.(Object)
		if okA && okB {
			merge(a, b)
		} else {
			into[key] = value
		}
	}
}

func (s *Server) delete(w http.ResponseWriter, r *Request) {
	var options metav1.DeleteOptions
	if len(r.Body) > 0 {
		if err := json.Unmarshal(r.Body, &options); err != nil {
			fail(w, Failure(http.StatusBadRequest, metav1.StatusReasonBadRequest))
			return
		}
	}
	p := options.Preconditions
	if s.Strict && (p == nil || p.UID == nil) || p != nil && p.UID != nil && string(*p.UID) != metadata(s.objects[r.Ref])["uid"] {
		fail(w, Failure(http.StatusConflict, metav1.StatusReasonConflict))
		return
	}
	s.remove(r.Ref)
	s.writes = append(s.writes, Write{r.Verb, r.Ref, "", string(r.Body), nil})
	answer(w, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}
