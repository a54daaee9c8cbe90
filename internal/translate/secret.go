package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
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
	t.abroad = incremental.NewIndex(t.listeners, "listeners by other namespace",
		func(k listenerKey, l *listener.Listener) (namespaces []string) {
			for _, ref := range l.Certificates {
				if !ref.Unknown && ref.Secret.Namespace != k.Owner().Name.Namespace {
					namespaces = append(namespaces, ref.Secret.Namespace)
				}
			}
			return namespaces
		})
	t.keyPairs = incremental.Map(t.engine, "Secret", t.in.secrets.Collection,
		func(v *incremental.View, n name, s *corev1.Secret) (*certificate.KeyPair, bool) {
			// Most Secrets of a cluster are none of our business, and checking keys is dear.
			if incremental.Count(v, t.secretUsers, n) == 0 {
				if _, kept := incremental.Fetch(v, t.neededSecrets, n); !kept {
					return nil, false
				}
			}
			return certificate.Read(s), true
		}, (*certificate.KeyPair).Equal)
}

// declareNeededSecrets keeps one entry for each Secret that a listener may read. Several listeners may
// return the same one: the entry stands as long as any of them does.
func (t *Translator) declareNeededSecrets() {
	t.neededSecrets = incremental.FlatMap(t.engine, "needed Secret", t.listeners,
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

// lastCertificates are the Secrets that a listener was last served with, as far as it may still read them, while it is not known of one
// that it refers to whether it exists, because it was not read yet or could not be; otherwise none.
func (t *Translator) lastCertificates(v *incremental.View, k listenerKey, l *listener.Listener) (kept []name) {
	if !t.options.Cluster || !slices.ContainsFunc(l.Certificates, func(ref listener.CertificateRef) bool { return t.unknownSecret(v, k, ref) }) {
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

// unknownSecret reports whether a listener may read a Secret of which it is not known whether it exists.
func (t *Translator) unknownSecret(v *incremental.View, k listenerKey, ref listener.CertificateRef) bool {
	n := name(ref.Secret)
	if ref.Unknown || !t.permitted(v, certificateReferrer(k), ref.Group, ref.Kind, n) {
		return false
	}
	_, exists := incremental.Fetch(v, t.in.secrets.Collection, n)
	_, absent := incremental.Fetch(v, t.in.absent.Collection, n)
	return !exists && !absent
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

// noteServed notes with which certificates listeners are served as of the Commit that ends, for the next one.
func (t *Translator) noteServed() {
	for _, ch := range t.serving.Changes() {
		if ch.Deleted || len(ch.New.Certificates) == 0 {
			t.in.last.Delete(ch.Key)
			continue
		}
		var secrets []name
		for _, key := range ch.New.Certificates {
			secrets = append(secrets, secretOf(key))
		}
		t.in.last.Set(ch.Key, secrets)
	}
}

// noteRequests notes of which Secrets an answer is owed as of the Commit that ends.
func (t *Translator) noteRequests(requests []SecretRequest) {
	for _, r := range requests {
		n := name{r.Object.Namespace, r.Object.Name}
		t.in.absent.Delete(n) // what was known of it was for those who needed it
		if r.Needed {
			t.unanswered[n] = true
		} else {
			delete(t.unanswered, n)
		}
	}
}

// Fetched takes the answer to a request: the Secret, an UnreadSecret, or nil for one that does not exist.
func (t *Translator) Fetched(key kind.ObjectKey, o metav1.Object) {
	delete(t.unanswered, name{key.Namespace, key.Name})
	if o == nil {
		t.Delete(Kind(key.Kind), key.Namespace, key.Name)
		return
	}
	t.Upsert(o)
}

// deleteSecret notes that a Secret does not exist, unless nobody needs it, or the answer is still to come: then what is said is of
// an earlier request.
func (t *Translator) deleteSecret(n name) {
	t.in.unread.Delete(n)
	t.in.secrets.Delete(n)
	if _, needed := t.neededSecrets.Get(n); needed && !t.unanswered[n] {
		t.in.absent.Set(n, true)
	}
}

// secretOf is the inverse of config.SecretKey.
func secretOf(key string) name {
	parts := strings.Split(key, "/")
	return name{parts[len(parts)-2], parts[len(parts)-1]}
}

func (t *Translator) secretRequests() (out []SecretRequest) {
	for _, ch := range t.neededSecrets.Changes() {
		out = append(out, SecretRequest{kind.Secret.Key(ch.Key.Namespace, ch.Key.Name), !ch.Deleted})
	}
	return out
}
