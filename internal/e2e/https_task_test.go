package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskHTTPS does what the document says, and then breaks what it says can break.
func TestTaskHTTPS(t *testing.T) {
	t.Parallel()
	shop, shopKey := testkit.Certificate{Name: "shop", Hosts: []string{"shop.example.com"}}.PEM(t)
	sites, sitesKey := testkit.Certificate{Name: "sites", Hosts: []string{"*.example.org"}}.PEM(t)
	g := runTaskWith(t, "https", map[int]*backend{3000: newBackend(t, "app", nil)},
		"---\n"+secretOf("default", "shop-tls", shop, shopKey)+secretOf("certificates", "sites-tls", sites, sitesKey), map[string][]byte{"shop.crt": shop, "sites.crt": sites})
	path := filepath.Join(g.dir, "https.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(text)
	port, err := strconv.Atoi(listenerPort.FindStringSubmatch(manifest)[1])
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		status      int
		certificate string
	}
	get := func(serverName, host string) answer {
		status, certificate, _, err := tlsAsk(port, "HTTP/2.0", serverName, host)
		if err != nil {
			return answer{}
		}
		return answer{status, certificate}
	}
	for _, c := range []struct {
		serverName, host string
		want             answer
	}{
		{"shop.example.com", "shop.example.com", answer{200, "shop"}},
		{"a.b.example.org", "a.b.example.org", answer{200, "sites"}},
		{"blog.example.org", "shop.example.com", answer{421, "sites"}},
		{"other.example.com", "other.example.com", answer{}},
	} {
		if got := get(c.serverName, c.host); got != c.want {
			t.Errorf("server name %s, host %s: %+v, want %+v", c.serverName, c.host, got, c.want)
		}
	}

	broken := func(what, old, now, reason, says string) {
		t.Helper()
		if !strings.Contains(manifest, old) {
			t.Fatalf("%s: the manifest has no %q", what, old)
		}
		g.write("https.yaml", strings.Replace(manifest, old, now, 1))
		g.waitCondition("Gateway", "web", "ResolvedRefs=False/ListenersNotResolved")
		testkit.Eventually(t, what+" is served nobody", func() bool { return get("blog.example.org", "blog.example.org") == answer{} })
		if got := get("shop.example.com", "shop.example.com"); got.status != 200 {
			t.Errorf("%s: the other listener: %+v", what, got)
		}
		if stdout, stderr, code := moongate("check", "-f", path); code != 1 || !strings.Contains(stdout, reason) || !strings.Contains(stdout, says) {
			t.Errorf("%s: check: exit code %d\n%s%s", what, code, stdout, stderr)
		}
	}
	broken("a Secret that the grant does not name", "name: sites-tls\n        namespace: certificates\n", "name: missing\n        namespace: certificates\n", "RefNotPermitted", "no ReferenceGrant permits")
	broken("a Secret that is granted to others", "kind: Gateway\n    namespace: default\n", "kind: Gateway\n    namespace: other\n", "RefNotPermitted", "add a ReferenceGrant in namespace certificates")
	broken("a Secret that does not exist", "name: sites-tls, namespace: certificates}\ntype", "name: other, namespace: certificates}\ntype", "InvalidCertificateRef", "does not exist; create it")
	broken("a Secret whose key is another's", secretOf("certificates", "sites-tls", sites, sitesKey), secretOf("certificates", "sites-tls", sites, shopKey),
		"InvalidCertificateRef", "private key does not match public key")

	// One that has expired is shown, and said to be refused by clients.
	expired, expiredKey := testkit.Certificate{Name: "expired", Hosts: []string{"*.example.org"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}.PEM(t)
	g.write("https.yaml", strings.Replace(manifest, secretOf("certificates", "sites-tls", sites, sitesKey), secretOf("certificates", "sites-tls", expired, expiredKey), 1))
	testkit.Eventually(t, "the certificate that has expired is shown", func() bool { return get("blog.example.org", "blog.example.org") == answer{200, "expired"} })
	if stdout, _, _ := moongate("explain", "-f", path, "GET", "https://blog.example.org:"+strconv.Itoa(port)+"/"); !strings.Contains(stdout, "clients will refuse it: expired") {
		t.Errorf("explain: %s", stdout)
	}
	if metrics := string(g.adminGet("/metrics")); !strings.Contains(metrics, `moongate_certificate_not_after_timestamp_seconds{certificate="Secret/certificates/sites-tls"}`) {
		t.Error("no metric has the date")
	}
}
