package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

func TestReadAuthorities(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../testdata/pem/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	example, other, key := read("example.crt"), read("other.crt"), read("example.key")
	broken := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	// What pem.Decode skips: three blocks of which one is left, one with a damaged line, and one without its end.
	joined := func(text string) string { return strings.Repeat(strings.TrimSuffix(text, "\n"), 2) + "\n" + text }
	damaged := func(text string) string { return strings.Replace(text, "\nMI", "\n!I", 1) }
	endless := func(text string) string { return text[:strings.Index(text, "-----END ")] }
	for name, test := range map[string]struct {
		data         map[string]string
		pem, problem string
	}{
		"one":                                 {map[string]string{"ca.crt": example}, example, ""},
		"several with words around":           {map[string]string{"ca.crt": "first\n" + example + "# second\n" + other}, example + other, ""},
		"keys are left out":                   {map[string]string{"ca.crt": key + example, "tls.key": key}, example, ""},
		"no key":                              {map[string]string{"ca.pem": example}, "", "data has no ca.crt"},
		"nothing":                             {nil, "", "data has no ca.crt"},
		"empty":                               {map[string]string{"ca.crt": ""}, "", "ca.crt has no certificate in PEM"},
		"no PEM":                              {map[string]string{"ca.crt": "hello"}, "", "ca.crt has no certificate in PEM"},
		"a private key alone":                 {map[string]string{"ca.crt": key}, "", "ca.crt has no certificate in PEM"},
		"malformed beside a good":             {map[string]string{"ca.crt": example + broken}, "", "PEM block 2 of ca.crt: x509"},
		"joined without a newline":            {map[string]string{"ca.crt": joined(example)}, "", "PEM block 1 of ca.crt: its BEGIN and END"},
		"a damaged line":                      {map[string]string{"ca.crt": example + damaged(other) + example}, "", "PEM block 2 of ca.crt: its BEGIN and END"},
		"no end":                              {map[string]string{"ca.crt": example + endless(other)}, "", "PEM block 2 of ca.crt: its BEGIN and END"},
		"a key that takes long to verify by":  {map[string]string{"ca.crt": example + longRSA(t)}, "", "PEM block 2 of ca.crt: the modulus of its RSA key has 16384 bits, and at most 8192 are supported"},
		"too much":                            {map[string]string{"ca.crt": strings.Repeat("#", MaxAuthorityBytes) + example}, "", "bytes, and at most 524288 are read"},
		"too much, of which nothing was kept": {map[string]string{kind.AuthoritiesTooLarge: "600000"}, "", "ca.crt has 600000 bytes, and at most 524288 are read"},
	} {
		got := ReadAuthorities(&corev1.ConfigMap{Data: test.data})
		if got.PEM != test.pem || (got.Wrong == "") != (test.problem == "") || !strings.Contains(got.Wrong, test.problem) {
			t.Errorf("%s: %d bytes, wrong %q", name, len(got.PEM), got.Wrong)
		}
	}
	for text, problem := range map[string]string{
		example + other: "", "": "spec.trustBundle has no certificate in PEM", example + broken: "PEM block 2 of spec.trustBundle: x509",
		joined(example): "PEM block 1 of spec.trustBundle: its BEGIN", example + damaged(other): "PEM block 2 of spec.trustBundle: its BEGIN",
		example + endless(other):                         "PEM block 2 of spec.trustBundle: its BEGIN",
		strings.Repeat("#", MaxAuthorityBytes) + example: "bytes, and at most 524288 are read",
	} {
		got := ReadAuthorities(&certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: text}})
		if (got.PEM == text) != (problem == "") && text != "" || !strings.Contains(got.Wrong, problem) || (got.Wrong == "") != (problem == "") {
			t.Errorf("a ClusterTrustBundle with %d bytes: %d, wrong %q", len(text), len(got.PEM), got.Wrong)
		}
	}
	authority, list := read("authority.crt"), read("authority.crl")
	whole := ReadAuthorities(&corev1.ConfigMap{Data: map[string]string{"ca.crt": authority, "ca.crl": "of today\n" + list}})
	if whole.Wrong != "" || len(whole.Lists) != 1 || whole.Equal(ReadAuthorities(&corev1.ConfigMap{Data: map[string]string{"ca.crt": authority}})) {
		t.Errorf("with a revocation list: %d lists, wrong %q", len(whole.Lists), whole.Wrong)
	}
	for text, problem := range map[string]string{
		"": "ca.crl has no revocation list in PEM", authority: "ca.crl has no revocation list in PEM",
		list + "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n": "PEM block 2 of ca.crl: x509",
		joined(list): "PEM block 1 of ca.crl: its BEGIN", list + damaged(list) + list: "PEM block 2 of ca.crl: its BEGIN", list + endless(list): "PEM block 2 of ca.crl: its BEGIN",
		strings.Repeat("#", MaxRevocationBytes) + list: "bytes, and at most 1048576 are read",
	} {
		if got := ReadAuthorities(&corev1.ConfigMap{Data: map[string]string{"ca.crt": authority, "ca.crl": text}}); !strings.Contains(got.Wrong, problem) || got.PEM != "" || got.Lists != nil || got.Withheld != authority {
			t.Errorf("a ca.crl with %d bytes: %d lists, wrong %q", len(text), len(got.Lists), got.Wrong)
		}
	}
	malformed := ReadAuthorities(&corev1.ConfigMap{Data: map[string]string{"ca.crt": broken + authority, "ca.crl": list}})
	if malformed.Wrong == "" || !Shares(malformed.Withheld, authority) || Shares(malformed.Withheld, example) {
		t.Errorf("lists beside a malformed ca.crt: wrong %q, withheld %q", malformed.Wrong, malformed.Withheld)
	}
	large := strings.Repeat("#", MaxAuthorityBytes) + authority
	for name, test := range map[string]struct {
		data    map[string]string
		unknown bool
	}{
		"a ca.crt that is too large":                {map[string]string{"ca.crt": large, "ca.crl": list}, true},
		"one of which nothing was kept":             {map[string]string{kind.AuthoritiesTooLarge: "600000", "ca.crl": ""}, true},
		"one with a certificate that is malformed":  {map[string]string{"ca.crt": authority + broken, "ca.crl": list}, true},
		"one with a block that cannot be decoded":   {map[string]string{"ca.crt": authority + damaged(authority), "ca.crl": list}, true},
		"one without any certificate":               {map[string]string{"ca.crt": "hello", "ca.crl": list}, true},
		"no ca.crt":                                 {map[string]string{"ca.crl": ""}, true},
		"a key that takes long to verify by":        {map[string]string{"ca.crt": authority + longRSA(t), "ca.crl": list}, false},
		"a list that cannot be used":                {map[string]string{"ca.crt": authority, "ca.crl": "hello"}, false},
		"a list that can":                           {map[string]string{"ca.crt": authority, "ca.crl": list}, false},
		"a ca.crt that is too large, without lists": {map[string]string{"ca.crt": large}, false},
	} {
		got := ReadAuthorities(&corev1.ConfigMap{Data: test.data})
		if got.UnknownLists != test.unknown {
			t.Errorf("%s: lists of unknown authorities %v, wrong %q", name, got.UnknownLists, got.Wrong)
		}
	}
	kept, without := map[string]string{kind.AuthoritiesTooLarge: "600000", "ca.crl": ""}, map[string]string{kind.AuthoritiesTooLarge: "600000"}
	if ReadAuthorities(&corev1.ConfigMap{Data: kept}).Equal(ReadAuthorities(&corev1.ConfigMap{Data: without})) {
		t.Error("that there are lists of unknown authorities makes no difference")
	}
	a, b := ReadAuthorities(&corev1.ConfigMap{Data: map[string]string{"ca.crt": example}}), ReadAuthorities(&corev1.ConfigMap{Data: map[string]string{"ca.crt": other}})
	if a.Equal(b) || !a.Equal(a) || a.Equal(&Authorities{Wrong: "x"}) {
		t.Error("Equal")
	}
}

// longRSA is a certificate with an RSA key of 16384 bits.
func longRSA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	modulus := new(big.Int).SetBit(big.NewInt(1), 16383, 1)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &rsa.PublicKey{N: modulus, E: 65537}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
