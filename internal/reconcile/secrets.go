package reconcile

import (
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// fetched takes in the objects that were read since the last time. It is called without a lock.
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

// UnansweredSecrets returns how many needed Secrets are being read for the first time. Those that could not be read are not among them. All others are translated.
func (c *Cluster) UnansweredSecrets() (n int) {
	c.View(func(*translate.Translator) { n = len(c.fetches.unknown()) })
	return n
}

// withheld returns the Gateways of which not everything is known. mu and translating must be held.
func (c *Cluster) withheld() deliver.Withheld {
	w := deliver.Withheld{Unknown: map[string]bool{}, Shared: map[string]bool{}, Undecided: map[string]bool{}}
	for _, key := range c.fetches.unknown() {
		for _, name := range c.o.Translator.GatewaysWith(key) {
			w.Unknown[name] = true
		}
		for _, name := range c.o.Translator.SharedWith(key) {
			w.Shared[name] = true
		}
	}
	for _, name := range c.o.Translator.Undecided() {
		w.Undecided[name] = true
	}
	return w
}
