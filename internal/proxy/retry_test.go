package proxy

import (
	"net/http"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestRetryFindsNoOtherEndpoint: the last endpoint answers with a status that is retried, and goes before it can be asked again, as at
// the end of a rollout. That is no fault of the gateway's own.
func TestRetryFindsNoOtherEndpoint(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		g.apply(backend("Service/default/b/80")[1:])
		w.WriteHeader(503)
	}), func(r *config.Rule) {
		r.Retry = &config.Retry{Attempts: 2, Codes: []uint32{503}, BackoffNanos: int64(100 * time.Millisecond)}
	})
	if status, err := get(g.dial()); status != 503 || err != nil {
		t.Errorf("got %d, %v", status, err)
	}
	if r := g.reasonsLogged(1); r[0] != "no_endpoints" {
		t.Errorf("logged %q", r)
	}
}

// TestRetryThatIsTooLate: a wait that timeouts.request would end does not begin, so the client gets the response that is there, and not 504 in its place.
func TestRetryThatIsTooLate(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }), func(r *config.Rule) {
		r.RequestTimeoutNanos = int64(time.Minute)
		r.Retry = &config.Retry{Attempts: 2, Codes: []uint32{503}, BackoffNanos: int64(time.Hour)}
	})
	if status, err := get(g.dial()); status != 503 || err != nil {
		t.Errorf("got %d, %v", status, err)
	}
	if r := g.reasonsLogged(1); r[0] != "retries_exhausted" {
		t.Errorf("logged %q", r)
	}
}
