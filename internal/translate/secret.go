package translate

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// secrets contains the Secrets that listeners, their Gateways and XBackends refer to.
type secrets struct {
	o         *Options
	in        *inputs
	grants    *grants
	listeners *listeners

	users      *incremental.Index[name, listenerKey, *listener.Listener]
	abroad     *incremental.Index[string, listenerKey, *listener.Listener] // by the other namespaces of Secrets that their Gateway refers to in its own spec
	byXBackend *incremental.Index[name, name, *apisx.XBackend]             // XBackends by the Secret that they refer to
	needed     *incremental.Collection[name, struct{}]                     // Secrets that a listener or an XBackend may read, or with the address of a Redis server
	keyPairs   *incremental.Collection[name, *certificate.KeyPair]
	unanswered map[name]bool // Secrets for which Fetched was not called yet
}

func newSecrets(e *incremental.Engine, o *Options, in *inputs, grants *grants, listeners *listeners, redises *redises, xbackends *incremental.Collection[name, *apisx.XBackend]) *secrets {
	sec := &secrets{o: o, in: in, grants: grants, listeners: listeners}
	sec.byXBackend = incremental.NewIndex(xbackends, "XBackends by Secret", func(n name, x *apisx.XBackend) []name {
		if ref, has := xbackendCertificate(n, &x.Spec); has && !ref.Unknown {
			return []name{name(ref.Secret)}
		}
		return nil
	})
	sec.declareNeededSecrets(e, redises, xbackends)
	sec.declareSecrets(e)
	return sec
}

// servedSecrets are those whose certificates a listener was last served with. Of those that could not be read only the first are among them: each edit during
// an outage may name another one, and no proxy has its certificate.
type servedSecrets struct {
	Certificates []name
	Client       name // the client certificate of its Gateway; zero if none
}

// references yields the references to the Secrets of a listener's certificates and of its Gateway's client certificate, each with
// its referrer.
func references(k listenerKey, l *listener.Listener) iter.Seq2[referrer, listener.CertificateRef] {
	return func(yield func(referrer, listener.CertificateRef) bool) {
		for _, ref := range l.Certificates {
			if !ref.Unknown && !yield(listenerReferrer(k), ref) {
				return
			}
		}
		if l.Client != nil && !l.Client.Unknown {
			yield(gatewayReferrer(k.Gateway), *l.Client)
		}
	}
}

func (sec *secrets) declareSecrets(e *incremental.Engine) {
	sec.unanswered = map[name]bool{}
	store := sec.in.stores[kind.Secret.Name]
	store.set, store.remove = sec.set, sec.remove
	store.also(sec.in.invalidSecrets.Delete)
	store.undecoded = func(n name, _ *kind.Undecoded) {
		store.remove(n)
		sec.in.invalidSecrets.Set(n, true)
	}
	sec.users = incremental.NewIndex(sec.listeners.all, "listeners by Secret",
		func(k listenerKey, l *listener.Listener) (secrets []name) {
			for _, ref := range references(k, l) {
				secrets = append(secrets, name(ref.Secret))
			}
			return secrets
		})
	sec.abroad = incremental.NewIndex(sec.listeners.all, "listeners by other namespace",
		func(k listenerKey, l *listener.Listener) (namespaces []string) {
			for from, ref := range references(k, l) {
				if from.Kind == string(KindGateway) && ref.Secret.Namespace != from.Name.Namespace {
					namespaces = append(namespaces, ref.Secret.Namespace)
				}
			}
			return namespaces
		})
	sec.keyPairs = incremental.Map(e, "Secret", sec.in.secrets.Collection,
		func(v *incremental.View, n name, s *corev1.Secret) (*certificate.KeyPair, bool) {
			// Most Secrets of a cluster are not used by Gateways, and parsing keys is expensive.
			if incremental.Count(v, sec.users, n)+incremental.Count(v, sec.byXBackend, n) == 0 {
				if _, kept := incremental.Fetch(v, sec.needed, n); !kept {
					return nil, false
				}
			}
			return certificate.Read(s), true
		}, (*certificate.KeyPair).Equal)
}

// secretUser is a kind of user that may read a Secret: listeners, XBackends, or Gateways for their Redis server.
type secretUser struct {
	Secret name
	By     secretReader
}

type secretReader uint8

const (
	readByListener secretReader = iota
	readByXBackend
	readForRedis
)

func (u secretUser) Compare(o secretUser) int {
	return cmp.Or(u.Secret.Compare(o.Secret), cmp.Compare(u.By, o.By))
}

// declareNeededSecrets keeps one entry for each Secret that a listener or an XBackend may read, or that contains the address of a
// Redis server. Several users may return the same Secret: the entry exists as long as one of them does.
func (sec *secrets) declareNeededSecrets(e *incremental.Engine, redises *redises, xbackends *incremental.Collection[name, *apisx.XBackend]) {
	byListeners := incremental.FlatMap(e, "Secret needed by listeners", sec.listeners.all,
		func(v *incremental.View, k listenerKey, l *listener.Listener) (out []incremental.Entry[secretUser, struct{}]) {
			need := func(secret name) {
				out = append(out, incremental.Entry[secretUser, struct{}]{Key: secretUser{Secret: secret}})
			}
			for from, ref := range references(k, l) {
				if sec.grants.permitted(v, from, ref.Group, ref.Kind, name(ref.Secret)) {
					need(name(ref.Secret))
				}
			}
			last := sec.lastCertificates(v, k, l)
			if client, kept := sec.lastClientCertificate(v, k, l); kept {
				last = append(last, client)
			}
			for _, secret := range last {
				need(secret)
			}
			return out
		}, same[struct{}])
	byXBackends := incremental.FlatMap(e, "Secret needed by XBackends", xbackends,
		func(v *incremental.View, n name, x *apisx.XBackend) (out []incremental.Entry[secretUser, struct{}]) {
			if ref, has := xbackendCertificate(n, &x.Spec); has && !ref.Unknown && sec.grants.permitted(v, xbackendReferrer(n), ref.Group, ref.Kind, name(ref.Secret)) {
				out = append(out, incremental.Entry[secretUser, struct{}]{Key: secretUser{name(ref.Secret), readByXBackend}})
			}
			return out
		}, same[struct{}])
	forRedis := incremental.FlatMap(e, "Secret needed for Redis", redises.refs,
		func(_ *incremental.View, _ name, ref redisRef) []incremental.Entry[secretUser, struct{}] {
			if ref.Secret.Name == "" { // of invalid parameters
				return nil
			}
			return []incremental.Entry[secretUser, struct{}]{{Key: secretUser{ref.Secret, readForRedis}}}
		}, same[struct{}])
	users := incremental.NewIndex(incremental.Union(e, "users of Secrets", byListeners, byXBackends, forRedis), "users by Secret",
		func(u secretUser, _ struct{}) []name { return []name{u.Secret} })
	sec.needed = incremental.Keys(users, "needed Secret")
}

// lastCertificates returns the Secrets that a listener was last served with and may still read. It returns them only while it is not
// known whether one of the Secrets that it refers to exists, because it was not read yet or could not be.
func (sec *secrets) lastCertificates(v *incremental.View, k listenerKey, l *listener.Listener) (kept []name) {
	if !sec.o.Cluster || !slices.ContainsFunc(l.Certificates, func(ref listener.CertificateRef) bool { return sec.unknownSecret(v, listenerReferrer(k), ref) }) {
		return nil
	}
	last, _ := incremental.Fetch(v, sec.in.last.Collection, k)
	for _, secret := range last.Certificates {
		if sec.grants.permitted(v, listenerReferrer(k), corev1.GroupName, string(KindSecret), secret) {
			kept = append(kept, secret)
		}
	}
	return kept
}

// lastClientCertificate returns the Secret of the last client certificate of a listener's Gateway, under the conditions of
// lastCertificates.
func (sec *secrets) lastClientCertificate(v *incremental.View, k listenerKey, l *listener.Listener) (name, bool) {
	from := gatewayReferrer(k.Gateway)
	if !sec.o.Cluster || l.Client == nil || !sec.unknownSecret(v, from, *l.Client) {
		return name{}, false
	}
	last, _ := incremental.Fetch(v, sec.in.last.Collection, k)
	return last.Client, last.Client != name{} && sec.grants.permitted(v, from, corev1.GroupName, string(KindSecret), last.Client)
}

// keepClientCertificate returns the key of the certificate of lastClientCertificate, or if there is none of one that could not be read, "" for neither.
func (sec *secrets) keepClientCertificate(v *incremental.View, k listenerKey, l *listener.Listener) string {
	if secret, kept := sec.lastClientCertificate(v, k, l); kept && sec.keeps(v, secret) {
		return config.SecretKey(secret.Namespace, secret.Name)
	}
	return sec.unreadCertificate(v, gatewayReferrer(k.Gateway), *l.Client)
}

// keeps reports whether a listener may go on with the certificate of a Secret: there is one, or it is not known.
func (sec *secrets) keeps(v *incremental.View, secret name) bool {
	pair, exists := incremental.Fetch(v, sec.keyPairs, secret)
	return exists && pair.Wrong == "" || !exists && sec.unread(v, secret)
}

// unread reports whether a Secret could not be read.
func (sec *secrets) unread(v *incremental.View, secret name) bool {
	_, exists := incremental.Fetch(v, sec.in.secrets.Collection, secret)
	_, unread := incremental.Fetch(v, sec.in.unread.Collection, secret)
	return unread && !exists
}

// unreadCertificate returns the key of the certificate that a reference means if its Secret could not be read, "" for any other and where the reference
// is not permitted. Proxies that have the certificate, as those that another leader has served, keep it.
func (sec *secrets) unreadCertificate(v *incremental.View, from referrer, ref listener.CertificateRef) string {
	secret := name(ref.Secret)
	if ref.Unknown || !sec.grants.permitted(v, from, ref.Group, ref.Kind, secret) || !sec.unread(v, secret) {
		return ""
	}
	return config.SecretKey(secret.Namespace, secret.Name)
}

// allUnread reports whether none of the certificates of a listener was read, so that only its proxies know whether it has one.
func (sec *secrets) allUnread(v *incremental.View, keys []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return !sec.unread(v, secretOf(key)) })
}

// unknownSecret reports whether the referrer may read a Secret of which it is not known whether it exists.
func (sec *secrets) unknownSecret(v *incremental.View, from referrer, ref listener.CertificateRef) bool {
	n := name(ref.Secret)
	if ref.Unknown || !sec.grants.permitted(v, from, ref.Group, ref.Kind, n) {
		return false
	}
	_, exists := incremental.Fetch(v, sec.in.secrets.Collection, n)
	_, absent := incremental.Fetch(v, sec.in.absent.Collection, n)
	return !exists && !absent
}

// keepCertificates adds the certificates of lastCertificates to those of a listener.
func (sec *secrets) keepCertificates(v *incremental.View, k listenerKey, l *listener.Listener, keys []string) []string {
	for _, secret := range sec.lastCertificates(v, k, l) {
		if key := config.SecretKey(secret.Namespace, secret.Name); !slices.Contains(keys, key) && sec.keeps(v, secret) {
			keys = append(keys, key)
		}
	}
	return keys
}

// noteServed records the certificates with which listeners are served as of the Commit that ends, for the next one.
func (sec *secrets) noteServed(serving *incremental.Collection[listenerKey, *config.Listener]) {
	for _, ch := range serving.Changes() {
		client := ch.New.GetIdentity().GetCertificate()
		if ch.Deleted || len(ch.New.ServerCertificates()) == 0 && client == "" {
			sec.in.last.Delete(ch.Key)
			continue
		}
		last, _ := sec.in.last.Get(ch.Key)
		var served servedSecrets
		for _, key := range ch.New.ServerCertificates() {
			secret := secretOf(key)
			if _, read := sec.keyPairs.Get(secret); read || len(last.Certificates) == 0 || slices.Contains(last.Certificates, secret) {
				served.Certificates = append(served.Certificates, secret)
			}
		}
		if client != "" {
			served.Client = secretOf(client)
		}
		sec.in.last.Set(ch.Key, served)
	}
}

// noteRequests records for which Secrets an answer is awaited as of the Commit that ends.
func (sec *secrets) noteRequests(requests []SecretRequest) {
	for _, r := range requests {
		n := name{r.Object.Namespace, r.Object.Name}
		sec.in.absent.Delete(n) // it may have been deleted or created since it was last needed
		if r.Needed {
			sec.unanswered[n] = true
		} else {
			delete(sec.unanswered, n)
		}
	}
}

// Fetched sets the answer to a request: the Secret, an UnreadSecret, or nil if the Secret does not exist.
func (t *Translator) Fetched(key kind.ObjectKey, o metav1.Object) {
	t.secrets.answered(name{key.Namespace, key.Name})
	if o == nil {
		t.Delete(Kind(key.Kind), key.Namespace, key.Name)
		return
	}
	t.Upsert(o)
}

// answered records that a request was answered.
func (sec *secrets) answered(n name) { delete(sec.unanswered, n) }

// set sets a Secret.
func (sec *secrets) set(n name, o metav1.Object) {
	sec.in.unread.Delete(n)
	sec.in.absent.Delete(n)
	sec.in.secrets.Set(n, o.(*corev1.Secret))
}

// remove records that a Secret does not exist, unless it is not needed, or the answer to the present request is still awaited: then
// the information is from an earlier request.
func (sec *secrets) remove(n name) {
	sec.in.unread.Delete(n)
	sec.in.secrets.Delete(n)
	if _, needed := sec.needed.Get(n); needed && !sec.unanswered[n] {
		sec.in.absent.Set(n, true)
	}
}

// secretOf is the inverse of config.SecretKey.
func secretOf(key string) name {
	parts := strings.Split(key, "/")
	return name{parts[len(parts)-2], parts[len(parts)-1]}
}

func (sec *secrets) requests() (out []SecretRequest) {
	for _, ch := range sec.needed.Changes() {
		out = append(out, SecretRequest{kind.Secret.Key(ch.Key.Namespace, ch.Key.Name), !ch.Deleted})
	}
	return out
}
