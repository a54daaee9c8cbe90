// Package delivertest gives tests of the delivery an authority, and servers on loopback that it vouches for. It
// exists so that both ends are tested over TLS as they run.
//
// It must be imported by tests only.
package delivertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Host is the name that servers have certificates for.
const Host = "localhost"

// Authority issues certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	PEM         []byte
}

// NewAuthority makes an Authority of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template(true), template(true), key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func template(isCA bool) *x509.Certificate {
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "delivertest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: isCA}
	if isCA {
		c.KeyUsage = x509.KeyUsageCertSign
	} else {
		c.DNSNames = []string{Host}
	}
	return c
}

// File writes the certificates of the authorities to a file and answers its path.
func File(t testing.TB, authorities ...*Authority) string {
	t.Helper()
	var text []byte
	for _, a := range authorities {
		text = append(text, a.PEM...)
	}
	return WriteFile(t, "ca.crt", text)
}

// WriteFile writes a file that lives as long as the test.
func WriteFile(t testing.TB, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// KeyPair is a certificate for Host and its key, in PEM.
func (a *Authority) KeyPair(t testing.TB) (certificate, key []byte) {
	t.Helper()
	private := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template(false), a.certificate, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// Credentials are a server's, for Host.
func (a *Authority) Credentials(t testing.TB) credentials.TransportCredentials {
	t.Helper()
	pair, err := tls.X509KeyPair(a.KeyPair(t))
	if err != nil {
		t.Fatal(err)
	}
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})
}

// Serve starts a server at an address ("127.0.0.1:0" for any port) and answers where it is and what stops it at once;
// the end of the test does too.
func (a *Authority) Serve(t testing.TB, address string, register func(*grpc.Server), options ...grpc.ServerOption) (string, func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append(options, grpc.Creds(a.Credentials(t)))...)
	register(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	stop := func() {
		s.Stop()
		<-done
	}
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// Eventually waits until something is so. It is generous: a slow machine is no failure.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
