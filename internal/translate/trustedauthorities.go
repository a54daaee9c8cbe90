package translate

import (
	"cmp"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
)

// trustedAuthorities contains the certificate authorities that Backends and Listeners refer to.
type trustedAuthorities struct {
	all *incremental.Collection[authoritiesKey, *config.Authorities]
}

// newTrustedAuthorities makes one resource for equal authorities of Backends and Listeners, however many objects contain them.
func newTrustedAuthorities(e *incremental.Engine, authorities *authorities,
	backends *backends, listenerStates *listenerStates) *trustedAuthorities {
	ofBackends := incremental.Keys(incremental.NewIndex(backends.all, "backends by authorities", func(_ backendID, b *config.Backend) []authoritiesKey {
		return authoritiesKeys(b.GetTls().GetAuthorities())
	}), "authorities of backends")
	ofListeners := incremental.Keys(incremental.NewIndex(listenerStates.serving, "listeners by authorities", func(_ listenerKey, l *config.Listener) []authoritiesKey {
		return authoritiesKeys(l.GetClientValidation().GetAuthorities())
	}), "authorities of listeners")
	users := incremental.Union(e, "users of authorities", usersOf(e, "authorities that backends use", ofBackends, false),
		usersOf(e, "authorities that listeners use", ofListeners, true))
	used := incremental.NewIndex(users, "users by authorities", func(u authoritiesUser, _ struct{}) []authoritiesKey { return []authoritiesKey{u.Key} })
	all := incremental.Map(e, "authorities config", incremental.Keys(used, "all authorities"),
		func(v *incremental.View, key authoritiesKey, _ struct{}) (*config.Authorities, bool) {
			for _, n := range incremental.Lookup(v, authorities.byKey, key) {
				if a, ok := incremental.Fetch(v, authorities.all, n); ok {
					return a.Config(), true
				}
			}
			return nil, false
		}, sameMessage[*config.Authorities])
	return &trustedAuthorities{all}
}

func authoritiesKeys(keys []string) (out []authoritiesKey) {
	for _, key := range keys {
		out = append(out, authoritiesKey(key))
	}
	return out
}

// authoritiesUser is a kind of user of authorities: Backends or Listeners.
type authoritiesUser struct {
	Key       authoritiesKey
	Listeners bool
}

func (u authoritiesUser) Compare(o authoritiesUser) int {
	return cmp.Or(u.Key.Compare(o.Key), compareBool(u.Listeners, o.Listeners))
}

func usersOf(e *incremental.Engine, title string, keys *incremental.Collection[authoritiesKey, struct{}], listeners bool) *incremental.Collection[authoritiesUser, struct{}] {
	return incremental.FlatMap(e, title, keys,
		func(_ *incremental.View, key authoritiesKey, _ struct{}) []incremental.Entry[authoritiesUser, struct{}] {
			return []incremental.Entry[authoritiesUser, struct{}]{{Key: authoritiesUser{key, listeners}}}
		}, same[struct{}])
}
