package explain

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func tcpListener(name string, port uint32) *config.Resource {
	l := listener(name, "", port)
	l.GetListener().Protocol = config.Protocol_PROTOCOL_TCP
	return l
}

func l4Route(name, listener string, refs ...*config.BackendRef) *config.Resource {
	return &config.Resource{Kind: &config.Resource_L4Route{L4Route: &config.L4Route{Key: "TCPRoute/n/" + name, Namespace: "n", Name: name, BackendRefs: refs,
		Attachments: []*config.Attachment{{Listener: "n/gw/" + listener, Hostnames: []*config.Hostname{{}}}}}}}
}

// connectionWorld has listeners of protocol TCP with routes of every fate, beside those of world.
func connectionWorld(t *testing.T) World {
	w := world(t)
	secure := backend("secure", "10.0.0.3")
	secure[0].GetBackend().Tls = &config.BackendTLS{ServerName: "db.test", SystemAuthorities: true}
	dns := tcpListener("dns", 53)
	dns.GetListener().Protocol = config.Protocol_PROTOCOL_UDP
	part := l4Route("db", "part", ref("one", 1))
	part.GetL4Route().Key += "/1"
	part.GetL4Route().Traffic = &config.RuleTraffic{Policy: "BackendTrafficPolicy n/p", Hidden: []*config.HiddenPolicy{{Policy: "n/above", Fields: []string{"spec.tcpKeepalive"}}}}
	w.Resources = append(append(w.Resources, secure...), dns,
		tcpListener("db", 5432), l4Route("db", "db", ref("one", 3), ref("empty", 1), ref("never", 0)),
		tcpListener("away", 5433), l4Route("away", "away", ref("empty", 1)),
		tcpListener("bad", 5434), l4Route("bad", "bad", &config.BackendRef{Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}}),
		tcpListener("secure", 5435), l4Route("secure", "secure", ref("secure", 1)),
		tcpListener("bare", 5436), tcpListener("part", 5437), part)
	return w
}

// TestExplainConnections: each connection ends as the proxy would have it, and the printed steps say so.
func TestExplainConnections(t *testing.T) {
	w := connectionWorld(t)
	for _, test := range []struct {
		what, url, reason string
		says              []string // lines of Print have them, in this order
	}{
		{"it is forwarded", "tcp://db.test:5432", "ok", []string{"connection tcp://db.test:5432", "listener   n/gw/db, TCP port 5432", "it takes every connection",
			"rule       TCPRoute n/db rules[0]: every connection (TCPRoute-n-db.yaml:1)", "75% to Service n/one port 80 (Service-n-one.yaml:1) in TCP: 10.0.0.1:8080, 10.0.0.2:8080",
			"25% to Service n/empty port 80", "reset, no_endpoints", "what the backend sends, except for the share"}},
		{"by another part of a route", "tcp://db.test:5437", "ok", []string{"rule       TCPRoute n/db rules[0]: every connection (TCPRoute-n-db.yaml:1)",
			"setting    BackendTrafficPolicy n/p is in force", "setting    BackendTrafficPolicy n/above is overridden by it, which has no spec.tcpKeepalive"}},
		{"over TLS", "tcp://10.0.0.9:5435", "ok", []string{"100% to Service n/secure port 80 (Service-n-secure.yaml:1) in TCP over TLS to db.test: 10.0.0.3:8080"}},
		{"no endpoint", "tcp://a.test:5433", "no_endpoints", []string{"answer     the connection is reset, no_endpoints: "}},
		{"an invalid backend", "tcp://a.test:5434", "backend_invalid", []string{"100% to an invalid backendRef, spec.rules[0].backendRefs[0]: reset, backend_invalid"}},
		{"no route", "tcp://a.test:5436", "route_not_found", []string{"listener   n/gw/bare", "the listener has no route"}},
		{"a listener of another protocol", "tcp://a.test:80", "wrong_protocol", []string{"port 80 speaks HTTP", "not TCP"}},
		{"datagrams to a port of TCP", "udp://a.test:5432", "connection_refused", []string{"port 5432 takes no UDP datagrams: its listener n/gw/db is for TCP"}},
		{"a connection to a port of datagrams", "tcp://a.test:53", "connection_refused", []string{"port 53 takes no TCP connections: its listener n/gw/dns is for UDP"}},
		{"datagrams without a route", "udp://a.test:53", "route_not_found", []string{"listener   n/gw/dns, UDP port 53", "it takes every datagram", "the datagram is dropped"}},
		{"nothing listens", "tcp://a.test:1", "connection_refused", []string{"nothing listens on port 1; there is port 80 (n/gw/all)"}},
	} {
		q, err := NewConnection(test.url)
		if err != nil {
			t.Fatalf("%s: %v", test.what, err)
		}
		e, err := Explain(w, q)
		if err != nil {
			t.Fatalf("%s: %v", test.what, err)
		}
		var text strings.Builder
		if err := e.Print(&text); err != nil {
			t.Fatal(err)
		}
		if e.Answer.Reason != test.reason || e.Answer.Status != 0 {
			t.Errorf("%s: %d %s, want %s without a status\n%s", test.what, e.Answer.Status, e.Answer.Reason, test.reason, &text)
		}
		rest := text.String()
		for _, says := range test.says {
			_, after, found := strings.Cut(rest, says)
			if !found {
				t.Errorf("%s: %q is missing, or not in its place:\n%s", test.what, says, &text)
				break
			}
			rest = after
		}
	}
	if e := explained(t, w, "GET", "http://db.test:5432/"); e.Answer.Reason != "wrong_protocol" || !strings.Contains(e.Answer.Text, "port 5432 speaks TCP") {
		t.Errorf("a request to a listener of protocol TCP: %+v", e.Answer)
	}
}

// TestConnectionComplaints: what is wrong with the route is said where a connection fails by it, and not where it is served.
func TestConnectionComplaints(t *testing.T) {
	w := connectionWorld(t)
	for _, name := range []string{"db", "bad"} {
		w.Items = append(w.Items, map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "TCPRoute", "metadata": map[string]any{"namespace": "n", "name": name},
			"status": map[string]any{"parents": []any{map[string]any{"controllerName": "example.com/c", "parentRef": map[string]any{"name": "gw"},
				"conditions": []any{map[string]any{"type": "ResolvedRefs", "status": "False", "reason": "BackendNotFound", "message": "Service n/none does not exist"}}}}}})
	}
	for url, complaints := range map[string]int{"tcp://a.test:5434": 1, "tcp://a.test:5432": 0} {
		q, err := NewConnection(url)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := Explain(w, q); err != nil || len(e.Complaints) != complaints {
			t.Errorf("%s: %v %v, want %d complaints", url, e.Complaints, err, complaints)
		}
	}
}

// TestConnectionQuestions that are none say what to write.
func TestConnectionQuestions(t *testing.T) {
	for url, says := range map[string]string{
		"db.test:5432": "write it as tcp://", "http://db.test:5432": "write it as tcp://", "tcp://db.test:5432/x": "write it as tcp://",
		"tcp://db.test": "has no port", "tcp://:5432": "has no host", "tcp://db.test:0": "is not a port",
	} {
		if _, err := NewConnection(url); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", url, err, says)
		}
	}
}

// tlsRoute is attached to a listener by hostnames.
func tlsRoute(name, listener string, refs, passed []*config.BackendRef, hostnames ...string) *config.Resource {
	r := l4Route(name, listener, refs...)
	l4 := r.GetL4Route()
	l4.Key, l4.PassthroughBackendRefs = "TLSRoute/n/"+name, passed
	l4.Attachments[0].Hostnames = nil
	for _, h := range hostnames {
		l4.Attachments[0].Hostnames = append(l4.Attachments[0].Hostnames, &config.Hostname{Effective: h, Original: h})
	}
	return r
}

// TestExplainTLS: the server name chooses listener and route, and says whose TLS it is.
func TestExplainTLS(t *testing.T) {
	w := world(t)
	on := func(name, hostname string, port uint32, protocol config.Protocol, certificates ...string) *config.Resource {
		l := listener(name, hostname, port)
		l.GetListener().Protocol, l.GetListener().Certificates = protocol, certificates
		return l
	}
	chain, key := testkit.Certificate{Hosts: []string{"*.t.test"}}.PEM(t)
	w.Resources = append(w.Resources, &config.Resource{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: "Secret/n/c", ChainPem: chain, KeyPem: key}}},
		on("pass", "*.p.test", 8443, config.Protocol_PROTOCOL_TLS_PASSTHROUGH), on("end", "*.t.test", 8443, config.Protocol_PROTOCOL_TLS, "Secret/n/c"),
		on("web", "web.test", 8443, config.Protocol_PROTOCOL_HTTPS, "Secret/n/c"), on("ends", "a.t.test", 8444, config.Protocol_PROTOCOL_TLS, "Secret/n/c"),
		tlsRoute("p", "pass", nil, []*config.BackendRef{ref("one", 1)}, "a.p.test", "*.b.p.test"), tlsRoute("t", "end", []*config.BackendRef{ref("one", 1)}, nil, "a.t.test"))
	for _, test := range []struct {
		url, reason string
		says        []string
	}{
		{"tls://A.p.test:8443", "ok", []string{"n/gw/pass", "TLS (Passthrough) port 8443", "server name \"a.p.test\"", "TLSRoute n/p rules[0]: server name a.p.test", "in the client's TLS: 10.0.0.1:8080"}},
		{"tls://x.b.p.test:8443", "ok", []string{"server name *.b.p.test"}},
		{"tls://b.p.test:8443", "route_not_found", []string{"the listener has no route for server name \"b.p.test\""}},
		{"tls://a.t.test:8443", "ok", []string{"n/gw/end", "Secret n/c", "TLSRoute n/t rules[0]: server name a.t.test", "in TCP: 10.0.0.1:8080"}},
		{"tls://web.test:8443", "wrong_protocol", []string{"is of listener n/gw/web, which speaks HTTPS, not TLS"}},
		{"tls://none.test:8443", "route_not_found", []string{"the connection is reset", "no listener of the port has server name \"none.test\""}},
		{"tls://none.test:8444", "tls_handshake_failed", []string{"no listener of port 8444 has server name"}},
		{"tls://a.test:80", "wrong_protocol", []string{"port 80 speaks HTTP", "not TLS"}},
	} {
		q, err := NewConnection(test.url)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Explain(w, q)
		if err != nil {
			t.Fatalf("%s: %v", test.url, err)
		}
		var text strings.Builder
		if err := e.Print(&text); err != nil {
			t.Fatal(err)
		}
		if e.Answer.Reason != test.reason {
			t.Errorf("%s: %s, want %s", test.url, e.Answer.Reason, test.reason)
		}
		for _, says := range test.says {
			if !strings.Contains(text.String(), says) {
				t.Errorf("%s: %q is missing:\n%s", test.url, says, &text)
			}
		}
	}
	for url, reason := range map[string]string{"https://a.p.test:8443/": "wrong_protocol", "https://a.t.test:8443/": "wrong_protocol", "https://none.test:8443/": "route_not_found", "http://a.p.test:8443/": "http_on_tls_port"} {
		if e := explained(t, w, "GET", url); e.Answer.Reason != reason {
			t.Errorf("%s: %+v, want %s", url, e.Answer, reason)
		}
	}
}
