package translate

import (
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
)

// certificates are those that listeners show to clients, and that they or XBackends have shown to backends. One whose Secret could not be read has only a key.
type certificates struct {
	all *incremental.Collection[name, *config.Certificate]
}

func newCertificates(e *incremental.Engine, secrets *secrets, listenerStates *listenerStates, backends *backends) *certificates {
	byListener := incremental.NewIndex(listenerStates.serving, "listeners by certificate",
		func(_ listenerKey, l *config.Listener) []string {
			if key := l.Identity.GetCertificate(); key != "" {
				return append(slices.Clone(l.ServerCertificates()), key)
			}
			return l.ServerCertificates()
		})
	byBackend := incremental.NewIndex(backends.all, "backends by certificate", func(_ backendID, b *config.Backend) []string {
		if key := b.GetTls().GetCertificate(); key != "" {
			return []string{key}
		}
		return nil
	})
	return &certificates{incremental.Map(e, "certificate", secrets.needed,
		func(v *incremental.View, n name, _ struct{}) (*config.Certificate, bool) {
			key := config.SecretKey(n.Namespace, n.Name)
			if incremental.Count(v, byListener, key)+incremental.Count(v, byBackend, key) == 0 {
				return nil, false
			}
			pair, exists := incremental.Fetch(v, secrets.keyPairs, n)
			if !exists {
				return &config.Certificate{Key: key}, secrets.unread(v, n)
			}
			return &config.Certificate{Key: key, ChainPem: pair.Chain, KeyPem: pair.Key}, true
		}, sameMessage[*config.Certificate])}
}
