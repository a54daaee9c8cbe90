package revocation

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// Authorities are certificates by which others are verified, in PEM, and their revocation lists in DER.
type Authorities struct {
	PEM   string
	Lists [][]byte
}

// ErrNoCertificate is returned for Authorities without a certificate that can be parsed.
var ErrNoCertificate = errors.New("no certificate in PEM")

// Trust returns the pool and the revocation lists for verification; nil if there are none. An authority that another one has revoked
// is not in the pool.
func Trust(all ...Authorities) (*x509.CertPool, *Lists, error) {
	pool := x509.NewCertPool()
	if !slices.ContainsFunc(all, func(a Authorities) bool { return len(a.Lists) > 0 }) {
		for _, a := range all {
			if !pool.AppendCertsFromPEM([]byte(a.PEM)) { // it needs less memory this way
				return nil, nil, ErrNoCertificate
			}
		}
		return pool, nil, nil
	}
	lists := &Lists{}
	var trusted []*x509.Certificate
	for _, a := range all {
		certificates := Certificates(a.PEM)
		if len(certificates) == 0 {
			return nil, nil, ErrNoCertificate
		}
		trusted = append(trusted, certificates...)
		if len(a.Lists) > MaxLists {
			return nil, nil, fmt.Errorf("there are %d revocation lists, and at most %d are read", len(a.Lists), MaxLists)
		}
		signers := NewSigners(certificates)
		for _, der := range a.Lists {
			l, err := signers.Parse(der)
			if err != nil {
				return nil, nil, err
			}
			lists.Add(l)
		}
	}
	checks := maxChecks
	for _, c := range trusted {
		if !lists.revoked(c, &checks) {
			pool.AddCert(c)
		}
	}
	return pool, lists, nil
}

// Certificates returns those of a text in PEM that can be parsed, and leaves out the others.
func Certificates(text string) (all []*x509.Certificate) {
	for block, err := range Blocks("", text) {
		if err != nil || block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}
