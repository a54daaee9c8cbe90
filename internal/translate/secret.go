package translate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

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
		func(v *incremental.View, n name, s *corev1.Secret) (*certificate.KeyPair, bool) {
			// Most Secrets of a cluster are none of our business, and checking keys is dear.
			if incremental.Count(v, t.secretUsers, n) == 0 {
				return nil, false
			}
			return certificate.Read(s), true
		}, (*certificate.KeyPair).Equal)
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
