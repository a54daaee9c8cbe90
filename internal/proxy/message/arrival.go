package message

import "bytes"

// ClaimsProvenance reports whether a field line is one of X-Forwarded-*, Forwarded and X-Real-IP. An underscore counts
// as a hyphen, because CGI-like backends do not distinguish them.
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

// DisguisesProvenance reports whether a field line claims provenance with a name that differs from the one that proxies
// set or replace, so that its value does not come from the trusted proxy.
func DisguisesProvenance(f *Field) bool {
	return ClaimsProvenance(f) && bytes.IndexByte(f.Name, '_') >= 0
}

// ClaimsRequestID reports whether a field line is X-Request-Id, with underscores treated as in ClaimsProvenance.
func ClaimsRequestID(f *Field) bool {
	return len(f.Name) == len("x-request-id") && hasName(f.Name, "x-request-id")
}

// hasName reports whether n begins with the lower-case name.
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

// MaxPasses is how many times a request may pass Moongate proxies: a chain of Gateways, and a backend that calls
// through its own Gateway with the fields of the request that it serves, pass a few times. A loop would continue until
// descriptors run out.
const MaxPasses = 10

// CDN-Loop (RFC 8586) records the passes. Via is not used, since several servers disable compression for requests with
// Via.
var (
	cdnLoop    = []byte("CDN-Loop")
	passedHere = []byte("moongate")
)

// AddPass records in a request's header section that it passes a proxy.
func AddPass(h *Fields) { h.Add(cdnLoop, passedHere) }

// Passes returns how many times a request has passed a Moongate proxy.
func Passes(h *Fields) (n int) {
	for i := range h.Len() {
		f := h.At(i)
		if len(f.Name) != len(cdnLoop) || !EqualFoldBytes(f.Name, cdnLoop) {
			continue
		}
		for rest, more := f.Value, true; more; {
			var id []byte
			id, rest, more = bytes.Cut(rest, []byte(","))
			id, _, _ = bytes.Cut(id, []byte(";")) // parameters, which Moongate does not use
			if EqualFoldBytes(bytes.TrimSpace(id), passedHere) {
				n++
			}
		}
	}
	return n
}
