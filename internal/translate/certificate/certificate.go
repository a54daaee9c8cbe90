// Package certificate reads Secrets of TLS key pairs, and derives the secrets that session tickets
// are sealed with. It exists apart from translate because it is pure functions of one object, which read no other.
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
)

// KeyPair is a Secret that a listener refers to.
type KeyPair struct {
	Chain, Key []byte   // PEM; verified to belong together unless Wrong
	Names      []string // DNS names of the certificate, in lower case
	Wrong      string   // why it cannot be used; tells nothing of the contents
}

// Equal compares two.
func (p *KeyPair) Equal(o *KeyPair) bool {
	return p.Wrong == o.Wrong && bytes.Equal(p.Chain, o.Chain) && bytes.Equal(p.Key, o.Key)
}

// Read verifies what a Secret holds.
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
		return &KeyPair{Wrong: strings.Join(strings.Fields(err.Error()), " ")} // on one line
	}
	out := &KeyPair{Chain: chain, Key: key}
	for _, n := range pair.Leaf.DNSNames {
		out.Names = append(out.Names, strings.ToLower(n))
	}
	return out
}

// TicketSecrets are those of a Gateway ("<namespace>/<name>"): that of a period, which seals, that of the next
// one, because proxies hear of a rotation one after the other, and that of the one before. So a ticket is good for one
// period at least and two at most. A Gateway that is made again under the same name has others. There are
// none without a secret.
func TicketSecrets(secret []byte, gateway string, uid types.UID, period int64) (out [][]byte) {
	return secretsOf("moongate ticket keys", secret, gateway, uid, period, period+1, period-1)
}

const (
	// sessionPeriods is for how many periods of Tickets a key signs the tokens of persistent sessions: 30 days.
	sessionPeriods = 60
	// sessionsKept is how many keys verify tokens beside it: a session that had no request for about a year is over.
	sessionsKept = 12
)

// SessionSecrets sign the tokens of a Gateway's persistent sessions, as TicketSecrets do tickets, but for longer: clients come back after days, and what
// the keys keep is which pod a client was with.
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
		if err != nil { // no length that is asked for here
			return nil
		}
		out = append(out, key)
	}
	return out
}
