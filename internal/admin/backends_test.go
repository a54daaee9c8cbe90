package admin

import (
	"strings"
	"testing"
	"time"
)

// TestBackends: what is passed over is shown as such, as JSON and as a table, and a query narrows it down.
func TestBackends(t *testing.T) {
	until := time.Now().Add(time.Hour)
	url := start(t, Options{Backends: func() []Backend {
		return []Backend{
			{Name: "Service/shop/cart/80", ProxyZone: "a", Zones: []ZoneShare{{"a", .75}, {"b", .25}}, Endpoints: []Endpoint{
				{Address: "192.0.2.1:80", Health: "ejected", Until: &until, Weight: 1, Zone: "a"}, {Address: "192.0.2.2:80", Health: "healthy", Weight: .5, RequestsInFlight: 7}}},
			{Name: "Service/shop/other/80"},
		}
	}})
	for path, want := range map[string][]string{
		"/backends":                    {`"health": "ejected"`, `"until"`, `"weight": 0.5`, `"requestsInFlight": 7`, "shop/other"},
		"/backends?format=text":        {"ejected for 1h0m0s", "zones: a 75%, b 25%; the proxy is in a", "no endpoints"},
		"/backends?format=text&q=cart": {"192.0.2.2:80"},
	} {
		r := get(t, url+path)
		for _, s := range want {
			if r.status != 200 || !strings.Contains(r.body, s) {
				t.Errorf("%s: %d, no %q in\n%s", path, r.status, s, r.body)
			}
		}
		if strings.Contains(path, "q=") && strings.Contains(r.body, "shop/other") {
			t.Errorf("%s shows the other backend", path)
		}
	}
}
