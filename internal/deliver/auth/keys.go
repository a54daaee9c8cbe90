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
	// fetchTimeout limits one fetch of issuer and keys together.
	fetchTimeout = 5 * time.Second
	// maxDocument is the maximum size of each response in bytes.
	maxDocument = 1 << 20
	// tokenLife is longer than a pod keeps a token: the tokens of proxies are valid for an hour, and the kubelet replaces one after
	// 80 % of that.
	tokenLife = time.Hour
)

// keyring contains the issuer of a cluster's tokens and its keys, at one moment. It is immutable.
type keyring struct {
	issuer string
	keys   map[string]jose.JSONWebKey // public keys by key id
	// former are earlier issuers whose tokens are still in pods: API servers accept them too, while an issuer is replaced.
	former []formerIssuer
}

type formerIssuer struct {
	name  string
	until time.Time
}

// after updates former when the keyring replaces another one, nil for none.
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

// keySource fetches signing keys from the API server.
type keySource struct {
	client *http.Client
	base   *url.URL
	log    *slog.Logger
}

// fetch fetches the issuer and the keys.
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
	// The keys are fetched from the API server itself, regardless of jwks_uri, which may be an address that this pod cannot reach.
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
		case err != nil: // of an unknown type; the others can be used
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
