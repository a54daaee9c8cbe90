package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moongate-dev/moongate/internal/testkit"
)

const namespace = "moongate-system"

// clock is a time that the test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// store is a namespace with room for the Secret. Unlike client-go's fake it compares resource
// versions, as an API server does.
type store struct {
	mu      sync.Mutex
	secret  *corev1.Secret
	version int
	writes  int
	// before is called once before a write, so that somebody else is faster.
	before func()
}

var secretResource = schema.GroupResource{Resource: "secrets"}

func secretsOf(objects ...*corev1.Secret) *store {
	s := &store{}
	for _, o := range objects {
		s.put(o)
	}
	return s
}

func (s *store) put(o *corev1.Secret) *corev1.Secret {
	s.version++
	s.secret = o.DeepCopy()
	s.secret.ResourceVersion = strconv.Itoa(s.version)
	return s.secret.DeepCopy()
}

func (s *store) interrupt() {
	s.mu.Lock()
	before := s.before
	s.before = nil
	s.mu.Unlock()
	if before != nil {
		before()
	}
}

func (s *store) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secret == nil || name != s.secret.Name {
		return nil, apierrors.NewNotFound(secretResource, name)
	}
	return s.secret.DeepCopy(), nil
}

func (s *store) Create(_ context.Context, o *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	s.interrupt()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secret != nil {
		return nil, apierrors.NewAlreadyExists(secretResource, o.Name)
	}
	s.writes++
	return s.put(o), nil
}

func (s *store) Update(_ context.Context, o *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	s.interrupt()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secret == nil || o.ResourceVersion != s.secret.ResourceVersion {
		return nil, apierrors.NewConflict(secretResource, o.Name, errors.New("it was changed"))
	}
	s.writes++
	return s.put(o), nil
}

func newAuthority(t *testing.T, secrets Secrets, c *clock) *Authority {
	t.Helper()
	a, err := NewAuthority(t.Context(), AuthorityOptions{Secrets: secrets, Namespace: namespace, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *Authority) mustLook(t *testing.T) bool {
	t.Helper()
	changed, err := a.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func stored(t *testing.T, secrets Secrets) *corev1.Secret {
	t.Helper()
	s, err := secrets.Get(t.Context(), SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// trusts judges the server's certificate of now as a proxy's TLS does, and answers it.
func trusts(t *testing.T, server *tls.Config, caPEM []byte, name string, c *clock) (*x509.Certificate, error) {
	t.Helper()
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), DNSName: name, CurrentTime: c.now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if !o.Roots.AppendCertsFromPEM(caPEM) {
		t.Fatalf("nothing to trust in %q", caPEM)
	}
	cert, err := server.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	for _, der := range cert.Certificate[1:] {
		o.Intermediates.AddCert(must(x509.ParseCertificate(der)))
	}
	_, err = cert.Leaf.Verify(o)
	return cert.Leaf, err
}

func TestAuthorityServes(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	a := newAuthority(t, secrets, c)
	server := a.ServerConfig("moongate-controller.moongate-system.svc", "127.0.0.1")
	first, err := trusts(t, server, a.CAPEM(), "moongate-controller.moongate-system.svc", c)
	if err != nil {
		t.Fatal(err)
	}
	if life := first.NotAfter.Sub(c.now()); life != leafLife {
		t.Errorf("a leaf is valid for %v, want %v", life, leafLife)
	}
	if _, err := trusts(t, server, a.CAPEM(), "127.0.0.1", c); err != nil {
		t.Errorf("by address: %v", err)
	}
	if _, err := trusts(t, server, a.CAPEM(), "elsewhere.svc", c); err == nil {
		t.Error("a name that is not the server's was believed")
	}
	other := newAuthority(t, secretsOf(), c)
	if _, err := trusts(t, server, other.CAPEM(), "127.0.0.1", c); err == nil {
		t.Error("a certificate of another authority was believed")
	}

	c.forward(3 * 24 * time.Hour)
	if again, err := trusts(t, server, a.CAPEM(), "127.0.0.1", c); err != nil || !again.Equal(first) {
		t.Errorf("before half of its life the certificate is made anew (%v)", err)
	}
	c.forward(24 * time.Hour)
	if again, err := trusts(t, server, a.CAPEM(), "127.0.0.1", c); err != nil || again.Equal(first) {
		t.Errorf("after half of its life the certificate is not renewed (%v)", err)
	}
}

// TestHandshake talks real TLS, of the one version that is taken.
func TestHandshake(t *testing.T) {
	a, err := NewAuthority(t.Context(), AuthorityOptions{Secrets: secretsOf(), Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", a.ServerConfig("controller"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake() // the client tells
			conn.Close()
		}
	}()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CAPEM())
	for version, ok := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "controller", MinVersion: tls.VersionTLS12, MaxVersion: version})
		if (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestAuthoritySecret(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	a := newAuthority(t, secrets, c)
	s := stored(t, secrets)
	cert := a.in.current.cert
	switch {
	case s.Type != corev1.SecretTypeTLS || len(s.Data[corev1.TLSPrivateKeyKey]) == 0:
		t.Errorf("the Secret is %s with %d bytes of key", s.Type, len(s.Data[corev1.TLSPrivateKeyKey]))
	case !bytes.Equal(s.Data[keyTrusted], a.CAPEM()) || !bytes.Equal(s.Data[corev1.TLSCertKey], a.CAPEM()):
		t.Error("the Secret's certificates are not those of CAPEM")
	case !cert.IsCA || cert.PublicKeyAlgorithm != x509.ECDSA || cert.NotAfter.Sub(c.now()) != authorityLife:
		t.Errorf("CA %v, %v, until %v", cert.IsCA, cert.PublicKeyAlgorithm, cert.NotAfter)
	}
	// A restart and another replica use the same one, and write nothing.
	again := newAuthority(t, secrets, c)
	again.mustLook(t)
	if !bytes.Equal(again.CAPEM(), a.CAPEM()) {
		t.Error("a restart made another authority")
	}
	if secrets.writes != 1 {
		t.Errorf("%d writes, one is needed", secrets.writes)
	}
}

// TestTwoReplicasStart has both find no Secret: the loser takes the winner's.
func TestTwoReplicasStart(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	var replicas [4]*Authority
	var all sync.WaitGroup
	for i := range replicas {
		all.Go(func() {
			a, err := NewAuthority(t.Context(), AuthorityOptions{Secrets: secrets, Namespace: namespace, Now: c.now})
			if err != nil {
				t.Error(err)
			}
			replicas[i] = a
		})
	}
	all.Wait()
	for i, a := range replicas {
		if a == nil || !bytes.Equal(a.CAPEM(), replicas[0].CAPEM()) {
			t.Errorf("replica %d has an authority of its own", i)
		}
	}
}

func TestRivals(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	var winner *Authority
	secrets.before = func() { winner = newAuthority(t, secrets, c) }
	loser := newAuthority(t, secrets, c)
	if !bytes.Equal(loser.CAPEM(), winner.CAPEM()) {
		t.Error("after a conflict of creation there are two authorities")
	}
	c.forward(authorityLife - renewBefore + time.Hour)
	secrets.before = func() { winner.mustLook(t) }
	loser.mustLook(t)
	if !bytes.Equal(loser.CAPEM(), winner.CAPEM()) || len(loser.trusted) != 2 || secrets.writes != 2 {
		t.Errorf("after a conflict of renewal there are two authorities (%d writes)", secrets.writes)
	}
}

// TestRenewal follows an authority to its end: nobody who trusts what was published a day ago, or
// what is published now, ever meets a certificate that he cannot verify.
func TestRenewal(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	a := newAuthority(t, secrets, c)
	server := a.ServerConfig("controller")
	begin, old := c.now(), a.in.current.cert
	yesterday := a.CAPEM()
	renewed, handedOver, forgotten := time.Duration(0), time.Duration(0), time.Duration(0)
	for c.now().Sub(begin) < authorityLife+48*time.Hour {
		step := 10 * 24 * time.Hour // ten days where nothing happens
		now := c.now().Sub(begin)
		if now > authorityLife-renewBefore-20*24*time.Hour && now < authorityLife-renewBefore+20*24*time.Hour || now > authorityLife-20*24*time.Hour {
			step = 8 * time.Hour
		}
		for range 3 {
			leaf, err := trusts(t, server, yesterday, "controller", c)
			if err != nil {
				t.Fatalf("after %v, with what was trusted before: %v", c.now().Sub(begin), err)
			}
			if handedOver == 0 && leaf.CheckSignatureFrom(old) != nil {
				handedOver = c.now().Sub(begin)
			}
			c.forward(step / 3)
			changed := a.mustLook(t)
			if n := len(a.trusted); changed && n == 2 {
				renewed = c.now().Sub(begin)
			} else if changed {
				forgotten = c.now().Sub(begin)
			}
		}
		yesterday = a.CAPEM()
	}
	if d := renewed - (authorityLife - renewBefore); d < 0 || d > 24*time.Hour {
		t.Errorf("renewed %v after the last year began", d)
	}
	if d := handedOver - renewed; d < handover || d > handover+24*time.Hour {
		t.Errorf("handed over %v after it was renewed", d)
	}
	if d := forgotten - authorityLife; d < 0 || d > 24*time.Hour {
		t.Errorf("the old one was forgotten %v after its end", d)
	}
	if _, there := stored(t, secrets).Data[keyPreviousKey]; there {
		t.Error("a key that signs no more is still kept")
	}
	if s := stored(t, secrets); !bytes.Equal(s.Data[keyTrusted], a.CAPEM()) || !bytes.Equal(s.Data[corev1.TLSCertKey], a.CAPEM()) {
		t.Error("the Secret and CAPEM differ in the end")
	}
}

// TestReplaced puts a foreign authority into the Secret.
func TestReplaced(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	a := newAuthority(t, secrets, c)
	server, before := a.ServerConfig("controller"), a.CAPEM()
	foreign, err := newSigner(c.now().Add(-authorityLife + 30*24*time.Hour)) // 30 days left
	if err != nil {
		t.Fatal(err)
	}
	s := stored(t, secrets)
	s.Labels = nil
	certPEM, keyPEM, err := foreign.encode()
	if err != nil {
		t.Fatal(err)
	}
	s.Data = map[string][]byte{corev1.TLSCertKey: certPEM, corev1.TLSPrivateKeyKey: keyPEM}
	if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !a.mustLook(t) || a.mustLook(t) {
		t.Error("the change is not told once")
	}
	if _, err := trusts(t, server, certPEM, "controller", c); err != nil {
		t.Errorf("the new authority does not sign: %v", err)
	}
	if pem := a.CAPEM(); !bytes.Contains(pem, before) || !bytes.Contains(pem, certPEM) {
		t.Error("both are to be trusted, as others may still use the old one")
	}
	if got := stored(t, secrets); len(got.Data) != 2 || !bytes.Equal(got.Data[corev1.TLSCertKey], certPEM) {
		t.Error("an authority that is not ours was written over")
	}
}

// TestDamagedSecret checks that a bad Secret is told, and never written over.
func TestDamagedSecret(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	a := newAuthority(t, secrets, c)
	good := stored(t, secrets)
	leaf, err := a.in.current.issue([]string{"x"}, c.now())
	if err != nil {
		t.Fatal(err)
	}
	notCA, notCAKey, err := (&signer{cert: leaf.Leaf, key: leaf.PrivateKey.(crypto.Signer)}).encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string][]byte{
		"empty":            {},
		"no key":           {corev1.TLSCertKey: good.Data[corev1.TLSCertKey]},
		"not an authority": {corev1.TLSCertKey: notCA, corev1.TLSPrivateKeyKey: notCAKey},
		"another's key":    {corev1.TLSCertKey: good.Data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: notCAKey},
		"damaged ca.crt": {corev1.TLSCertKey: good.Data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: good.Data[corev1.TLSPrivateKeyKey],
			keyTrusted: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good.DeepCopy()
			bad.Data = data
			secrets := secretsOf(bad)
			_, err := NewAuthority(t.Context(), AuthorityOptions{Secrets: secrets, Namespace: namespace, Now: c.now})
			if err == nil || !strings.Contains(err.Error(), namespace+"/"+SecretName) || !strings.Contains(err.Error(), "delete it") {
				t.Errorf("error %v, want the Secret's name and a remedy", err)
			}
			a.o.Secrets = secrets
			before := a.CAPEM()
			if changed, err := a.look(t.Context()); err == nil || changed || !bytes.Equal(before, a.CAPEM()) {
				t.Errorf("a running controller: changed %v, error %v", changed, err)
			}
			if got := stored(t, secrets); len(got.Data) != len(data) {
				t.Error("the Secret was written over")
			}
		})
	}
}

func TestServerConfigConcurrently(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	a := newAuthority(t, secrets, c)
	server := a.ServerConfig("controller")
	var all sync.WaitGroup
	var mu sync.Mutex
	var serials []string
	for range 8 {
		all.Go(func() {
			cert, err := server.GetCertificate(nil)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if s := cert.Leaf.SerialNumber.String(); !slices.Contains(serials, s) {
				serials = append(serials, s)
			}
		})
		all.Go(func() { a.mustLook(t) })
	}
	all.Wait()
	if len(serials) != 1 {
		t.Errorf("%d certificates were made for one moment", len(serials))
	}
}

// TestClockSetBack: a certificate that was created while the clock was ahead is replaced once the clock is right.
func TestClockSetBack(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	a := newAuthority(t, secrets, c)
	server := a.ServerConfig("controller")
	const ahead = 5 * 24 * time.Hour
	c.forward(ahead)
	if _, err := trusts(t, server, a.CAPEM(), "controller", c); err != nil {
		t.Fatal(err)
	}
	c.forward(-ahead)
	if _, err := trusts(t, server, a.CAPEM(), "controller", c); err != nil {
		t.Errorf("after the clock was set back: %v", err)
	}
}

// TestAuthorityOfTheFuture: it is logged, once, that an authority was created while the clock was ahead. Its successor signs soon, but
// only after proxies had the time to trust it: if this controller's clock is the wrong one, they verify what the old one has signed.
func TestAuthorityOfTheFuture(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	var log testkit.Log
	c.forward(24 * time.Hour)
	a, err := NewAuthority(t.Context(), AuthorityOptions{Secrets: secrets, Namespace: namespace, Now: c.now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if n := log.Count("is not valid yet"); n != 0 {
		t.Errorf("%d lines while the clock is ahead", n)
	}
	c.forward(-24 * time.Hour)
	for range 2 {
		a.mustLook(t)
	}
	if n := log.Count("is not valid yet"); n != 1 {
		t.Errorf("%d lines after the clock was set back", n)
	}
	server, old := a.ServerConfig("controller"), a.in.previous
	if old == nil || len(a.trusted) != 2 {
		t.Fatalf("there is no successor; %d are trusted", len(a.trusted))
	}
	signedByOld := func() bool {
		cert, err := server.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf.CheckSignatureFrom(old.cert) == nil
	}
	if !signedByOld() {
		t.Error("the successor signs at once")
	}
	c.forward(shortHandover)
	a.mustLook(t)
	if _, err := trusts(t, server, a.CAPEM(), "controller", c); err != nil {
		t.Errorf("after the handover: %v", err)
	}
	writes := secrets.writes
	for range 3 {
		c.forward(time.Hour)
		a.mustLook(t)
	}
	if s := stored(t, secrets); secrets.writes != writes || len(s.Data[keyPreviousKey]) > 0 {
		t.Errorf("%d further writes, %d bytes of the old key", secrets.writes-writes, len(s.Data[keyPreviousKey]))
	}
	// What is written by another controller, whose clock is right, ends nothing.
	if cert, err := trusts(t, newAuthority(t, secrets, c).ServerConfig("controller"), a.CAPEM(), "controller", c); err != nil || cert.CheckSignatureFrom(old.cert) == nil {
		t.Errorf("another replica: %v", err)
	}
}

// TestSuccessorOfASlowClock: a controller whose clock is days behind takes the authority for one of the future and creates a successor. One
// whose clock is right does not sign with that before proxies can have learned of it.
func TestSuccessorOfASlowClock(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	right := newAuthority(t, secrets, c)
	known := right.CAPEM()
	slow := newClock()
	slow.forward(-handover - time.Hour)
	newAuthority(t, secrets, slow)
	right.mustLook(t)
	server := right.ServerConfig("controller")
	if _, err := trusts(t, server, known, "controller", c); err != nil {
		t.Errorf("a proxy that does not know the successor yet: %v", err)
	}
	if s := stored(t, secrets); len(s.Data[keyPreviousKey]) == 0 {
		t.Error("the key of the predecessor is gone")
	}
	c.forward(shortHandover)
	right.mustLook(t)
	if _, err := trusts(t, server, right.CAPEM(), "controller", c); err != nil {
		t.Errorf("after the handover: %v", err)
	}
}

// TestForeignAuthorityOfTheFuture: an authority of an administrator is left alone.
func TestForeignAuthorityOfTheFuture(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	c.forward(24 * time.Hour)
	newAuthority(t, secrets, c)
	s := stored(t, secrets)
	s.Labels = nil
	if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.forward(-24 * time.Hour)
	var log testkit.Log
	writes := secrets.writes
	if _, err := NewAuthority(t.Context(), AuthorityOptions{Secrets: secrets, Namespace: namespace, Now: c.now, Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
		t.Fatal(err)
	}
	if secrets.writes != writes || log.Count("delete the Secret") != 1 {
		t.Errorf("%d writes; log:\n%s", secrets.writes-writes, log.String())
	}
}
