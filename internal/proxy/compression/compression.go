// Package compression is how responses are compressed on their way to clients: which content coding a client gets by its Accept-Encoding, which responses
// are fit for it, what becomes of their header sections, and the encoders, of which many responses share few. It exists apart from exchange because all of that
// is about one message or one stream of bytes, and knows nothing of connections.
//
// It must never import the rest of the proxy but message.
package compression

import "fmt"

// Encoding is a content coding (RFC 9110 section 8.4.1). The zero value is that of a body as it is.
type Encoding uint8

// The encodings that responses can have.
const (
	Identity Encoding = iota
	Gzip              // RFC 1952
	Brotli            // RFC 7932
	Zstd              // RFC 8878
	encodings
)

var tokens = [encodings]string{"identity", "gzip", "br", "zstd"}

var tokenBytes = [encodings][]byte{[]byte("identity"), []byte("gzip"), []byte("br"), []byte("zstd")}

// String is the name that the encoding has in Accept-Encoding and Content-Encoding.
func (e Encoding) String() string {
	if e >= encodings {
		return fmt.Sprintf("Encoding(%d)", uint8(e))
	}
	return tokens[e]
}

// Offer is an encoding that responses may have.
type Offer struct {
	Encoding Encoding
	// MinLength is from how many bytes on bodies have it. One whose length is not known beforehand is long enough.
	MinLength int64
}

// Policy is what responses are compressed with, the preferred encoding first. None is there twice.
type Policy []Offer

// LongEnough reports whether any of the encodings is for bodies of a length, -1 where that is not known.
func (p Policy) LongEnough(length int64) bool {
	for _, o := range p {
		if length < 0 || length >= o.MinLength {
			return true
		}
	}
	return false
}

// Stats count what was compressed with one encoding.
type Stats struct {
	Encoding Encoding
	// Responses are those that were begun, and Refused those that did not get the encoding because as many encoders were in use as there may be.
	Responses, Refused uint64
	// In and Out are bytes of bodies before and after, of responses that have ended.
	In, Out uint64
}
