package upstream

import (
	"crypto/tls"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// What a backend is offered by ALPN (RFC 7301), and may choose of.
const (
	protocolHTTP1 = "http/1.1"
	protocolHTTP2 = "h2"
)

// resumable is how many TLS sessions of a backend's endpoints are remembered. Endpoints share them: they
// show one certificate, and may share their ticket keys.
const resumable = 64

// transport holds the protocol and the TLS settings that a backend's endpoints are dialled with; immutable. The zero value is HTTP/1.1 in cleartext.
type transport struct {
	http2   bool        // nothing else
	upgrade string      // the protocol that requests may ask for by Upgrade; "" is none
	tls     *tls.Config // nil is cleartext
	unknown bool        // nothing is to be sent
	tunnel  *tls.Config // tls without ALPN, for bytes of which nobody knows what protocol they are; nil is cleartext

	header         config.ProxyHeader // that each connection begins with
	clientProtocol bool               // requests are sent in the version of HTTP that their clients speak

	trust    *trust             // what certificates are verified by; nil: by what the system trusts
	resource *config.BackendTLS // what tls was made of
	client   *tls.Certificate   // what is shown, nil for nothing
	own      bool               // client is the Backend's, and no Gateway's is shown in its place
}

// newTransport reads a Backend. The error says what is wrong with its TLS.
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

// verify has the backend's certificate verified for the names of its Backend.
func (t *transport) verify(b *config.Backend) error {
	alternatives := b.Tls.SubjectAltNames
	switch {
	case alternatives == nil && b.Tls.ServerName == "":
		return fmt.Errorf("upstream: Backend %s: tls.server_name is empty: give the name that the certificate is verified for", b.Key)
	case alternatives == nil:
		return nil // as package tls does
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
	// Package tls would verify ServerName. VerifyConnection is called for sessions that are resumed, too.
	t.tls.InsecureSkipVerify = true
	t.tls.VerifyConnection = names.verify
	return nil
}

// limit has no other versions and cipher suites used than those of a Backend.
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

// settings returns the TLS settings of a connection, nil for cleartext.
func (t *transport) settings(p purpose) *tls.Config {
	if p == forTunnel {
		return t.tunnel
	}
	return t.tls
}

// refuses returns why a connection over TLS cannot be used, after its handshake; nil where it can.
func (t *transport) refuses(c *Conn, p purpose) error {
	if p != forTunnel && t.http2 && !c.speaksHTTP2() {
		return errNotHTTP2
	}
	return nil
}

// same reports whether connections made by one are good for the other.
func (t *transport) same(o *transport) bool {
	// What a key of Authorities stands for never changes.
	return t.unknown == o.unknown && t.http2 == o.http2 && t.upgrade == o.upgrade && t.header == o.header && t.clientProtocol == o.clientProtocol && proto.Equal(t.resource, o.resource) &&
		t.own == o.own && sameCertificate(t.client, o.client)
}

// unknown is used while no Backend resource has come, or none that could be used: it may have wanted TLS. See Set.Refused.
var unknown = &transport{unknown: true}
