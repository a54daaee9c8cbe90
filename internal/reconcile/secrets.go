package reconcile

import (
	"time"

	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// secretsLimit is the default of ClusterOptions.SecretsLimit.
const secretsLimit = 30 * time.Second

// fetched passes the objects that were read since the last call to the translator. It is called without a lock.
func (c *Cluster) fetched() {
	c.translating.Lock()
	defer c.translating.Unlock()
	for _, f := range c.fetches.take() {
		o := f.object
		if c.o.Current != nil {
			o = c.o.Current(f.key)
		}
		c.o.Translator.Fetched(f.key, o)
	}
	c.takeReports()
	c.commit()
}

// UnreadSecrets returns the number of needed Secrets that were not read yet, or that could not be read and for which another attempt
// may succeed.
func (c *Cluster) UnreadSecrets() (n int) {
	c.View(func(t *translate.Translator) { n = t.UnreadSecrets() + len(c.fetches.unknown()) })
	return n
}

// withheld returns the Gateways of which not everything is known. The caller must hold mu and translating.
func (c *Cluster) withheld(now time.Time) deliver.Withheld {
	w := deliver.Withheld{Unknown: map[string]bool{}, Shared: map[string]bool{}, Unread: map[string]bool{}, Undecided: map[string]bool{}}
	for _, key := range c.fetches.unknown() {
		for _, name := range c.o.Translator.GatewaysWith(key) {
			w.Unknown[name] = true
		}
		for _, name := range c.o.Translator.SharedWith(key) {
			w.Shared[name] = true
		}
	}
	if c.leading && now.Sub(c.led) < c.o.SecretsLimit {
		for _, key := range c.o.Translator.Unread() {
			for _, name := range c.o.Translator.GatewaysWith(key) {
				w.Unread[name] = true
			}
		}
	}
	for _, name := range c.o.Translator.Undecided() {
		w.Undecided[name] = true
	}
	return w
}
