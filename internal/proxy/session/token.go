package session

import (
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A token in bytes, which clients have in base64url without padding (RFC 4648 section 5):
//
//	version   1 byte
//	key       1 byte, key.id
//	stays     1 to maxStays times 32 bytes: backend, endpoint, begun and last, big-endian
//	signature 16 bytes, of all before it
const (
	version    = 1
	headSize   = 2
	staySize   = 4 * 8
	maxStays   = 16 // as many as the backendRefs of a rule
	maxToken   = headSize + maxStays*staySize + signatureSize
	maxEncoded = (maxToken*8 + 5) / 6
)

// Token is the state of a client's sessions. The zero value has none.
type Token struct {
	n     int
	stays [maxStays]stay
	// renew means that the client must be given the token again although nothing has changed, because it was signed
	// with an old key.
	renew bool
}

// stay is the session with one backend.
type stay struct {
	backend, endpoint uint64 // upstream.Backend.SessionID and upstream.Endpoint.SessionID
	begun, last       int64  // when it began, and when the last request arrived for which the client was given a token; Unix milliseconds
}

// Sessions returns the number of backends with sessions.
func (t *Token) Sessions() int { return t.n }

// find returns the position of a backend's stay, or -1.
func (t *Token) find(backend uint64) int {
	for i := range t.n {
		if t.stays[i].backend == backend {
			return i
		}
	}
	return -1
}

// Endpoint returns the endpoint of the session with a backend. ok is false if there is no session or its time is over.
func (t *Token) Endpoint(s *Settings, backend uint64, now time.Time) (endpoint uint64, ok bool) {
	i := t.find(backend)
	if i < 0 || s.over(&t.stays[i], now.UnixMilli()) {
		return 0, false
	}
	return t.stays[i].endpoint, true
}

// over reports whether the time of a session is over.
func (s *Settings) over(y *stay, now int64) bool {
	return s.absolute > 0 && now-y.begun >= s.absolute.Milliseconds() || s.idle > 0 && now-y.last >= s.idle.Milliseconds()
}

// Keep records that a request of the session was answered by an endpoint of a backend, and reports whether the client
// must be given the token again. If the session was with another endpoint, or over, a new one begins. If there are too
// many, the one that began first is dropped.
func (t *Token) Keep(s *Settings, backend, endpoint uint64, at time.Time) (changed bool) {
	now := at.UnixMilli()
	i := t.find(backend)
	switch {
	case i < 0:
		i = t.place()
	case s.over(&t.stays[i], now) || t.stays[i].endpoint != endpoint:
	default:
		if s.idle > 0 && t.stays[i].last != now {
			t.stays[i].last = now
			return true
		}
		return t.renew
	}
	t.stays[i] = stay{backend, endpoint, now, now}
	return true
}

// place returns the index for another stay.
func (t *Token) place() int {
	if t.n < maxStays {
		t.n++
		return t.n - 1
	}
	oldest := 0
	for i := range t.stays {
		if t.stays[i].begun < t.stays[oldest].begun {
			oldest = i
		}
	}
	return oldest
}

var encoding = base64.RawURLEncoding.Strict()

// appendToken appends the signed token as sent to clients.
func (k *Keys) appendToken(dst []byte, purpose string, t *Token) []byte {
	var raw [maxToken]byte
	b := append(raw[:0], version, k.all[0].id)
	for i := range t.n {
		y := &t.stays[i]
		for _, word := range [...]uint64{y.backend, y.endpoint, uint64(y.begun), uint64(y.last)} {
			b = binary.BigEndian.AppendUint64(b, word)
		}
	}
	b = k.all[0].sign(b, purpose, b)
	return encoding.AppendEncode(dst, b)
}

// read reads a value that a client has sent. It returns false if it is not a token of these keys and this purpose; t is
// empty then.
func (k *Keys) read(t *Token, purpose string, encoded []byte) bool {
	t.n, t.renew = 0, false
	var raw [maxEncoded]byte
	text, signature, ok := decode(raw[:], encoded)
	if !ok {
		return false
	}
	for i, key := range k.all {
		if key.id == text[1] && key.verifies(signature, purpose, text) {
			t.renew = i > 0
			t.take(text)
			return true
		}
	}
	return false
}

// decode splits a token into the signed part and the signature, if it has the form of one. raw is memory for both.
func decode(raw, encoded []byte) (text, signature []byte, ok bool) {
	if len(encoded) > maxEncoded {
		return nil, nil, false
	}
	size, err := encoding.Decode(raw, encoded)
	if err != nil || size < headSize+staySize+signatureSize || (size-headSize-signatureSize)%staySize != 0 || raw[0] != version {
		return nil, nil, false
	}
	return raw[:size-signatureSize], raw[size-signatureSize : size], true
}

// take reads the stays of a token's text.
func (t *Token) take(text []byte) {
	t.n = 0
	for text = text[headSize:]; len(text) > 0; text = text[staySize:] {
		t.stays[t.n] = stay{binary.BigEndian.Uint64(text), binary.BigEndian.Uint64(text[8:]),
			int64(binary.BigEndian.Uint64(text[16:])), int64(binary.BigEndian.Uint64(text[24:]))}
		t.n++
	}
}
