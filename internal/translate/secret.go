package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/config"
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
				if _, kept := incremental.Fetch(v, t.wants, n); !kept {
					return nil, false
				}
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
			for _, secret := range t.lastCertificates(v, k, l) {
				out = append(out, incremental.Entry[name, bool]{Key: secret, Value: true})
			}
			return out
		}, same[bool])
}

// lastCertificates are the Secrets that a listener was last served with, as far as it may still read them, while one that it refers to
// could not be read; otherwise none.
func (t *Translator) lastCertificates(v *incremental.View, k listenerKey, l *listener.Listener) (kept []name) {
	unread := false
	for _, ref := range l.Certificates {
		_, is := incremental.Fetch(v, t.in.unread.Collection, name(ref.Secret))
		unread = unread || is && !ref.Unknown
	}
	if !unread {
		return nil
	}
	last, _ := incremental.Fetch(v, t.in.last.Collection, k)
	for _, secret := range last {
		if t.permitted(v, certificateReferrer(k), corev1.GroupName, string(KindSecret), secret) {
			kept = append(kept, secret)
		}
	}
	return kept
}

// keepCertificates adds to the certificates of a listener those of lastCertificates.
func (t *Translator) keepCertificates(v *incremental.View, k listenerKey, l *listener.Listener, keys []string) []string {
	for _, secret := range t.lastCertificates(v, k, l) {
		key := config.SecretKey(secret.Namespace, secret.Name)
		if pair, exists := incremental.Fetch(v, t.keyPairs, secret); exists && pair.Wrong == "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// noteServed notes with which certificates listeners are served as of the Commit that ends.
func (t *Translator) noteServed(wants []Want) {
	if !t.options.Cluster {
		return
	}
	for _, ch := range t.serving.Changes() {
		t.shownLast[ch.Key] = nil
		if ch.Deleted {
			continue
		}
		for _, key := range ch.New.Certificates {
			t.shownLast[ch.Key] = append(t.shownLast[ch.Key], secretOf(key))
		}
	}
	clear(t.awaited)
	for _, want := range wants {
		if want.Wanted {
			t.awaited[name{want.Object.Namespace, want.Object.Name}] = true
		}
	}
}

// rememberServed makes what noteServed noted an input, unless the Commit that begins only takes in what the last one wanted: of such a one
// nobody has been told.
func (t *Translator) rememberServed() {
	continued := t.continued
	if t.continued = false; continued {
		return
	}
	for k, secrets := range t.shownLast {
		if len(secrets) == 0 {
			t.in.last.Delete(k)
		} else {
			t.in.last.Set(k, secrets)
		}
	}
	clear(t.shownLast)
}

// secretOf is the inverse of config.SecretKey.
func secretOf(key string) name {
	parts := strings.Split(key, "/")
	return name{parts[len(parts)-2], parts[len(parts)-1]}
}

func (t *Translator) wantChanges() (out []Want) {
	for _, ch := range t.wants.Changes() {
		out = append(out, Want{ObjectKey{corev1.GroupName, string(KindSecret), ch.Key.Namespace, ch.Key.Name}, !ch.Deleted})
	}
	return out
}
