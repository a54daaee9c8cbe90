package tracing

import (
	"bytes"
	"cmp"
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

// Span is the span of an exchange's request, if it is recorded. The zero value is ready for use, and is reused for the
// exchange's next request.
type Span struct {
	tracer *Tracer
	span   trace.Span // nil if the request is not recorded
	header [parentSize]byte
	id     observe.SpanID
	noted  []attribute.KeyValue
	began  beginning
	// The original values of what filters may change, and settings of the request's listener and rule.
	path, host, route string
	port              uint16
	// rule is the tracing rule of the request's rule, nil if there is none, and fields the values of its fields as far
	// as they are known; only if the request is recorded.
	rule   *Rule
	fields []string
}

// beginning is the request before any filter, by which its rule may decide again whether it is recorded. The bytes
// belong to the request and are not read after Match.
type beginning struct {
	parent parent
	// told is the value of traceparent since Begin, which is the client's own value if that is passed on.
	came, told             []byte
	start                  time.Time
	method                 []byte
	path, query, authority []byte
	host                   []byte
	hasQuery               bool
}

// Begin decides whether the request is recorded, and sets the field for its backend accordingly. It must be called
// after the checks of the head, before everything else. seed is the state of the exchange's random numbers, and port
// the listener's. The tracer may be nil.
func (s *Span) Begin(t *Tracer, r *message.Request, seed *uint64, start time.Time, port uint16) {
	s.tracer, s.span, s.route, s.noted, s.rule = t, nil, "", s.noted[:0], nil
	if t == nil {
		return
	}
	b := &s.began
	*b = beginning{start: start, method: r.Method, path: r.Path, query: r.Query, hasQuery: r.HasQuery, authority: r.Host, host: r.MatchHost}
	b.parent, b.came = readParent(&r.Header)
	b.told = b.came
	s.port = port
	if !b.parent.valid() {
		r.Header.Remove(traceState) // it belongs to an unknown trace (W3C Trace Context section 3.3.1)
	}
	if t.wants(&b.parent, seed) {
		s.record(r)
	} else {
		s.pass(r)
	}
}

// pass tells the backend by traceparent that the request is not recorded here.
func (s *Span) pass(r *message.Request) {
	switch p := &s.began.parent; {
	case !p.valid(): // the trace begins here, and is not to be recorded by backends
		var id trace.TraceID
		var span trace.SpanID
		// Not from seed, whose state could be derived from what backends see.
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1)
		binary.NativeEndian.PutUint64(span[:], rand.Uint64()|1)
		s.propagate(r, id, span, 0)
	case s.tracer.ignoreParent: // the decision here applies to all backends
		s.propagate(r, p.trace, p.span, p.flags&^byte(trace.FlagsSampled))
	case &s.began.told[0] != &s.began.came[0] && s.tells(r): // it was recorded before
		r.Header.Set(traceParent, s.began.came)
		s.began.told = s.began.came
	} // otherwise the field stays as received: the trace continues at the backend
}

// record begins the span.
func (s *Span) record(r *message.Request) {
	t, p, ctx := s.tracer, &s.began.parent, context.Background()
	if p.valid() {
		c := trace.SpanContextConfig{TraceID: p.trace, SpanID: p.span, TraceFlags: trace.TraceFlags(p.flags), Remote: true}
		if value, ok := r.Header.Get("tracestate"); ok && len(value) <= maxState {
			c.TraceState, _ = trace.ParseTraceState(string(value)) // if it is malformed or longer, it is passed on but not recorded
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(c))
	}
	s.path, s.host = text(s.began.path), text(s.began.host)
	t.begun()
	_, s.span = t.tracer.Start(ctx, methodOf(r.Method), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(s.began.start))
	id := s.span.SpanContext()
	s.propagate(r, id.TraceID(), id.SpanID(), p.flags|byte(trace.FlagsSampled))
	for i := range t.attributes {
		if a := &t.attributes[i]; a.header != "" {
			s.note(a, func(name string) ([]byte, bool) { return s.requestField(r, name) })
		}
	}
}

// Match applies the tracing rule of the request's rule to its span, before any filter of the rule. If the rule has
// shares of its own, it decides again whether the request is recorded, and changes the field for the backend
// accordingly, unless a filter of the listener has changed it. It must be called after Begin.
func (s *Span) Match(rule *Rule, r *message.Request, seed *uint64) {
	if s.tracer == nil {
		return
	}
	if rule.decides() {
		switch want := rule.wants(s.tracer, &s.began.parent, &r.Header, seed); {
		case want && s.span == nil:
			s.record(r)
		case !want && s.span != nil:
			s.drop(r)
		}
	}
	if s.span == nil {
		return
	}
	s.rule = rule
	s.fields = append(s.fields[:0], make([]string, len(rule.fields))...)
	for i := range rule.fields {
		f := &rule.fields[i]
		if f.response { // the response may never arrive
			s.fields[i] = f.absent
			continue
		}
		s.fields[i], _ = f.read(func(name string) ([]byte, bool) { return s.requestField(r, name) })
	}
}

// requestField returns a field of the request, or the value of a pseudo-field that config.TraceText.request_header may
// name.
func (s *Span) requestField(r *message.Request, name string) ([]byte, bool) {
	switch b := &s.began; name {
	case ":authority", "host":
		return b.authority, true
	case ":method":
		return b.method, true
	case ":path":
		if !b.hasQuery {
			return b.path, true
		}
		path := append(bytes.Clone(b.path[:min(len(b.path), maxValue)]), '?')
		return append(path, b.query[:min(len(b.query), maxValue)]...), true
	}
	if value := r.Consumed.Get(name); value != nil {
		return value, true
	}
	return r.Header.Get(name)
}

// drop discards the span that has begun: it does not end, and so is not exported.
func (s *Span) drop(r *message.Request) {
	s.span = nil
	s.path, s.host = "", ""
	clear(s.noted)
	s.noted = s.noted[:0]
	s.tracer.ended()
	s.pass(r)
}

// note records the value of a field.
func (s *Span) note(a *extra, get func(name string) ([]byte, bool)) {
	if value, ok := get(a.header); ok {
		s.noted = append(s.noted, a.key.String(text(value)))
	}
}

// propagate sets the parent of the following spans in the request, if the request still has the value that was set before.
func (s *Span) propagate(r *message.Request, id trace.TraceID, span trace.SpanID, flags byte) {
	const known = byte(trace.FlagsSampled | 2) // and that the trace ID is random
	if s.began.told != nil && !s.tells(r) {
		return
	}
	appendParent(s.header[:0], id, span, flags&known)
	r.Header.Set(traceParent, s.header[:])
	s.began.told = s.header[:]
}

// tells reports whether the request has the traceparent that Begin has set.
func (s *Span) tells(r *message.Request) bool {
	value, ok := r.Header.Get("traceparent")
	return ok && bytes.Equal(value, s.began.told)
}

// Detach drops the references to the request's bytes after Match, if these are not kept until End.
func (s *Span) Detach() {
	if s.tracer != nil {
		s.began = beginning{}
	}
}

// Recorded reports whether the request is recorded.
func (s *Span) Recorded() bool { return s.span != nil }

// ID returns the ID of the span, nil if the request is not recorded. It is valid until the next Begin.
func (s *Span) ID() *observe.SpanID {
	if s.span == nil {
		return nil
	}
	c := s.span.SpanContext()
	id, span := c.TraceID(), c.SpanID()
	hex.Encode(s.id.Trace[:], id[:])
	hex.Encode(s.id.Span[:], span[:])
	return &s.id
}

// Matched records the path of the match by which a rule was chosen.
func (s *Span) Matched(path string) { s.route = path }

// Responds records fields of the head of the response that the request does not have.
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
			s.note(a, h.Get)
		}
	}
	if s.rule == nil {
		return
	}
	for i := range s.rule.fields {
		if f := &s.rule.fields[i]; f.response {
			s.fields[i], _ = f.read(h.Get)
		}
	}
}

// End ends the span, if there is one, with the outcome of the request.
func (s *Span) End(rec *observe.Record) {
	if s.span == nil {
		if s.tracer != nil {
			s.forget()
		}
		return
	}
	t := s.tracer
	defer s.forget()
	if t.shut.Load() { // also if it was retired while the request began
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
		add(attribute.Int("http.request.resend_count", int(rec.Attempts)-1))
	}
	if rec.Upstream.IsValid() {
		add(attribute.String("network.peer.address", rec.Upstream.Addr().String()), attribute.Int("network.peer.port", int(rec.Upstream.Port())))
	}
	if rec.Status >= 500 || rec.Status == 0 {
		word := rec.Reason.String()
		if rec.Reason == observe.ReasonOK { // the backend's own status
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
	if s.rule != nil {
		for i := range s.rule.tags { // after all others, which they replace
			tag := &s.rule.tags[i]
			if value := s.rule.text(tag.parts, s.fields, rec); value != "" {
				add(tag.key.String(value))
			}
		}
		name = cmp.Or(s.rule.text(s.rule.name, s.fields, rec), name)
	}
	s.span.SetName(name)
	s.span.SetAttributes(all...)
	s.span.End(trace.WithTimestamp(time.Unix(0, rec.StartUnixNano+rec.DurationNano)))
	t.ended()
}

// forget releases what the span has held.
func (s *Span) forget() {
	s.tracer, s.span, s.path, s.host, s.route, s.began, s.rule = nil, nil, "", "", "", beginning{}, nil
	clear(s.noted)
	clear(s.fields)
	s.noted, s.fields = s.noted[:0], s.fields[:0]
}

var versions = map[string]string{"HTTP/1.0": "1.0", "HTTP/1.1": "1.1", "HTTP/2.0": "2"}

// methodOf returns the method as used in span names: one of few, whatever clients send.
func methodOf(method []byte) string {
	switch m := string(method); m {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH":
		return m
	}
	return "_OTHER"
}
