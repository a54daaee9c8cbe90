package auth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// Audience is the required audience of a proxy's token.
const Audience = "moongate.dev/controller"

const (
	// refreshEvery is the interval in which the cluster's keys are fetched.
	refreshEvery = 10 * time.Minute
	// refreshAtMost is the minimum time between a fetch and another that a token causes, and between attempts while there are no
	// keys at all.
	refreshAtMost = 10 * time.Second
)

// Identity is the pod for which a token was issued. No field is empty.
type Identity struct {
	Namespace      string
	ServiceAccount string // its name
	Pod            string // its name
	PodUID         string

	ServiceAccountUID string
}

// VerifierOptions configure a Verifier.
type VerifierOptions struct {
	// Config is the connection to the API server whose tokens are verified.
	Config *rest.Config
	Logger *slog.Logger     // nil discards
	Now    func() time.Time // nil means time.Now
}

// Verifier verifies projected ServiceAccount tokens without a request for each. It is safe for concurrent use.
type Verifier struct {
	source keySource
	log    *slog.Logger
	now    func() time.Time

	ring atomic.Pointer[keyring] // nil before the first fetch

	mu      sync.Mutex // held while fetching; guards the fields below
	fetched time.Time  // when the last fetch began
}

// NewVerifier returns a Verifier without keys; Run fetches them. It returns an error only if the configuration cannot be used.
func NewVerifier(o VerifierOptions) (*Verifier, error) {
	client, err := rest.HTTPClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("a client for the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	v := &Verifier{log: o.Logger, now: o.Now}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	if v.now == nil {
		v.now = time.Now
	}
	v.source = keySource{client: client, base: base, log: v.log}
	return v, nil
}

// Run updates the cluster's signing keys until ctx ends, and then returns nil. If a fetch fails, the existing keys remain in use.
func (v *Verifier) Run(ctx context.Context) error {
	for {
		wait := refreshEvery
		if _, err := v.refresh(ctx, 0); err != nil && ctx.Err() == nil {
			v.log.Error("the cluster's signing keys cannot be fetched, trying again", "error", err, "cached", v.Ready())
			if !v.Ready() {
				wait = time.Second
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Ready reports whether there are keys, so that tokens can be verified.
func (v *Verifier) Ready() bool { return v.ring.Load() != nil }

// refresh fetches the keys, unless that was tried within the given time, and returns the present ones. Concurrent callers wait for
// the fetch and share its result.
func (v *Verifier) refresh(ctx context.Context, unless time.Duration) (*keyring, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.now(); unless == 0 || now.Sub(v.fetched) >= unless {
		v.fetched = now
		ring, err := v.source.fetch(ctx)
		if err != nil {
			return v.ring.Load(), err
		}
		ring.after(v.ring.Load(), now)
		v.ring.Store(ring)
	}
	return v.ring.Load(), nil
}
