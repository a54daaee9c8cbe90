package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestNotes: what the policy in force says that changes nothing is told, for the listener that has the request.
func TestNotes(t *testing.T) {
	w := world(t)
	w.Resources = append(w.Resources, route("r", []string{"shop"}, &config.Rule{Matches: prefix("/"), BackendRefs: []*config.BackendRef{ref("one", 1)},
		Traffic: &config.RuleTraffic{Policy: "BackendTrafficPolicy n/child, merged with m/parent"}}))
	ancestor := func(section, message string) any {
		ref := map[string]any{"kind": "Gateway", "namespace": "n", "name": "gw"}
		if section != "" {
			ref["sectionName"] = section
		}
		return map[string]any{"controllerName": "example.com/c", "ancestorRef": ref, "conditions": []any{
			map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": message},
			map[string]any{"type": "Merged", "status": "True", "reason": "Merged", "message": "Merged with policy m/parent"}}}
	}
	policy := func(namespace, name string, ancestors ...any) any {
		return map[string]any{"kind": "BackendTrafficPolicy", "metadata": map[string]any{"namespace": namespace, "name": name}, "status": map[string]any{"ancestors": ancestors}}
	}
	w.Items = []any{policy("n", "child", ancestor("other", "of another listener"), ancestor("shop", "spec.retry: it changes nothing")),
		policy("n", "unrelated", ancestor("", "of another policy")), policy("m", "parent", ancestor("", "of the parent"))}
	e := explained(t, w, "GET", "http://shop.test/")
	if want := []string{"BackendTrafficPolicy n/child: spec.retry: it changes nothing"}; !slices.Equal(e.Notes, want) {
		t.Errorf("notes %q, want %q", e.Notes, want)
	}
	var text strings.Builder
	if err := e.Print(&text); err != nil || !strings.Contains(text.String(), "\nnote       BackendTrafficPolicy n/child: spec.retry") {
		t.Errorf("printed is\n%s", &text)
	}
}

// TestZones: which zones get how much is told with the zone that the proxy is said to be in.
func TestZones(t *testing.T) {
	inZones := func(l *config.LoadBalancer, zones ...string) World {
		w := World{ControllerName: "example.com/c", Place: func(string, string, string) string { return "" }}
		resources := backend("one", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		resources[0].GetBackend().Traffic = &config.BackendTraffic{LoadBalancer: l}
		for i, zone := range zones {
			resources[1].GetEndpoints().Endpoints[i].Zone = zone
		}
		w.Resources = append(resources, listener("http", "", 80), route("r", []string{"http"}, &config.Rule{Matches: prefix("/"), BackendRefs: []*config.BackendRef{ref("one", 1)}}))
		return w
	}
	local := &config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, PreferLocalZone: &config.PreferLocalZone{MinEndpoints: 1, Percentage: 100, Force: true, MinEndpointsInZone: 1}}
	for name, c := range map[string]struct {
		balancer *config.LoadBalancer
		zone     string
		want     string
	}{
		"local":          {local, "a", "zones: 100% to zone a; the proxy is in zone a"},
		"not known":      {local, "", "zones: none is preferred, because the zone of the proxy is not known (give it with --zone)"},
		"another":        {local, "c", "zones: 100% to all endpoints; the proxy is in zone c"},
		"weighted":       {&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, ZoneWeights: []*config.ZoneWeight{{Zone: "a", Weight: 3}, {Zone: "b", Weight: 1}}}, "", "zones: 75% to zone a, 25% to zone b"},
		"without zones":  {&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN}, "a", ""},
		"without policy": {nil, "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := inZones(c.balancer, "a", "b", "b")
			w.Zone = c.zone
			if got := explained(t, w, "GET", "http://a.test/").Backends[0].Zones; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
