// Package compression compresses responses to clients: which content coding a client gets by its Accept-Encoding, which
// responses may be compressed, how their header sections change, and the encoders, which many responses share. It is
// separate from exchange because all of that concerns one message or one stream of bytes, not connections.
//
// It must never import the rest of the proxy except message.
package compression

import "fmt"

// Encoding is a content coding (RFC 9110 section 8.4.1). The zero value means that a body is not encoded.
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

// String returns the name of the encoding in Accept-Encoding and Content-Encoding.
func (e Encoding) String() string {
	if e >= encodings {
		return fmt.Sprintf("Encoding(%d)", uint8(e))
	}
	return tokens[e]
}

// Offer is an encoding that responses may have.
type Offer struct {
	Encoding Encoding
	// MinLength is the length in bytes from which on bodies are encoded. A body of unknown length counts as long
	// enough.
	MinLength int64
}

// Policy is the list of encodings for responses, the preferred one first. Each occurs once.
type Policy []Offer

// LongEnough reports whether any of the encodings applies to bodies of a length; -1 means unknown.
func (p Policy) LongEnough(length int64) bool {
	for _, o := range p {
		if length < 0 || length >= o.MinLength {
			return true
		}
	}
	return false
}

// Stats counts what was compressed with one encoding.
type Stats struct {
	Encoding Encoding
	// Responses are the responses that were begun, and Refused those that did not get the encoding because all encoders
	// were in use.
	Responses, Refused uint64
	// In and Out are bytes of bodies before and after encoding, of responses that have ended.
	In, Out uint64
}
