package certificate

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"unique"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/revocation"
)

// MaxAuthorityBytes limits what is parsed of an object, and what a policy trusts in all: any user who may write such an object
// decides its content, and proxies keep it in memory, once for all backends with the same authorities.
const MaxAuthorityBytes = kind.MaxAuthoritiesBytes

// MaxRevocationBytes limits the revocation lists of an object: a ConfigMap in a cluster cannot contain more.
const MaxRevocationBytes = 1 << 20

// MaxSubjectBytes limits the subjects of the authorities that verify clients: all their names are sent in every handshake, in a list
// of at most 65535 bytes (RFC 8446 section 4.2.4).
const MaxSubjectBytes = 48 << 10

// Authorities are the certificates of a ConfigMap or a ClusterTrustBundle by which other certificates are verified.
type Authorities struct {
	Key   string // config.AuthoritiesKey of PEM and Lists
	PEM   string // only blocks of type CERTIFICATE, all parsed; equal values share memory
	Wrong string // why they cannot be used
	// Withheld are certificates, in PEM, that are not trusted because their revocation lists cannot be used; some may be malformed.
	Withheld string
	// UnknownLists is set if there are revocation lists that cannot be used and that may belong to authorities that are not in
	// Withheld.
	UnknownLists bool
	// Lists are revocation lists in DER, each signed by one of the authorities.
	Lists [][]byte
	// SubjectBytes is the size of the list of their subjects in a handshake.
	SubjectBytes int

	shared unique.Handle[string] // of PEM, so that equal values share memory
}

// Equal reports whether two are equal.
func (a *Authorities) Equal(o *Authorities) bool {
	return a.Wrong == o.Wrong && a.Key == o.Key && a.Withheld == o.Withheld && a.UnknownLists == o.UnknownLists
}

func wrong(format string, args ...any) *Authorities {
	return &Authorities{Wrong: fmt.Sprintf(format, args...)}
}

// ReadAuthorities reads a ConfigMap or a ClusterTrustBundle. It must contain at least one certificate, and a malformed one makes all
// unusable: to trust fewer authorities than configured would not be noticed until a server presents a certificate of a missing one.
func ReadAuthorities(o metav1.Object) *Authorities {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return readConfigMap(o.Data)
	case *certificatesv1.ClusterTrustBundle:
		return parse("spec.trustBundle", o.Spec.TrustBundle)
	}
	return wrong("it cannot hold authorities")
}

func readConfigMap(data map[string]string) *Authorities {
	text, has := data[kind.AuthoritiesKey]
	lists, revokes := data[kind.RevocationsKey]
	var a *Authorities
	switch size, tooLarge := data[kind.AuthoritiesTooLarge]; {
	case tooLarge:
		a = wrong("%s has %s bytes, and at most %d are read", kind.AuthoritiesKey, size, MaxAuthorityBytes)
	case !has:
		a = wrong("data has no %s", kind.AuthoritiesKey)
	default:
		a = parse(kind.AuthoritiesKey, text)
	}
	switch {
	case !revokes:
	case a.Wrong != "":
		if a.UnknownLists = !has || len(text) > MaxAuthorityBytes || !readable(text); len(text) <= MaxAuthorityBytes {
			a.Withheld = text
		}
	default:
		listed := a.revoking(lists)
		if listed.Wrong != "" {
			listed.Withheld = a.PEM
		}
		return listed
	}
	return a
}

// readable reports whether a text contains certificates, all of which can be parsed.
func readable(text string) bool {
	blocks := 0
	for block, err := range revocation.Blocks(kind.AuthoritiesKey, text) {
		if err != nil {
			return false
		}
		if block.Type == "CERTIFICATE" {
			blocks++
		}
	}
	return blocks > 0 && blocks == len(revocation.Certificates(text))
}

// Shares reports whether both texts contain a certificate of the same authority, compared by name and key.
func Shares(a, b string) bool {
	identity := func(c *x509.Certificate) string { return string(c.RawSubject) + string(c.RawSubjectPublicKeyInfo) }
	known := map[string]bool{}
	for _, c := range revocation.Certificates(a) {
		known[identity(c)] = true
	}
	return slices.ContainsFunc(revocation.Certificates(b), func(c *x509.Certificate) bool { return known[identity(c)] })
}

// Config returns the resource for proxies.
func (a *Authorities) Config() *config.Authorities {
	if len(a.Lists) == 0 {
		return &config.Authorities{Key: a.Key, Pem: a.PEM}
	}
	return &config.Authorities{Key: a.Key, Revocable: &config.Revocable{Pem: a.PEM, Lists: a.Lists}}
}

// revoking adds the revocation lists of a text in PEM. One that cannot be used makes the authorities unusable: else certificates
// that it revokes would be accepted.
func (a *Authorities) revoking(text string) *Authorities {
	if len(text) > MaxRevocationBytes {
		return wrong("%s has %d bytes, and at most %d are read", kind.RevocationsKey, len(text), MaxRevocationBytes)
	}
	signers := revocation.NewSigners(revocation.Certificates(a.PEM))
	n := 0
	for block, err := range revocation.Blocks(kind.RevocationsKey, text) {
		if err != nil {
			return wrong("%v", err)
		}
		if n++; block.Type != "X509 CRL" {
			continue
		}
		if len(a.Lists) == revocation.MaxLists {
			return wrong("%s has more than %d revocation lists", kind.RevocationsKey, revocation.MaxLists)
		}
		if _, err := signers.Parse(block.Bytes); err != nil {
			return wrong("PEM block %d of %s: %v", n, kind.RevocationsKey, err)
		}
		a.Lists = append(a.Lists, block.Bytes)
	}
	if len(a.Lists) == 0 {
		return wrong("%s has no revocation list in PEM (X509 CRL)", kind.RevocationsKey)
	}
	a.Key = config.AuthoritiesKey(a.PEM, a.Lists...)
	return a
}

// parse reads the text of a field.
func parse(field, text string) *Authorities {
	if len(text) > MaxAuthorityBytes {
		return wrong("%s has %d bytes, and at most %d are read", field, len(text), MaxAuthorityBytes)
	}
	var out bytes.Buffer
	subjects := 0
	n := 0
	for block, err := range revocation.Blocks(field, text) {
		if err != nil {
			return wrong("%v", err)
		}
		if n++; block.Type != "CERTIFICATE" {
			continue // other blocks are neither trusted nor sent to proxies
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return wrong("PEM block %d of %s: %s", n, field, strings.Join(strings.Fields(err.Error()), " "))
		}
		if key, is := cert.PublicKey.(*rsa.PublicKey); is && key.N.BitLen() > maxModulusBits {
			return wrong("PEM block %d of %s: the modulus of its RSA key has %d bits, and at most %d are supported", n, field, key.N.BitLen(), maxModulusBits)
		}
		subjects += 2 + len(cert.RawSubject)
		_ = pem.Encode(&out, &pem.Block{Type: block.Type, Bytes: block.Bytes}) // a Buffer never returns an error
	}
	if out.Len() == 0 {
		return wrong("%s has no certificate in PEM", field)
	}
	shared := unique.Make(out.String())
	return &Authorities{Key: config.AuthoritiesKey(shared.Value()), PEM: shared.Value(), SubjectBytes: subjects, shared: shared}
}
