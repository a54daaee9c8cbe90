package auth

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// lookEvery is the interval in which the Secret is read.
	lookEvery = time.Minute
	// attempts is the maximum number of attempts of a change that conflicts with changes by others.
	attempts = 5
)

// Secrets accesses the Secrets of the controller's namespace; client-go's CoreV1().Secrets(namespace) implements it.
type Secrets interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, secret *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error)
	Update(ctx context.Context, secret *corev1.Secret, opts metav1.UpdateOptions) (*corev1.Secret, error)
}

// AuthorityOptions configure an Authority.
type AuthorityOptions struct {
	Secrets   Secrets
	Namespace string // of the Secret
	// Changed is called from Run after CAPEM has changed; may be nil.
	Changed func()
	Logger  *slog.Logger     // nil discards
	Now     func() time.Time // nil means time.Now
}

// Authority is the controller's own certificate authority, stored in a Secret (SecretName) that all replicas share. It is safe for
// concurrent use.
//
// A year before it expires it gets a successor. Proxies trust both at once; the old one continues to sign for a day, so that every
// proxy trusts the new one before it gets a certificate signed by it; the old one is trusted until it expires. One that is not valid
// yet, because it was created by a clock that was ahead, gets a successor at once, which signs after a few minutes.
//
// An administrator may replace the Secret by another authority, and must renew that one. It signs within a minute. Proxies keep
// their connections; new ones fail until the kubelet has updated the authority in their pods. This process continues to trust the
// old one, because other replicas may still use it. To end that, for example after a theft of the key, delete or replace the Secret
// and restart the controllers.
type Authority struct {
	o AuthorityOptions

	mu      sync.Mutex
	in      *authority
	trusted []*x509.Certificate // in.trusted and those that this process used before
	pem     []byte
	// current is that of the Secret as it was read last, and currentSeen when it was first read.
	current     *x509.Certificate
	currentSeen time.Time
	warned      *x509.Certificate // of which it was logged that it expires, or is not valid yet
}

// NewAuthority reads the authority from its Secret, and creates the Secret if there is none.
func NewAuthority(ctx context.Context, o AuthorityOptions) (*Authority, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	a := &Authority{o: o}
	if _, err := a.look(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// Run checks every minute whether the Secret was replaced, and renews the authority in time, until ctx ends; then it returns nil.
func (a *Authority) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		changed, err := a.look(ctx)
		if err != nil && ctx.Err() == nil {
			a.o.Logger.Warn("the certificate authority stays as it was", "error", err)
		}
		if changed {
			a.o.Changed()
		}
	}
}

// CAPEM returns the certificates that a proxy must trust in order to verify the controller.
func (a *Authority) CAPEM() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bytes.Clone(a.pem)
}

// Secret returns 32 bytes for a purpose, which every replica derives from the authority's private key. They cannot be computed
// without it, and change with the authority.
func (a *Authority) Secret(purpose string) ([]byte, error) {
	a.mu.Lock()
	in := a.in
	a.mu.Unlock()
	key, err := x509.MarshalPKCS8PrivateKey(in.current.key)
	if err != nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, key, nil, "moongate "+purpose, sha256.Size)
}

// look updates the Secret if necessary, reads it, and reports whether CAPEM has changed.
func (a *Authority) look(ctx context.Context) (bool, error) {
	for range attempts {
		in, err := a.lookOnce(ctx)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errMustRead) {
			continue // another replica was faster: read what it has written
		}
		if err != nil {
			return false, err
		}
		return a.take(in), nil
	}
	return false, fmt.Errorf("the Secret %s/%s changes whenever it is read; check which other program writes it", a.o.Namespace, SecretName)
}

// errMustRead means that the Secret was written and must be read again.
var errMustRead = errors.New("written")

func (a *Authority) lookOnce(ctx context.Context) (*authority, error) {
	now := a.o.Now()
	secret, err := a.o.Secrets.Get(ctx, SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if secret, err = freshSecret(a.o.Namespace, now); err != nil {
			return nil, err
		}
		if _, err = a.o.Secrets.Create(ctx, secret, metav1.CreateOptions{}); err == nil {
			a.o.Logger.Info("created a certificate authority", "secret", a.o.Namespace+"/"+SecretName)
			err = errMustRead
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	in, err := readSecret(secret)
	if err != nil {
		return nil, err
	}
	in.seen = a.firstSeen(in.current.cert, now)
	if next, err := tended(secret, in, now); err != nil || next == nil {
		return in, err
	} else if _, err := a.o.Secrets.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return nil, errMustRead
}

// firstSeen returns when this process first read the certificate of the current authority.
func (a *Authority) firstSeen(current *x509.Certificate, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == nil || !a.current.Equal(current) {
		a.current, a.currentSeen = current, now
	}
	return a.currentSeen
}

// take sets the authority that was read, and reports whether CAPEM has changed.
func (a *Authority) take(in *authority) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, end := a.o.Now(), in.current.cert.NotAfter
	if !in.managed && end.Sub(now) < leafLife && !in.current.cert.Equal(a.warned) {
		a.warned = in.current.cert
		a.o.Logger.Warn("the certificate authority expires soon, and was not created by this controller, which does not renew it",
			"secret", a.o.Namespace+"/"+SecretName, "end", end)
	}
	if signs := in.signs(now).cert; now.Before(signs.NotBefore) && !signs.Equal(a.warned) {
		a.warned = signs
		const what = "the certificate authority is not valid yet, so proxies cannot connect: a clock was ahead when it was created, or is behind now"
		log := a.o.Logger.With("secret", a.o.Namespace+"/"+SecretName, "begin", signs.NotBefore)
		if in.managed && in.previous != nil {
			log.Error(what, "remedy", "it has a successor, which starts to sign by itself; check the clocks of the nodes", "successor-signs", in.handoverEnd(now))
		} else {
			log.Error(what, "remedy", "replace it by one that is valid, or delete the Secret and restart the controllers")
		}
	}
	a.in = in
	trusted := in.trusted
	for _, c := range a.trusted {
		trusted = withCertificate(trusted, c)
	}
	a.trusted = unexpired(trusted, now)
	before := a.pem
	a.pem = encodeCertificates(a.trusted)
	return !bytes.Equal(before, a.pem)
}

// ServerConfig returns a server's TLS configuration with certificates for the names, DNS names or IP addresses, of which there must
// be at least one. The certificates are created in memory, are valid for 7 days and are renewed after half of that.
func (a *Authority) ServerConfig(names ...string) *tls.Config {
	l := &leaves{authority: a, names: names}
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return l.current() },
	}
}

// leaves are the successive certificates of one server.
type leaves struct {
	authority *Authority
	names     []string

	mu   sync.Mutex
	cert *tls.Certificate
	by   *signer
}

// current returns the present certificate.
func (l *leaves) current() (*tls.Certificate, error) {
	l.authority.mu.Lock()
	in := l.authority.in
	l.authority.mu.Unlock()
	now := l.authority.o.Now()
	signs := in.signs(now)

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cert != nil && l.by.cert.Equal(signs.cert) {
		leaf := l.cert.Leaf
		// It is not valid yet if the clock was ahead when it was created, and has been set back.
		if !now.Before(leaf.NotBefore) && now.Before(leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore)/2)) {
			return l.cert, nil
		}
	}
	cert, err := signs.issue(l.names, now)
	if err != nil {
		return nil, err
	}
	l.cert, l.by = cert, signs
	return cert, nil
}
