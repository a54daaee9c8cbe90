package proxy

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestListenerFilterUnknown: a listener with a filter that this proxy has not, as from a newer controller, holds its hostname and answers nothing else than 500. Without
// that its requests would go to another listener, or past the filter.
func TestListenerFilterUnknown(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	addr := httpBackend(t, func(http.ResponseWriter, *http.Request) {})
	g.serve(addr, nil) // listener http, of every host
	guarded := g.httpListener("guarded", "guarded.example.com")
	guarded.GetListener().Filters = []*anypb.Any{{TypeUrl: "type.googleapis.com/moongate.config.v1.NotYet"}}
	g.generation++
	rule := &config.Rule{
		Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
	}
	result := g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{guarded, routeOf("guarded", "default/gw/guarded", "guarded.example.com", rule)}})
	if err := result.Listeners["default/gw/guarded"]; err == nil || !strings.Contains(err.Error(), "NotYet") {
		t.Errorf("reported: %v", err)
	}
	ask := func(host string) string {
		return g.roundTrip("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
	}
	if got := ask("guarded.example.com"); !strings.HasPrefix(got, "HTTP/1.1 500 ") || !strings.Contains(got, "listener_invalid") {
		t.Errorf("got %.100q", got)
	}
	if got := ask("other.example.com"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("the other listener: %.100q", got)
	}
}
