package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// TestTaskRedirectRewrite: docs/tasks/redirect-rewrite.md, and that the backend sees what it says.
func TestTaskRedirectRewrite(t *testing.T) {
	t.Parallel()
	var seen atomic.Pointer[http.Request]
	b := newBackend(t, "app", func(_ http.ResponseWriter, r *http.Request) bool {
		seen.Store(r.Clone(t.Context()))
		return false
	})
	runTask(t, "redirect-rewrite", map[int]*backend{3000: b})
	r := seen.Load()
	if r == nil || r.RequestURI != "/cart?page=2" || r.Host != "shop.internal" || r.Header.Get("X-Version") != "2" || r.Header.Get("X-Debug") != "" {
		t.Errorf("the backend saw %+v", r)
	}
}

// TestTaskSplitMirror: docs/tasks/split-mirror.md; one of its backends answers the request.
func TestTaskSplitMirror(t *testing.T) {
	t.Parallel()
	var asked [3]atomic.Int64
	backends := map[int]*backend{}
	for i, name := range []string{"app", "next", "shadow"} {
		backends[3000+i] = newBackend(t, name, func(http.ResponseWriter, *http.Request) bool {
			asked[i].Add(1)
			return false
		})
	}
	runTask(t, "split-mirror", backends)
	if n := asked[0].Load() + asked[1].Load(); n != 1 {
		t.Errorf("app and next were asked %d times, want once", n)
	}
}
