package revocation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

func leaf(t testing.TB, c testkit.Certificate) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(c.TLS(t).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// verify is what who trusts the authorities does.
func verify(t testing.TB, c *x509.Certificate, intermediates []*x509.Certificate, all ...Authorities) error {
	t.Helper()
	pool, lists, err := Trust(all...)
	if err != nil {
		t.Fatal(err)
	}
	given := x509.NewCertPool()
	for _, i := range intermediates {
		given.AddCert(i)
	}
	chains, err := c.Verify(x509.VerifyOptions{Roots: pool, Intermediates: given, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return err
	}
	return lists.Check(chains, time.Now())
}

func TestCheck(t *testing.T) {
	root := testkit.NewAuthority(t)
	middle := root.Under(t, "middle")
	namesake := testkit.NewAuthority(t) // another authority of the same name
	good, bad := leaf(t, testkit.Certificate{Name: "good", Issuer: root}), leaf(t, testkit.Certificate{Name: "bad", Issuer: root})
	under := leaf(t, testkit.Certificate{Name: "under", Issuer: middle})
	of := func(a *testkit.Authority, lists ...[]byte) Authorities { return Authorities{string(a.PEM), lists} }
	list := func(a *testkit.Authority, number int64, serials ...*big.Int) []byte {
		return a.Revoke(t, x509.RevocationList{Number: big.NewInt(number)}, serials...)
	}
	past := x509.RevocationList{ThisUpdate: time.Now().Add(-48 * time.Hour), NextUpdate: time.Now().Add(-24 * time.Hour)}
	future := x509.RevocationList{ThisUpdate: time.Now().Add(24 * time.Hour), NextUpdate: time.Now().Add(48 * time.Hour)}
	sent := []*x509.Certificate{middle.Certificate}
	for name, tc := range map[string]struct {
		c             *x509.Certificate
		intermediates []*x509.Certificate
		trusted       []Authorities
		want          string // of the error; "" is none
	}{
		"no list":                   {bad, nil, []Authorities{of(root)}, ""},
		"listed":                    {bad, nil, []Authorities{of(root, list(root, 1, bad.SerialNumber))}, "is revoked"},
		"listed among others":       {bad, nil, []Authorities{of(root, list(root, 1, big.NewInt(1<<40), bad.SerialNumber, big.NewInt(0)))}, "is revoked"},
		"not listed":                {good, nil, []Authorities{of(root, list(root, 1, bad.SerialNumber))}, ""},
		"an empty list":             {good, nil, []Authorities{of(root, list(root, 1))}, ""},
		"listed by a namesake":      {bad, nil, []Authorities{of(root), of(namesake, list(namesake, 1, bad.SerialNumber))}, ""},
		"listed, beside a namesake": {bad, nil, []Authorities{of(namesake, list(namesake, 1)), of(root, list(root, 1, bad.SerialNumber))}, "is revoked"},
		"the newer list counts":     {good, nil, []Authorities{of(root, list(root, 2), list(root, 1, good.SerialNumber))}, ""},
		"in whatever order":         {good, nil, []Authorities{of(root, list(root, 1), list(root, 2, good.SerialNumber))}, "is revoked"},
		"an old list":               {good, nil, []Authorities{of(root, root.Revoke(t, past))}, "should have been replaced"},
		"a list of tomorrow":        {good, nil, []Authorities{of(root, root.Revoke(t, future))}, "begins at"},
		"an old list that has it":   {bad, nil, []Authorities{of(root, root.Revoke(t, past, bad.SerialNumber))}, "is revoked"},
		"an intermediate":           {under, sent, []Authorities{of(root, list(root, 1, middle.Certificate.SerialNumber))}, "is revoked"},
		"an intermediate, good":     {under, sent, []Authorities{of(root, list(root, 1, bad.SerialNumber))}, ""},
		"an intermediate that is trusted by itself, and is not sent": {under, nil,
			[]Authorities{of(root, list(root, 1, middle.Certificate.SerialNumber)), of(middle)}, "unknown authority"},
		"an intermediate that is trusted by itself, and is sent": {under, sent,
			[]Authorities{of(root, list(root, 1, middle.Certificate.SerialNumber)), of(middle)}, "is revoked"},
		"of an intermediate with a list": {under, sent,
			[]Authorities{of(root), {string(root.PEM) + string(middle.PEM), [][]byte{list(middle, 1, under.SerialNumber)}}}, "is revoked"},
	} {
		err := verify(t, tc.c, tc.intermediates, tc.trusted...)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	a, other := testkit.NewAuthority(t), testkit.NewAuthority(t)
	signers := func() *Signers { return NewSigners([]*x509.Certificate{a.Certificate}) }
	critical := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}} // a delta list
	entry := x509.RevocationList{RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(1), RevocationTime: time.Now(),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 29}, Critical: true, Value: []byte{0x30, 0}}}}}} // of an indirect list
	forged := a.Revoke(t, x509.RevocationList{})
	forged[len(forged)-1] ^= 1
	for name, tc := range map[string]struct {
		der  []byte
		want string
	}{
		"no list":          {[]byte("no list"), "x509"},
		"nothing":          {nil, "x509"},
		"of a namesake":    {other.Revoke(t, x509.RevocationList{}), "not signed by its issuer"},
		"forged":           {forged, "not signed by its issuer"},
		"a delta list":     {a.Revoke(t, x509.RevocationList{ExtraExtensions: []pkix.Extension{critical}}), "critical extension 2.5.29.27"},
		"an indirect list": {a.Revoke(t, entry), "critical extension 2.5.29.29"},
	} {
		if _, err := signers().Parse(tc.der); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := NewSigners(nil).Parse(a.Revoke(t, x509.RevocationList{})); err == nil || !strings.Contains(err.Error(), "none of the certificates") {
		t.Errorf("%v", err)
	}
}

// namesake is an authority with a subject and a key identifier that others have, too.
func namesake(t testing.TB) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "same"}, SubjectKeyId: []byte{1}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

// TestChecksAreBounded: what certificates and lists cost to read does not grow with the product of their numbers.
func TestChecksAreBounded(t *testing.T) {
	var all []*x509.Certificate
	var text []byte
	var list []byte
	for range 40 {
		c, key := namesake(t)
		all = append(all, c)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		var err error
		if list, err = x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), NextUpdate: time.Now().Add(time.Hour),
			RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(1), RevocationTime: time.Now()}}}, c, key); err != nil {
			t.Fatal(err)
		}
	}
	signers := NewSigners(all)
	for range 3 {
		if _, err := signers.Parse(list); err == nil || !strings.Contains(err.Error(), "tried with 16 certificates") || signers.failed != 16 {
			t.Fatalf("%v after %d checks", err, signers.failed)
		}
	}
	last, err := NewSigners(all[39:]).Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	lists := &Lists{all: []*List{last}}
	checks, revoked := maxChecks, 0
	for _, c := range all {
		if lists.revoked(c, &checks) {
			revoked++
		}
	}
	if checks != 0 || revoked != 40-maxChecks {
		t.Errorf("%d checks are left, %d authorities count as revoked", checks, revoked)
	}
	if _, _, err := Trust(Authorities{PEM: string(text), Lists: make([][]byte, MaxLists+1)}); err == nil || !strings.Contains(err.Error(), "at most 32") {
		t.Errorf("too many lists: %v", err)
	}
}

func TestTrustRefuses(t *testing.T) {
	a := testkit.NewAuthority(t)
	for _, all := range [][]Authorities{
		{{PEM: "no PEM"}},
		{{PEM: string(a.PEM), Lists: [][]byte{a.Revoke(t, x509.RevocationList{})}}, {PEM: "no PEM"}},
		{{PEM: string(a.PEM), Lists: [][]byte{{}}}},
	} {
		if pool, _, err := Trust(all...); err == nil || pool != nil {
			t.Errorf("%v, %v", pool, err)
		}
	}
}

// FuzzParse: a list is whatever somebody has put into an object.
func FuzzParse(f *testing.F) {
	a := testkit.NewAuthority(f)
	signers := func() *Signers { return NewSigners([]*x509.Certificate{a.Certificate}) }
	f.Add(a.Revoke(f, x509.RevocationList{}, big.NewInt(1)))
	f.Add(testkit.NewAuthority(f).Revoke(f, x509.RevocationList{}, big.NewInt(1)))
	f.Add([]byte{0x30, 0})
	f.Fuzz(func(t *testing.T, der []byte) {
		l, err := signers().Parse(der)
		if (l == nil) != (err != nil) {
			t.Fatalf("%v, %v", l, err)
		}
	})
}
