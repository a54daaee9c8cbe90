package tls

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/revocation"
)

// A connection holds the chain that its client has sent as long as it lives, and unknown clients may send one.
const (
	// MaxClientChain is the largest number of certificates that a client may send.
	MaxClientChain = 10
	// MaxClientChainBytes is the largest sum of their sizes.
	MaxClientChainBytes = 32 << 10
)

// Clients is the validation of a listener's client certificates. It is immutable. nil means that no certificate is
// requested.
type Clients struct {
	digest   ClientsDigest
	pool     *x509.CertPool
	revoked  *revocation.Lists
	optional bool
}

// ClientsDigest identifies a Clients by its settings.
type ClientsDigest [sha256.Size]byte

// DigestOf returns the digest of the Clients for a config.ClientValidation.
func DigestOf(c *config.ClientValidation) ClientsDigest {
	h := sha256.New()
	fmt.Fprintf(h, "optional %t\n", c.Optional)
	for _, key := range c.Authorities { // a key identifies its content
		fmt.Fprintf(h, "%q\n", key)
	}
	return ClientsDigest(h.Sum(nil))
}

// NewClients creates Clients; find returns the config.Authorities with a key, or nil. If it returns an error, the
// Clients accept no certificate.
func NewClients(c *config.ClientValidation, find func(key string) *config.Authorities) (*Clients, error) {
	nobody := &Clients{digest: DigestOf(c), pool: x509.NewCertPool()}
	var all []revocation.Authorities
	for _, key := range c.Authorities {
		a := find(key)
		if a == nil {
			return nobody, fmt.Errorf("authorities %s are missing: no client is served", key)
		}
		all = append(all, revocation.Authorities{PEM: a.Certificates(), Lists: a.GetRevocable().GetLists()})
	}
	pool, revoked, err := revocation.Trust(all...)
	if err != nil {
		return nobody, fmt.Errorf("authorities %q: %w: no client is served", c.Authorities, err)
	}
	return &Clients{digest: nobody.digest, pool: pool, revoked: revoked, optional: c.Optional}, nil
}

// Stale returns which revocation lists are out of date at a time, so that clients of their authorities are refused.
func (c *Clients) Stale(at time.Time) []string {
	if c == nil || c.optional {
		return nil
	}
	return c.revoked.Stale(at)
}

// demand makes handshakes request a certificate. crypto/tls verifies the chain, its dates, and that its certificates
// may be used by clients; in addition none may be revoked.
func (c *Clients) demand(cfg *tls.Config) {
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	if c.optional {
		cfg.ClientAuth = tls.RequestClientCert
	}
	cfg.ClientCAs = c.pool
	cfg.VerifyPeerCertificate = boundedChain
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if !s.DidResume { // the rest was just verified
			return c.revoked.Check(s.VerifiedChains, time.Now())
		}
		return c.verify(s.PeerCertificates)
	}
}

func boundedChain(chain [][]byte, _ [][]*x509.Certificate) error {
	size := 0
	for _, c := range chain {
		size += len(c)
	}
	if len(chain) > MaxClientChain || size > MaxClientChainBytes {
		return fmt.Errorf("the client sent %d certificates of %d bytes; at most %d of %d bytes are taken", len(chain), size, MaxClientChain, MaxClientChainBytes)
	}
	return nil
}

var errNoClientCertificate = errors.New("the client has sent no certificate")

// verify returns why a client with the chain is refused, or nil.
func (c *Clients) verify(chain []*x509.Certificate) error {
	if c.optional {
		return nil
	}
	if len(chain) == 0 {
		return errNoClientCertificate
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	chains, err := chain[0].Verify(x509.VerifyOptions{Roots: c.pool, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return err
	}
	return c.revoked.Check(chains, time.Now())
}

// Peer is the identity that a client has proved in its handshake. nil means that no certificate was requested. It is
// safe for concurrent use.
type Peer struct {
	chain []*x509.Certificate
	last  atomic.Pointer[Clients] // the last Clients that accepted it
}

// NewPeer returns the Peer of a connection whose handshake was accepted by by, nil if that is unknown. It returns nil
// if the client has sent no certificate and none was requested.
func NewPeer(chain []*x509.Certificate, by *Clients) *Peer {
	if len(chain) == 0 && by == nil {
		return nil
	}
	p := &Peer{chain: slices.Clip(chain)}
	p.last.Store(by)
	return p
}

// Satisfies reports whether the client may be served under these settings. They may have changed since the handshake,
// or may not have applied then: the client's certificate is verified again after each change.
func (p *Peer) Satisfies(c *Clients) bool {
	switch {
	case c == nil || c.optional:
		return true
	case p == nil:
		return false
	case p.last.Load() == c:
		return true
	case c.verify(p.chain) != nil:
		return false
	}
	p.last.Store(c)
	return true
}
