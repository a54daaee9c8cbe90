package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// leeway is the allowed difference between clocks.
	leeway = 30 * time.Second
	// maxToken is the maximum length of a token in bytes; real ones have about 1,000.
	maxToken = 16 << 10
)

// algorithms are those with which API servers sign. All are asymmetric, so a public key can never be used as a shared secret.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

var (
	errNoKeys     = errors.New("the cluster's signing keys are not known yet")
	errMalformed  = errors.New("it is not a signed JSON web token of an algorithm that Kubernetes uses")
	errUnknownKey = errors.New("it is signed by a key that is not among the cluster's signing keys")
	errSignature  = errors.New("its signature was not made with the key that it names")
	errIssuer     = errors.New("its issuer is not that of this cluster")
)

// claims are those that Kubernetes includes in the token of a pod.
type claims struct {
	jwt.Claims
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount bound  `json:"serviceaccount"`
		Pod            bound  `json:"pod"`
	} `json:"kubernetes.io"`
}

type bound struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Verify returns the identity in a token. An error says why the token is rejected, and never contains it. For an unknown key or
// issuer the keys are fetched again, at most once in 10 s, which takes at most 5 s.
func (v *Verifier) Verify(token string) (Identity, error) {
	return v.verify(context.Background(), token)
}

func (v *Verifier) verify(ctx context.Context, token string) (Identity, error) {
	ring := v.ring.Load()
	if ring == nil {
		return Identity{}, errNoKeys
	}
	identity, err := ring.verify(token, v.now())
	if !errors.Is(err, errUnknownKey) && !errors.Is(err, errIssuer) {
		return identity, err
	}
	// Not to be cancelled by whoever shows a token: he could keep the keys from ever being fetched.
	newer, _ := v.refresh(context.WithoutCancel(ctx), refreshAtMost)
	if newer == ring {
		return Identity{}, err
	}
	return newer.verify(token, v.now())
}

// verify verifies the token with these keys only.
func (k *keyring) verify(token string, now time.Time) (Identity, error) {
	if len(token) > maxToken {
		return Identity{}, fmt.Errorf("it is longer than %d bytes", maxToken)
	}
	// Errors of the library are not returned, because some quote the token.
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return Identity{}, errMalformed
	}
	header := parsed.Headers[0]
	key, ok := k.keys[header.KeyID]
	switch {
	case !ok:
		return Identity{}, errUnknownKey
	case key.Algorithm != "" && key.Algorithm != header.Algorithm:
		return Identity{}, errSignature
	}
	var c claims
	if err := parsed.Claims(key.Key, &c); errors.Is(err, jose.ErrCryptoFailure) {
		return Identity{}, errSignature
	} else if err != nil {
		return Identity{}, errors.New("its claims are not those of a Kubernetes token")
	}
	identity, err := c.judge(k.issuer, now)
	for _, f := range k.former {
		if errors.Is(err, errIssuer) && now.Before(f.until) {
			identity, err = c.judge(f.name, now)
		}
	}
	return identity, err
}

// judge checks claims whose signature is valid.
func (c *claims) judge(issuer string, now time.Time) (Identity, error) {
	err := c.ValidateWithLeeway(jwt.Expected{Issuer: issuer, AnyAudience: jwt.Audience{Audience}, Time: now}, leeway)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return Identity{}, errIssuer
	case errors.Is(err, jwt.ErrInvalidAudience):
		return Identity{}, fmt.Errorf("it is not for audience %s; project a token for it into the pod", Audience)
	case errors.Is(err, jwt.ErrExpired):
		return Identity{}, fmt.Errorf("it expired %s ago; read the file again for each connection", now.Sub(c.Expiry.Time()).Round(time.Second))
	case err != nil:
		return Identity{}, errors.New("it is not valid yet; the clocks of controller and API server differ")
	case c.Expiry == nil:
		return Identity{}, errors.New("it never expires; project a token, do not use the one of a Secret")
	}
	k := &c.Kubernetes
	if k.Namespace == "" || k.ServiceAccount.Name == "" || k.ServiceAccount.UID == "" || k.Pod.Name == "" || k.Pod.UID == "" {
		return Identity{}, errors.New("it is not bound to a pod and its ServiceAccount")
	}
	return Identity{Namespace: k.Namespace, ServiceAccount: k.ServiceAccount.Name, Pod: k.Pod.Name, PodUID: k.Pod.UID, ServiceAccountUID: k.ServiceAccount.UID}, nil
}

// Authenticate verifies the token of a gRPC call, sent as "authorization: Bearer <token>". Its errors are statuses: UNAUTHENTICATED
// for a token that is rejected, UNAVAILABLE while there are no keys.
func (v *Verifier) Authenticate(ctx context.Context) (Identity, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return Identity{}, status.Error(codes.Unauthenticated, `show the ServiceAccount's token once, as "authorization: Bearer <token>"`)
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Identity{}, status.Error(codes.Unauthenticated, "the authorization is not a Bearer token")
	}
	identity, err := v.verify(ctx, token)
	switch {
	case errors.Is(err, errNoKeys):
		return Identity{}, status.Error(codes.Unavailable, err.Error())
	case err != nil:
		return Identity{}, status.Errorf(codes.Unauthenticated, "the token is refused: %v", err)
	}
	return identity, nil
}
