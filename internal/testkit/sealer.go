package testkit

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

// Content types of records, RFC 8446 section 5.1.
const (
	TLSAlert     = 21
	TLSHandshake = 22
	TLSData      = 23
)

// Labels of the secrets in the output of a crypto/tls KeyLogWriter: for what each side sends after the handshake.
const (
	ClientTrafficSecret = "CLIENT_TRAFFIC_SECRET_0"
	ServerTrafficSecret = "SERVER_TRAFFIC_SECRET_0"
)

// Sealer creates TLS 1.3 records that no library creates: empty ones, alerts, new keys. The cipher is AES-128-GCM.
type Sealer struct {
	secret   []byte
	aead     cipher.AEAD
	iv       []byte
	sequence uint64
}

// SealerOf returns a Sealer for a side that has sent nothing after its handshake, with the secret in the output of a KeyLogWriter.
func SealerOf(t testing.TB, keyLog, label string) *Sealer {
	t.Helper()
	for line := range strings.Lines(keyLog) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == label {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			return newSealer(secret)
		}
	}
	t.Fatal("no secret was logged")
	return nil
}

func newSealer(secret []byte) *Sealer {
	block, err := aes.NewCipher(expand(secret, "key", 16))
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return &Sealer{secret: secret, aead: aead, iv: expand(secret, "iv", 12)}
}

func expand(secret []byte, label string, size int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(size))
	info = append(info, byte(len("tls13 "+label)))
	info = append(append(info, "tls13 "+label...), 0)
	out, err := hkdf.Expand(sha256.New, secret, string(info), size)
	if err != nil {
		panic(err)
	}
	return out
}

// Seal returns a record with data.
func (s *Sealer) Seal(kind byte, data []byte) []byte {
	nonce := bytes.Clone(s.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, s.sequence) {
		nonce[4+i] ^= b
	}
	s.sequence++
	head := binary.BigEndian.AppendUint16([]byte{TLSData, 3, 3}, uint16(len(data)+1+s.aead.Overhead()))
	return s.aead.Seal(head, nonce, append(bytes.Clone(data), kind), head)
}

// Rekey returns a KeyUpdate (RFC 8446 section 4.6.3), after which the new keys are used. If asks is true, the peer must answer with
// one of its own.
func (s *Sealer) Rekey(asks bool) []byte {
	update := []byte{24, 0, 0, 1, 0}
	if asks {
		update[4] = 1
	}
	record := s.Seal(TLSHandshake, update)
	*s = *newSealer(expand(s.secret, "traffic upd", sha256.Size))
	return record
}
