package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskClientCertificates does what the document says, and then has clients connect that must not be served, as the objects change.
func TestTaskClientCertificates(t *testing.T) {
	t.Parallel()
	staff, others := testkit.NewAuthority(t), testkit.NewAuthority(t)
	shopCert, shopKey := testkit.Certificate{Name: "shop", Hosts: []string{"127.0.0.1"}}.PEM(t)
	clientCert, clientKey := testkit.Certificate{Name: "anna", Issuer: staff}.PEM(t)
	shop := fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: shop-tls}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n---\n",
		base64.StdEncoding.EncodeToString(shopCert), base64.StdEncoding.EncodeToString(shopKey))
	g := runTaskWith(t, "client-certificates", map[int]*backend{3000: newBackend(t, "app", nil)}, shop+configMap("staff-ca", staff),
		map[string][]byte{"shop.crt": shopCert, "client.crt": clientCert, "client.key": clientKey})
	manifest, err := os.ReadFile(filepath.Join(g.dir, "client-certificates.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	port := listenerPort.FindSubmatch(manifest)[1]
	status := func(by *testkit.Authority) int {
		cfg := &tls.Config{InsecureSkipVerify: true}
		if by != nil {
			cert := testkit.Certificate{Name: "x", Issuer: by}.TLS(t)
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		}
		client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: cfg}}
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%s/", port))
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, tc := range []struct {
		name string
		by   *testkit.Authority
		want int
	}{{"without a certificate", nil, 0}, {"with one of others", others, 0}, {"with one of staff", staff, 200}} {
		if got := status(tc.by); got != tc.want {
			t.Errorf("a client %s: %d, want %d", tc.name, got, tc.want)
		}
	}

	with := func(old, now string) {
		t.Helper()
		if !strings.Contains(string(manifest), old) {
			t.Fatalf("the manifest has no %q", old)
		}
		manifest = []byte(strings.Replace(string(manifest), old, now, 1))
		g.write("client-certificates.yaml", string(manifest))
	}
	anna, err := tls.X509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	statusOf := func(cert tls.Certificate) int {
		client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }}}}
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%s/", port))
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	revoking := func(list string) string {
		return strings.Replace(configMap("staff-ca", staff), "\ndata: {", fmt.Sprintf("\ndata: {ca.crl: %q, ", list), 1)
	}
	inPEM := func(list []byte) string { return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: list})) }
	listed, empty := revoking(inPEM(staff.Revoke(t, x509.RevocationList{}, anna.Leaf.SerialNumber))), revoking(inPEM(staff.Revoke(t, x509.RevocationList{})))
	with(configMap("staff-ca", staff), listed)
	testkit.Eventually(t, "Anna's certificate is revoked, and no other", func() bool { return statusOf(anna) == 0 && status(staff) == 200 })
	with(listed, empty)
	testkit.Eventually(t, "Anna is served again", func() bool { return statusOf(anna) == 200 })
	with(empty, revoking("no list"))
	g.waitCondition("Gateway", "shop", "ResolvedRefs=False/InvalidCACertificateRef")
	testkit.Eventually(t, "nobody is served by a list that cannot be read", func() bool { return status(staff) == 0 })
	with(revoking("no list"), configMap("staff-ca", staff))
	testkit.Eventually(t, "staff is served", func() bool { return status(staff) == 200 })

	with(configMap("staff-ca", staff), configMap("staff-ca", others))
	testkit.Eventually(t, "others are served, and staff is not", func() bool { return status(others) == 200 && status(staff) == 0 })
	with("        validation:\n", "        validation:\n          mode: AllowInsecureFallback\n")
	testkit.Eventually(t, "everybody is served", func() bool { return status(staff) == 200 && status(nil) == 200 })
	g.waitCondition("Gateway", "shop", "InsecureFrontendValidationMode=True/ConfigurationChanged")
	with("          mode: AllowInsecureFallback\n", "")
	testkit.Eventually(t, "a certificate is demanded again", func() bool { return status(nil) == 0 && status(others) == 200 })

	const reference = "group: \"\"\n            kind: ConfigMap\n            name: staff-ca\n"
	const bundle = "group: certificates.k8s.io\n            kind: ClusterTrustBundle\n            name: staff\n"
	with(reference, bundle)
	testkit.Eventually(t, "nobody is served by a bundle that does not exist", func() bool { return status(others) == 0 })
	g.write("bundle.yaml", trustBundle("staff", staff))
	testkit.Eventually(t, "staff is served by the bundle", func() bool { return status(staff) == 200 && status(others) == 0 })
	g.write("bundle.yaml", trustBundle("staff", staff, others))
	testkit.Eventually(t, "both are served", func() bool { return status(staff) == 200 && status(others) == 200 })
	g.remove("bundle.yaml")
	testkit.Eventually(t, "nobody is served without the bundle", func() bool { return status(staff) == 0 && status(others) == 0 })
	g.write("bundle.yaml", trustBundle("staff", others))
	testkit.Eventually(t, "others are served by the new bundle", func() bool { return status(others) == 200 && status(staff) == 0 })

	with(bundle, strings.Replace(reference, "staff-ca", "nowhere", 1))
	testkit.Eventually(t, "nobody is served any more", func() bool { return status(nil) == 0 && status(others) == 0 })
	testkit.Eventually(t, "the status says so", func() bool {
		shown := string(g.adminGet("/status"))
		return strings.Contains(shown, `"NoValidCACertificate"`) && strings.Contains(shown, "ConfigMap default/nowhere does not exist")
	})
}
