package exchange

import (
	"math/rand/v2"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

var requestIDName = []byte("X-Request-Id")

const (
	// requestIDSize is the length of a UUID in text (RFC 9562 section 4).
	requestIDSize = 36
	// maxRequestID is the largest length of a client's id that is kept.
	maxRequestID = 128
)

// setRequestID gives the request an id that connects the entries of this access log and the backend's. A client's own
// id is replaced unless Engine.KeepRequestIDs is set: a client that chooses ids could make entries look like those of
// another request.
func (x *Exchange) setRequestID() {
	if x.Client.Engine.KeepRequestIDs {
		if id, n := x.claimedRequestID(); n == 1 && plainRequestID(id) {
			x.rec.RequestID = id
			return
		}
	}
	x.Header.RemoveIf(message.ClaimsRequestID)
	writeUUID(&x.requestID, rand.Uint64(), rand.Uint64())
	x.rec.RequestID = x.requestID[:]
	x.Header.Add(requestIDName, x.requestID[:])
}

// claimedRequestID returns the last of the ids in the request, and their number, in any spelling of the field.
func (x *Exchange) claimedRequestID() (id []byte, n int) {
	for i := range x.Header.Len() {
		if f := x.Header.At(i); message.ClaimsRequestID(f) {
			id, n = f.Value, n+1
		}
	}
	return id, n
}

// plainRequestID reports whether a client's id can be kept: it is short, and has only visible ASCII characters except
// the comma, which would make two ids of it.
func plainRequestID(id []byte) bool {
	if len(id) == 0 || len(id) > maxRequestID {
		return false
	}
	for _, b := range id {
		if b <= ' ' || b >= 0x7f || b == ',' {
			return false
		}
	}
	return true
}

// writeUUID writes a UUID of version 4 (RFC 9562 section 5.4) made of the given random bits.
func writeUUID(to *[requestIDSize]byte, high, low uint64) {
	const digits = "0123456789abcdef"
	high = high&^0xf000 | 0x4000         // the version
	low = low&^(0b11<<62) | (0b10 << 62) // the variant
	i := 0
	for _, half := range [...]uint64{high, low} {
		for shift := 60; shift >= 0; shift -= 4 {
			if i == 8 || i == 13 || i == 18 || i == 23 {
				to[i] = '-'
				i++
			}
			to[i] = digits[half>>shift&0xf]
			i++
		}
	}
}
