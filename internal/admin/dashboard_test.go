package admin

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

const exampleGateway = `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"namespace":"shop","name":"edge"},
"spec":{"gatewayClassName":"moongate","listeners":[{"name":"http","port":8080,"protocol":"HTTP"},{"name":"https","port":8443,"protocol":"HTTPS","hostname":"*.example.com"}]},
"status":{"addresses":[{"value":"192.0.2.1"}],"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"},{"type":"Programmed","status":"Unknown","reason":"Pending","message":"waiting"}],
"listeners":[{"name":"https","attachedRoutes":2,"conditions":[{"type":"Conflicted","status":"False","reason":"NoConflicts"},{"type":"ResolvedRefs","status":"False","reason":"InvalidCertificateRef","message":"Secret shop/tls does not exist"}]},
{"name":"http","attachedRoutes":1,"conditions":[{"type":"Conflicted","status":"True","reason":"ProtocolConflict","message":"port 8080 is taken"}]}]}}`

func exampleRoute(name, conditionStatus, reason string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"kind":"HTTPRoute","metadata":{"namespace":"shop","name":%q},"spec":{"hostnames":[%q]},
"status":{"parents":[{"parentRef":{"name":"edge","sectionName":"http","port":8080},"conditions":[{"type":"Accepted","status":%q,"reason":%q,"message":"<script>alert(1)</script>"}]}]}}`,
		name, name+".example.com", conditionStatus, reason))
}

func exampleOptions() Options {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "moongate_requests_total", Help: "Requests."},
		[]string{"gateway", "listener", "route", "rule", "backend", "code", "reason"})
	registry.MustRegister(requests)
	requests.WithLabelValues("shop/edge", "http", "HTTPRoute/shop/cart", "0", "", "200", "ok").Add(4100)
	requests.WithLabelValues("shop/edge", "http", "HTTPRoute/shop/cart", "1", "", "0", "client_closed").Add(23)
	requests.WithLabelValues("shop/edge", "https", "", "", "", "404", "route_not_found").Add(77)
	return Options{Version: "v1.2.3", Gatherer: registry, Ready: func() error { return nil }, Status: func() Status {
		return Status{
			Items: []any{json.RawMessage(exampleGateway), exampleRoute("cart", "True", "Accepted"), exampleRoute("zebra", "False", "NotAllowedByListeners"),
				json.RawMessage(`{"kind":"HTTPRoute","metadata":{"namespace":"shop","name":"alone"}}`),
				json.RawMessage(`{"kind":"GatewayClass","metadata":{"name":"moongate"},"status":{"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"}]}}`)},
			Problems: []Problem{{File: "bad.yaml", Line: 12, Object: "HTTPRoute shop/x", Field: "spec.rules", Message: "must be a list", Remedy: "write a list"},
				{File: "other.yaml", Message: "kind Widget is not known", Ignored: true}},
		}
	}}
}

func TestDashboard(t *testing.T) {
	r := get(t, start(t, exampleOptions())+"/")
	if r.status != 200 || r.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", r.status, r.header)
	}
	for _, s := range []string{
		"v1.2.3", `<span class="badge ok">ready</span>`,
		"shop/edge", "class moongate", "192.0.2.1", "*.example.com", "8443",
		"InvalidCertificateRef: Secret shop/tls does not exist", "ProtocolConflict: port 8080 is taken",
		`<span class="badge unknown" title="waiting">Programmed=Unknown</span>`,
		`<span class="badge ok" title="">Conflicted=False</span>`, `<span class="badge bad" title="port 8080 is taken">Conflicted</span>`,
		"NotAllowedByListeners", "edge http :8080", "no Gateway of ours",
		`<td class="n">4123</td>`, `<td class="n">77</td>`, "4200 since the start", "none sent",
		"<code>bad.yaml:12</code>", "must be a list", "write a list", "kind Widget is not known", "GatewayClass",
	} {
		if !strings.Contains(r.body, s) {
			t.Errorf("the page does not show %q", s)
		}
	}
	if strings.Index(r.body, "zebra") > strings.Index(r.body, "cart") {
		t.Error("the route with trouble is not first")
	}
	if strings.Contains(r.body, "<script") {
		t.Error("the page has a script, or a message got in unescaped")
	}
	if m := regexp.MustCompile(`(?i)(src|href|url)\s*[=(]\s*["']?(https?:)?//`).FindString(r.body); m != "" {
		t.Errorf("the page loads something from elsewhere: %s", m)
	}
}

func TestDashboardSearch(t *testing.T) {
	url := start(t, exampleOptions())
	for query, want := range map[string]string{"zebra": "zebra", "CART.example": "cart", "": "cart"} {
		r := get(t, url+"/?q="+query)
		if !strings.Contains(r.body, "shop/"+want) && !strings.Contains(r.body, " shop/"+want) {
			t.Errorf("q=%s does not show %s", query, want)
		}
		if query == "zebra" && strings.Contains(r.body, "shop/cart") {
			t.Error("q=zebra shows the other route")
		}
	}
	if r := get(t, url+"/?q=%22%3E%3Cscript%3E"); strings.Contains(r.body, "<script") || !strings.Contains(r.body, "There is no route that fits") {
		t.Error("the query gets in unescaped, or an empty result is not told")
	}
}

func TestDashboardIsBounded(t *testing.T) {
	o := Options{Status: func() Status {
		var s Status
		for i := range 2*maxRows + 7 {
			s.Items = append(s.Items, exampleRoute(fmt.Sprintf("r%d", i), "True", "Accepted"))
		}
		return s
	}}
	r := get(t, start(t, o)+"/")
	if got := strings.Count(r.body, "<tr><td><span"); got != maxRows {
		t.Errorf("%d rows, want %d", got, maxRows)
	}
	if want := fmt.Sprintf("%d more objects are not shown", maxRows+7); !strings.Contains(r.body, want) {
		t.Errorf("the page does not say that %s", want)
	}
	if !strings.Contains(r.body, "not ready: the gateway has not started") {
		t.Error("the page does not say why the gateway is not ready")
	}
}

func TestDashboardWithoutObjects(t *testing.T) {
	o := Options{Status: func() Status { return Status{Items: []any{func() {}}} }}
	if r := get(t, start(t, o)+"/"); r.status != 200 || !strings.Contains(r.body, "The objects cannot be shown") {
		t.Errorf("%d %s", r.status, r.body)
	}
}
