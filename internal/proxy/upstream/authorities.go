package upstream

import (
	"crypto/x509"
	"fmt"
	"maps"
	"strings"
	"weak"

	"github.com/moongate-dev/moongate/internal/config"
)

// authorities are the certificates that backends are verified by. Backends with the same ones share a pool, which is made once: what one
// costs is parsed and held once, however many backends have it. The zero value is ready.
type authorities struct {
	pem map[string]string // by config.Authorities.key, under which the content never changes
	// pools are by the keys that a backend names, and live as long as a transport has them.
	pools map[string]weak.Pointer[x509.CertPool]
}

func (a *authorities) add(c *config.Authorities) {
	if a.pem == nil {
		a.pem, a.pools = map[string]string{}, map[string]weak.Pointer[x509.CertPool]{}
	}
	a.pem[c.Key] = c.Pem
}

func (a *authorities) remove(key string) { delete(a.pem, key) }

// pool returns the certificates of some Authorities. The error says which of them are missing, or hold none.
func (a *authorities) pool(keys []string) (*x509.CertPool, error) {
	list := strings.Join(keys, "\n")
	if pool := a.pools[list].Value(); pool != nil {
		return pool, nil
	}
	pool := x509.NewCertPool()
	for _, key := range keys {
		pem, there := a.pem[key]
		if !there {
			return nil, fmt.Errorf("authorities %s are missing: send them with the Backend, or before", key)
		}
		if !pool.AppendCertsFromPEM([]byte(pem)) {
			return nil, fmt.Errorf("authorities %s have no certificate in PEM: give at least one", key)
		}
	}
	maps.DeleteFunc(a.pools, func(_ string, unused weak.Pointer[x509.CertPool]) bool { return unused.Value() == nil })
	a.pools[list] = weak.Make(pool)
	return pool, nil
}
