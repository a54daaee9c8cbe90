package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	// refreshAtMost is how soon after a fetch a token can cause another.
	refreshAtMost = 10 * time.Second
	// retryEvery is how soon a fetch is repeated while there are no keys at all.
	retryEvery = time.Second
	// repeatFailure is how soon a failure of the same kind is logged again.
	repeatFailure = 10 * time.Minute
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

	ring    atomic.Pointer[keyring] // nil before the first fetch
	known   chan struct{}           // closed once ring is set
	failure atomic.Pointer[error]   // of the last fetch, nil if it succeeded

	mu         sync.Mutex // held while fetching; guards what follows
	fetched    time.Time  // when the last fetch began
	logged     string     // the kind of failure that was logged last, "" if none was since keys were fetched
	loggedTime time.Time
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
	v := &Verifier{log: o.Logger, now: o.Now, known: make(chan struct{})}
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
		if _, err := v.refresh(ctx, 0); err != nil && v.ring.Load() == nil {
			wait = retryEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Known is closed once there are keys. They are never lost again.
func (v *Verifier) Known() <-chan struct{} { return v.known }

// Ready returns nil once there are keys, so that tokens can be verified at all, and until then why there are none.
func (v *Verifier) Ready() error {
	if v.ring.Load() != nil {
		return nil
	}
	if err := v.failure.Load(); err != nil {
		return *err
	}
	return errNoKeys
}

// refresh fetches the keys, unless that was tried within the given time, and returns the present ones. Concurrent callers wait for
// the fetch and share its result.
func (v *Verifier) refresh(ctx context.Context, unless time.Duration) (*keyring, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.now(); unless == 0 || now.Sub(v.fetched) >= unless {
		v.fetched = now
		ring, err := v.source.fetch(ctx)
		if err != nil {
			if ctx.Err() == nil {
				v.failed(err, now)
			}
			return v.ring.Load(), err
		}
		v.failure.Store(nil)
		if v.logged != "" {
			v.log.Info("the cluster's signing keys can be fetched again")
			v.logged = ""
		}
		ring.after(v.ring.Load(), now)
		if v.ring.Swap(ring) == nil {
			close(v.known)
		}
	}
	return v.ring.Load(), nil
}

// failed notes why keys could not be fetched, and logs it unless a failure of the same kind was logged lately. mu must be held.
func (v *Verifier) failed(err error, now time.Time) {
	v.failure.Store(&err)
	kind := err.Error()
	if unanswered := (net.Error)(nil); errors.As(err, &unanswered) {
		kind = "no answer" // the texts differ in ports
	}
	if kind == v.logged && now.Sub(v.loggedTime) < repeatFailure {
		return
	}
	v.logged, v.loggedTime = kind, now
	effect := "streams of proxies are refused until they are"
	if v.ring.Load() != nil {
		effect = "tokens are verified with those that were fetched before"
	}
	v.log.Error("the cluster's signing keys cannot be fetched, trying again; "+effect, "error", err)
}
