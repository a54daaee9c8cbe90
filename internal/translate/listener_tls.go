package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// resolveCertificates returns the keys of the certificates that can be used and the
// first thing wrong with the others. A listener with one good certificate is served.
func (t *Translator) resolveCertificates(v *incremental.View, k listenerKey, l *listener.Listener) (keys []string, first *condition.Problem) {
	if len(l.Certificates) == 0 {
		return nil, condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, l.Field+".tls.certificateRefs",
			"add a reference to a Secret of type "+string(corev1.SecretTypeTLS), "a listener of protocol HTTPS needs a certificate")
	}
	for _, ref := range l.Certificates {
		key, p := t.resolveCertificate(v, k, ref)
		switch {
		case p == nil && !slices.Contains(keys, key):
			keys = append(keys, key)
		case p != nil && first == nil:
			first = p
		}
	}
	return keys, first
}

// certificateReferrer is who refers to the certificates of a listener.
func certificateReferrer(k listenerKey) referrer {
	return referrer{gwv1.GroupName, string(KindGateway), k.Gateway}
}

func (t *Translator) resolveCertificate(v *incremental.View, k listenerKey, ref listener.CertificateRef) (string, *condition.Problem) {
	from, secret := certificateReferrer(k), name(ref.Secret)
	if ref.Unknown {
		return "", condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, ref.Field+".kind", "refer to a Secret",
			"%s of group %q cannot hold a certificate", ref.Kind, ref.Group)
	}
	if !t.permitted(v, from, ref.Group, ref.Kind, secret) {
		return "", condition.NewProblem(gwv1.ListenerReasonRefNotPermitted, ref.Field+".namespace", t.grantRemedy(v, from, ref.Kind, secret),
			"no ReferenceGrant permits the reference to Secret %s", secret)
	}
	pair, exists := incremental.Fetch(v, t.keyPairs, secret)
	if forbidden, unread := incremental.Fetch(v, t.in.unread.Collection, secret); !exists && unread {
		if forbidden {
			return "", condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, ref.Field+".name",
				"allow its ServiceAccount to get secrets in namespace "+secret.Namespace, "the controller is not allowed to read Secret %s", secret)
		}
		return "", condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, ref.Field+".name", "if that lasts, look at the controller's log",
			"Secret %s could not be read yet; it is tried again, and until then what was served before stays", secret)
	}
	if !exists {
		return "", condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, ref.Field+".name", "create it or correct the name",
			"Secret %s does not exist", secret)
	}
	if pair.Wrong != "" {
		return "", condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, ref.Field+".name", "correct the Secret",
			"Secret %s: %s", secret, pair.Wrong)
	}
	return config.SecretKey(secret.Namespace, secret.Name), nil
}

// declareCertificateNames tells of each HTTPS listener what its certificates have, apart from what else there is to them.
func (t *Translator) declareCertificateNames() {
	t.certificateNames = incremental.Map(t.engine, "certificate names", t.listeners,
		func(v *incremental.View, k listenerKey, l *listener.Listener) (*listener.CertificateNames, bool) {
			if l.Protocol != gwv1.HTTPSProtocolType || !l.Valid() {
				return nil, false
			}
			var names [][]string
			for _, ref := range l.Certificates {
				if _, p := t.resolveCertificate(v, k, ref); p == nil {
					pair, _ := incremental.Fetch(v, t.keyPairs, name(ref.Secret))
					names = append(names, pair.Names)
				}
			}
			return listener.NewCertificateNames(l, names...), len(names) > 0
		}, (*listener.CertificateNames).Equal)
	t.certificateNamesBy = incremental.NewIndex(t.certificateNames, "listeners with certificates by Gateway",
		func(k listenerKey, _ *listener.CertificateNames) []name { return []name{k.Gateway} })
}

// overlap is what the condition OverlappingTLSConfig of a listener says: certificates go before hostnames. It
// names the others in the order of their names.
func (t *Translator) overlap(v *incremental.View, k listenerKey, l *listener.Listener) *condition.Problem {
	own, is := incremental.Fetch(v, t.certificateNames, k)
	if !is {
		return l.Overlap
	}
	var others []string
	for _, other := range incremental.Lookup(v, t.certificateNamesBy, k.Gateway) {
		if other == k {
			continue
		}
		if s, _ := incremental.Fetch(v, t.certificateNames, other); own.Overlaps(s) {
			others = append(others, other.Name)
		}
	}
	if len(others) == 0 {
		return l.Overlap
	}
	slices.Sort(others)
	return listener.OverlapProblem(l, others)
}

func (t *Translator) declareCertificates() {
	t.certUsers = incremental.NewIndex(t.serving, "listeners by certificate",
		func(_ listenerKey, l *config.Listener) []string { return l.Certificates })
	t.certificates = incremental.Map(t.engine, "certificate", t.keyPairs,
		func(v *incremental.View, n name, pair *certificate.KeyPair) (*config.Certificate, bool) {
			key := config.SecretKey(n.Namespace, n.Name)
			if incremental.Count(v, t.certUsers, key) == 0 {
				return nil, false
			}
			return &config.Certificate{Key: key, ChainPem: pair.Chain, KeyPem: pair.Key}, true
		}, sameMessage[*config.Certificate])
}
