package testkit_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestCertificates: what an Authority issues is valid for its hosts, and for no others; what is self-signed is its own authority.
func TestCertificates(t *testing.T) {
	authority := testkit.NewAuthority(t)
	issued, key := testkit.Certificate{Hosts: []string{"a.test", "127.0.0.1"}, Issuer: authority}.PEM(t)
	pair, err := tls.X509KeyPair(issued, key)
	if err != nil {
		t.Fatal(err)
	}
	for host, valid := range map[string]bool{"a.test": true, "127.0.0.1": true, "b.test": false} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: authority.Pool(), DNSName: host})
		if (err == nil) != valid {
			t.Errorf("%s: %v", host, err)
		}
	}
	own := testkit.Certificate{Name: "n", Hosts: []string{"c.test"}, NotAfter: time.Now().Add(-time.Minute)}.TLS(t)
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil || leaf.Subject.CommonName != "n" || leaf.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature) != nil {
		t.Errorf("%v, subject %v", err, leaf.Subject)
	}
	if !leaf.NotAfter.Before(time.Now()) {
		t.Errorf("it is valid until %v", leaf.NotAfter)
	}
}

// TestEventually returns once the condition holds.
func TestEventually(t *testing.T) {
	var log testkit.Log
	asked := 0
	testkit.Eventually(t, "it holds the third time", func() bool { asked++; log.Write([]byte("x")); return asked == 3 })
	if log.Count("x") != 3 {
		t.Errorf("asked %s", &log)
	}
}
