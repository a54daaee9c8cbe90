package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"strings"
	"time"
	"weak"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/revocation"
)

// authorities are the certificates by which backends are verified. Backends with the same ones share the parsed form,
// which is created and stored once, however many backends use it. The zero value is ready for use.
type authorities struct {
	all map[string]*config.Authorities // by key; the content of a key never changes
	// made has the parsed form for the keys that a backend names. An entry lives as long as a transport uses it.
	made map[string]weak.Pointer[trust]
}

// trust is the parsed form of certificates by which backends are verified.
type trust struct {
	pool    *x509.CertPool
	revoked *revocation.Lists
}

// check is tls.Config.VerifyConnection for certificates that package tls has verified.
func (t *trust) check(state tls.ConnectionState) error {
	return t.notRevoked(state.PeerCertificates, state.VerifiedChains)
}

// notRevoked returns why a certificate with these verified chains is not valid, or nil. A nil trust uses the system's
// certificates, which have no revocation lists.
func (t *trust) notRevoked(shown []*x509.Certificate, chains [][]*x509.Certificate) error {
	if t == nil {
		return nil
	}
	if err := t.revoked.Check(chains, time.Now()); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: shown, Err: err}
	}
	return nil
}

func (a *authorities) add(c *config.Authorities) {
	if a.all == nil {
		a.all, a.made = map[string]*config.Authorities{}, map[string]weak.Pointer[trust]{}
	}
	a.all[c.Key] = c
}

func (a *authorities) remove(key string) { delete(a.all, key) }

// trust returns the parsed form of several Authorities. The error names those that are missing or invalid.
func (a *authorities) trust(keys []string) (*trust, error) {
	list := strings.Join(keys, "\n")
	if known := a.made[list].Value(); known != nil {
		return known, nil
	}
	var all []revocation.Authorities
	for _, key := range keys {
		c := a.all[key]
		if c == nil {
			return nil, fmt.Errorf("authorities %s are missing: send them with the Backend, or before", key)
		}
		all = append(all, revocation.Authorities{PEM: c.Certificates(), Lists: c.GetRevocable().GetLists()})
	}
	pool, revoked, err := revocation.Trust(all...)
	if err != nil {
		return nil, fmt.Errorf("authorities %q: %w", keys, err)
	}
	made := &trust{pool, revoked}
	maps.DeleteFunc(a.made, func(_ string, unused weak.Pointer[trust]) bool { return unused.Value() == nil })
	a.made[list] = weak.Make(made)
	return made, nil
}
