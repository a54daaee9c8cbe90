// Package tls chooses how a client's TLS connection is terminated: which
// listener its server name selects, which of that listener's certificates
// is shown, and which session tickets it may resume by. It exists so that a change of
// certificates is a change of plain, immutable data that new handshakes see.
//
// It must never import a source of configuration: all it knows is in its arguments.
package tls

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/moongate-dev/moongate/internal/config"
)

// Certificate is a parsed pair of a chain and its key. Listeners share it.
type Certificate struct {
	// Key is config.Certificate.key.
	Key string
	// pair alone, as a tls.Config holds it.
	pair []tls.Certificate
	// algorithm tells keys apart that different clients can verify.
	algorithm string
	// digest tells the leaf from all others.
	digest [sha256.Size]byte
	// Names are the DNS names of the leaf in lower case, wildcards as "*.suffix".
	Names []string
	// NotBefore and NotAfter are when the leaf is valid, both included.
	NotBefore, NotAfter time.Time
}

// Pair is the certificate with its key.
func (c *Certificate) Pair() *tls.Certificate { return &c.pair[0] }

// Parse checks that chain and key belong together. The error names the certificate.
func Parse(c *config.Certificate) (*Certificate, error) {
	pair, err := tls.X509KeyPair(c.ChainPem, c.KeyPem)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", c.Key, err)
	}
	leaf := pair.Leaf
	cert := &Certificate{
		Key:       c.Key,
		pair:      []tls.Certificate{pair},
		algorithm: algorithm(leaf.PublicKey),
		digest:    sha256.Sum256(leaf.Raw),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
	}
	names := leaf.DNSNames
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	for _, n := range names {
		cert.Names = append(cert.Names, strings.ToLower(n))
	}
	return cert, nil
}

// Covers reports whether clients that ask for a name, in lower case, take the certificate for it (RFC 9525 section 6.3).
func (c *Certificate) Covers(name string) bool {
	return c.pair[0].Leaf.VerifyHostname(name) == nil
}

// Unfit says why clients will not trust the certificate at a moment, "" where its dates say nothing
// against it. It is shown all the same: a client that minds can tell, one that does not goes on working.
func (c *Certificate) Unfit(at time.Time) string {
	switch {
	case at.After(c.NotAfter):
		return "expired " + c.NotAfter.UTC().Format(time.RFC3339)
	case at.Before(c.NotBefore):
		return "not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	}
	return ""
}

// ErrNoListener ends a handshake whose server name belongs to no listener that has a certificate.
var ErrNoListener = errors.New("no listener for this server name")

// Demander is a connection that is told what the listener of its handshake demands of the client's certificate, nil for nothing.
// Who looks the listener up again may find another one.
type Demander interface{ Demand(*Clients) }

// Server is the configuration of a socket. find gives the listener that a server name
// (lower case, "" where the client sent none) selects, or nil; it is called once a handshake. The connection may be a Demander.
func Server(find func(serverName string) *Listener) *tls.Config {
	return &tls.Config{
		MinVersion: minVersion, // what clients can verify depends on it
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !isName(hello.ServerName) {
				return unknownName, nil
			}
			name := strings.ToLower(hello.ServerName)
			l := find(name)
			if l == nil {
				return unknownName, nil
			}
			if c, ok := hello.Conn.(Demander); ok {
				c.Demand(l.clients)
			}
			return l.config(hello, name), nil
		},
	}
}

// isName reports whether a server name may be that of a host. Names are ASCII (RFC 6066 section 3): there are other letters of which
// Unicode says that their lower case is ASCII. The name is kept as long as its connection, and a wildcard would match one of 64 KiB.
func isName(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return len(s) <= maxName
}

// unknownName has no certificate, which crypto/tls tells the client by the alert unrecognized_name (RFC 6066 section 3); for an
// error of GetConfigForClient it has internal_error only.
var unknownName = &tls.Config{MinVersion: minVersion, SessionTicketsDisabled: true}

// Failure is why a handshake with a client failed: err, or ErrNoListener.
func Failure(err error) error {
	if err != nil && err.Error() == "tls: no certificates configured" { // which crypto/tls does not export
		return ErrNoListener
	}
	return err
}
