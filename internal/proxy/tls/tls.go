// Package tls chooses how a client's TLS connection is terminated: which
// listener its server name selects and which of that listener's certificates
// is shown. It exists so that a change of certificates is a change of plain,
// immutable data that new handshakes see.
//
// It must never import a source of configuration: all it knows is in its arguments.
package tls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// Certificate is a parsed pair of a chain and its key.
type Certificate struct {
	pair tls.Certificate
	// Names are the DNS names of the leaf in lower case, wildcards as "*.suffix".
	Names []string
	// NotAfter is when the leaf expires.
	NotAfter time.Time
}

// Parse checks that chain and key belong together. The error names the certificate.
func Parse(c *config.Certificate) (*Certificate, error) {
	pair, err := tls.X509KeyPair(c.ChainPem, c.KeyPem)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", c.Key, err)
	}
	names := pair.Leaf.DNSNames
	for _, ip := range pair.Leaf.IPAddresses {
		names = append(names, ip.String())
	}
	cert := &Certificate{pair: pair, NotAfter: pair.Leaf.NotAfter}
	for _, n := range names {
		cert.Names = append(cert.Names, strings.ToLower(n))
	}
	return cert, nil
}

// ErrNoListener ends a handshake whose server name belongs to no listener.
var ErrNoListener = errors.New("no listener for this server name")

// Server is the configuration of a socket. find gives the configuration of the
// listener that a server name (lower case, "" where the client sent none) selects,
// or nil; it is called once a handshake.
func Server(find func(serverName string) *tls.Config) *tls.Config {
	return &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if cfg := find(strings.ToLower(hello.ServerName)); cfg != nil {
				return cfg, nil
			}
			return nil, ErrNoListener
		},
	}
}

// Listener is the configuration of one listener with its certificates in the order
// of certificateRefs; there must be at least one. The first is shown where none
// carries the server name.
func Listener(certs []*Certificate) *tls.Config {
	index := make(map[string][]*tls.Certificate)
	for _, c := range certs {
		for _, n := range c.Names {
			index[n] = append(index[n], &c.pair)
		}
	}
	fallback := &certs[0].pair
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// Small first records help browsers a little and cost every response a lot of
		// system calls; responses here are mostly already in one buffer.
		DynamicRecordSizingDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := strings.TrimSuffix(strings.ToLower(hello.ServerName), ".")
			if c := supported(hello, index[name]); c != nil {
				return c, nil
			}
			// RFC 6125: a wildcard stands for exactly one label.
			if _, parent, ok := strings.Cut(name, "."); ok {
				if c := supported(hello, index["*."+parent]); c != nil {
					return c, nil
				}
			}
			return fallback, nil
		},
	}
}

// supported is the first certificate that the client can verify (an ECDSA and an RSA
// certificate may stand side by side), or the first at all.
func supported(hello *tls.ClientHelloInfo, certs []*tls.Certificate) *tls.Certificate {
	if len(certs) == 0 {
		return nil
	}
	for _, c := range certs {
		if len(certs) == 1 || hello.SupportsCertificate(c) == nil {
			return c
		}
	}
	return certs[0]
}
