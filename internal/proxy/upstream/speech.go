package upstream

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"

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

// speech is how a backend's endpoints are spoken to; immutable. The zero value is HTTP/1.1 in cleartext.
type speech struct {
	http2 bool        // nothing else
	tls   *tls.Config // nil is cleartext
	ca    []byte      // what tls was made of
}

// newSpeech reads a Backend. The error says what is wrong with its authorities.
func newSpeech(b *config.Backend) (*speech, error) {
	s := &speech{http2: b.Protocol == config.BackendProtocol_BACKEND_PROTOCOL_H2C}
	if b.Tls == nil {
		return s, nil
	}
	if b.Tls.ServerName == "" {
		return nil, fmt.Errorf("upstream: Backend %s: tls.server_name is empty: give the name that the certificate is verified for", b.Key)
	}
	s.ca = b.Tls.CaPem
	s.tls = &tls.Config{
		ServerName:         b.Tls.ServerName,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{protocolHTTP2, protocolHTTP1},
		ClientSessionCache: tls.NewLRUClientSessionCache(resumable),
	}
	if s.http2 {
		s.tls.NextProtos = []string{protocolHTTP2}
	}
	if len(s.ca) == 0 {
		return s, nil
	}
	s.tls.RootCAs = x509.NewCertPool()
	if !s.tls.RootCAs.AppendCertsFromPEM(s.ca) {
		return nil, fmt.Errorf("upstream: Backend %s: tls.ca_pem has no certificate in PEM: give at least one, or none for those of the system", b.Key)
	}
	return s, nil
}

// same tells whether connections made by one are good for the other.
func (s *speech) same(o *speech) bool {
	if s.http2 != o.http2 || (s.tls == nil) != (o.tls == nil) {
		return false
	}
	return s.tls == nil || s.tls.ServerName == o.tls.ServerName && bytes.Equal(s.ca, o.ca)
}

// inClear is how a backend is spoken to while its Backend resource has not come.
var inClear = &speech{}
