package auth

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecretName is the name of the Secret with the authority, in the controller's namespace.
const SecretName = "moongate-ca"

// Keys of the Secret in addition to tls.crt and tls.key, which are the authority.
const (
	keyTrusted = "ca.crt" // all certificates that proxies must trust
	// The previous authority, as long as it signs; see handover.
	keyPreviousCert = "previous.crt"
	keyPreviousKey  = "previous.key"

	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "moongate"
)

const (
	// renewBefore is how long before it expires an authority gets a successor.
	renewBefore = 365 * 24 * time.Hour
	// handover is how long proxies trust a successor before it signs: they read it from a ConfigMap, which the kubelet updates
	// within minutes, but a node may be unreachable for a while.
	handover = 24 * time.Hour
	// shortHandover is the same if the predecessor is not valid yet: nobody with a right clock can verify what it signs, so the successor
	// should sign soon. It does not sign at once, because it may be this controller's clock that is wrong.
	shortHandover = 10 * time.Minute
)

// authority is the content of a Secret. It is immutable.
type authority struct {
	current  *signer
	previous *signer             // nil except during a handover
	trusted  []*x509.Certificate // including that of current, oldest first
	managed  bool                // created by a controller, not by an administrator
	// seen is when this process first read current: the clock of the controller that created it may be behind.
	seen time.Time
}

// readSecret parses a Secret; an error names the remedy.
func readSecret(secret *corev1.Secret) (*authority, error) {
	bad := func(err error) (*authority, error) {
		return nil, fmt.Errorf("the Secret %s/%s is not a certificate authority: %w; replace it by one (tls.crt, tls.key), or delete it to have one created",
			secret.Namespace, secret.Name, err)
	}
	a := &authority{managed: secret.Labels[labelManagedBy] == managedBy}
	var err error
	if a.current, err = readSigner(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return bad(err)
	}
	if a.trusted, err = readCertificates(secret.Data[keyTrusted]); err != nil {
		return bad(fmt.Errorf("%s: %w", keyTrusted, err))
	}
	a.trusted = withCertificate(a.trusted, a.current.cert)
	if len(secret.Data[keyPreviousCert]) > 0 {
		if a.previous, err = readSigner(secret.Data[keyPreviousCert], secret.Data[keyPreviousKey]); err != nil {
			return bad(fmt.Errorf("%s: %w", keyPreviousCert, err))
		}
		a.trusted = withCertificate(a.trusted, a.previous.cert)
	}
	return a, nil
}

// signs returns the authority that issues certificates now: during a handover still the previous one.
func (a *authority) signs(now time.Time) *signer {
	if a.inHandover(now) {
		return a.previous
	}
	return a.current
}

func (a *authority) inHandover(now time.Time) bool {
	return a.previous != nil && now.Before(a.handoverEnd(now)) && now.Before(a.previous.cert.NotAfter)
}

// handoverEnd returns when a successor starts to sign.
func (a *authority) handoverEnd(now time.Time) time.Time {
	created, least := a.current.cert.NotBefore.Add(clockSkew), a.seen.Add(shortHandover)
	end := created.Add(handover)
	if now.Before(a.previous.cert.NotBefore) {
		end = created.Add(shortHandover)
	}
	if end.Before(least) {
		return least
	}
	return end
}

// unusable reports whether nothing that the authority signs now or soon can be verified, because it was created by a clock that was
// ahead.
func (a *authority) unusable(now time.Time) bool {
	return now.Before(a.current.cert.NotBefore) && now.Before(a.signs(now).cert.NotBefore)
}

// freshSecret returns a Secret with a new authority.
func freshSecret(namespace string, now time.Time) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: SecretName,
			Labels: map[string]string{labelManagedBy: managedBy, "app.kubernetes.io/name": "moongate-controller"},
		},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{},
	}
	s, err := newSigner(now)
	if err != nil {
		return nil, err
	}
	return secret, writeSigner(secret, s, nil)
}

// tended returns the Secret as it should be now, nil if nothing must change: it adds a successor if the authority expires soon or is
// not valid yet, and removes the key of an authority that no longer signs, and expired certificates. An authority created by an administrator must be
// renewed by the administrator.
func tended(secret *corev1.Secret, a *authority, now time.Time) (*corev1.Secret, error) {
	if !a.managed {
		return nil, nil
	}
	next := secret.DeepCopy()
	if now.After(a.current.cert.NotAfter.Add(-renewBefore)) || a.unusable(now) {
		s, err := newSigner(now)
		if err != nil {
			return nil, err
		}
		next.Data[keyPreviousCert], next.Data[keyPreviousKey] = secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
		return next, writeSigner(next, s, unexpired(a.trusted, now))
	}
	if !a.inHandover(now) {
		delete(next.Data, keyPreviousCert)
		delete(next.Data, keyPreviousKey)
	}
	next.Data[keyTrusted] = encodeCertificates(unexpired(a.trusted, now))
	if maps.EqualFunc(next.Data, secret.Data, slices.Equal) {
		return nil, nil
	}
	return next, nil
}

// writeSigner makes s the Secret's authority, trusted in addition to others.
func writeSigner(secret *corev1.Secret, s *signer, others []*x509.Certificate) error {
	certPEM, keyPEM, err := s.encode()
	if err != nil {
		return err
	}
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = certPEM, keyPEM
	secret.Data[keyTrusted] = encodeCertificates(withCertificate(others, s.cert))
	return nil
}

// withCertificate returns the list with c added.
func withCertificate(certs []*x509.Certificate, c *x509.Certificate) []*x509.Certificate {
	if slices.ContainsFunc(certs, c.Equal) {
		return certs
	}
	return append(slices.Clip(certs), c)
}

func unexpired(certs []*x509.Certificate, now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(certs), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
}
