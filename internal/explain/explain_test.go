package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func listener(name, hostname string, port uint32, certificates ...string) *config.Resource {
	protocol := config.Protocol_PROTOCOL_HTTP
	if certificates != nil {
		protocol = config.Protocol_PROTOCOL_HTTPS
	}
	return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/gw/" + name, Gateway: "n/gw", Name: name,
		Hostname: hostname, Port: port, Protocol: protocol, Certificates: certificates}}}
}

// demanding has a listener demand certificates of its clients.
func demanding(r *config.Resource, optional bool, authorities ...string) *config.Resource {
	l := r.GetListener()
	l.ClientValidation = &config.ClientValidation{Certificates: l.Certificates, Authorities: authorities, Optional: optional}
	l.Certificates = nil
	return r
}

func httpsWithout(r *config.Resource) *config.Resource {
	r.GetListener().Certificates = nil
	return r
}

// route has one rule for each of the matches, at the listeners of these names.
func route(name string, listeners []string, rules ...*config.Rule) *config.Resource {
	r := &config.Route{Key: "HTTPRoute/n/" + name, Namespace: "n", Name: name, Rules: rules}
	for _, l := range listeners {
		r.Attachments = append(r.Attachments, &config.Attachment{Listener: "n/gw/" + l, Hostnames: []*config.Hostname{{}}})
	}
	for i, rule := range rules {
		rule.Index = uint32(i)
	}
	return &config.Resource{Kind: &config.Resource_Route{Route: r}}
}

func prefix(value string, headers ...*config.ValueMatch) []*config.Match {
	return []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: value}, Headers: headers}}
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	out, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// backend is a Service with these endpoints on port 8080.
func backend(name string, addresses ...string) []*config.Resource {
	key := config.ServiceBackendKey("n", name, 80)
	endpoints := &config.Endpoints{Key: key}
	for _, a := range addresses {
		endpoints.Endpoints = append(endpoints.Endpoints, &config.Endpoint{Address: a, Port: 8080})
	}
	return []*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Namespace: "n", Name: name, Port: 80}}},
		{Kind: &config.Resource_Endpoints{Endpoints: endpoints}},
	}
}

func ref(name string, weight uint32) *config.BackendRef {
	return &config.BackendRef{Backend: config.ServiceBackendKey("n", name, 80), Weight: weight}
}

func certificate(t *testing.T, name string, c testkit.Certificate) *config.Resource {
	t.Helper()
	chain, key := c.PEM(t)
	return &config.Resource{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: "Secret/n/" + name, ChainPem: chain, KeyPem: key}}}
}

// world has a listener for HTTP, two for HTTPS, a listener of another port, and routes of every fate.
func world(t *testing.T) World {
	resources := slices.Concat([]*config.Resource{
		listener("all", "", 80), listener("shop", "shop.test", 80), listener("tls", "*.test", 443, "Secret/n/www"), listener("bare", "bare.test", 443, "Secret/n/none"),
		listener("unread", "unread.test", 443, "Secret/n/unread"), {Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: "Secret/n/unread"}}},
		demanding(listener("known", "known.test", 443, "Secret/n/www"), false, "sha256:a"), demanding(listener("asked", "asked.test", 443, "Secret/n/www"), true, "sha256:a"),
		demanding(httpsWithout(listener("nobody", "nobody.test", 443, "none")), false),
		certificate(t, "www", testkit.Certificate{Hosts: []string{"www.test"}, NotAfter: time.Now().Add(time.Hour)}),
		route("r", []string{"all", "tls"},
			&config.Rule{Matches: prefix("/api"), BackendRefs: []*config.BackendRef{ref("one", 3), ref("empty", 1), ref("never", 0)}},
			&config.Rule{Matches: prefix("/api", &config.ValueMatch{Name: "x-color", Value: "green"}), BackendRefs: []*config.BackendRef{ref("one", 1)}},
			&config.Rule{Matches: prefix("/old"), Filters: []*anypb.Any{packed(t, &config.RequestRedirect{Hostname: "new.test", StatusCode: 301})}},
			&config.Rule{Matches: prefix("/broken"), Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}},
			&config.Rule{Matches: prefix("/empty"), BackendRefs: []*config.BackendRef{ref("empty", 1)}},
			&config.Rule{Matches: prefix("/weightless"), BackendRefs: []*config.BackendRef{ref("one", 0)}},
			&config.Rule{Matches: prefix("/set"), Filters: []*anypb.Any{packed(t, &config.RequestHeaderModifier{Set: []*config.HeaderField{{Name: "X-Set", Value: "yes"}}})},
				BackendRefs: []*config.BackendRef{ref("one", 1)}},
			&config.Rule{Matches: prefix("/half"), BackendRefs: []*config.BackendRef{{Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}}, ref("one", 1)}},
			&config.Rule{Matches: prefix("/call"), BackendRefs: []*config.BackendRef{{Weight: 1, Failure: &config.Failure{Status: 503, Reason: "backend_invalid"}}}},
			&config.Rule{Matches: prefix("/chat"), BackendRefs: []*config.BackendRef{ref("chat", 1)}},
			&config.Rule{Matches: prefix("/chat", &config.ValueMatch{Name: "upgrade", Value: "other"}), BackendRefs: []*config.BackendRef{ref("one", 1)}},
		),
	}, backend("one", "10.0.0.1", "10.0.0.2"), backend("empty"), backend("chat", "10.0.0.3"))
	chat, _ := config.BackendProtocolOf("kubernetes.io/ws")
	resources[len(resources)-2].GetBackend().Protocol = chat
	items := []any{map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"namespace": "n", "name": "r"},
		"status": map[string]any{"parents": []any{map[string]any{"controllerName": "example.com/c", "parentRef": map[string]any{"name": "gw"},
			"conditions": []any{map[string]any{"type": "ResolvedRefs", "status": "False", "reason": "BackendNotFound",
				"message": "spec.rules[7].backendRefs[0].name: Service n/none does not exist"}}}}}}}
	return World{Resources: resources, Items: items, ControllerName: "example.com/c", Refused: []string{"a.yaml:1: no kind"},
		Place: func(kind, namespace, name string) string { return kind + "-" + namespace + "-" + name + ".yaml:1" }}
}

func explained(t *testing.T, w World, method, url string, headers ...string) *Explanation {
	t.Helper()
	q, err := NewQuestion(method, url, headers)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	e, err := Explain(w, q)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return e
}

// TestRefused: of many documents that could not be used, the first few are printed, and how many there are.
func TestRefused(t *testing.T) {
	var e Explanation
	for i := range 9 {
		e.Refused = append(e.Refused, fmt.Sprintf("%d.yaml:1: no kind", i+1))
	}
	var b strings.Builder
	if err := e.Print(&b); err != nil {
		t.Fatal(err)
	}
	if said := b.String(); !strings.HasSuffix(said, "not used   5.yaml:1: no kind\n           and 4 more; moongate check lists them all\n") {
		t.Errorf("printed\n%s", said)
	}
}

// TestExplain: each request ends as the proxy would have it, and the printed steps say so.
func TestExplain(t *testing.T) {
	w := world(t)
	for _, test := range []struct {
		what, url string
		headers   []string
		reason    string
		status    int
		says      []string // lines of Print have them, in this order
	}{
		{"it is forwarded", "http://a.test/api/x?q=1", nil, "ok", 0, []string{"host a.test, path /api/x", "listener   n/gw/all", "not n/gw/shop, HTTP port 80, hostname shop.test: its hostname does not fit",
			"rule       HTTPRoute n/r rules[0]", "(HTTPRoute-n-r.yaml:1)", "no match   HTTPRoute n/r rules[1]", "forwards   GET /api/x?q=1 with Host a.test",
			"75% to Service n/one port 80 (Service-n-one.yaml:1): 10.0.0.1:8080, 10.0.0.2:8080", "25% to Service n/empty port 80", "answered 503 no_endpoints", "except for the share", "not used   a.yaml:1"}},
		{"a header decides", "http://a.test/api", []string{"X-Color: green"}, "ok", 0, []string{"rules[1]: path prefix /api, header x-color=green", "runner-up  HTTPRoute n/r rules[0]"}},
		{"the path is normalised", "http://a.test/x/../api", nil, "ok", 0, []string{"path /api", "rules[0]"}},
		{"a filter answers", "http://a.test/old/x", nil, "redirect", 301, []string{"filter     RequestRedirect", "answer     301 redirect, Location: http://new.test/old/x"}},
		{"a filter changes it", "http://a.test/set", nil, "ok", 0, []string{"filter     RequestHeaderModifier", "X-Set: yes"}},
		{"a WebSocket is wanted of a backend that is not to be asked", "http://a.test/set", []string{"Connection: Upgrade", "Upgrade: websocket"}, "ok", 0,
			[]string{"backend    100% to Service n/one", "is not asked to switch to websocket (upgrade_ignored): set appProtocol of port 80 of Service n/one to kubernetes.io/ws or kubernetes.io/wss"}},
		{"another protocol is wanted", "http://a.test/set", []string{"Connection: Upgrade", "Upgrade: other"}, "ok", 0,
			[]string{"is not asked to switch to other (upgrade_ignored): name it in httpUpgrade of a BackendTrafficPolicy"}},
		{"a WebSocket is wanted", "http://a.test/chat", []string{"Connection: Upgrade", "Upgrade: websocket"}, "ok", 0, []string{"Service n/chat", "is asked to switch to websocket"}},
		{"the protocol decides", "http://a.test/chat", []string{"Connection: Upgrade", "Upgrade: other"}, "ok", 0, []string{"header upgrade=other", "Service n/one"}},
		{"the rule is broken", "http://a.test/broken", nil, "backend_invalid", 500, []string{"rules[3]", "answer     500 backend_invalid"}},
		{"one of two backends is invalid", "http://a.test/half", nil, "ok", 0, []string{"50% to an invalid backendRef, spec.rules[7].backendRefs[0]: answered 500 backend_invalid",
			"50% to Service n/one", "except for the share of the backends with a problem", "see        HTTPRoute n/r parent gw: ResolvedRefs=False BackendNotFound: spec.rules[7].backendRefs[0].name: Service n/none does not exist"}},
		{"an invalid backend of gRPC", "http://a.test/call", nil, "backend_invalid", 503, []string{"spec.rules[8].backendRefs[0]: answered 503 backend_invalid", "answer     503 backend_invalid"}},
		{"no endpoint", "http://a.test/empty", nil, "no_endpoints", 503, []string{"100% to Service n/empty port 80"}},
		{"no weight", "http://a.test/weightless", nil, "no_backend", 500, nil},
		{"no rule", "http://a.test/", nil, "route_not_found", 404, []string{"no match   HTTPRoute n/r", "no match of the listener's routes fits"}},
		{"no route at the listener", "http://shop.test/api", nil, "route_not_found", 404, []string{"listener   n/gw/shop", "the listener has no route for host shop.test"}},
		{"nothing listens", "http://a.test:81/", nil, "connection_refused", 0, []string{"nothing listens on port 81; there is port 80 (n/gw/all)"}},
		{"TLS where there is none", "https://a.test:80/", nil, "wrong_protocol", 0, []string{"port 80 speaks HTTP"}},
		{"no TLS where there is", "http://a.test:443/", nil, "http_on_tls_port", 400, []string{"port 443 speaks HTTPS"}},
		{"over TLS", "https://www.test/api", nil, "ok", 0, []string{"listener   n/gw/tls", "shows      the certificate of Secret n/www for www.test"}},
		{"over TLS, with a name that the certificate lacks", "https://b.test/api", nil, "ok", 0, []string{"clients will refuse it: it is not for b.test"}},
		{"a server name that nobody has", "https://a.example/", nil, "tls_handshake_failed", 0, []string{`no listener of port 443 has server name "a.example"`}},
		{"a listener whose certificate cannot be read", "https://unread.test/", nil, "tls_handshake_failed", 0, []string{"the Secrets of listener n/gw/unread cannot be read"}},
		{"a listener without its certificate", "https://bare.test/", nil, "tls_handshake_failed", 0, []string{"listener n/gw/bare has no certificate"}},
		{"clients need a certificate", "https://known.test/api", nil, "route_not_found", 404, []string{"shows      the certificate of Secret n/www", "demands    a certificate of the client, without which the TLS handshake fails"}},
		{"clients are asked for a certificate", "https://asked.test/api", nil, "route_not_found", 404, []string{"demands    nothing: a certificate of the client is asked for, and every client is served"}},
		{"clients cannot be verified", "https://nobody.test/api", nil, "tls_handshake_failed", 0, []string{"listener n/gw/nobody has nothing to verify clients by"}},
		{"another host than the server name", "https://www.test/", []string{"Host: bare.test"}, "misdirected", 421, nil},
		{"a host that nobody has", "https://www.test/", []string{"Host: nobody.example"}, "route_not_found", 404, []string{"no listener of the port has host nobody.example"}},
		{"a dot at the end", "https://www.test./api", nil, "ok", 0, []string{"listener   n/gw/tls"}},
		{"a head that is no head", "http://a.test/", []string{"Host: a.test", "Host: b.test"}, "bad_request", 400, nil},
	} {
		e := explained(t, w, "GET", test.url, test.headers...)
		var text strings.Builder
		if err := e.Print(&text); err != nil {
			t.Fatal(err)
		}
		if e.Answer.Reason != test.reason || e.Answer.Status != test.status {
			t.Errorf("%s: %d %s, want %d %s\n%s", test.what, e.Answer.Status, e.Answer.Reason, test.status, test.reason, &text)
		}
		rest := text.String()
		for _, says := range test.says {
			i := strings.Index(rest, says)
			if i < 0 {
				t.Errorf("%s: %q is missing, or not in its place:\n%s", test.what, says, &text)
				break
			}
			rest = rest[i+len(says):]
		}
	}
}

// TestIs: an expectation is a status or a reason; one below 300 is of every backend.
func TestIs(t *testing.T) {
	w := world(t)
	for _, test := range []struct {
		url, expected string
		is            bool
	}{
		{"http://a.test/set", "200", true}, {"http://a.test/set", "204", true}, {"http://a.test/set", "ok", true}, {"http://a.test/set", "404", false},
		{"http://a.test/api", "200", false}, // a backend of it has no endpoints
		{"http://a.test/call", "503", true}, {"http://a.test/call", "500", false},
		{"http://a.test/old", "301", true}, {"http://a.test/old", "redirect", true}, {"http://a.test/old", "302", false},
		{"http://a.test:81/", "connection_refused", true}, {"http://a.test:81/", "0", false},
	} {
		if got := explained(t, w, "GET", test.url).Is(test.expected); got != test.is {
			t.Errorf("%s is %s: %v", test.url, test.expected, got)
		}
	}
}

// TestComplaints: what is wrong with the route is said where a request fails by it, and where it is served only if it is wrong with the same rule (see TestExplain).
func TestComplaints(t *testing.T) {
	w := world(t)
	if e := explained(t, w, "GET", "http://a.test/broken"); len(e.Complaints) != 1 || !strings.Contains(e.Complaints[0].String(), "Service n/none does not exist") {
		t.Errorf("where it fails: %v", e.Complaints)
	}
	if e := explained(t, w, "GET", "http://a.test/set"); len(e.Complaints) != 0 {
		t.Errorf("where it is served: %v", e.Complaints)
	}
}

// TestPolicies: of a rule that fails by its policies these are named, with what is wrong with them, and of a route in several Resources every one is that route.
func TestPolicies(t *testing.T) {
	w := world(t)
	part := route("r", []string{"shop"},
		&config.Rule{Matches: prefix("/"), BackendRefs: []*config.BackendRef{ref("one", 1)}},
		&config.Rule{Matches: prefix("/fails"), Failure: &config.Failure{Status: 500, Reason: "policy_invalid"},
			Traffic: &config.RuleTraffic{Policy: "BackendTrafficPolicy n/child, merged with m/parent"}},
		&config.Rule{Matches: prefix("/broken"), Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}, Traffic: &config.RuleTraffic{Policy: "BackendTrafficPolicy n/child"}})
	part.GetRoute().Key += "/1"
	w.Items = nil
	w.Resources = append(w.Resources, part)
	for kind, name := range map[string][2]string{"HTTPRoute": {"n", "r"}, "BackendTrafficPolicy": {"m", "parent"}} {
		status := map[string]any{"conditions": []any{map[string]any{"type": "Accepted", "status": "False", "reason": "Invalid", "message": "of " + name[1]}},
			"controllerName": "example.com/c", "parentRef": map[string]any{"name": "gw"}}
		of := "parents"
		if kind == "BackendTrafficPolicy" {
			of = "ancestors"
		}
		w.Items = append(w.Items, map[string]any{"kind": kind, "metadata": map[string]any{"namespace": name[0], "name": name[1]},
			"status": map[string]any{of: []any{status}}})
	}
	w.Items = append(w.Items, map[string]any{"kind": "BackendTrafficPolicy", "metadata": map[string]any{"namespace": "n", "name": "parent"}})
	for path, want := range map[string]struct {
		complaints []string
		policy     bool
	}{"/": {}, "/fails": {[]string{"of r", "of parent"}, true}, "/broken": {[]string{"of r"}, false}} {
		e := explained(t, w, "GET", "http://shop.test"+path)
		if e.Rule.Route != "HTTPRoute n/r" || e.Rule.Position != "HTTPRoute-n-r.yaml:1" {
			t.Errorf("%s: the rule is of %q at %q", path, e.Rule.Route, e.Rule.Position)
		}
		got := ""
		for _, c := range e.Complaints {
			got += c.String() + "\n"
		}
		for _, says := range want.complaints {
			if !strings.Contains(got, says) {
				t.Errorf("%s: %q is missing in %q", path, says, got)
			}
		}
		if len(e.Complaints) != len(want.complaints) {
			t.Errorf("%s: %d complaints %q, want %d", path, len(e.Complaints), got, len(want.complaints))
		}
		if named := slices.Contains(e.Settings, "BackendTrafficPolicy n/child, merged with m/parent is in force"); named != want.policy {
			t.Errorf("%s: the policy is named: %v, want %v: %q", path, named, want.policy, e.Settings)
		}
	}
}

// TestQuestions that are none say what to write.
func TestQuestions(t *testing.T) {
	for _, test := range []struct {
		url    string
		header string
		says   string
	}{
		{"a.test/", "", "write it as http://"}, {"ftp://a.test/", "", "write it as http://"}, {"http:///x", "", "has no host"},
		{"http://a.test:0/", "", "is not a port"}, {"http://a.test:65536/", "", "is not a port"}, {"http://a.test/", "X-Color", "write it as 'Name: value'"},
	} {
		var headers []string
		if test.header != "" {
			headers = []string{test.header}
		}
		if _, err := NewQuestion("GET", test.url, headers); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.url, err, test.says)
		}
	}
	q, err := NewQuestion("GET", "http://[2001:db8::1]?q", nil)
	if err != nil || q.address.String() != "2001:db8::1" || q.port != 80 || !strings.HasPrefix(string(q.head), "GET /?q HTTP/1.1\r\nHost: [2001:db8::1]\r\n") {
		t.Errorf("%+v, %v", q, err)
	}
}

// TestAuthorization: explain takes an authorization server to let requests pass, says so, and says what follows where it has no endpoint.
func TestAuthorization(t *testing.T) {
	auth := &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/n/auth/80", Namespace: "n", Name: "auth", Port: 80}}}
	endpoints := func(addresses ...string) *config.Resource {
		e := &config.Endpoints{Key: "Service/n/auth/80"}
		for _, a := range addresses {
			e.Endpoints = append(e.Endpoints, &config.Endpoint{Address: a, Port: 9000})
		}
		return &config.Resource{Kind: &config.Resource_Endpoints{Endpoints: e}}
	}
	filter := packed(t, &config.ExternalAuth{Backend: "Service/n/auth/80"})
	app := []*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/n/app/80", Namespace: "n", Name: "app", Port: 80}}},
		{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: "Service/n/app/80", Endpoints: []*config.Endpoint{{Address: "10.0.0.1", Port: 80}}}}},
	}
	ask := func(e *config.Resource) *Explanation {
		t.Helper()
		rule := &config.Rule{Matches: prefix("/"), Filters: []*anypb.Any{filter}, BackendRefs: []*config.BackendRef{{Backend: "Service/n/app/80", Weight: 1}}}
		world := World{Resources: append([]*config.Resource{auth, e, listener("http", "", 80), route("r", []string{"http"}, rule)}, app...),
			Place: func(string, string, string) string { return "" }}
		q, err := NewQuestion("GET", "http://a.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Explain(world, q)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := ask(endpoints("10.0.0.2", "10.0.0.3"))
	if want := "asks Service n/auth port 80 in HTTP/1.1: 10.0.0.2:9000, 10.0.0.3:9000"; len(got.Filters) != 1 || !strings.Contains(got.Filters[0], want) || !strings.Contains(got.Answer.Text, "lets the request pass") {
		t.Errorf("%q, %s", got.Filters, got.Answer.Text)
	}
	if got := ask(endpoints()); got.Answer.Status != 503 || got.Answer.Reason != "auth_failed" || got.Forwarded != nil || strings.Contains(got.Answer.Text, "lets the request pass") {
		t.Errorf("without an endpoint: %+v", got.Answer)
	}
}

// TestAuthorizationOfListener: the server of a listener is asked before the rule is looked for, and shown there; whatever follows is what comes if it says yes.
func TestAuthorizationOfListener(t *testing.T) {
	w := world(t)
	for _, r := range w.Resources {
		if l := r.GetListener(); l != nil {
			l.Filters = []*anypb.Any{packed(t, &config.ExternalAuth{Backend: config.ServiceBackendKey("n", "chat", 80)})}
		}
	}
	for path, want := range map[string]string{
		"/": "404 route_not_found: ", "/old": "301 redirect, Location: http://new.test/old", "/broken": "500 backend_invalid: ", "/empty": "503 no_endpoints: ", "/weightless": "500 no_backend: ",
		"/set": "what the backend answers",
	} {
		e := explained(t, w, "GET", "http://a.test"+path)
		var text strings.Builder
		if err := e.Print(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.Answer.Text, want) || strings.Count(e.Answer.Text, ", if the authorization server lets the request pass") != 1 {
			t.Errorf("%s: %s", path, e.Answer.Text)
		}
		asks, rule := strings.Index(text.String(), "asks Service n/chat"), strings.Index(text.String(), "HTTPRoute n/r")
		if asks < 0 || asks > rule || len(e.ListenerFilters) != 1 {
			t.Errorf("%s: the filter is missing, or not before the rules:\n%s", path, &text)
		}
	}
	w.Resources[0].GetListener().Filters = []*anypb.Any{packed(t, &config.ExternalAuth{Backend: config.ServiceBackendKey("n", "empty", 80)})}
	if e := explained(t, w, "GET", "http://a.test/"); e.Answer.Reason != "auth_failed" || strings.Contains(e.Answer.Text, "lets the request pass") {
		t.Errorf("a server without endpoints: %+v", e.Answer)
	}
}

// TestListenerSets: a listener of a ListenerSet is shown at the place of that, and what is wrong with ListenerSets is said where no listener has the port.
func TestListenerSets(t *testing.T) {
	w := world(t)
	for set, want := range map[string]string{"m/more": "ListenerSet-m-more.yaml:1", "XListenerSet/m/more": "XListenerSet-m-more.yaml:1", "": "Gateway-n-gw.yaml:1"} {
		w.Resources[0].GetListener().ListenerSet = set
		if e := explained(t, w, "GET", "http://a.test/"); e.Listener.Position != want {
			t.Errorf("%q: %s, want %s", set, e.Listener.Position, want)
		}
	}
	w.Items = []any{map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet", "metadata": map[string]any{"namespace": "m", "name": "more"},
		"spec":   map[string]any{"listeners": []any{map[string]any{"name": "l", "port": 81, "protocol": "HTTP"}}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Accepted", "status": "False", "reason": "NotAllowed", "message": "of the Gateway"}}}}}
	if e := explained(t, w, "GET", "http://a.test:81/"); len(e.Complaints) != 1 || e.Complaints[0].Reason != "NotAllowed" {
		t.Errorf("nothing listens: %v", e.Complaints)
	}
	if e := explained(t, w, "GET", "http://a.test/set"); len(e.Complaints) != 0 {
		t.Errorf("where it is served: %v", e.Complaints)
	}
}

// TestConcerned: where a request gets nowhere only that is said against Gateways, ListenerSets and routes which has to do with its port, its host and its proxies.
func TestConcerned(t *testing.T) {
	w := world(t)
	status := func(where string) map[string]any {
		return map[string]any{"name": where, "controllerName": "example.com/c", "conditions": []any{map[string]any{"type": "Accepted", "status": "False", "reason": "R", "message": "of " + where}}}
	}
	listener := func(name, hostname string, port int, protocol string) map[string]any {
		return map[string]any{"name": name, "hostname": hostname, "port": port, "protocol": protocol}
	}
	owner := func(kind, name, class, gateway string, listeners ...map[string]any) {
		o := map[string]any{"kind": kind, "metadata": map[string]any{"namespace": "n", "name": name}}
		spec, listed := map[string]any{"listeners": listeners, "gatewayClassName": class}, []any{}
		if gateway != "" {
			spec["parentRef"] = map[string]any{"name": gateway}
		}
		for _, l := range listeners {
			listed = append(listed, status(l["name"].(string)))
		}
		o["spec"], o["status"] = spec, map[string]any{"listeners": listed, "conditions": []any{map[string]any{"type": "ResolvedRefs", "status": "False", "reason": "R", "message": "of " + name}}}
		w.Items = append(w.Items, o)
	}
	w.Items = nil
	owner("Gateway", "gw", "shared", "", listener("here", "", 81, "HTTP"), listener("elsewhere", "", 82, "HTTP"), listener("udp", "", 81, "UDP"), listener("b", "*.b.test", 81, "HTTP"))
	owner("Gateway", "merged", "shared", "", listener("there", "", 81, "HTTP"))
	owner("Gateway", "other", "own", "", listener("far", "", 81, "HTTP"))
	owner("ListenerSet", "set", "", "other", listener("of-set", "*.test", 81, "HTTP"))
	for parent, message := range map[string]string{"gw": "to-gw", "other": "to-other"} {
		s := status(message)
		s["parentRef"] = map[string]any{"name": parent}
		w.Items = append(w.Items, map[string]any{"kind": "HTTPRoute", "metadata": map[string]any{"namespace": "n", "name": message}, "status": map[string]any{"parents": []any{s}}})
	}
	for _, c := range []struct{ gateway, merged, url, want string }{
		{"", "", "http://a.test:81/", "gw here merged there other far set of-set"},
		{"", "", "http://a.b.test:81/", "gw here b merged there other far set of-set"},
		{"", "", "http://a.example:81/", "gw here merged there other far"},
		{"", "", "http://a.test:82/", "gw elsewhere"},
		{"", "", "http://a.test:83/", ""},
		{"n/gw", "", "http://a.test:81/", "gw here"},
		{"n/gw", "shared", "http://a.test:81/", "gw here merged there"},
		{"n/other", "", "http://a.test:81/", "other far set of-set"},
		{"", "", "http://a.test/nothing", ""},
		{"", "", "http://unknown.test/nothing", ""},
	} {
		w.Gateway = c.gateway
		for _, r := range w.Resources {
			if l := r.GetListener(); l != nil {
				l.Merged = c.merged
			}
		}
		var got []string
		for _, complaint := range explained(t, w, "GET", c.url).Complaints {
			got = append(got, strings.TrimPrefix(complaint.Message, "of "))
		}
		if said := strings.Join(got, " "); said != c.want {
			t.Errorf("%s by %q: %q, want %q", c.url, c.gateway, said, c.want)
		}
	}
	owner("Gateway", "last", "own", "", listener("port-80", "", 80, "HTTP"))
	s := status("to-last")
	s["parentRef"] = map[string]any{"name": "last"}
	w.Items, w.Gateway = append(w.Items, map[string]any{"kind": "HTTPRoute", "metadata": map[string]any{"namespace": "n", "name": "r2"}, "status": map[string]any{"parents": []any{s}}}), ""
	e := explained(t, w, "GET", "http://a.test/nothing")
	if got := fmt.Sprint(e.Complaints); e.Rule != nil || len(e.Complaints) != 3 || !strings.Contains(got, "port-80") || !strings.Contains(got, "to-last") {
		t.Errorf("without a rule: %v %v", e.Rule, got)
	}
}
