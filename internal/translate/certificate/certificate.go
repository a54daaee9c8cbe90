// Package certificate reads Secrets with TLS key pairs, and the certificates and revocation lists of authorities, within limits on
// their size, and derives the secrets for session tickets. It is separate from translate because it is pure functions of one object.
//
// It must never import translate, nor anything that translate must not.
package certificate

import (
	"bytes"
	"cmp"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// KeyPair is a Secret that a listener refers to.
type KeyPair struct {
	Chain, Key []byte   // PEM; verified to match unless Wrong
	Names      []string // DNS names of the certificate, in lower case
	Wrong      string   // why it cannot be used; does not reveal the contents
}

// Equal reports whether two are equal.
func (p *KeyPair) Equal(o *KeyPair) bool {
	return p.Wrong == o.Wrong && bytes.Equal(p.Chain, o.Chain) && bytes.Equal(p.Key, o.Key)
}

// Read reads and verifies the key pair in a Secret.
func Read(s *corev1.Secret) *KeyPair {
	if s.Type != corev1.SecretTypeTLS {
		return &KeyPair{Wrong: "type is " + string(cmp.Or(s.Type, corev1.SecretTypeOpaque)) + ", not " + string(corev1.SecretTypeTLS)}
	}
	chain, key := s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]
	switch {
	case len(chain) == 0:
		return &KeyPair{Wrong: "data has no " + corev1.TLSCertKey}
	case len(key) == 0:
		return &KeyPair{Wrong: "data has no " + corev1.TLSPrivateKeyKey}
	}
	if wrong := tooMuch(chain, key); wrong != "" {
		return &KeyPair{Wrong: wrong}
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return &KeyPair{Wrong: condition.OneLine(err.Error())}
	}
	out := &KeyPair{Chain: chain, Key: key}
	for _, n := range pair.Leaf.DNSNames {
		out.Names = append(out.Names, strings.ToLower(n))
	}
	return out
}

// TicketSecrets returns the secrets of a Gateway ("<namespace>/<name>"): that of the period, which encrypts new tickets, that of the
// next period, because proxies learn of a rotation one after the other, and that of the previous one. So a ticket is valid for at
// least one period and at most two. A Gateway that is created again under the same name has other secrets. Without a secret it
// returns none.
func TicketSecrets(secret []byte, gateway string, uid types.UID, period int64) (out [][]byte) {
	return secretsOf("moongate ticket keys", secret, gateway, uid, period, period+1, period-1)
}

const (
	// sessionPeriods is the number of periods of Tickets for which a key signs the tokens of persistent sessions: 30 days.
	sessionPeriods = 60
	// sessionsKept is the number of older keys that still verify tokens: a session without a request for about a year ends.
	sessionsKept = 12
)

// SessionSecrets returns the secrets that sign the tokens of a Gateway's persistent sessions. They are valid for longer than those
// of TicketSecrets: clients return after days, and the keys only protect which pod a client was sent to.
func SessionSecrets(secret []byte, gateway string, uid types.UID, period int64) [][]byte {
	now := period / sessionPeriods
	periods := []int64{now, now + 1}
	for n := range int64(sessionsKept) {
		periods = append(periods, now-1-n)
	}
	return secretsOf("moongate session keys", secret, gateway, uid, periods...)
}

// secretsOf derives a secret for each period.
func secretsOf(label string, secret []byte, gateway string, uid types.UID, periods ...int64) (out [][]byte) {
	if len(secret) == 0 {
		return nil
	}
	for _, n := range periods {
		info := label + "\n" + gateway + "\n" + string(uid) + "\n" + strconv.FormatInt(n, 10)
		key, err := hkdf.Key(sha256.New, secret, nil, info, sha256.Size)
		if err != nil { // cannot happen with these lengths
			return nil
		}
		out = append(out, key)
	}
	return out
}
