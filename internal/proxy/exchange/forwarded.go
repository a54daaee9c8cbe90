package exchange

import "github.com/moongate-dev/moongate/internal/proxy/message"

var (
	forwardedFor   = []byte("X-Forwarded-For")
	forwardedProto = []byte("X-Forwarded-Proto")
	forwardedHost  = []byte("X-Forwarded-Host")
	schemeHTTP     = []byte("http")
	schemeHTTPS    = []byte("https")
)

// setForwarded replaces what the client says of its provenance by what we know. A client's
// own X-Forwarded-*, Forwarded and X-Real-IP are dropped, since a backend would trust
// them. Via is passed on and not added to: some servers turn off compression for
// requests that have it, so countPass has another field.
func (x *Exchange) setForwarded() {
	h := &x.Header
	h.RemoveIf(claimsProvenance)
	h.Add(forwardedFor, x.Client.PeerText)
	if x.Client.Mode.TLS() {
		h.Add(forwardedProto, schemeHTTPS)
	} else {
		h.Add(forwardedProto, schemeHTTP)
	}
	h.Add(forwardedHost, x.Host)
}

// claimsProvenance tells whether a field line is one of X-Forwarded-*, Forwarded and X-Real-IP. An
// underscore counts as a hyphen: CGI-like backends do not see the difference.
func claimsProvenance(f *message.Field) bool {
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
