// Package http1 parses and serialises HTTP/1.1 messages (RFC 9112, RFC 9110) for
// the data plane: heads into message.Request and message.Response, bodies piece
// by piece, and both back into bytes. It exists so that everything that decides
// where a message begins and ends stands in one place, is strict, and can be
// fuzzed without a socket. Nothing here allocates once scratch memory has grown.
//
// It is pure: no I/O, no clock, no goroutine, no logger. It imports
// proxy/message and small parts of the standard library, never net, net/http,
// config or any other package of the proxy.
//
// # Strictness
//
// Anything that two parsers could understand differently is an error, reported as soon as
// its bytes are there, and ends the connection; it is never repaired and passed
// on. Requests fail with the status the client gets, responses with 502.
//
//   - Lines end in CRLF. A bare CR or LF, NUL, DEL, any other control byte but
//     HTAB in a value, obs-fold, white space before the first field line or
//     before a colon, and an empty field name are 400. One empty line before a
//     request line is skipped (RFC 9112 section 2.2), a second one is 400.
//   - HTTP/1.0 and HTTP/1.1 are supported. Any other well-formed version is 505,
//     HTTP/1.2 to 1.9 included; a malformed one is 400.
//   - Content-Length is digits only, at most 2^63-1, and occurs once: repeated
//     lines and lists are 400 even if the numbers are equal.
//   - Transfer-Encoding is one line holding exactly "chunked" in any case, in
//     HTTP/1.1 only. A well-formed list that ends in chunked but names other
//     codings is 501 (RFC 9112 section 6.1); anything else is 400, and so is
//     Transfer-Encoding beside Content-Length in either order. Content_Length
//     and Transfer_Encoding, which CGI-like backends confuse with the real
//     names, are 400.
//   - HTTP/1.1 needs one Host; HTTP/1.0 may have one. Its value is a name of
//     letters, digits, "-", "_", "~" and non-empty labels, an IPv4 address or a
//     bracketed IPv6 address (no zone), and an optional port up to 65535. Escapes,
//     sub-delimiters and userinfo are 400; so is an empty Host, unless the target
//     has an authority.
//   - The authority of an absolute-form target (http or https) replaces Host.
//     Authority-form is for CONNECT only, and is reported as Form Authority: the
//     engine answers 501. Asterisk-form is for OPTIONS only, and
//     "OPTIONS http://host" is "OPTIONS *" (RFC 9112 section 3.2.4).
//   - Methods are tokens of at most 64 bytes (longer: 501), case-sensitive.
//   - A 204 or 1xx response may have "Content-Length: 0", which is dropped; any
//     other length or a Transfer-Encoding there is 502. On 304 and answers to
//     HEAD the length is kept to be forwarded. A 101 must name its protocol.
//     "HTTP/1.1 200" without the space before an empty reason is accepted.
//
// # Paths
//
// The path that is matched is the path that is forwarded. In this order:
// escapes of unreserved characters are decoded (%41 is A, %2e is .), other
// escapes get upper-case digits, dot segments are removed (RFC 3986 section
// 5.2.4). "//" is kept, for merging would change the meaning; %2F and %5C stay
// escaped and separate nothing. A path that climbs above the root, a malformed
// escape, %00, and a raw backslash are 400. Visible ASCII which RFC 3986 forbids
// but browsers send (such as | and []) stays as it is. An empty path is "/".
// The query is checked for control bytes, spaces, non-ASCII bytes and "#", and
// otherwise left alone.
//
// # Hop-by-hop fields
//
// Header holds end-to-end field lines only. Connection, Keep-Alive,
// Proxy-Connection, TE, Upgrade, Transfer-Encoding and HTTP2-Settings are
// consumed, as are Host, Content-Length and Expect of a request.
// Proxy-Authenticate, Proxy-Authorization and Proxy-Authentication-Info are
// dropped too: to its clients a gateway is an origin server (RFC 9110 section
// 3.7), so they can only be meant for another hop. Trailer is kept.
//
// Fields that Connection nominates are dropped from header and trailer section,
// but not those on which routing and security depend: nominating Host,
// framing (Content-*, Transfer-Encoding), credentials (Authorization, Cookie) or
// provenance (Forwarded, Via, X-Real-IP, X-Forwarded-*) is an error. At most 32
// fields may be nominated. An Upgrade to another HTTP version or to TLS
// (h2c, HTTP/2.0, TLS/1.0) is ignored as if it had not been sent.
package http1
