// Package pki makes the cluster's certificates: one authority, and a key pair for
// each part that serves or calls. All live as long as the cluster, in its folder.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime outlasts any test run; certificates are made anew with each cluster.
const lifetime = 30 * 24 * time.Hour

// Authority signs certificates and keeps them in Dir.
type Authority struct {
	Dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair names the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// New makes an authority, whose certificate is Dir/ca.crt.
func New(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := template(pkix.Name{CommonName: "test cluster"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{Dir: dir, certificate: certificate, key: key}
	return a, a.write("ca.crt", "CERTIFICATE", der, 0o644)
}

// CA is the file of the authority's certificate.
func (a *Authority) CA() string { return filepath.Join(a.Dir, "ca.crt") }

// Client issues a certificate by which the API server knows user in groups.
func (a *Authority) Client(file, user string, groups ...string) (Pair, error) {
	template := template(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(file, template)
}

// Server issues a certificate for hosts, names or addresses.
func (a *Authority) Server(file string, hosts ...string) (Pair, error) {
	template := template(pkix.Name{CommonName: file})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(file, template)
}

// SigningKey makes a key without certificate, and its public half beside it.
func (a *Authority) SigningKey(file string) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return Pair{}, err
	}
	if err := a.write(file+".pub", "PUBLIC KEY", public, 0o644); err != nil {
		return Pair{}, err
	}
	pair := Pair{Cert: filepath.Join(a.Dir, file+".pub"), Key: filepath.Join(a.Dir, file+".key")}
	return pair, a.writeKey(file, key)
}

func (a *Authority) issue(file string, template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	if err := a.write(file+".crt", "CERTIFICATE", der, 0o644); err != nil {
		return Pair{}, err
	}
	pair := Pair{Cert: filepath.Join(a.Dir, file+".crt"), Key: filepath.Join(a.Dir, file+".key")}
	return pair, a.writeKey(file, key)
}

func (a *Authority) writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return a.write(file+".key", "EC PRIVATE KEY", der, 0o600)
}

func (a *Authority) write(file, kind string, der []byte, mode os.FileMode) error {
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(filepath.Join(a.Dir, file), content, mode)
}

func template(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system has no randomness
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime),
	}
}
