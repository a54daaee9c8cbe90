package admin

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const exampleGateway = `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"namespace":"shop","name":"edge"},
"spec":{"gatewayClassName":"moongate","listeners":[{"name":"http","port":8080,"protocol":"HTTP"},{"name":"https","port":8443,"protocol":"HTTPS","hostname":"*.example.com"}]},
"status":{"addresses":[{"value":"192.0.2.1"}],"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"},{"type":"Programmed","status":"Unknown","reason":"Pending","message":"waiting"}],
"listeners":[{"name":"https","attachedRoutes":2,"conditions":[{"type":"Conflicted","status":"False","reason":"NoConflicts"},{"type":"ResolvedRefs","status":"False","reason":"InvalidCertificateRef","message":"Secret shop/tls does not exist"}]},
{"name":"http","attachedRoutes":1,"conditions":[{"type":"Conflicted","status":"True","reason":"ProtocolConflict","message":"port 8080 is taken"}]}]}}`

func exampleRoute(name, conditionStatus, reason string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"kind":"HTTPRoute","metadata":{"namespace":"shop","name":%q},"spec":{"hostnames":[%q],"rules":[{"matches":[{"path":{"type":"PathPrefix","value":%q},"method":"GET"}],"filters":[{"type":"CORS"}],"backendRefs":[{"name":%q,"port":80}]}]},
"status":{"parents":[{"parentRef":{"name":"edge","sectionName":"http","port":8080},"conditions":[{"type":"Accepted","status":%q,"reason":%q,"message":"<script>alert(1)</script>"}]}]}}`,
		name, name+".example.com", "/"+name, name, conditionStatus, reason))
}

func exampleOptions() Options {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "moongate_requests_total", Help: "Requests."},
		[]string{"gateway", "listener", "route", "rule", "backend", "code", "reason"})
	registry.MustRegister(requests)
	requests.WithLabelValues("shop/edge", "http", "HTTPRoute/shop/cart", "0", "", "200", "ok").Add(4100)
	requests.WithLabelValues("shop/edge", "http", "HTTPRoute/shop/cart", "1", "", "0", "client_closed").Add(23)
	requests.WithLabelValues("shop/edge", "https", "", "", "", "404", "route_not_found").Add(77)
	return Options{Version: "v1.2.3", Gatherer: registry, Ready: func() error { return nil },
		Backends: func() []Backend {
			return []Backend{{Name: "Service/shop/cart/80", Endpoints: []Endpoint{{Address: "192.0.2.8:80", Health: "healthy"}, {Address: "192.0.2.9:80", Health: "ejected"}}},
				{Name: "Service/shop/zebra/80/http2", Endpoints: []Endpoint{{Address: "192.0.2.10:80", Health: "unhealthy"}}}}
		},
		Certificates: func() []Certificate {
			return []Certificate{{Name: "Secret shop/old", Problem: "it has no PEM block"},
				{Name: "Secret shop/tls", Names: []string{"*.example.com"}, NotBefore: time.Now().Add(-80 * 24 * time.Hour), NotAfter: time.Now().Add(10*24*time.Hour + time.Minute), Listeners: []string{"shop/edge/https"}}}
		},
		Overrides: func() map[string][]Override {
			return map[string][]Override{"BackendTrafficPolicy shop/cart": {{Policy: "BackendTrafficPolicy default/all", Fields: []string{"spec.retry"}, Rules: 3}}}
		},
		Status: func() Status {
			return Status{
				Items: []any{json.RawMessage(exampleGateway), exampleRoute("cart", "True", "Accepted"), exampleRoute("zebra", "False", "NotAllowedByListeners"),
					json.RawMessage(`{"kind":"HTTPRoute","metadata":{"namespace":"shop","name":"alone"}}`),
					json.RawMessage(`{"kind":"BackendTrafficPolicy","metadata":{"namespace":"shop","name":"cart"},"spec":{"targetRefs":[{"kind":"HTTPRoute","name":"cart"}]},"status":{"ancestors":[{"ancestorRef":{"name":"edge"},"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"}]}]}}`),
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
		`<span class="badge unknown">Programmed=Unknown</span>`, "waiting",
		`<summary><span class="badge ok">Conflicted=False</span> </summary>`, `<span class="badge bad">Conflicted</span>`,
		"NotAllowedByListeners", "edge http :8080", "no Gateway that this controller manages",
		`<td class="n">4123</td>`, `<td class="n">77</td>`, `<dd id="t-total">4200</dd>`, `path prefix /cart, method GET`, "→ Service/shop/cart/80", "1 of 2 healthy", "192.0.2.9:80", "BackendTrafficPolicy default/all", "spec.retry",
		"Secret shop/tls", "no PEM block", "the certificate expires on", "none sent",
		"<code>bad.yaml:12 spec.rules</code>", "must be a list", "write a list", "kind Widget is not known", "GatewayClass",
	} {
		if !strings.Contains(r.body, s) {
			t.Errorf("the page does not show %q", s)
		}
	}
	if strings.Index(r.body, "zebra") > strings.Index(r.body, "cart") {
		t.Error("the route with trouble is not first")
	}
	if strings.Count(r.body, "<script") != 1 || !strings.Contains(r.body, `<script src="/dashboard.js" defer></script>`) {
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
	if r := get(t, url+"/?q=%22%3E%3Cscript%3E"); strings.Count(r.body, "<script") != 1 || !strings.Contains(r.body, "There is no route that fits") {
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
	url := start(t, o)
	r := get(t, url+"/")
	if got := strings.Count(r.body, `<tr><th scope="row"><span`); got != maxPageRows {
		t.Errorf("%d rows, want %d", got, maxPageRows)
	}
	if want := fmt.Sprintf(`1–%d of %d</span>`, maxPageRows, 2*maxRows+7); !strings.Contains(r.body, want) || strings.Contains(r.body, `id="previous"`) {
		t.Errorf("the page does not say %s", want)
	}
	next := regexp.MustCompile(`<a id="next" href="/([^"#]*)#routes">`).FindStringSubmatch(r.body)
	if next == nil {
		t.Fatal("there is no link to the next page")
	}
	r = get(t, url+"/"+html.UnescapeString(next[1]))
	if want := fmt.Sprintf(`%d–%d of %d</span>`, maxPageRows+1, 2*maxPageRows, 2*maxRows+7); !strings.Contains(r.body, want) || !strings.Contains(r.body, `id="previous"`) {
		t.Errorf("the next page does not say %s", want)
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

// TestDashboardOfController: what a process does not count is not shown as nothing, and who counts it is said.
func TestDashboardOfController(t *testing.T) {
	o := exampleOptions()
	o.Uncounted, o.Note = true, func() string { return "This is the controller: see <the proxies>." }
	o.Explain = func(Question) (*Explanation, error) { return &Explanation{}, nil }
	o.Proxies = func() map[string][]GatewayProxy {
		return map[string][]GatewayProxy{"shop/edge": {{Pod: "edge-1", Version: "v1", State: "current", Class: "ok"}, {Pod: "edge-2", State: "refused the configuration: why", Class: "bad"}}}
	}
	o.Backends = func() []Backend {
		return []Backend{{Name: "Service/shop/elsewhere/80", Endpoints: []Endpoint{{Address: "192.0.2.1:80", Health: HealthElsewhere}}}}
	}
	url := start(t, o)
	body := get(t, url+"/").body
	if before, _, _ := strings.Cut(body, "How requests ended"); strings.Contains(before, `<th scope="col" class="n">Requests</th>`) {
		t.Error("the page shows numbers of requests that nobody counts")
	}
	if state, class := (&Backend{Endpoints: []Endpoint{{Health: HealthElsewhere}, {Health: HealthElsewhere}}}).state(0); state != "2 endpoints, judged by each proxy" || class != "unknown" {
		t.Errorf("endpoints that others judge are %s, %s", state, class)
	}
	for _, s := range []string{`<p class="note" id="note">This is the controller: see &lt;the proxies&gt;.</p>`, `<section id="traffic" aria-labelledby="traffic-title" hidden>`, "edge-1", "refused the configuration: why", `id="gateway-names"><option>shop/edge`} {
		if !strings.Contains(body, s) {
			t.Errorf("the page does not show %q", s)
		}
	}
	o.Proxies = func() map[string][]GatewayProxy { return map[string][]GatewayProxy{"shop/edge": {}} }
	if body := get(t, start(t, o)+"/").body; !strings.Contains(body, "no proxy is connected") {
		t.Error("nothing is said of a Gateway without proxies")
	}
	if top := topologyOf(t, url+"/topology"); top.Counted || top.Note == "" || len(top.Gateways[0].Proxies) != 2 {
		t.Errorf("%+v", top)
	}
}
