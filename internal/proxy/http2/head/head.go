// Package head judges the header and trailer sections of HTTP/2 requests and responses (RFC 9113
// section 8), field by field as they are decoded, and keeps what passes as HTTP/1.1 would write it. It exists
// so that what may be handed over stands in one place and can be fuzzed without a connection.
//
// It is pure: no I/O, no clock, no goroutine. It imports proxy/message and small parts of the
// standard library, never the connection, net, net/http or any other package of the proxy.
package head

import "github.com/moongate-dev/moongate/internal/proxy/message"

// Head is a request head that passed all checks of this package. It and what its slices
// point to belong to the stream, and are valid until the handler returns.
type Head struct {
	Method []byte
	// Scheme is :scheme; empty for CONNECT without :protocol. Not compared with the connection's.
	Scheme []byte
	// Authority is :authority or else Host, port included: visible ASCII without userinfo, not
	// empty. Its form as a host is the caller's to check.
	Authority []byte
	// Path is :path as received: visible ASCII that begins with "/", or "*" for OPTIONS; empty for
	// CONNECT without :protocol. It is not normalised.
	Path []byte
	// Protocol is :protocol of an extended CONNECT, else empty.
	Protocol []byte
	// Fields are the field lines in order, with lower-case names and with Line set as HTTP/1.1 writes
	// it. Cookie lines are joined to one. Without Host, Content-Length, TE, Expect,
	// HTTP2-Settings and Proxy-Auth*, which are consumed.
	Fields message.Fields
	// Length is the value of Content-Length, nil without.
	Length []byte
	// ContentLength is that of the field, or 0 without a body, or -1 where it is not known.
	ContentLength int64
	// HasBody: the request did not end with its head.
	HasBody bool
	// ExpectContinue: Expect: 100-continue with a body. ExpectOther: any other expectation (417).
	ExpectContinue, ExpectOther bool
	TETrailers                  bool // TE: trailers
}
