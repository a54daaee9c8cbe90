// Package revocation parses certificate revocation lists (RFC 5280 section 5), and finds certificates in them. It exists so that
// translation, which rejects lists in objects, and the verification of certificates apply the same rules. It also reads the PEM
// that both are in.
//
// It must never import anything of this project.
package revocation

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// List contains what one authority has revoked.
type List struct {
	issuer      *x509.Certificate
	number      *big.Int // nil if it has none
	since, upTo time.Time
	serials     []string // big-endian, sorted; parts of one string
}

// MaxLists is the maximum number of lists of an object, and maxChecks that of failed signature checks while they are read, and of
// checks to find which authorities they have revoked: certificates and lists may be small and many, and to try each list with each
// certificate would take hours.
const (
	MaxLists  = 32
	maxChecks = 16
)

// Signers are the authorities that may have signed lists.
type Signers struct {
	bySubject map[string][]*x509.Certificate
	failed    int // number of failed checks
}

// NewSigners returns Signers with these certificates.
func NewSigners(authorities []*x509.Certificate) *Signers {
	s := &Signers{bySubject: map[string][]*x509.Certificate{}}
	for _, a := range authorities {
		s.bySubject[string(a.RawSubject)] = append(s.bySubject[string(a.RawSubject)], a)
	}
	return s
}

// Parse parses a list in DER that one of the authorities has signed. It rejects a list that none of them has signed, one that is not
// complete by itself (an indirect or delta list, or one for certain certificates or reasons), and one without the time of the next
// update.
func (s *Signers) Parse(der []byte) (*List, error) {
	parsed, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	if id, is := critical(parsed.Extensions); is {
		return nil, fmt.Errorf("the list of %s has the critical extension %s, so it is not a complete list of what its issuer has revoked", nameOf(parsed.Issuer), id)
	}
	if parsed.NextUpdate.IsZero() {
		return nil, fmt.Errorf("the list of %s does not contain the time of the next update (nextUpdate)", nameOf(parsed.Issuer))
	}
	l := &List{number: parsed.Number, since: parsed.ThisUpdate, upTo: parsed.NextUpdate}
	if l.issuer, err = s.signer(parsed); err != nil {
		return nil, err
	}
	if err := l.take(parsed.RevokedCertificateEntries); err != nil {
		return nil, err
	}
	return l, nil
}

func critical(extensions []pkix.Extension) (asn1.ObjectIdentifier, bool) {
	i := slices.IndexFunc(extensions, func(e pkix.Extension) bool { return e.Critical })
	if i < 0 {
		return nil, false
	}
	return extensions[i].Id, true
}

// signer returns the authority that has signed a list. Of several with the name of its issuer it first tries the one whose key the
// list names.
func (s *Signers) signer(list *x509.RevocationList) (*x509.Certificate, error) {
	err := errors.New("it is none of the certificates")
	for _, named := range []bool{true, false} {
		for _, a := range s.bySubject[string(list.RawIssuer)] {
			if namesKey(list.AuthorityKeyId, a) != named {
				continue
			}
			if s.failed >= maxChecks {
				return nil, fmt.Errorf("the lists were tried with %d certificates that have not signed them, and are with no more: of certificates with one subject, leave in those that sign lists", s.failed)
			}
			if err = list.CheckSignatureFrom(a); err == nil {
				return a, nil
			}
			s.failed++
		}
	}
	return nil, fmt.Errorf("the list of %s is not signed by its issuer: %s", nameOf(list.Issuer), strings.Join(strings.Fields(err.Error()), " "))
}

// namesKey reports whether an authority key identifier is that of an authority (RFC 5280 section 4.2.1.1).
func namesKey(id []byte, a *x509.Certificate) bool {
	return len(id) > 0 && bytes.Equal(id, a.SubjectKeyId)
}

// take stores the serial numbers of the entries.
func (l *List) take(entries []x509.RevocationListEntry) error {
	var all strings.Builder
	ends := make([]int, 0, len(entries))
	for _, e := range entries {
		if id, is := critical(e.Extensions); is {
			return fmt.Errorf("the list of %s has an entry with the critical extension %s, which is not supported", l.name(), id)
		}
		all.Write(e.SerialNumber.Bytes())
		ends = append(ends, all.Len())
	}
	l.serials = make([]string, len(ends))
	begin := 0
	for i, end := range ends {
		l.serials[i], begin = all.String()[begin:end], end
	}
	slices.Sort(l.serials)
	return nil
}

// of reports whether the list covers the certificates of an issuer. There may be several certificates of one authority.
func (l *List) of(issuer *x509.Certificate) bool {
	return bytes.Equal(l.issuer.RawSubject, issuer.RawSubject) && bytes.Equal(l.issuer.RawSubjectPublicKeyInfo, issuer.RawSubjectPublicKeyInfo)
}

func (l *List) has(c *x509.Certificate) bool {
	_, found := slices.BinarySearch(l.serials, string(c.SerialNumber.Bytes()))
	return found
}

// newer reports whether the list is newer than another of the same issuer.
func (l *List) newer(o *List) bool {
	if l.number != nil && o.number != nil && l.number.Cmp(o.number) != 0 {
		return l.number.Cmp(o.number) > 0
	}
	return l.since.After(o.since)
}

// Stale returns why the list is not valid at a time, "" if its dates allow it.
func (l *List) Stale(at time.Time) string {
	switch {
	case at.After(l.upTo):
		return fmt.Sprintf("the revocation list of %s should have been replaced by %s", l.name(), l.upTo.UTC().Format(time.RFC3339))
	case at.Before(l.since):
		return fmt.Sprintf("the revocation list of %s begins at %s", l.name(), l.since.UTC().Format(time.RFC3339))
	}
	return ""
}

func (l *List) name() string { return nameOf(l.issuer.Subject) }

func nameOf(n pkix.Name) string { return fmt.Sprintf("%q", n.String()) }

// Lists are those of several authorities, the newest of each. They are not modified once they are in use; nil contains none.
type Lists struct{ all []*List }

// Add adds a list, which replaces an older one of its issuer, unless there is a newer one.
func (ls *Lists) Add(l *List) {
	i := slices.IndexFunc(ls.all, func(o *List) bool { return o.of(l.issuer) })
	switch {
	case i < 0:
		ls.all = append(ls.all, l)
	case l.newer(ls.all[i]):
		ls.all[i] = l
	}
}

// Stale returns the results of List.Stale of all lists, except "".
func (ls *Lists) Stale(at time.Time) (all []string) {
	if ls != nil {
		for _, l := range ls.all {
			if why := l.Stale(at); why != "" {
				all = append(all, why)
			}
		}
	}
	return all
}

// Check returns why a certificate is not valid at a time; chains are its verified chains. A certificate of a chain, except the last,
// was revoked by its issuer in the chain, or may have been because the issuer's list is out of date. Nothing is known about issuers
// without a list. An authority that is itself trusted is checked by Trust.
func (ls *Lists) Check(chains [][]*x509.Certificate, at time.Time) error {
	if ls == nil {
		return nil
	}
	for _, chain := range chains {
		for i, c := range chain[:len(chain)-1] {
			if err := ls.check(c, chain[i+1], at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (ls *Lists) check(c, issuer *x509.Certificate, at time.Time) error {
	for _, l := range ls.all {
		if !l.of(issuer) {
			continue
		}
		if l.has(c) {
			return fmt.Errorf("certificate %x of %s is revoked by its issuer", c.SerialNumber, nameOf(c.Subject))
		}
		if why := l.Stale(at); why != "" {
			return errors.New(why)
		}
	}
	return nil
}

// revoked reports whether an authority was revoked by another one. The dates of lists do not matter: a revocation is permanent.
// checks limits the verification of signatures of certificates that were issued by another authority with the same name; beyond it
// the certificate counts as revoked.
func (ls *Lists) revoked(c *x509.Certificate, checks *int) bool {
	return slices.ContainsFunc(ls.all, func(l *List) bool {
		if !bytes.Equal(l.issuer.RawSubject, c.RawIssuer) || !l.has(c) {
			return false
		}
		if *checks <= 0 {
			return true
		}
		*checks--
		return c.CheckSignatureFrom(l.issuer) == nil
	})
}
