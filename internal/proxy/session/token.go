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
	maxStays   = 16 // as many backendRefs as a rule may have
	maxToken   = headSize + maxStays*staySize + signatureSize
	maxEncoded = (maxToken*8 + 5) / 6
)

// Token is what is known of a client's sessions. Its zero value is that there are none.
type Token struct {
	n     int
	stays [maxStays]stay
	// renew says that the client must be given the token again although nothing has changed: it was signed with an old key.
	renew bool
}

// stay is the session with one backend.
type stay struct {
	backend, endpoint uint64 // of upstream.Backend.SessionID and upstream.Endpoint.SessionID
	begun, last       int64  // when it began, and when its last request came that the client was given a token for; Unix milliseconds
}

// Sessions is how many backends there are sessions with.
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

// Endpoint returns which endpoint of a backend the session is with. Without a session, or when its time is over, ok is false.
func (t *Token) Endpoint(s *Settings, backend uint64, now time.Time) (endpoint uint64, ok bool) {
	i := t.find(backend)
	if i < 0 || s.over(&t.stays[i], now.UnixMilli()) {
		return 0, false
	}
	return t.stays[i].endpoint, true
}

// over reports whether the time of a session has run out.
func (s *Settings) over(y *stay, now int64) bool {
	return s.absolute > 0 && now-y.begun >= s.absolute.Milliseconds() || s.idle > 0 && now-y.last >= s.idle.Milliseconds()
}

// Keep notes that a request of the session was answered by an endpoint of a backend, and reports whether the client must be given the token again. Where the
// session was with another endpoint, or over, it begins. Of too many the one ends that began first.
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

// place returns where another stay can be put.
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

// appendToken appends the token as clients have it, signed.
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

// read reads what a client has brought; false is that it is no token of these keys and this purpose, and t is as if there was none.
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

// decode parts a token into what is signed and the signature, if it has the form of one; raw is memory for both.
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
