package tls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

var notAfter = time.Now().Add(time.Hour).Truncate(time.Second).UTC()

// resource makes a self-signed certificate whose subject is its key.
func resource(t testing.TB, key string, signer crypto.Signer, ips []net.IP, names ...string) *config.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: key}, DNSNames: names, IPAddresses: ips,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return &config.Certificate{
		Key:      key,
		ChainPem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPem:   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

func ecdsaKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func parsed(t testing.TB, c *config.Certificate) *Certificate {
	t.Helper()
	out, err := Parse(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestParse(t *testing.T) {
	good := resource(t, "Secret/default/good", ecdsaKey(t), []net.IP{net.IPv4(192, 0, 2, 1)}, "A.Example", "*.b.example")
	c := parsed(t, good)
	if want := []string{"a.example", "*.b.example", "192.0.2.1"}; !reflect.DeepEqual(c.Names, want) {
		t.Errorf("names %q, want %q", c.Names, want)
	}
	if !c.NotAfter.Equal(notAfter) {
		t.Errorf("expires %v, want %v", c.NotAfter, notAfter)
	}
	other := resource(t, "other", ecdsaKey(t), nil, "a.example")
	for name, bad := range map[string]*config.Certificate{
		"key of another": {Key: "Secret/default/bad", ChainPem: good.ChainPem, KeyPem: other.KeyPem},
		"no key":         {Key: "Secret/default/bad", ChainPem: good.ChainPem},
		"no chain":       {Key: "Secret/default/bad", KeyPem: good.KeyPem},
		"swapped":        {Key: "Secret/default/bad", ChainPem: good.KeyPem, KeyPem: good.ChainPem},
		"cut":            {Key: "Secret/default/bad", ChainPem: good.ChainPem[:len(good.ChainPem)/2], KeyPem: good.KeyPem},
	} {
		_, err := Parse(bad)
		if err == nil || !strings.Contains(err.Error(), "Secret/default/bad") {
			t.Errorf("%s: %v, want an error that names the certificate", name, err)
		} else if strings.Contains(err.Error(), "PRIVATE KEY-----\n") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

// handshake shakes hands with the configuration and returns the subject that was shown.
func handshake(server *tls.Config, client *tls.Config) (subject string, serverErr, clientErr error) {
	a, b := net.Pipe()
	defer a.Close()
	done := make(chan error, 1)
	go func() {
		defer b.Close()
		s := tls.Server(b, server)
		err := s.Handshake()
		if err == nil {
			s.CloseWrite()
		}
		done <- err
	}()
	client.InsecureSkipVerify = true
	c := tls.Client(a, client)
	clientErr = c.Handshake()
	if certs := c.ConnectionState().PeerCertificates; clientErr == nil && len(certs) > 0 {
		subject = certs[0].Subject.CommonName
	}
	go c.Read(make([]byte, 1)) // a pipe holds nothing: take what the server says at last
	return subject, <-done, clientErr
}

func TestListenerChoosesCertificate(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Listener([]*Certificate{
		parsed(t, resource(t, "first", ecdsaKey(t), nil, "first.example")),
		parsed(t, resource(t, "both-rsa", rsaKey, nil, "both.example")),
		parsed(t, resource(t, "both-ecdsa", ecdsaKey(t), nil, "both.example")),
		parsed(t, resource(t, "wild", ecdsaKey(t), nil, "*.example")),
	})
	ecdsaOnly := &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
	for _, tc := range []struct {
		name, want string
		client     *tls.Config
	}{
		{"first.example", "first", nil},
		{"both.example", "both-rsa", nil}, // the order of the references
		{"both.example", "both-ecdsa", ecdsaOnly},
		{"a.example", "wild", nil},
		{"a.b.example", "first", nil},
		{"other", "first", nil},
		{"", "first", nil},
	} {
		client := &tls.Config{}
		if tc.client != nil {
			client = tc.client.Clone()
		}
		client.ServerName = tc.name
		if got, serverErr, clientErr := handshake(cfg, client); got != tc.want {
			t.Errorf("%q: %q (%v, %v), want %q", tc.name, got, serverErr, clientErr, tc.want)
		}
	}
	for name, client := range map[string]*tls.Config{
		"TLS 1.1":      {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		"another ALPN": {NextProtos: []string{"h3"}},
	} {
		if got, _, err := handshake(cfg, client); err == nil {
			t.Errorf("%s: %q was shown, want no handshake", name, got)
		}
	}
}

// TestServerFindsListener: find sees the name in lower case, and where it knows none the handshake ends.
func TestServerFindsListener(t *testing.T) {
	listener := Listener([]*Certificate{parsed(t, resource(t, "c", ecdsaKey(t), nil, "a.example"))})
	var asked []string
	cfg := Server(func(name string) *tls.Config {
		asked = append(asked, name)
		if name == "a.example" {
			return listener
		}
		return nil
	})
	if got, _, err := handshake(cfg, &tls.Config{ServerName: "A.Example"}); got != "c" {
		t.Errorf("%q %v", got, err)
	}
	for _, name := range []string{"b.example", ""} {
		got, serverErr, err := handshake(cfg, &tls.Config{ServerName: name})
		if err == nil || got != "" || serverErr != ErrNoListener {
			t.Errorf("%q: %q, server %v, client %v", name, got, serverErr, err)
		}
	}
	if want := []string{"a.example", "b.example", ""}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}
