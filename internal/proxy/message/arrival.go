package message

import "bytes"

// ClaimsProvenance tells whether a field line is one of X-Forwarded-*, Forwarded and X-Real-IP. An
// underscore counts as a hyphen: CGI-like backends do not see the difference.
func ClaimsProvenance(f *Field) bool {
	n := f.Name
	switch n[0] | 0x20 {
	case 'f':
		return len(n) == len("forwarded") && hasName(n, "forwarded")
	case 'x':
		return len(n) >= len("x-forwarded") && hasName(n, "x-forwarded") && (len(n) == len("x-forwarded") || n[11] == '-' || n[11] == '_') ||
			len(n) == len("x-real-ip") && hasName(n, "x-real-ip")
	}
	return false
}

// DisguisesProvenance tells whether a field line claims provenance by a name that is not quite the one which proxies set or replace: what it says is not
// the trusted proxy's.
func DisguisesProvenance(f *Field) bool {
	return ClaimsProvenance(f) && bytes.IndexByte(f.Name, '_') >= 0
}

// ClaimsRequestID tells whether a field line is X-Request-Id, as ClaimsProvenance does.
func ClaimsRequestID(f *Field) bool {
	return len(f.Name) == len("x-request-id") && hasName(f.Name, "x-request-id")
}

// hasName tells whether n begins with the lower-case name.
func hasName(n []byte, name string) bool {
	for i := range len(name) {
		b := n[i]
		if b == '_' {
			b = '-'
		} else if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != name[i] {
			return false
		}
	}
	return true
}

// MaxPasses is how often a request may pass proxies of Moongate, whichever they are: a chain of Gateways, and a backend that
// calls through its own Gateway with the fields of the request that it serves, pass a few times. A loop
// does until descriptors run out.
const MaxPasses = 10

// CDN-Loop (RFC 8586) tells of the passes, and not Via, since several servers turn compression off for requests with Via.
var (
	cdnLoop    = []byte("CDN-Loop")
	passedHere = []byte("moongate")
)

// AddPass notes in a request's header section that it passes a proxy.
func AddPass(h *Fields) { h.Add(cdnLoop, passedHere) }

// Passes is how often a request has passed a proxy of Moongate.
func Passes(h *Fields) (n int) {
	for i := range h.Len() {
		f := h.At(i)
		if len(f.Name) != len(cdnLoop) || !EqualFoldBytes(f.Name, cdnLoop) {
			continue
		}
		for rest, more := f.Value, true; more; {
			var id []byte
			id, rest, more = bytes.Cut(rest, []byte(","))
			id, _, _ = bytes.Cut(id, []byte(";")) // parameters, which we have none of
			if EqualFoldBytes(bytes.TrimSpace(id), passedHere) {
				n++
			}
		}
	}
	return n
}
