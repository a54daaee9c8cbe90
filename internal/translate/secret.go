package translate

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// keyPair is a Secret that a listener refers to.
type keyPair struct {
	Chain, Key []byte   // PEM; verified to belong together unless Wrong
	Names      []string // DNS names of the certificate, in lower case
	Wrong      string   // why it cannot be used; tells nothing of the contents
}

func (t *Translator) declareSecrets() {
	t.secretUsers = incremental.NewIndex(t.listeners, "listeners by Secret",
		func(_ listenerKey, l *listener.Listener) (secrets []name) {
			for _, ref := range l.Certificates {
				if !ref.Unknown {
					secrets = append(secrets, name(ref.Secret))
				}
			}
			return secrets
		})
	t.keyPairs = incremental.Map(t.engine, "Secret", t.in.secrets.Collection,
		func(v *incremental.View, n name, s *corev1.Secret) (*keyPair, bool) {
			// Most Secrets of a cluster are none of our business, and checking keys is dear.
			if incremental.Count(v, t.secretUsers, n) == 0 {
				return nil, false
			}
			return newKeyPair(s), true
		}, func(a, b *keyPair) bool {
			return a.Wrong == b.Wrong && bytes.Equal(a.Chain, b.Chain) && bytes.Equal(a.Key, b.Key)
		})
}

// declareWants keeps one entry for each Secret that a listener may read. Several listeners may
// return the same one: the entry stands as long as any of them does.
func (t *Translator) declareWants() {
	t.wants = incremental.FlatMap(t.engine, "wanted Secret", t.listeners,
		func(v *incremental.View, k listenerKey, l *listener.Listener) (out []incremental.Entry[name, bool]) {
			for _, ref := range l.Certificates {
				if !ref.Unknown && t.permitted(v, certificateReferrer(k), ref.Group, ref.Kind, name(ref.Secret)) {
					out = append(out, incremental.Entry[name, bool]{Key: name(ref.Secret), Value: true})
				}
			}
			return out
		}, same[bool])
}

func (t *Translator) wantChanges() (out []Want) {
	for _, ch := range t.wants.Changes() {
		out = append(out, Want{ObjectKey{corev1.GroupName, string(KindSecret), ch.Key.Namespace, ch.Key.Name}, !ch.Deleted})
	}
	return out
}

func newKeyPair(s *corev1.Secret) *keyPair {
	if s.Type != corev1.SecretTypeTLS {
		return &keyPair{Wrong: "type is " + string(cmp.Or(s.Type, corev1.SecretTypeOpaque)) + ", not " + string(corev1.SecretTypeTLS)}
	}
	chain, key := s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]
	switch {
	case len(chain) == 0:
		return &keyPair{Wrong: "data has no " + corev1.TLSCertKey}
	case len(key) == 0:
		return &keyPair{Wrong: "data has no " + corev1.TLSPrivateKeyKey}
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return &keyPair{Wrong: oneLine(err.Error())}
	}
	out := &keyPair{Chain: chain, Key: key}
	for _, n := range pair.Leaf.DNSNames {
		out.Names = append(out.Names, strings.ToLower(n))
	}
	return out
}
