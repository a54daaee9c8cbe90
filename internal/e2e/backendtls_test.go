package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// issue returns a certificate of the authority for a host.
func issue(t testing.TB, by *testkit.Authority, host string) *tls.Certificate {
	t.Helper()
	c := testkit.Certificate{Hosts: []string{host}, Issuer: by}.TLS(t)
	return &c
}

// configMap has the certificates of authorities.
func configMap(name string, authorities ...*testkit.Authority) string {
	var all strings.Builder
	for _, a := range authorities {
		all.Write(a.PEM)
	}
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {ca.crt: %q}\n", name, all.String())
}

// trustBundle is a ClusterTrustBundle with the certificates of authorities.
func trustBundle(name string, authorities ...*testkit.Authority) string {
	var all strings.Builder
	for _, a := range authorities {
		all.Write(a.PEM)
	}
	return fmt.Sprintf("apiVersion: certificates.k8s.io/v1beta1\nkind: ClusterTrustBundle\nmetadata: {name: %s}\nspec: {trustBundle: %q}\n", name, all.String())
}

// newTLSBackend starts a backend that shows whatever certificate there is at the time, and answers the server name that it was asked for, and in
// X-Client the subject of the certificate that it was shown.
func newTLSBackend(t testing.TB, name string, certificate *atomic.Pointer[tls.Certificate]) *backend {
	t.Helper()
	b := &backend{name: name}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Backend", name)
		w.Header().Set("X-Host", r.Host)
		for _, shown := range r.TLS.PeerCertificates {
			w.Header().Set("X-Client", shown.Subject.CommonName)
		}
		json.NewEncoder(w).Encode(echoed{Backend: name, Method: r.Method, Path: r.URL.RequestURI(), Host: r.TLS.ServerName})
	}))
	b.Server.EnableHTTP2 = true
	b.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	// A session that is resumed shows no certificate.
	b.Server.TLS = &tls.Config{SessionTicketsDisabled: true, ClientAuth: tls.RequestClientCert, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate.Load(), nil }}
	// StartTLS adds a certificate of its own, which comes last.
	b.Server.StartTLS()
	b.port = b.Listener.Addr().(*net.TCPAddr).Port
	t.Cleanup(b.Close)
	return b
}

func backendTLSPolicy(name, service, validation string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: %s}
spec:
  targetRefs: [{group: "", kind: Service, name: %s}]
  validation: {%s}
---
`, name, service, validation)
}

// TestBackendTLSPolicy: a backend is reached over TLS and verified by the ConfigMap as it is, which may change at any time; where it
// cannot be verified requests fail, and none is sent in cleartext.
func TestBackendTLSPolicy(t *testing.T) {
	t.Parallel()
	first, second := testkit.NewAuthority(t), testkit.NewAuthority(t)
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(issue(t, first, "web.internal"))
	var inClear atomic.Int64
	web := newTLSBackend(t, "web", &shown)
	plain := newBackend(t, "plain", func(http.ResponseWriter, *http.Request) bool { inClear.Add(1); return false })
	port := freePort(t)
	const validation = `hostname: web.internal, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]`
	log := &testkit.Log{}
	g := start(t, map[string]string{
		"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "web", web) + service("default", "plain", plain) +
			route("web", "  rules: [{backendRefs: [{name: web, port: 80}]}, {matches: [{path: {value: /plain}}], backendRefs: [{name: plain, port: 80}]}]") +
			backendTLSPolicy("web", "web", validation) + backendTLSPolicy("plain", "plain", validation),
		"ca.yaml": configMap("ca", first),
	}, func(o *cli.RunOptions) { o.AccessLog, o.Stdout = "json", log })

	get := func(path string) *answer { return ask{url: local(port, path)}.do(t) }
	if got := get("/"); got.StatusCode != 200 || got.echo.Host != "web.internal" {
		t.Errorf("verified: %d %q, asked for server name %q", got.StatusCode, got.body, got.echo.Host)
	}
	if got := get("/plain"); got.StatusCode != 502 && got.StatusCode != 503 {
		t.Errorf("a backend that speaks no TLS: %d", got.StatusCode)
	}

	shown.Store(issue(t, second, "web.internal"))
	web.CloseClientConnections()
	if got := get("/"); got.StatusCode != 502 && got.StatusCode != 503 {
		t.Errorf("a certificate of another authority: %d", got.StatusCode)
	}
	testkit.Eventually(t, "the access log has upstream_tls_failed", func() bool { return strings.Contains(log.String(), "upstream_tls_failed") })

	g.write("ca.yaml", configMap("ca", first, second)) // rotation: both for a while
	testkit.Eventually(t, "the ConfigMap is in force", func() bool { return get("/").StatusCode == 200 })
	g.write("ca.yaml", configMap("ca", first))
	testkit.Eventually(t, "an authority that is no longer trusted", func() bool { return get("/").StatusCode >= 502 })

	g.remove("ca.yaml")
	testkit.Eventually(t, "the reference does not resolve", func() bool { return get("/").StatusCode == 500 })
	testkit.Eventually(t, "the status says so, which follows what is served", func() bool {
		status := string(g.adminGet("/status"))
		return strings.Contains(status, `"NoValidCACertificate"`) && strings.Contains(status, "ConfigMap default/ca does not exist")
	})
	if got := get("/plain"); got.StatusCode != 500 {
		t.Errorf("without authorities: %d", got.StatusCode)
	}

	shown.Store(issue(t, first, "other.internal"))
	g.write("ca.yaml", configMap("ca", first))
	testkit.Eventually(t, "the certificate is for another name", func() bool { return get("/").StatusCode >= 502 })
	shown.Store(issue(t, first, "web.internal"))
	testkit.Eventually(t, "all is well again", func() bool { return get("/").StatusCode == 200 })
	if n := inClear.Load(); n != 0 {
		t.Errorf("%d requests were sent in cleartext", n)
	}
}

// TestInvalidBackendTLSPolicy: a policy that was invalid when the gateway started closes its Service all the same, whatever else is valid.
func TestInvalidBackendTLSPolicy(t *testing.T) {
	t.Parallel()
	var inClear atomic.Int64
	plain := newBackend(t, "plain", func(http.ResponseWriter, *http.Request) bool { inClear.Add(1); return false })
	other := newBackend(t, "other", nil)
	port := freePort(t)
	g := start(t, map[string]string{
		"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "plain", plain) + service("default", "other", other) +
			route("web", "  rules: [{backendRefs: [{name: plain, port: 80}]}, {matches: [{path: {value: /other}}], backendRefs: [{name: other, port: 80}]}]"),
		"policy.yaml": backendTLSPolicy("plain", "plain", "hostname: web.internal, wellKnownCACertificates: Sistem"),
	})
	get := func(path string) *answer { return ask{url: local(port, path)}.do(t) }
	if got := get("/other"); got.StatusCode != 200 {
		t.Errorf("another Service: %d", got.StatusCode)
	}
	if got := get("/"); got.StatusCode != 500 || inClear.Load() > 0 {
		t.Errorf("the policy's Service: %d, %d requests in cleartext", got.StatusCode, inClear.Load())
	}
	if status := string(g.adminGet("/status")); !strings.Contains(status, "BackendTLSPolicy default/plain") || !strings.Contains(status, "Sistem") {
		t.Errorf("status: %s", status)
	}
	g.remove("policy.yaml")
	testkit.Eventually(t, "nothing closes the Service any more", func() bool { return get("/").StatusCode == 200 })
}

// TestBackendTLSTask does what docs/tasks/backend-tls.md says, and checks what check and explain say of it.
func TestBackendTLSTask(t *testing.T) {
	t.Parallel()
	const page = "docs/tasks/backend-tls.md"
	manifests := fenced(t, page, "yaml")
	ca := testkit.NewAuthority(t)
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(issue(t, ca, "orders.internal"))
	orders := newTLSBackend(t, "orders", &shown)
	port := freePort(t)
	here := withListener(manifests[0].use(), 80, port)
	slice := fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: orders-1, labels: {kubernetes.io/service-name: orders}}
addressType: IPv4
ports: [{name: https, port: %d}]
endpoints: [{addresses: [127.0.0.1]}]
`, orders.port)
	g := start(t, map[string]string{"class.yaml": class, "page.yaml": here, "slice.yaml": slice, "ca.yaml": configMap("orders-ca", ca)})
	if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 || got.echo.Host != "orders.internal" {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	if stdout, stderr, code := moongate("check", "-f", g.dir); code != 0 {
		t.Errorf("check: exit code %d\n%s%s", code, stdout, stderr)
	}
	explained := func() string {
		stdout, stderr, _ := moongate("explain", "-f", g.dir, "GET", local(port, "/"))
		return stdout + stderr
	}
	if got := explained(); !strings.Contains(got, "over TLS to orders.internal") {
		t.Errorf("explain: %s", got)
	}

	// The policy with a bundle takes the place of the first one.
	g.write("page.yaml", here[:strings.LastIndex(here, "---\n")]+"---\n"+manifests[1].use())
	get := func() int { return ask{url: local(port, "/")}.do(t).StatusCode }
	testkit.Eventually(t, "nothing is reached without the bundle", func() bool { return get() == 500 })
	if stdout, _, code := moongate("check", "-f", g.dir); code != 1 || !strings.Contains(stdout, "ClusterTrustBundle company-roots does not exist") {
		t.Errorf("check without the bundle: exit code %d\n%s", code, stdout)
	}
	for _, by := range []struct {
		authority *testkit.Authority
		want      int
	}{{ca, 200}, {testkit.NewAuthority(t), 502}, {ca, 200}} {
		g.write("bundle.yaml", trustBundle("company-roots", by.authority))
		testkit.Eventually(t, "the bundle is in force", func() bool { return get() == by.want })
	}
	if stdout, stderr, code := moongate("check", "-f", g.dir); code != 0 {
		t.Errorf("check with the bundle: exit code %d\n%s%s", code, stdout, stderr)
	}

	// The policy with other names takes the place of the first one.
	g.write("page.yaml", here[:strings.LastIndex(here, "---\n")]+"---\n"+manifests[2].use())
	testkit.Eventually(t, "the hostname alone authenticates nobody", func() bool { return get() == 502 })
	if got := explained(); !strings.Contains(got, "over TLS to orders.internal, authenticated by orders.default.svc or spiffe://cluster.local/ns/default/sa/orders") {
		t.Errorf("explain: %s", got)
	}
	id := testkit.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/default/sa/orders"}}, Issuer: ca}.TLS(t)
	shown.Store(&id)
	testkit.Eventually(t, "the SPIFFE ID authenticates", func() bool { return get() == 200 })

	// So does the one with options.
	shown.Store(issue(t, ca, "orders.internal"))
	g.write("page.yaml", here[:strings.LastIndex(here, "---\n")]+"---\n"+manifests[4].use())
	testkit.Eventually(t, "the policy with options is in force", func() bool {
		return get() == 200 && strings.Contains(explained(), "by TLS 1.2 at least, in TLS 1.2 with TLS_ECDHE_")
	})
	if stdout, _, code := moongate("check", "-f", g.dir); code != 0 {
		t.Errorf("check of options: exit code %d\n%s", code, stdout)
	}

	// So does the Gateway with a client certificate.
	documents := strings.SplitN(here, "---\n", 2)
	g.write("page.yaml", withListener(manifests[3].use(), 80, port)+"---\n"+documents[1])
	shown.Store(issue(t, ca, "orders.internal"))
	testkit.Eventually(t, "no backend is reached without the certificate", func() bool { return get() == 500 })
	if got := explained(); !strings.Contains(got, "500 gateway_certificate_invalid") {
		t.Errorf("explain: %s", got)
	}
	if stdout, _, code := moongate("check", "-f", g.dir); code != 1 || !strings.Contains(stdout, "Secret default/shop-client does not exist") {
		t.Errorf("check without the Secret: exit code %d\n%s", code, stdout)
	}
	if status := string(g.adminGet("/status")); !strings.Contains(status, "InvalidClientCertificateRef") {
		t.Errorf("status: %s", status)
	}
	g.write("client.yaml", secret(t, "default", "shop-client"))
	testkit.Eventually(t, "the backend is shown the certificate", func() bool {
		got := ask{url: local(port, "/")}.do(t)
		return got.StatusCode == 200 && got.Header.Get("X-Client") == "shop-client"
	})
	if got := explained(); !strings.Contains(got, "over TLS to orders.internal, with the client certificate of Secret default/shop-client") {
		t.Errorf("explain: %s", got)
	}

	g.remove("ca.yaml")
	const what = "ConfigMap default/orders-ca does not exist; create it"
	if stdout, _, code := moongate("check", "-f", g.dir); code != 1 || !strings.Contains(stdout, "BackendTLSPolicy default/orders") || !strings.Contains(stdout, what) {
		t.Errorf("check without the ConfigMap: exit code %d\n%s", code, stdout)
	}
	if got := explained(); !strings.Contains(got, "500 backend_invalid") || !strings.Contains(got, what) {
		t.Errorf("explain without the ConfigMap: %s", got)
	}
}
