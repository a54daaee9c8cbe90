// Package client is a proxy's side of the delivery: it keeps one stream to the controller that leads, applies each generation as a
// whole, answers it, and saves the last one on disk so that a restart needs no controller. It exists so that the engine does not
// depend on where its configuration comes from.
//
// It must import nothing of Kubernetes, and neither translate nor source.
package client

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/dump"
	"github.com/moongate-dev/moongate/internal/proxy"
)

// Options configure a Client.
type Options struct {
	// Controller is "host:port". The host is resolved again for each round, its addresses are tried in random order, and the
	// certificate must be valid for it.
	Controller string
	// CAFile contains one or more certificates in PEM, TokenFile the token; both are read for each connection.
	CAFile, TokenFile string
	// Gateway is "<namespace>/<name>".
	Gateway string
	Version string // of this build, for the controller's logs
	// StateDir is where the last good configuration is saved, private keys included; "" saves none.
	StateDir string
	// MaxStateAge is the maximum age of a saved configuration that is served; default 24 h.
	MaxStateAge time.Duration
	// Apply and Rebind are those of the proxy. Calls do not overlap.
	Apply  func(*config.Update) proxy.Result
	Rebind func() proxy.Result
	// Unavailable returns what the proxy cannot reach, with a sentence each, such as proxy.Proxy.Unavailable; may be nil. It is
	// called every few seconds.
	Unavailable func() map[config.ID]string
	// Zone is called with the zone of the proxy's node before Apply is called with the generation that contains it, and whenever it
	// has changed; may be nil. Calls do not overlap each other or those of Apply.
	Zone   func(string)
	Logger *slog.Logger // nil discards
}

// rebindEvery is the interval in which sockets that could not be bound are tried again, and Unavailable is called.
const rebindEvery = 3 * time.Second

// Client is the proxy's end of the delivery. It is safe for concurrent use.
type Client struct {
	o           Options
	rebindEvery time.Duration
	lookup      func(ctx context.Context, host string) ([]string, error)

	// applying is held while the proxy binds sockets, which may take long. It is locked before mu.
	applying sync.Mutex

	mu sync.Mutex
	// held is changed with both applying and mu held, except for its epoch and sharing, so either suffices to read the rest.
	held holding
	// link is the stream on which a generation was applied, nil if there is none.
	link  *link
	dirty chan struct{} // of capacity 1: there is something to save
}

// New returns a Client without a configuration.
func New(o Options) *Client {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxStateAge <= 0 {
		o.MaxStateAge = 24 * time.Hour
	}
	return &Client{o: o, rebindEvery: rebindEvery, lookup: net.DefaultResolver.LookupHost, held: newHolding(), dirty: make(chan struct{}, 1)}
}

// Run serves the saved configuration, then follows the controller until ctx ends, and returns nil. Failures of the controller are
// logged and tried again: what was applied stays in force.
func (c *Client) Run(ctx context.Context) error {
	saver := newSaver(c)
	c.restore()
	var background sync.WaitGroup
	background.Go(func() { c.keepRebinding(ctx) })
	background.Go(func() { saver.run(ctx) })
	c.follow(ctx)
	background.Wait()
	saver.save()
	return nil
}

// Ready reports whether a complete configuration has been applied, from the controller or from StateDir.
func (c *Client) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.whole
}

// Config returns what the proxy serves, without private keys.
func (c *Client) Config() (dump.Dump, error) {
	c.mu.Lock()
	generation := c.held.generation
	resources := make([]*config.Resource, 0, c.held.resources.len())
	for _, r := range c.held.resources.all() {
		resources = append(resources, r)
	}
	c.mu.Unlock() // Resources are immutable
	for i := range resources {
		resources[i] = decode(resources[i])
	}
	return dump.Of(generation, resources)
}

// apply applies a generation and updates what Hello reports.
func (c *Client) apply(g *generation) {
	c.applying.Lock()
	defer c.applying.Unlock()
	if c.o.Zone != nil && g.zone != "" && g.zone != c.held.zone {
		c.o.Zone(g.zone)
	}
	u := c.held.difference(g)
	c.held.share(g, u.Upserts)
	result := c.o.Apply(u)
	if rejected := result.Rejected; u.OfListeners() && result.Unbound() {
		// A port may have been blocked by a listener that this generation removed: by now it is free.
		result = c.o.Rebind()
		result.Rejected = rejected
	}
	c.mu.Lock()
	c.held.applied(g, u, &result)
	c.mu.Unlock()
	select {
	case c.dirty <- struct{}{}:
	default: // saving is already pending
	}
}

// keepRebinding retries sockets that could not be bound, checks what is unavailable, and answers again if either has changed.
func (c *Client) keepRebinding(ctx context.Context) {
	tick := time.NewTicker(c.rebindEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l := c.rebind(); l != nil {
			_ = l.acknowledge(c) // an error ends the stream, and the next one begins with an answer
		}
	}
}

// rebind updates the faults of listeners and what is unavailable. It returns the stream on which either must be reported, nil if
// nothing has changed or there is none.
func (c *Client) rebind() *link {
	c.applying.Lock()
	defer c.applying.Unlock()
	var faults map[string]*proxy.ListenerError
	tried := len(c.held.faults) > 0
	if tried {
		faults = c.o.Rebind().Listeners
	}
	unavailable := c.held.unavailable
	if c.o.Unavailable != nil {
		unavailable = c.o.Unavailable()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	news := tried && c.held.setFaults(faults)
	news = news || !maps.Equal(unavailable, c.held.unavailable)
	c.held.unavailable = unavailable
	if !news {
		return nil
	}
	return c.link
}
