package deliver

import (
	"maps"
	"slices"
	"sync"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/dump"
	"github.com/moongate-dev/moongate/internal/proxy"
)

// Local delivers to a proxy in the same process. It is safe for concurrent use.
type Local struct {
	proxy *proxy.Proxy

	mu         sync.Mutex
	generation uint64
	// served is the configuration of the proxy.
	served map[config.ID]*config.Resource
}

// NewLocal returns a Local that has delivered nothing.
func NewLocal(p *proxy.Proxy) *Local {
	return &Local{proxy: p, served: map[config.ID]*config.Resource{}}
}

// Apply applies a generation in the proxy and returns Listeners of its Result.
func (l *Local) Apply(u *config.Update) map[string]*proxy.ListenerError {
	l.mu.Lock()
	defer l.mu.Unlock()
	result := l.proxy.Apply(u)
	l.generation = u.Generation
	for _, r := range u.Upserts {
		l.served[r.ID()] = r
	}
	for _, id := range u.Removals {
		delete(l.served, id)
	}
	if u.OfListeners() && result.Unbound() {
		// A port may have been blocked by a listener that this generation removed: by now it is free.
		result = l.proxy.Rebind()
	}
	return result.Listeners
}

// Rebind retries to bind what could not be bound, and returns what Apply does.
func (l *Local) Rebind() map[string]*proxy.ListenerError { return l.proxy.Rebind().Listeners }

// Unavailable returns what the proxy cannot reach, see proxy.Proxy.Unavailable.
func (l *Local) Unavailable() map[config.ID]string { return l.proxy.Unavailable() }

// Generation returns the generation that was applied last.
func (l *Local) Generation() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.generation
}

// Listener returns a listener of the proxy's configuration, nil if there is none.
func (l *Local) Listener(key string) *config.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.served[config.ID{Kind: config.KindListener, Key: key}].GetListener()
}

// Resources returns what the proxy serves, including private keys, in no particular order. The Resources are shared and must not be
// modified.
func (l *Local) Resources() []*config.Resource {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.served))
}

// Config returns what the proxy serves, without private keys.
func (l *Local) Config() (dump.Dump, error) {
	l.mu.Lock()
	generation, resources := l.generation, slices.Collect(maps.Values(l.served))
	l.mu.Unlock() // Resources are immutable
	return dump.Of(generation, resources)
}
