// Package tls decides how a client's TLS connection is terminated: which listener its server name selects, which of
// that listener's certificates is used, and which session tickets are accepted. It exists so that a change of
// certificates is a change of plain, immutable data for new handshakes.
//
// It must never import a source of configuration: everything it needs is in its arguments.
package tls

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/moongate-dev/moongate/internal/config"
)

// Certificate is a parsed chain with its key. Listeners share it.
type Certificate struct {
	// Key is config.Certificate.key.
	Key string
	// pair is the only element, as a tls.Config needs it.
	pair []tls.Certificate
	// algorithm distinguishes keys that different clients support.
	algorithm string
	// digest identifies the leaf.
	digest [sha256.Size]byte
	// Names are the DNS names of the leaf in lower case, wildcards as "*.suffix".
	Names []string
	// NotBefore and NotAfter are the validity of the leaf, both inclusive.
	NotBefore, NotAfter time.Time
}

// Pair returns the certificate with its key.
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

// Covers reports whether clients accept the certificate for a name, which must be in lower case (RFC 9525 section 6.3).
func (c *Certificate) Covers(name string) bool {
	return c.pair[0].Leaf.VerifyHostname(name) == nil
}

// Unfit returns why clients will not trust the certificate at a time, "" if its dates are valid. It is used
// nevertheless: clients that check can detect it, others continue to work.
func (c *Certificate) Unfit(at time.Time) string {
	switch {
	case at.After(c.NotAfter):
		return "expired " + c.NotAfter.UTC().Format(time.RFC3339)
	case at.Before(c.NotBefore):
		return "not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	}
	return ""
}

// ErrNoListener means that the server name of a handshake belongs to no listener with a certificate.
var ErrNoListener = errors.New("no listener for this server name")

// Demander is a connection that is notified of the validation of client certificates of the listener that its handshake
// uses, nil if there is none. Looking the listener up again might find another one.
type Demander interface{ Demand(*Clients) }

// Server returns the configuration of a socket. find returns the listener for a server name (in lower case, "" if the
// client has sent none) on a connection, or nil; it is called once for each handshake. The connection may be a Demander.
func Server(find func(c net.Conn, serverName string) *Listener) *tls.Config {
	return &tls.Config{
		MinVersion: minVersion, // what clients can verify depends on it
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !isName(hello.ServerName) {
				return unknownName, nil
			}
			name := strings.ToLower(hello.ServerName)
			l := find(hello.Conn, name)
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

// isName reports whether a server name may be a host name. Names are ASCII (RFC 6066 section 3), and Unicode has other
// letters whose lower case is ASCII. The name is stored as long as its connection lives, and a wildcard would match one
// of 64 KiB.
func isName(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return len(s) <= maxName
}

// unknownName has no certificate, for which crypto/tls sends the alert unrecognized_name (RFC 6066 section 3). For an
// error of GetConfigForClient it only sends internal_error.
var unknownName = &tls.Config{MinVersion: minVersion, SessionTicketsDisabled: true}

// Failure returns why a handshake with a client failed: err, or ErrNoListener.
func Failure(err error) error {
	if err != nil && err.Error() == "tls: no certificates configured" { // crypto/tls does not export it
		return ErrNoListener
	}
	return err
}
