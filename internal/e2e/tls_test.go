package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// secret is a kubernetes.io/tls Secret with a fresh self-signed certificate for the hosts.
func secret(t testing.TB, namespace, name string, hosts ...string) string {
	t.Helper()
	certificate, key := testkit.Certificate{Name: name, Hosts: hosts}.PEM(t)
	return secretOf(namespace, name, certificate, key)
}

// secretOf is a kubernetes.io/tls Secret with a certificate and its key, in PEM.
func secretOf(namespace, name string, certificate, key []byte) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n---\n",
		name, namespace, base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
}

func httpsListener(name string, port int, hostname, secrets string) string {
	if hostname != "" {
		hostname = fmt.Sprintf(", hostname: %q", hostname)
	}
	return fmt.Sprintf("{name: %s, protocol: HTTPS, port: %d%s, tls: {certificateRefs: [%s]}}", name, port, hostname, secrets)
}

// tlsClient opens a new connection for each request, whose server name need not be its Host. It speaks
// "HTTP/1.1" or "HTTP/2.0".
func tlsClient(serverName, protocol string) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(protocol == "HTTP/1.1")
	protocols.SetHTTP2(protocol == "HTTP/2.0")
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			Protocols:         &protocols,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, ServerName: serverName},
		},
		Timeout:       patience,
		CheckRedirect: noRedirects.CheckRedirect,
	}
}

// tlsAsk sends one request over a new connection: server name and Host may differ.
// It returns the status and the certificate's name.
func tlsAsk(port int, protocol, serverName, host string) (status int, certificate, backend string, err error) {
	got, err := ask{url: fmt.Sprintf("https://127.0.0.1:%d/", port), host: host, client: tlsClient(serverName, protocol)}.try()
	if err != nil {
		return 0, "", "", err
	}
	if got.Proto != protocol {
		return 0, "", "", fmt.Errorf("spoke %s", got.Proto)
	}
	return got.StatusCode, got.TLS.PeerCertificates[0].Subject.CommonName, got.echo.Backend, nil
}

// TestHTTPS checks the choice of listener and certificate by server name, and 421, by HTTP/1.1 and HTTP/2.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	listeners := gatewayWith(
		httpsListener("any", port, "", "{name: any}"),
		httpsListener("second", port, "second-example.org", "{name: second}"),
		httpsListener("wild", port, "*.wildcard.org", "{name: wild}, {name: special}"),
		httpsListener("fourth", port, "fourth-example.wildcard.org", "{name: fourth}"))
	objects := listeners + secret(t, "default", "any", "example.org") + secret(t, "default", "second", "second-example.org") +
		secret(t, "default", "wild", "*.wildcard.org") + secret(t, "default", "special", "special.wildcard.org") +
		secret(t, "default", "fourth", "fourth-example.wildcard.org") +
		service("default", "b", newBackend(t, "b", nil)) +
		route("r", "  hostnames: [example.org, second-example.org, '*.wildcard.org']\n  rules: [{backendRefs: [{name: b, port: 80}]}]")
	g := start(t, map[string]string{"all.yaml": objects})
	for _, c := range []struct {
		serverName, host string
		status           int
		certificate      string
	}{
		{"example.org", "example.org", 200, "any"},
		{"example.org", "second-example.org", 421, "any"},
		{"example.org", "unknown.org", 404, "any"},
		{"second-example.org", "second-example.org", 200, "second"},
		{"second-example.org", "example.org", 421, "second"},
		{"second-example.org", "unknown.org", 421, "second"},
		{"third.wildcard.org", "fifth.wildcard.org", 200, "wild"},
		{"special.wildcard.org", "special.wildcard.org", 200, "special"},
		{"third.wildcard.org", "fourth-example.wildcard.org", 421, "wild"},
		{"third.wildcard.org", "second-example.org", 421, "wild"},
		{"fourth-example.wildcard.org", "fifth.wildcard.org", 421, "fourth"},
		{"unknown.org", "example.org", 200, "any"},
		{"unknown.org", "unknown.org", 404, "any"},
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			status, certificate, _, err := tlsAsk(port, protocol, c.serverName, c.host)
			if err != nil || status != c.status || certificate != c.certificate {
				t.Errorf("%s, server name %s, Host %s: %d with certificate %s (%v), want %d with %s",
					protocol, c.serverName, c.host, status, certificate, err, c.status, c.certificate)
			}
		}
	}
	if dump := string(g.adminGet("/config")); strings.Contains(dump, "PRIVATE KEY") || strings.Contains(dump, base64.StdEncoding.EncodeToString([]byte("-----BEGIN PRIVATE"))[:20]) {
		t.Error("/config shows a private key")
	}
}

// TestCertificateChange replaces a certificate, breaks it, and mends it.
func TestCertificateChange(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	g := start(t, map[string]string{
		"gateway.yaml": gatewayWith(httpsListener("https", port, "", "{name: one}")) + service("default", "b", newBackend(t, "b", nil)) +
			route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]"),
		"secret.yaml": secret(t, "default", "one", "first.example.com"),
	})
	serves := func(name string) func() bool {
		return func() bool {
			conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true, ServerName: name})
			if err != nil {
				return false
			}
			defer conn.Close()
			return conn.ConnectionState().PeerCertificates[0].DNSNames[0] == name
		}
	}
	testkit.Eventually(t, "the first certificate", serves("first.example.com"))
	g.write("secret.yaml", secret(t, "default", "one", "second.example.com"))
	testkit.Eventually(t, "the second certificate", serves("second.example.com"))
	g.remove("secret.yaml")
	g.waitCondition("Gateway", "gw", "ResolvedRefs=False/InvalidCertificateRef")
	testkit.Eventually(t, "no handshake without a certificate", func() bool { return !serves("second.example.com")() })
	g.write("secret.yaml", secret(t, "default", "one", "third.example.com"))
	testkit.Eventually(t, "the third certificate", serves("third.example.com"))
	g.waitCondition("Gateway", "gw", "ResolvedRefs=True/ResolvedRefs")
}

// TestResumption: a client resumes, also after an edit of its route and of another listener.
func TestResumption(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	listeners := httpsListener("https", port, "a.example.com", "{name: one}")
	g := start(t, map[string]string{
		"gateway.yaml": gatewayWith(listeners) + service("default", "b", newBackend(t, "b", nil)),
		"route.yaml":   route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]"),
		"secret.yaml":  secret(t, "default", "one", "a.example.com"),
	})
	sessions := tls.NewLRUClientSessionCache(1)
	visit := func() (resumed bool, err error) {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port),
			&tls.Config{InsecureSkipVerify: true, ServerName: "a.example.com", ClientSessionCache: sessions})
		if err != nil {
			return false, err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n"); err != nil {
			return false, err
		}
		_, err = io.Copy(io.Discard, conn) // and with it the ticket
		return conn.ConnectionState().DidResume, err
	}
	testkit.Eventually(t, "a first visit", func() bool { _, err := visit(); return err == nil })
	for what, edit := range map[string]func(){
		"nothing happened": func() {},
		"another listener": func() {
			g.write("gateway.yaml", gatewayWith(listeners, httpsListener("other", port, "b.example.com", "{name: one}"))+service("default", "b", newBackend(t, "b", nil)))
			g.waitCondition("Gateway", "gw", "Programmed=True/Programmed")
		},
		"another route": func() {
			g.write("route.yaml", route("r", "  rules: [{matches: [{path: {value: /x}}], backendRefs: [{name: b, port: 80}]}]"))
		},
	} {
		edit()
		if resumed, err := visit(); err != nil || !resumed {
			t.Errorf("%s: resumed %v, %v", what, resumed, err)
		}
	}
}
