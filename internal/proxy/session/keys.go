package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"sync"
)

// KeySize is the length of each of config.TicketKeys.session_keys in bytes.
const KeySize = 32

// Keys sign the tokens of one Gateway and verify them. They are safe for concurrent use.
type Keys struct {
	all []*key // the first one signs
}

type key struct {
	id   byte // identifies the key in one byte of the token, so that for most tokens at most one signature is computed
	macs sync.Pool
}

// NewKeys creates Keys from config.TicketKeys.session_keys; nil if there are none. An error contains nothing of the
// keys.
func NewKeys(secrets [][]byte) (*Keys, error) {
	if len(secrets) == 0 {
		return nil, nil
	}
	k := &Keys{}
	for i, secret := range secrets {
		if len(secret) != KeySize {
			return nil, fmt.Errorf("session key %d has %d bytes, not %d", i, len(secret), KeySize)
		}
		id := sha256.Sum256(append([]byte("moongate session key\n"), secret...))
		k.all = append(k.all, &key{id: id[0], macs: sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }}})
	}
	return k, nil
}

// mac is a hash with memory for its input and output, which must not be on a stack.
type mac struct {
	hash.Hash
	sum  [sha256.Size]byte
	text []byte
}

// signatureSize is the size of a token's signature in bytes: HMAC-SHA-256 truncated to 128 bits, which RFC 2104 section
// 5 allows.
const signatureSize = 16

// sign appends the signature of a token's text, which is only valid for sessions of that purpose.
func (k *key) sign(dst []byte, purpose string, text []byte) []byte {
	m := k.macs.Get().(*mac)
	defer k.macs.Put(m)
	m.Reset()
	m.text = append(append(m.text[:0], purpose...), 0) // no purpose contains a zero byte
	m.text = append(m.text, text...)
	m.Write(m.text) //nolint:errcheck // writing to a hash never fails
	return append(dst, m.Sum(m.sum[:0])[:signatureSize]...)
}

// verifies reports whether a signature is the one of sign.
func (k *key) verifies(signature []byte, purpose string, text []byte) bool {
	var own [signatureSize]byte
	return hmac.Equal(k.sign(own[:0], purpose, text), signature)
}
