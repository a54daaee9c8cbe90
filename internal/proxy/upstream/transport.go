package upstream

import (
	"crypto/tls"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// The protocols offered to a backend by ALPN (RFC 7301).
const (
	protocolHTTP1 = "http/1.1"
	protocolHTTP2 = "h2"
)

// resumable is how many TLS sessions of a backend's endpoints are kept. The endpoints share them, since they have one
// certificate and may share their ticket keys.
const resumable = 64

// transport holds the protocol and the TLS settings with which a backend's endpoints are dialled. It is immutable. The
// zero value means HTTP/1.1 without TLS.
type transport struct {
	http2   bool        // only HTTP/2
	upgrade string      // the protocol that requests may ask for with Upgrade; "" means none
	tls     *tls.Config // nil means no TLS
	unknown bool        // nothing must be sent
	tunnel  *tls.Config // tls without ALPN, for tunnels with an unknown protocol; nil means no TLS

	header         config.ProxyHeader // at the beginning of each connection
	clientProtocol bool               // requests use the HTTP version of their clients

	trust    *trust             // verifies certificates; nil means the system's trust store
	resource *config.BackendTLS // the source of tls
	client   *tls.Certificate   // the client certificate, nil if there is none
	own      bool               // client belongs to the Backend, and no Gateway's certificate replaces it
}

// newTransport compiles the transport of a Backend. It returns an error if its TLS settings are invalid.
func newTransport(b *config.Backend, trusted *authorities) (*transport, error) {
	protocol := b.Protocol.Info()
	t := &transport{http2: protocol.HTTP2, upgrade: protocol.Upgrade}
	connections := b.GetTraffic().GetConnections()
	t.header, t.clientProtocol = connections.GetProxyHeader(), connections.GetClientProtocol()
	if b.Tls == nil {
		return t, nil
	}
	t.resource = b.Tls
	t.tls = &tls.Config{
		ServerName:         b.Tls.ServerName,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{protocolHTTP2, protocolHTTP1},
		ClientSessionCache: tls.NewLRUClientSessionCache(resumable),
	}
	switch {
	case t.http2:
		t.tls.NextProtos = []string{protocolHTTP2}
	case t.upgrade != "":
		t.tls.NextProtos = []string{protocolHTTP1}
	}
	switch {
	case b.Tls.SystemAuthorities && len(b.Tls.Authorities) > 0:
		return nil, fmt.Errorf("upstream: Backend %s: tls has authorities, and those of the system: give one of both", b.Key)
	case b.Tls.SystemAuthorities:
	case len(b.Tls.Authorities) == 0:
		return nil, fmt.Errorf("upstream: Backend %s: tls names no authorities: give at least one, or system_authorities", b.Key)
	default:
		by, err := trusted.trust(b.Tls.Authorities)
		if err != nil {
			return nil, fmt.Errorf("upstream: Backend %s: %w", b.Key, err)
		}
		t.trust, t.tls.RootCAs, t.tls.VerifyConnection = by, by.pool, by.check
	}
	if err := t.verify(b); err != nil {
		return nil, err
	}
	if err := t.limit(b); err != nil {
		return nil, err
	}
	t.tunnel = t.tls.Clone()
	t.tunnel.NextProtos = nil
	return t, nil
}

// verify sets up the verification of the backend's certificate for the names in its Backend.
func (t *transport) verify(b *config.Backend) error {
	alternatives := b.Tls.SubjectAltNames
	switch {
	case alternatives == nil && b.Tls.ServerName == "":
		return fmt.Errorf("upstream: Backend %s: tls.server_name is empty: give the name that the certificate is verified for", b.Key)
	case alternatives == nil:
		return nil // package tls verifies it
	case b.Tls.ServerName != "":
		return fmt.Errorf("upstream: Backend %s: tls has a server_name and subject_alt_names: give one of both", b.Key)
	case alternatives.AskedName == "":
		return fmt.Errorf("upstream: Backend %s: tls.subject_alt_names.asked_name is empty: give the name to ask for", b.Key)
	}
	names, err := newSubjectAltNames(alternatives, t.trust)
	if err != nil {
		return fmt.Errorf("upstream: Backend %s: tls.subject_alt_names: %w", b.Key, err)
	}
	t.tls.ServerName = alternatives.AskedName
	// Package tls would verify ServerName instead. VerifyConnection is also called for resumed sessions.
	t.tls.InsecureSkipVerify = true
	t.tls.VerifyConnection = names.verify
	return nil
}

// limit restricts the TLS versions and cipher suites to those of a Backend.
func (t *transport) limit(b *config.Backend) error {
	switch b.Tls.MinVersion {
	case 0:
	case tls.VersionTLS12, tls.VersionTLS13:
		t.tls.MinVersion = uint16(b.Tls.MinVersion)
	default:
		return fmt.Errorf("upstream: Backend %s: tls.min_version %#x is unknown to this proxy: run the version of the controller", b.Key, b.Tls.MinVersion)
	}
	for _, suite := range b.Tls.CipherSuites {
		if !slices.ContainsFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return uint32(s.ID) == suite }) {
			return fmt.Errorf("upstream: Backend %s: tls.cipher_suites has %#x, which is unknown to this proxy: run the version of the controller", b.Key, suite)
		}
		t.tls.CipherSuites = append(t.tls.CipherSuites, uint16(suite))
	}
	return nil
}

// settings returns the TLS settings of a connection, nil for none.
func (t *transport) settings(p purpose) *tls.Config {
	if p == forTunnel {
		return t.tunnel
	}
	return t.tls
}

// refuses returns why a TLS connection cannot be used after its handshake; nil if it can.
func (t *transport) refuses(c *Conn, p purpose) error {
	if p != forTunnel && t.http2 && !c.speaksHTTP2() {
		return errNotHTTP2
	}
	return nil
}

// same reports whether connections made with t can be used with o.
func (t *transport) same(o *transport) bool {
	// The content of a key of Authorities never changes.
	return t.unknown == o.unknown && t.http2 == o.http2 && t.upgrade == o.upgrade && t.header == o.header && t.clientProtocol == o.clientProtocol && proto.Equal(t.resource, o.resource) &&
		t.own == o.own && sameCertificate(t.client, o.client)
}

// unknown is used while there is no Backend resource, or none that can be used, since it might configure TLS. See
// Set.Refused.
var unknown = &transport{unknown: true}
