package testkit

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// Certificate describes a certificate for a test. All fields are optional.
type Certificate struct {
	Name  string        // of the subject
	Hosts []string      // DNS names and IP addresses
	URIs  []*url.URL    // that it is for
	Key   crypto.Signer // default: a new one on P-256
	// NotBefore and NotAfter default to an hour ago and in ten days (240 h).
	NotBefore, NotAfter time.Time
	Issuer              *Authority // default: it is self-signed
	// Change changes the template before it is signed; may be nil.
	Change func(*x509.Certificate)
}

// PEM creates the certificate, and returns it with its key, in PEM.
func (c Certificate) PEM(t testing.TB) (certificate, key []byte) {
	t.Helper()
	der, signer := c.make(t)
	private, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// TLS creates the certificate for package tls.
func (c Certificate) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	der, signer := c.make(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: signer}
}

var serial atomic.Int64

func (c Certificate) make(t testing.TB) (der []byte, signer crypto.Signer) {
	t.Helper()
	if c.Key == nil {
		c.Key = NewKey(t)
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(240 * time.Hour)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: c.Name},
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature, URIs: c.URIs}
	for _, host := range c.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if c.Change != nil {
		c.Change(template)
	}
	issuer, issuerKey := template, c.Key
	if c.Issuer != nil {
		issuer, issuerKey = c.Issuer.Certificate, c.Issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, c.Key.Public(), issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	return der, c.Key
}

// NewKey creates a key on P-256.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Authority issues certificates.
type Authority struct {
	Certificate *x509.Certificate
	PEM         []byte
	key         crypto.Signer
}

// NewAuthority creates a self-signed Authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key := NewKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: "testkit"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key}
}

// Revoke returns the authority's revocation list in DER. If the template has no number and dates, the list is the first one, from an
// hour ago until tomorrow.
func (a *Authority) Revoke(t testing.TB, template x509.RevocationList, serials ...*big.Int) []byte {
	t.Helper()
	if template.Number == nil {
		template.Number = big.NewInt(1)
	}
	if template.ThisUpdate.IsZero() {
		template.ThisUpdate = time.Now().Add(-time.Hour)
	}
	if template.NextUpdate.IsZero() {
		template.NextUpdate = time.Now().Add(24 * time.Hour)
	}
	for _, n := range serials {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: n, RevocationTime: template.ThisUpdate})
	}
	der, err := x509.CreateRevocationList(rand.Reader, &template, a.Certificate, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Under returns another authority, whose certificate this one has signed.
func (a *Authority) Under(t testing.TB, name string) *Authority {
	t.Helper()
	key := NewKey(t)
	certificate, _ := Certificate{Name: name, Key: key, Issuer: a, Change: func(c *x509.Certificate) {
		c.BasicConstraintsValid, c.IsCA, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	}}.PEM(t)
	block, _ := pem.Decode(certificate)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{parsed, certificate, key}
}

// Pool returns a pool of this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	return pool
}
