// Package head validates the header and trailer sections of HTTP/2 requests and responses (RFC 9113 section 8), field
// by field as they are decoded, and stores valid fields as HTTP/1.1 would write them. It exists so that the rules for
// what is accepted are in one place and can be fuzzed without a connection.
//
// It is pure: no I/O, no clock, no goroutine. It imports proxy/message and small parts of the standard library, never
// the connection, net, net/http or any other package of the proxy.
package head

import "github.com/moongate-dev/moongate/internal/proxy/message"

// Head is a request head that passed all checks of this package. It and the bytes that its slices point to belong to
// the stream, and are valid until the handler returns.
type Head struct {
	Method []byte
	// Scheme is :scheme; empty for CONNECT without :protocol. It is not compared with the connection's.
	Scheme []byte
	// Authority is :authority or else Host, including the port: visible ASCII without userinfo, not empty. The caller
	// must check its form as a host.
	Authority []byte
	// Path is :path as received: visible ASCII that begins with "/", or "*" for OPTIONS; empty for
	// CONNECT without :protocol. It is not normalised.
	Path []byte
	// Protocol is :protocol of an extended CONNECT, otherwise empty.
	Protocol []byte
	// Fields are the field lines in order, with lower-case names and with Line set as HTTP/1.1 writes it. Cookie lines
	// are joined into one. Host, Content-Length, TE, Expect, HTTP2-Settings and Proxy-Auth* are consumed and not among
	// them.
	Fields message.Fields
	// Length is the value of Content-Length, nil if there is none.
	Length []byte
	// ContentLength is the number in Content-Length, 0 without a body, and -1 if unknown.
	ContentLength int64
	// HasBody means that the request did not end with its head.
	HasBody bool
	// ExpectContinue means Expect: 100-continue with a body, ExpectOther any other expectation (417).
	ExpectContinue, ExpectOther bool
	TETrailers                  bool // TE: trailers
}
