package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTroubleOfOthers: however many objects of one namespace have trouble, that of other namespaces is shown, and what is not shown is counted.
func TestTroubleOfOthers(t *testing.T) {
	const many = 5 * maxJudged
	o := Options{Status: func() Status {
		var s Status
		for i := range many {
			s.Items = append(s.Items, troubled("aaa", fmt.Sprintf("r%04d", i)))
		}
		s.Items = append(s.Items, troubled("zzz", "one"))
		return s
	}, Certificates: func() []Certificate {
		return []Certificate{{Name: "yyy/old", NotAfter: time.Now().Add(-time.Hour)}}
	}}
	top := topologyOf(t, start(t, o)+"/topology")
	for _, want := range []string{"zzz/one", "yyy/old"} {
		if !slices.ContainsFunc(top.Problems, func(f finding) bool { return strings.Contains(f.Object, want) }) {
			t.Errorf("the trouble of %s is not shown among %d problems", want, len(top.Problems))
		}
	}
	if got := len(top.Problems) + top.MoreProblems; len(top.Problems) != maxRows || got < many {
		t.Errorf("%d problems are shown and %d more are counted, %d in all: want %d at least", len(top.Problems), top.MoreProblems, got, many)
	}
}

// troubled is a route that a parent does not accept.
func troubled(namespace, name string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"kind":"HTTPRoute","metadata":{"namespace":%q,"name":%q},"spec":{},"status":{"parents":[{"parentRef":{"name":"edge"},"conditions":[{"type":"Accepted","status":"False","reason":"NoMatchingParent","message":"why"}]}]}}`,
		namespace, name))
}

func TestNamespaceOf(t *testing.T) {
	for object, want := range map[string]string{"HTTPRoute n/r": "n", "Service/n/s/80": "n", "GatewayClass c": "", "": "", "Secret n/s": "n"} {
		if got := namespaceOf(object); got != want {
			t.Errorf("the namespace of %q is %q, want %q", object, got, want)
		}
	}
}

// TestStateOfBackends: what no endpoint is healthy of is bad, and what nobody has judged yet is not.
func TestStateOfBackends(t *testing.T) {
	of := func(health ...string) *Backend {
		b := &Backend{}
		for _, h := range health {
			b.Endpoints = append(b.Endpoints, Endpoint{Health: h})
		}
		return b
	}
	for want, b := range map[string]*Backend{
		"no endpoints, bad": of(), "2 of 2 healthy, ok": of(healthy, healthy), "1 of 2 healthy, unknown": of(healthy, "ejected"), "0 of 2 healthy, bad": of("ejected", "unhealthy"),
		"0 of 1 healthy, unknown": of(unknown), "1 endpoint, judged by each proxy, unknown": of(HealthElsewhere),
	} {
		row := b.row()
		if got := row.State + ", " + row.Class; got != want {
			t.Errorf("%+v is %q, want %q", b.Endpoints, got, want)
		}
	}
}

// TestWaitersLeave: who waits for a large answer and leaves is not answered.
func TestWaitersLeave(t *testing.T) {
	s := &Server{options: Options{Config: func() (any, error) { t.Error("asked for a client that has gone"); return nil, nil }},
		looking: make(chan struct{}, 1), dumping: make(chan struct{}, 1)}
	s.looking <- struct{}{}
	s.dumping <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	for name, serve := range map[string]func(http.ResponseWriter, *http.Request){"topology": s.topology, "dashboard": s.dashboard, "status": s.status, "config": s.config, "backends": s.backends} {
		w := httptest.NewRecorder()
		if serve(w, r); w.Body.Len() > 0 {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
}
