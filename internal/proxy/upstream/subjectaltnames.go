package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
)

// subjectAltNames verifies certificates by names that package tls does not support. It is immutable.
type subjectAltNames struct {
	trust     *trust          // nil means the system's trust store
	hostnames []string        // without wildcards
	suffixes  []string        // of wildcards, with the leading dot
	uris      map[string]bool // in the form of canonicalURI
	wanted    string          // for errors
}

func newSubjectAltNames(c *config.SubjectAltNames, by *trust) (*subjectAltNames, error) {
	s := &subjectAltNames{trust: by, uris: map[string]bool{}}
	var wanted []string
	for _, name := range c.Hostnames {
		wanted = append(wanted, name)
		if suffix, wildcard := strings.CutPrefix(name, "*."); wildcard {
			s.suffixes = append(s.suffixes, "."+suffix)
		} else {
			s.hostnames = append(s.hostnames, name)
		}
	}
	for _, text := range c.Uris {
		wanted = append(wanted, text)
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		s.uris[canonicalURI(u)] = true
	}
	if len(wanted) == 0 {
		return nil, errors.New("there are none: give one that the certificate has")
	}
	s.wanted = strings.Join(wanted, ", ")
	return s, nil
}

// verify implements tls.Config.VerifyConnection: the certificate must be valid now, be signed by an authority for
// servers, and have one of the names.
func (s *subjectAltNames) verify(state tls.ConnectionState) error {
	chain := state.PeerCertificates
	if len(chain) == 0 {
		return errors.New("the endpoint has sent no certificate")
	}
	options := x509.VerifyOptions{Intermediates: x509.NewCertPool()}
	if s.trust != nil {
		options.Roots = s.trust.pool
	}
	for _, certificate := range chain[1:] {
		options.Intermediates.AddCert(certificate)
	}
	chains, err := chain[0].Verify(options)
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	if err := s.trust.notRevoked(chain, chains); err != nil {
		return err
	}
	if !s.match(chain[0]) {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain,
			Err: fmt.Errorf("the certificate has none of the subject alternative names %s", s.wanted)}
	}
	return nil
}

func (s *subjectAltNames) match(certificate *x509.Certificate) bool {
	for _, name := range s.hostnames {
		if certificate.VerifyHostname(name) == nil { // by RFC 6125 section 6.4, and never by the common name
			return true
		}
	}
	for _, name := range certificate.DNSNames {
		label, _, _ := strings.Cut(name, ".")
		for _, suffix := range s.suffixes {
			if label != "" && strings.EqualFold(strings.TrimSuffix(name[len(label):], "."), suffix) {
				return true
			}
		}
	}
	for _, u := range certificate.URIs {
		if s.uris[canonicalURI(u)] {
			return true
		}
	}
	return false
}

// canonicalURI returns the URI with its case-insensitive parts in lower case (RFC 3986 section 6.2.2.1).
func canonicalURI(u *url.URL) string {
	canonical := *u
	canonical.Scheme, canonical.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	return canonical.String()
}
