package lint

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/revocation"
)

// certificates examines the server certificates of a listener.
func (l *linter) certificates(o metav1.Object, i int, hostname *gwv1.Hostname, spec *gwv1.ListenerTLSConfig) {
	if spec == nil || spec.Mode != nil && *spec.Mode != gwv1.TLSModeTerminate {
		return
	}
	var leaves []*x509.Certificate
	for j, ref := range spec.CertificateRefs {
		if ref.Kind != nil && string(*ref.Kind) != kind.Secret.Name || ref.Group != nil && *ref.Group != "" {
			continue
		}
		at := key{o.GetNamespace(), string(ref.Name)}
		if ref.Namespace != nil {
			at.namespace = string(*ref.Namespace)
		}
		var leaf *x509.Certificate
		if l.permitted(kind.KeyOf(o), kind.Secret.Key(at.namespace, at.name)) { // nothing is reported about a Secret to which the reference is not permitted
			leaf = leafOf(l.secrets[at])
		}
		if leaf == nil {
			continue // a condition reports it, and the listener does not use it
		}
		leaves = append(leaves, leaf)
		field := fmt.Sprintf("spec.listeners[%d].tls.certificateRefs[%d]", i, j)
		l.times(o, field, at, leaf)
		l.chain(o, field, at)
	}
	if hostname == nil || *hostname == "" || len(leaves) == 0 {
		return
	}
	var names []string
	for _, leaf := range leaves {
		if covers(leaf, string(*hostname)) {
			return
		}
		names = append(names, leaf.DNSNames...)
	}
	has := "no DNS name at all"
	if len(names) > 0 {
		has = strings.Join(names, ", ")
	}
	l.add(o, fmt.Sprintf("spec.listeners[%d].hostname", i), fmt.Sprintf("no certificate of the listener is for %s (they are for %s), so clients will reject it", *hostname, has),
		"use a certificate with that name, or change the hostname")
}

func (l *linter) times(o metav1.Object, field string, secret key, leaf *x509.Certificate) {
	const day = "2006-01-02"
	switch name := secret.namespace + "/" + secret.name; {
	case l.now.After(leaf.NotAfter):
		l.add(o, field, fmt.Sprintf("the certificate in Secret %s expired on %s, so clients will reject it", name, leaf.NotAfter.UTC().Format(day)), "renew it")
	case l.now.Before(leaf.NotBefore):
		l.add(o, field, fmt.Sprintf("the certificate in Secret %s is not valid before %s, so clients will reject it", name, leaf.NotBefore.UTC().Format(day)), "use another until then, or correct this machine's clock")
	case leaf.NotAfter.Sub(l.now) < Soon && leaf.NotAfter.Sub(leaf.NotBefore) > 2*Soon: // short-lived ones are renewed in time by their issuer
		l.add(o, field, fmt.Sprintf("the certificate in Secret %s expires on %s, in %d days", name, leaf.NotAfter.UTC().Format(day), int(leaf.NotAfter.Sub(l.now)/(24*time.Hour))), "renew it")
	}
}

// chain finds a block of a certificate chain that cannot be decoded. The listener presents the others.
func (l *linter) chain(o metav1.Object, field string, secret key) {
	for _, err := range revocation.Blocks(corev1.TLSCertKey, string(l.secrets[secret].Data[corev1.TLSCertKey])) {
		if err != nil {
			l.add(o, field, fmt.Sprintf("the chain in Secret %s/%s is presented without a part of it: %v", secret.namespace, secret.name, err), "correct it")
			return
		}
	}
}

// permitted reports whether an object may refer to another one: it is in the same namespace, or a ReferenceGrant permits it.
func (l *linter) permitted(from, to kind.ObjectKey) bool {
	return from.Namespace == to.Namespace || slices.ContainsFunc(l.grants[to.Namespace], func(g *gwv1.ReferenceGrant) bool {
		return slices.ContainsFunc(g.Spec.From, func(f gwv1.ReferenceGrantFrom) bool {
			return string(f.Group) == from.Group && string(f.Kind) == from.Kind && string(f.Namespace) == from.Namespace
		}) && slices.ContainsFunc(g.Spec.To, func(t gwv1.ReferenceGrantTo) bool {
			return string(t.Group) == to.Group && string(t.Kind) == to.Kind && (t.Name == nil || *t.Name == "" || string(*t.Name) == to.Name)
		})
	})
}

// leafOf returns the first certificate of a Secret, nil if it has none that a listener can use.
func leafOf(s *corev1.Secret) *x509.Certificate {
	if s == nil || s.Type != corev1.SecretTypeTLS {
		return nil
	}
	pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil
	}
	return pair.Leaf
}

// covers reports whether clients accept a certificate for a listener's hostname; a wildcard requires the same wildcard, because all
// names below it may be requested.
func covers(leaf *x509.Certificate, hostname string) bool {
	if !strings.HasPrefix(hostname, "*.") {
		return leaf.VerifyHostname(hostname) == nil
	}
	for _, name := range leaf.DNSNames {
		if strings.EqualFold(name, hostname) {
			return true
		}
	}
	return false
}
