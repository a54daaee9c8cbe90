package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Span is the span of an exchange's request, if it is recorded. The zero value is ready, and is used again for the exchange's next request.
type Span struct {
	tracer *Tracer
	span   trace.Span // nil: the request is not recorded
	header [parentSize]byte
	id     [32]byte // the trace's, in hexadecimal
	noted  []attribute.KeyValue
	// What filters may change, as it was, and what the request's listener and rule say.
	path, host, route string
	port              uint16
}

// Begin decides whether the request is recorded, and tells its backend so: it has passed nothing yet but the checks of its head. seed is the state of the exchange's
// random numbers, and port the listener's. The tracer may be nil.
func (s *Span) Begin(t *Tracer, r *message.Request, seed *uint64, start time.Time, port uint16) {
	s.tracer, s.span, s.route, s.noted = t, nil, "", s.noted[:0]
	if t == nil {
		return
	}
	p := readParent(&r.Header)
	if !p.valid() {
		r.Header.Remove(traceState) // of a trace that nobody knows (W3C Trace Context section 3.3.1)
	}
	switch recorded := t.wants(&p, seed); {
	case recorded:
		s.port = port
		s.record(r, &p, start)
	case !p.valid(): // the trace begins here, and nobody behind records it
		var id trace.TraceID
		var span trace.SpanID
		// Not of seed, whose state could be told from what backends see.
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1)
		binary.NativeEndian.PutUint64(span[:], rand.Uint64()|1)
		s.tell(r, id, span, 0)
	case t.ignoreParent: // it is decided here for all behind
		s.tell(r, p.trace, p.span, p.flags&^byte(trace.FlagsSampled))
	} // else the field stays as it came: the trace goes past
}

// record begins the span.
func (s *Span) record(r *message.Request, p *parent, start time.Time) {
	t, ctx := s.tracer, context.Background()
	if p.valid() {
		c := trace.SpanContextConfig{TraceID: p.trace, SpanID: p.span, TraceFlags: trace.TraceFlags(p.flags), Remote: true}
		if value, ok := r.Header.Get("tracestate"); ok && len(value) <= maxState {
			c.TraceState, _ = trace.ParseTraceState(string(value)) // what is malformed, or longer, is passed on and not recorded
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(c))
	}
	s.path, s.host = text(r.Path), text(r.MatchHost)
	t.begun()
	_, s.span = t.tracer.Start(ctx, methodOf(r.Method), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(start))
	id := s.span.SpanContext()
	s.tell(r, id.TraceID(), id.SpanID(), p.flags|byte(trace.FlagsSampled))
	for i := range t.attributes {
		if a := &t.attributes[i]; a.header != "" {
			s.note(a, &r.Header)
		}
	}
}

// note keeps the value of a field.
func (s *Span) note(a *extra, h *message.Fields) {
	if value, ok := h.Get(a.header); ok {
		s.noted = append(s.noted, a.key.String(text(value)))
	}
}

// tell puts the parent of what follows into the request.
func (s *Span) tell(r *message.Request, id trace.TraceID, span trace.SpanID, flags byte) {
	const known = byte(trace.FlagsSampled | 2) // and that the trace's ID is random
	appendParent(s.header[:0], id, span, flags&known)
	r.Header.Set(traceParent, s.header[:])
}

// Recorded reports whether the request is recorded.
func (s *Span) Recorded() bool { return s.span != nil }

// TraceID returns the ID of the trace in hexadecimal, nil where the request is not recorded. It is valid until the next Begin.
func (s *Span) TraceID() *[32]byte {
	if s.span == nil {
		return nil
	}
	id := s.span.SpanContext().TraceID()
	hex.Encode(s.id[:], id[:])
	return &s.id
}

// Matched says which path of a rule's match has chosen it.
func (s *Span) Matched(path string) { s.route = path }

// Responds looks at the head of the response, for fields that the request does not have.
func (s *Span) Responds(h *message.Fields) {
	if s.span == nil {
		return
	}
	for i := range s.tracer.attributes {
		a := &s.tracer.attributes[i]
		if a.header == "" {
			continue
		}
		known := false
		for _, n := range s.noted {
			known = known || n.Key == a.key
		}
		if !known {
			s.note(a, h)
		}
	}
}

// End ends the span, if there is one, with the outcome of the request.
func (s *Span) End(rec *observe.Record) {
	if s.span == nil {
		return
	}
	t := s.tracer
	defer s.forget()
	if t.shut.Load() { // also where it was retired while the request began
		t.backend.SpansDropped(1)
		t.ended()
		return
	}
	name := methodOf(rec.Method)
	all := make([]attribute.KeyValue, 0, 24+len(t.attributes))
	add := func(kv ...attribute.KeyValue) { all = append(all, kv...) }
	add(attribute.String("http.request.method", name), attribute.String("url.scheme", rec.Scheme), attribute.String("url.path", s.path), attribute.String("server.address", s.host), attribute.Int("server.port", int(s.port)),
		attribute.String("client.address", rec.ClientAddr.Addr().String()), attribute.String("network.protocol.name", "http"),
		attribute.Int64("http.request.body.size", rec.BytesReceived), attribute.Int64("http.response.body.size", rec.BytesSent))
	if name != string(rec.Method) {
		add(attribute.String("http.request.method_original", text(rec.Method)))
	}
	if version, ok := versions[rec.Protocol]; ok {
		add(attribute.String("network.protocol.version", version))
	}
	if rec.Status != 0 {
		add(attribute.Int("http.response.status_code", rec.Status))
	}
	if len(rec.UserAgent) > 0 {
		add(attribute.String("user_agent.original", text(rec.UserAgent)))
	}
	if s.route != "" {
		add(attribute.String("http.route", s.route))
		name += " " + s.route
	}
	if rec.Attempts > 1 {
		add(attribute.Int("http.request.resend_count", rec.Attempts-1))
	}
	if rec.Upstream.IsValid() {
		add(attribute.String("network.peer.address", rec.Upstream.Addr().String()), attribute.Int("network.peer.port", int(rec.Upstream.Port())))
	}
	if rec.Status >= 500 || rec.Status == 0 {
		word := rec.Reason.String()
		if rec.Reason == observe.ReasonOK { // the backend's own
			word = strconv.Itoa(rec.Status)
		}
		add(attribute.String("error.type", word))
		s.span.SetStatus(codes.Error, "")
	}
	for i := range t.attributes {
		switch a := &t.attributes[i]; {
		case a.literal != nil:
			add(a.key.String(*a.literal))
		case a.attribute != "":
			for _, kv := range all {
				if string(kv.Key) == a.attribute {
					add(attribute.KeyValue{Key: a.key, Value: kv.Value})
					break
				}
			}
		}
	}
	add(s.noted...)
	if t.spanName != "" {
		name = t.spanName
	}
	s.span.SetName(name)
	s.span.SetAttributes(all...)
	s.span.End(trace.WithTimestamp(time.Unix(0, rec.StartUnixNano+rec.DurationNano)))
	t.ended()
}

// forget lets go of what the span has held.
func (s *Span) forget() {
	s.tracer, s.span, s.path, s.host, s.route = nil, nil, "", "", ""
	clear(s.noted)
	s.noted = s.noted[:0]
}

var versions = map[string]string{"HTTP/1.0": "1.0", "HTTP/1.1": "1.1", "HTTP/2.0": "2"}

// methodOf is the method as names of spans have it: few, whatever clients invent.
func methodOf(method []byte) string {
	switch m := string(method); m {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH":
		return m
	}
	return "_OTHER"
}
