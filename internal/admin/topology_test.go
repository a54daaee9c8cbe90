package admin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func topologyOf(t *testing.T, url string) (top topology) {
	t.Helper()
	r := get(t, url)
	if r.status != 200 || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %s", r.status, r.header, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), &top); err != nil {
		t.Fatal(err)
	}
	return top
}

func routeNames(top topology) (names []string) {
	for _, r := range top.Routes {
		names = append(names, r.Name)
	}
	return names
}

func TestTopology(t *testing.T) {
	url := start(t, exampleOptions())
	top := topologyOf(t, url+"/topology")
	if got := routeNames(top); !slices.Equal(got, []string{"shop/zebra", "shop/alone", "shop/cart"}) {
		t.Errorf("routes %v: those with trouble come first", got)
	}
	cart := top.Routes[2]
	if cart.Counts.Requests != 4123 || cart.Counts.Errors != 0 || len(cart.Rules) != 1 || cart.Rules[0].Matches[0] != "path prefix /cart, method GET" || !slices.Equal(cart.Rules[0].Filters, []string{"CORS"}) {
		t.Errorf("%+v", cart)
	}
	b := cart.Rules[0].Backends[0]
	if b.Key != "Service/shop/cart/80" || len(b.Pools) != 1 || b.Pools[0].Healthy != 1 || b.Pools[0].Total != 2 || b.Pools[0].Endpoints[0].Class != "bad" {
		t.Errorf("the endpoint that is not healthy is not first: %+v", b)
	}
	if pools := top.Routes[0].Rules[0].Backends[0].Pools; len(pools) != 1 || pools[0].Name != "Service/shop/zebra/80/http2" {
		t.Errorf("a backend of another protocol is not found: %+v", pools)
	}
	if top.Total.Requests != 4200 || !top.Counted || len(top.Gateways) != 1 || top.Gateways[0].Listeners[0].Counts.Requests != 4123 {
		t.Errorf("%+v", top)
	}
	if len(top.Policies) != 1 || len(top.Policies[0].Overrides) != 1 || !slices.Equal(top.Policies[0].Targets, []string{"HTTPRoute shop/cart"}) {
		t.Errorf("%+v", top.Policies)
	}
	var problems []string
	for _, p := range top.Problems {
		problems = append(problems, p.Severity+" "+p.Object+" "+p.Message)
	}
	for _, want := range []string{"error HTTPRoute shop/x must be a list", "error Secret shop/old it has no PEM block", "error Service/shop/zebra/80 none of its 1 endpoints is healthy", "warning Secret shop/tls the certificate expires on"} {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
			t.Errorf("%q is not among %q", want, problems)
		}
	}
	if !strings.HasPrefix(problems[len(problems)-1], "warning") {
		t.Errorf("warnings are not last: %q", problems)
	}

	for query, want := range map[string][]string{
		"?q=ZEBRA": {"shop/zebra"}, "?q=service/shop/cart": {"shop/cart"}, "?trouble=1": {"shop/zebra"}, "?q=nothing": nil,
		"?limit=1&offset=1": {"shop/alone"}, "?limit=2&offset=99": {"shop/cart"}, "?limit=-3&offset=-1": {"shop/zebra", "shop/alone", "shop/cart"},
	} {
		top := topologyOf(t, url+"/topology"+query)
		if got := routeNames(top); !slices.Equal(got, want) || top.AllRoutes != 3 {
			t.Errorf("%s: %v of %d, want %v", query, got, top.AllRoutes, want)
		}
	}
}

// TestTopologyOfConditions: what is the matter is said with the remedy that stands in the condition's message.
func TestTopologyOfConditions(t *testing.T) {
	o := Options{ControllerName: "example.com/ours", Status: func() Status {
		return Status{Items: []any{json.RawMessage(`{"kind":"GatewayClass","metadata":{"name":"ours"},"spec":{"controllerName":"example.com/ours"}}`),
			json.RawMessage(`{"kind":"Gateway","metadata":{"namespace":"a","name":"gw"},"spec":{"gatewayClassName":"ours"}}`),
			json.RawMessage(`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"r"},"spec":{"parentRefs":[{"name":"gw"}],"rules":"no list"},"status":{"parents":[
{"parentRef":{"name":"gw"},"controllerName":"example.com/ours","conditions":[{"type":"ResolvedRefs","status":"False","reason":"BackendNotFound","message":"Service a/x does not exist; create it or correct the name"}]},
{"parentRef":{"name":"gw"},"controllerName":"example.com/theirs","conditions":[{"type":"Accepted","status":"False","reason":"NotOurs","message":"foreign"}]}]}}`)}}
	}}
	top := topologyOf(t, start(t, o)+"/topology")
	want := finding{Severity: "error", Object: "HTTPRoute a/r", Where: "parent gw", Message: "BackendNotFound: Service a/x does not exist", Remedy: "create it or correct the name"}
	if len(top.Problems) != 1 || top.Problems[0] != want {
		t.Errorf("%+v, want %+v", top.Problems, want)
	}
}

// TestTopologyCounts: durations are told by bucket, and what ended with 500 and above apart.
func TestTopologyCounts(t *testing.T) {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "moongate_requests_total"}, []string{"gateway", "listener", "route", "code", "reason"})
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "moongate_request_duration_seconds", Buckets: []float64{.1, 1}}, []string{"gateway", "listener", "route"})
	registry.MustRegister(requests, durations)
	for _, code := range []string{"200", "503", "0"} {
		requests.WithLabelValues("shop/edge", "http", "HTTPRoute/shop/cart", code, "x").Inc()
	}
	for _, listener := range []string{"http", "https"} {
		for _, d := range []float64{.05, .05, .5, 7} {
			durations.WithLabelValues("shop/edge", listener, "HTTPRoute/shop/cart").Observe(d)
		}
	}
	o := exampleOptions()
	o.Gatherer = registry
	top := topologyOf(t, start(t, o)+"/topology?q=shop/cart")
	if c := top.Routes[0].Counts; c.Requests != 3 || c.Errors != 1 || !slices.Equal(c.Durations, []uint64{4, 2, 2}) {
		t.Errorf("%+v", c)
	}
	if c := topologyOf(t, start(t, o)+"/topology").Gateways[0].Listeners[0].Counts; !slices.Equal(c.Durations, []uint64{2, 1, 1}) {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(top.Bounds, []float64{.1, 1}) {
		t.Errorf("bounds %v", top.Bounds)
	}
}

// pointed is an item that can be told from others, as objects of a store can.
type pointed struct{ text *json.RawMessage }

var marshalled atomic.Int64

func (p pointed) MarshalJSON() ([]byte, error) { marshalled.Add(1); return *p.text, nil }

// TestInventory: an object is read once as long as it is the same.
func TestInventory(t *testing.T) {
	var items []any
	for i := range 10 {
		text := exampleRoute(fmt.Sprintf("r%d", i), "True", "Accepted")
		items = append(items, pointed{&text})
	}
	var in inventory
	before := marshalled.Load()
	for i, want := range []int64{10, 10, 11} {
		if i == 2 {
			text := exampleRoute("changed", "True", "Accepted")
			items = append(slices.Clone(items[1:]), pointed{&text})
		}
		if err := in.update(slices.Clone(items)); err != nil {
			t.Fatal(err)
		}
		if got := marshalled.Load() - before; got != want || len(in.all) != 10 {
			t.Errorf("update %d: %d objects were read so far, want %d", i, got, want)
		}
	}
	if in.all[0].name != "shop/changed" || len(in.read) != 10 {
		t.Errorf("%s, %d", in.all[0].name, len(in.read))
	}
}

// TestTopologyIsBounded: no object and no number of them makes an answer large.
func TestTopologyIsBounded(t *testing.T) {
	many := func(text string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
	}
	rule := `{"matches":` + many(`{"path":{"value":"/`+strings.Repeat("x", 1000)+`"}}`, 8) + `,"filters":` + many(`{"type":"CORS"}`, 20) + `,"backendRefs":` + many(`{"name":"s","port":80}`, 20) + `}`
	route := json.RawMessage(`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"large"},"spec":{"hostnames":` + many(`"a.example.com"`, 1000) + `,"rules":` + many(rule, maxShownRules+1) + `},"status":{"parents":` +
		many(`{"parentRef":{"name":"gw"},"conditions":`+many(`{"type":"Accepted","status":"True"}`, 20)+`}`, 20) + `}}`)
	o := Options{Status: func() Status {
		s := Status{Items: []any{route}}
		for i := range 2 * maxRows {
			s.Items = append(s.Items, exampleRoute(fmt.Sprintf("r%d", i), "True", "Accepted"))
			s.Problems = append(s.Problems, Problem{Message: "m"}, Problem{Message: "i", Ignored: true})
		}
		return s
	}, Backends: func() []Backend {
		return []Backend{{Name: "Service/a/s/80", Endpoints: make([]Endpoint, 5000)}}
	}}
	url := start(t, o)
	top := topologyOf(t, url+"/topology?limit=100000")
	if len(top.Routes) != maxRows || len(top.Problems) != maxRows || top.MoreProblems == 0 || len(top.Ignored) != maxRows {
		t.Errorf("%d routes, %d problems and %d more, %d ignored", len(top.Routes), len(top.Problems), top.MoreProblems, len(top.Ignored))
	}
	top = topologyOf(t, url+"/topology?q=large")
	text, err := json.Marshal(top.Routes)
	if err != nil || len(top.Routes) != 1 || len(text) > 64<<10 {
		t.Errorf("%d routes in %d bytes, %v", len(top.Routes), len(text), err)
	}
	if large := top.Routes[0]; len(large.Rules) != maxShownRules || large.MoreRules != 1 || large.Rules[0].MoreMatches != 4 || large.Rules[0].MoreBackends != 4 || large.MoreHostnames != 1000-maxShownHostnames {
		t.Errorf("%+v", large)
	}
}

func TestCertificates(t *testing.T) {
	url := start(t, exampleOptions())
	r := get(t, url+"/certificates?q=example.com")
	var list certificateList
	if err := json.Unmarshal([]byte(r.body), &list); err != nil || len(list.Certificates) != 1 || list.Certificates[0].Name != "Secret shop/tls" {
		t.Errorf("%v %s", err, r.body)
	}
	if r := get(t, start(t, Options{})+"/certificates"); r.body != `{"certificates":[]}` {
		t.Errorf("%s", r.body)
	}
}

func TestExplainEndpoint(t *testing.T) {
	var asked Question
	o := Options{Explain: func(q Question) (*Explanation, error) {
		asked = q
		if q.URL == "http://unknown/" {
			return nil, fmt.Errorf("<no> way")
		}
		return &Explanation{Steps: map[string]string{"answer": "200"}, Text: "answer     200\n"}, nil
	}}
	url := start(t, o)
	r := get(t, url+"/explain?method=POST&url=http://a.test/x&header=X-A:1&header=X-B:2%0D%0AX-C:3&gateway=n/g")
	if r.status != 200 || !strings.Contains(r.body, `"text": "answer     200\n"`) || asked.Method != "POST" || asked.URL != "http://a.test/x" || asked.Gateway != "n/g" || !slices.Equal(asked.Headers, []string{"X-A:1", "X-B:2", "X-C:3"}) {
		t.Errorf("%d %s, asked %+v", r.status, r.body, asked)
	}
	if r := get(t, url+"/explain?url=http://a.test/&format=text"); r.body != "answer     200\n" || r.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v %s", r.header, r.body)
	}
	for query, status := range map[string]int{
		"url=http://a.test/&format=text&header=X-A:a%09b": 200,
		"": 400, "url=http://unknown/": 400, "url=http://a.test/%0D%0Ab": 400, "url=http://a.test/&method=GET%20/": 400, "url=http://a.test/&header=a%00b": 400,
		"url=http://a.test/" + strings.Repeat("x", maxQuestionURL): 400, "url=http://a.test/" + strings.Repeat("&header=a:b", maxQuestionHeaders+1): 400,
	} {
		r := get(t, url+"/explain?"+query)
		if r.status != status || r.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%.60s: %d %v %s", query, r.status, r.header, r.body)
		}
	}
	if r := get(t, start(t, Options{})+"/explain?url=http://a.test/"); r.status != 404 {
		t.Errorf("without configuration: %d", r.status)
	}
}

// TestExplainOfOtherSites: a page of another site cannot have requests explained, wherever the server listens.
func TestExplainOfOtherSites(t *testing.T) {
	o := Options{Address: "0.0.0.0:0", Explain: func(Question) (*Explanation, error) { return &Explanation{}, nil }}
	_, port, _ := strings.Cut(strings.TrimPrefix(start(t, o), "http://"), "]:")
	url := "http://127.0.0.1:" + port + "/explain?url=http://a.test/"
	for _, c := range []struct {
		host   string
		header []string
		status int
	}{
		{"localhost", []string{"User-Agent", "Mozilla/5.0", "Sec-Fetch-Site", "same-origin"}, 200},
		{"localhost", []string{"User-Agent", "Mozilla/5.0", "Sec-Fetch-Site", "cross-site"}, 403},
		{"192.0.2.1", []string{"User-Agent", "Mozilla/5.0"}, 403},
		{"192.0.2.1", []string{"User-Agent", "Mozilla/5.0", ownHeader, "1"}, 200},
		{"192.0.2.1", []string{"User-Agent", "curl/8.0"}, 200},
		{"rebound.example.com", []string{"User-Agent", "Mozilla/5.0", ownHeader, "1"}, 403},
	} {
		if r := ask(t, "GET", url, c.host, c.header...); r.status != c.status {
			t.Errorf("%s %v: %d, want %d: %s", c.host, c.header, r.status, c.status, r.body)
		}
	}
	if r := ask(t, "OPTIONS", url, "192.0.2.1", "Origin", "http://192.0.2.1", "Access-Control-Request-Headers", ownHeader); r.status != 405 || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight is answered %d %v", r.status, r.header)
	}
}

// TestPolicyOfThePage: the page runs its own script and no other.
func TestPolicyOfThePage(t *testing.T) {
	url := start(t, exampleOptions())
	for path, kind := range map[string]string{"/": "text/html", "/dashboard.js": "text/javascript", "/dashboard.css": "text/css"} {
		r := get(t, url+path)
		if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), kind) || r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: %d %v", path, r.status, r.header)
		}
		if strings.Contains(r.body, "style=") || strings.Contains(r.body, "onclick") || strings.Contains(r.body, "innerHTML") {
			t.Errorf("%s has what the policy forbids", path)
		}
	}
	policy := get(t, url+"/").header.Get("Content-Security-Policy")
	if policy != dashboardPolicy || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
		t.Errorf("policy %q", policy)
	}
}
