package tracing

import (
	"bytes"
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

var (
	traceParent = []byte("traceparent")
	traceState  = []byte("tracestate")
)

// parentSize is the length of traceparent in version 00: version, trace, parent and flags, separated by hyphens.
const parentSize = 2 + 1 + 32 + 1 + 16 + 1 + 2

// parent is the traceparent of a request (W3C Trace Context section 3.2). The zero value means none.
type parent struct {
	trace trace.TraceID
	span  trace.SpanID
	flags byte
}

func (p *parent) valid() bool   { return p.trace.IsValid() }
func (p *parent) sampled() bool { return p.flags&byte(trace.FlagsSampled) != 0 }

// readParent parses the traceparent field, and also returns its value. If it is malformed or repeated, there is none.
func readParent(h *message.Fields) (p parent, value []byte) {
	for i := range h.Len() {
		if f := h.At(i); len(f.Name) == len(traceParent) && message.EqualFoldBytes(f.Name, traceParent) {
			if value != nil {
				return parent{}, nil
			}
			value = f.Value
		}
	}
	p, ok := parseParent(value)
	if !ok {
		return parent{}, nil
	}
	return p, value
}

func parseParent(value []byte) (p parent, ok bool) {
	if len(value) < parentSize || value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return parent{}, false
	}
	var version, flags [1]byte
	if !decode(version[:], value[:2]) || !decode(p.trace[:], value[3:35]) || !decode(p.span[:], value[36:52]) || !decode(flags[:], value[53:55]) {
		return parent{}, false
	}
	switch {
	case version[0] == 0xff, version[0] == 0 && len(value) != parentSize, len(value) > parentSize && value[parentSize] != '-':
		return parent{}, false
	case !p.trace.IsValid() || !p.span.IsValid():
		return parent{}, false
	}
	p.flags = flags[0]
	return p, true
}

// decode decodes hexadecimal digits, which must be in lower case.
func decode(into, digits []byte) bool {
	if bytes.IndexFunc(digits, func(r rune) bool { return 'A' <= r && r <= 'F' }) >= 0 {
		return false
	}
	_, err := hex.Decode(into, digits)
	return err == nil
}

// appendParent appends traceparent in version 00.
func appendParent(b []byte, t trace.TraceID, s trace.SpanID, flags byte) []byte {
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, t[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, s[:])
	b = append(b, '-')
	return hex.AppendEncode(b, []byte{flags})
}
