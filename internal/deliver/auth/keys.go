package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// fetchTimeout bounds one fetch of issuer and keys together.
	fetchTimeout = 5 * time.Second
	// maxDocument bounds each of the two answers, in bytes.
	maxDocument = 1 << 20
	// tokenLife is longer than a pod keeps a token: the kubelet replaces one of an hour, which proxies have, after 80 % of it.
	tokenLife = time.Hour
)

// keyring is who signs the tokens of a cluster, at one moment. It is immutable.
type keyring struct {
	issuer string
	keys   map[string]jose.JSONWebKey // public ones, by key id
	// former are issuers before this one, whose tokens are still in the pods: API servers take them, too, while an issuer is replaced.
	former []formerIssuer
}

type formerIssuer struct {
	name  string
	until time.Time
}

// after has a keyring take the place of another one, nil for none.
func (k *keyring) after(before *keyring, now time.Time) {
	if before == nil {
		return
	}
	for _, f := range before.former {
		if f.name != k.issuer && now.Before(f.until) {
			k.former = append(k.former, f)
		}
	}
	if before.issuer != k.issuer {
		k.former = append(k.former, formerIssuer{before.issuer, now.Add(tokenLife)})
	}
}

// keySource is the API server as far as signing keys are concerned.
type keySource struct {
	client *http.Client
	base   *url.URL
	log    *slog.Logger
}

// fetch asks for issuer and keys.
func (s *keySource) fetch(ctx context.Context) (*keyring, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var discovery struct {
		Issuer string `json:"issuer"`
	}
	if err := s.get(ctx, "/.well-known/openid-configuration", &discovery); err != nil {
		return nil, err
	}
	if discovery.Issuer == "" {
		return nil, errors.New("/.well-known/openid-configuration names no issuer; the API server needs --service-account-issuer")
	}
	// The keys are fetched from the API server itself, wherever jwks_uri points: it may be an
	// address for others that this pod cannot reach.
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := s.get(ctx, "/openid/v1/jwks", &set); err != nil {
		return nil, err
	}
	ring := &keyring{issuer: discovery.Issuer, keys: make(map[string]jose.JSONWebKey, len(set.Keys))}
	for i, text := range set.Keys {
		var key jose.JSONWebKey
		switch err := key.UnmarshalJSON(text); {
		case err != nil: // of a kind to come; the others are good
			s.log.Warn("cannot use a signing key of the cluster", "position", i, "error", err)
		case key.KeyID != "" && key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig"):
			ring.keys[key.KeyID] = key
		}
	}
	if len(ring.keys) == 0 {
		return nil, errors.New("/openid/v1/jwks has no key that tokens could be verified with")
	}
	return ring, nil
}

// get decodes the document at a path.
func (s *keySource) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base.JoinPath(path).String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s is refused (%s); let the controller's ServiceAccount get this URL, as ClusterRole system:service-account-issuer-discovery does", path, resp.Status)
	default:
		return fmt.Errorf("%s answers %s", path, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
