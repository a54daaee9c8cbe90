package auth

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
)

// Audience is the audience that a proxy's token must be for.
const Audience = "moongate.dev/controller"

// Identity is the pod that a token was made for. No field is empty.
type Identity struct {
	Namespace      string
	ServiceAccount string // its name
	Pod            string // its name
	PodUID         string
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
	o VerifierOptions
}

// NewVerifier makes a Verifier that has no keys yet; Run fetches them. It errs only where the
// configuration cannot be used.
func NewVerifier(o VerifierOptions) (*Verifier, error) {
	return &Verifier{o: o}, nil
}

// Run keeps the cluster's signing keys fresh until ctx ends, and then answers nil. What cannot
// be fetched leaves the keys that are there in force.
func (v *Verifier) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Ready says whether there are keys, so that tokens can be verified at all.
func (v *Verifier) Ready() bool { return false }

// Verify answers whose token it is. An error tells why it is refused, never the token. For a
// key that is not known the keys are fetched again, once in 10 s at most, which may take a few
// seconds.
func (v *Verifier) Verify(token string) (Identity, error) {
	return Identity{}, errors.New("no keys")
}

// Authenticate verifies the token that came with a gRPC call as "authorization: Bearer <token>".
// Its errors are statuses: UNAUTHENTICATED for a token that is refused, UNAVAILABLE while there
// are no keys to judge it by.
func (v *Verifier) Authenticate(ctx context.Context) (Identity, error) {
	return Identity{}, errors.New("no keys")
}
