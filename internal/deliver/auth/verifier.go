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

// Audience is the audience that a proxy's token must be for.
const Audience = "moongate.dev/controller"

const (
	// refreshEvery is how often the cluster's keys are fetched.
	refreshEvery = 10 * time.Minute
	// refreshAtMost is how soon after a fetch a token can cause another, and how soon one that
	// failed is tried again while there are no keys at all.
	refreshAtMost = 10 * time.Second
)

// Identity is the pod that a token was made for. No field is empty.
type Identity struct {
	Namespace      string
	ServiceAccount string // its name
	Pod            string // its name
	PodUID         string

	ServiceAccountUID string
}

// VerifierOptions are the ends of a Verifier.
type VerifierOptions struct {
	// Config reaches the API server whose tokens are verified.
	Config *rest.Config
	Logger *slog.Logger     // nil discards
	Now    func() time.Time // nil is time.Now
}

// Verifier verifies projected ServiceAccount tokens without asking anyone. It is safe for
// concurrent use.
type Verifier struct {
	source keySource
	log    *slog.Logger
	now    func() time.Time

	ring atomic.Pointer[keyring] // nil before the first fetch

	mu      sync.Mutex // held while fetching; guards what follows
	fetched time.Time  // when the last fetch began
}

// NewVerifier makes a Verifier that has no keys yet; Run fetches them. It errs only where the
// configuration cannot be used.
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

// Run keeps the cluster's signing keys fresh until ctx ends, and then answers nil. What cannot
// be fetched leaves the keys that are there in force.
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

// Ready says whether there are keys, so that tokens can be verified at all.
func (v *Verifier) Ready() bool { return v.ring.Load() != nil }

// refresh fetches the keys, unless that was tried within the time before, and answers those in
// force then. Callers that come meanwhile wait for it and share what it brought.
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
