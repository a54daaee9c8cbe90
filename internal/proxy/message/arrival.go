package message

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/cginame"
)

// ClaimsProvenance reports whether a field line is one of X-Forwarded-*, Forwarded and X-Real-IP, or one that CGI-like
// backends take for these, see package cginame.
func ClaimsProvenance(f *Field) bool {
	n := f.Name
	switch n[0] | 0x20 {
	case 'f':
		return len(n) == len("forwarded") && hasCGIName(n, "forwarded")
	case 'x':
		return len(n) >= len("x-forwarded") && hasCGIName(n, "x-forwarded") && (len(n) == len("x-forwarded") || cginame.Byte(n[11]) == '-') ||
			len(n) == len("x-real-ip") && hasCGIName(n, "x-real-ip")
	}
	return false
}

// DisguisesProvenance reports whether a field line claims provenance with a name that differs from the one that proxies
// set or replace, so that its value does not come from the trusted proxy.
func DisguisesProvenance(f *Field) bool {
	if !ClaimsProvenance(f) {
		return false
	}
	for _, c := range f.Name {
		if cginame.Byte(c) == '-' && c != '-' {
			return true
		}
	}
	return false
}

// ClaimsRequestID reports whether a field line is X-Request-Id, or one that CGI-like backends take for it.
func ClaimsRequestID(f *Field) bool {
	return len(f.Name) == len("x-request-id") && hasCGIName(f.Name, "x-request-id")
}

// hasCGIName reports whether the CGI name of n begins with name.
func hasCGIName(n []byte, name string) bool {
	for i := range len(name) {
		if cginame.Byte(n[i]) != name[i] {
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
