package tracing

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Rule is what a rule configures for the spans of its requests, on any listener.
type Rule struct {
	// sampling, client and overall are nil if the tracer's decision stands. If all are nil, no new decision is made.
	sampling, client, overall *share

	tags []tag
	name []textPart // empty: the name is as without a rule
	// fields are the fields that parts refer to by textPart.field.
	fields []headerField
}

// tag is an attribute.
type tag struct {
	key   attribute.Key
	parts []textPart
}

// textPart is a part of a text: an operator, a field, or a literal.
type textPart struct {
	literal  string
	field    int // index in Rule.fields; -1 if none
	operator config.TraceOperator
}

// headerField is a field of the request or response.
type headerField struct {
	name, other string // in lower case; other is used if name is missing
	absent      string // the value if both are missing
	response    bool
	length      int // in bytes, at most
}

// clientTraceID is the field by which clients request a trace if a rule configures the share of such requests that is
// traced, as in Envoy.
const clientTraceID = "x-client-trace-id"

// NewRule compiles the settings of a rule; nil for nil. Environment variables are read once.
func NewRule(c *config.RuleTracing) *Rule {
	if c == nil {
		return nil
	}
	r := &Rule{sampling: ownShare(c.Sampling), client: ownShare(c.ClientSampling), overall: ownShare(c.OverallSampling)}
	r.name = r.compile(c.SpanName)
	for _, t := range c.Tags {
		r.tags = append(r.tags, tag{attribute.Key(t.Name), r.compile(t.Value)})
	}
	return r
}

func ownShare(c *config.Share) *share {
	if c == nil {
		return nil
	}
	return new(shareOf(c))
}

func (r *Rule) compile(texts []*config.TraceText) (parts []textPart) {
	literal := func(text string) {
		if n := len(parts); n > 0 && parts[n-1].operator == 0 && parts[n-1].field < 0 {
			parts[n-1].literal += text
		} else {
			parts = append(parts, textPart{literal: text, field: -1})
		}
	}
	ofField := func(name string, response bool, c *config.TraceText) {
		f := headerField{name: name, other: c.Other, absent: c.DefaultValue, response: response, length: maxValue}
		if c.Length > 0 {
			f.length = int(min(c.Length, maxValue))
		}
		at := slices.Index(r.fields, f) // each field is read once
		if at < 0 {
			at = len(r.fields)
			r.fields = append(r.fields, f)
		}
		parts = append(parts, textPart{field: at})
	}
	for _, c := range texts {
		switch p := c.Part.(type) {
		case *config.TraceText_Literal:
			literal(p.Literal)
		case *config.TraceText_Environment:
			value, ok := os.LookupEnv(p.Environment)
			if !ok {
				value = c.DefaultValue
			}
			literal(text([]byte(value))) // the collector would reject a batch that is not completely UTF-8
		case *config.TraceText_RequestHeader:
			ofField(p.RequestHeader, false, c)
		case *config.TraceText_ResponseHeader:
			ofField(p.ResponseHeader, true, c)
		case *config.TraceText_Operator:
			parts = append(parts, textPart{operator: p.Operator, field: -1})
		}
	}
	for i := range parts {
		parts[i].literal = text([]byte(parts[i].literal)) // so that it is not cut within a character: the collector would reject a batch that is not UTF-8
	}
	return parts
}

// decides reports whether the rule makes a new sampling decision.
func (r *Rule) decides() bool { return r.sampling != nil || r.client != nil || r.overall != nil }

// wants decides whether a request of a rule is recorded, regardless of any earlier decision.
func (r *Rule) wants(t *Tracer, p *parent, h *message.Fields, seed *uint64) bool {
	share := func(own *share, otherwise share) share {
		if own != nil {
			return *own
		}
		return otherwise
	}
	var want bool
	if p.valid() && !t.ignoreParent {
		want = p.sampled() && share(r.client, t.parents).takes(seed)
	} else {
		if r.client != nil {
			_, asks := h.Get(clientTraceID)
			want = asks && r.client.takes(seed)
		}
		want = want || share(r.sampling, t.sampling).takes(seed)
	}
	return want && (r.overall == nil || r.overall.takes(seed))
}

// read returns the bounded value of a field.
func (f *headerField) read(get func(name string) ([]byte, bool)) (string, bool) {
	value, ok := get(f.name)
	if !ok && f.other != "" {
		value, ok = get(f.other)
	}
	if !ok {
		return f.absent, false
	}
	return text(value[:min(len(value), f.length)]), true
}

// text returns a text for a request that has ended. fields are the values of Rule.fields. Values from clients were
// bounded separately, and the whole is bounded like any attribute.
func (r *Rule) text(parts []textPart, fields []string, rec *observe.Record) string {
	if len(parts) == 1 && parts[0].operator == 0 && parts[0].field < 0 {
		return parts[0].literal
	}
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.operator != 0:
			b.WriteString(operatorOf(p.operator, rec))
		case p.field >= 0:
			b.WriteString(fields[p.field])
		default:
			b.WriteString(p.literal)
		}
		if b.Len() > maxValue {
			return text([]byte(b.String()))
		}
	}
	return b.String()
}

// operatorOf returns the value of an operator; "" if it is unknown for the request.
func operatorOf(o config.TraceOperator, rec *observe.Record) string {
	host := func(a netip.AddrPort) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	switch o {
	case config.TraceOperator_TRACE_OPERATOR_RESPONSE_CODE:
		if rec.Status == 0 {
			return ""
		}
		return strconv.Itoa(rec.Status)
	case config.TraceOperator_TRACE_OPERATOR_RESPONSE_CODE_DETAILS:
		return rec.Reason.String()
	case config.TraceOperator_TRACE_OPERATOR_PROTOCOL:
		if rec.Protocol == "HTTP/2.0" {
			return "HTTP/2"
		}
		return rec.Protocol
	case config.TraceOperator_TRACE_OPERATOR_DURATION:
		return strconv.FormatInt(rec.DurationNano/1e6, 10)
	case config.TraceOperator_TRACE_OPERATOR_BYTES_RECEIVED:
		return strconv.FormatInt(rec.BytesReceived, 10)
	case config.TraceOperator_TRACE_OPERATOR_BYTES_SENT:
		return strconv.FormatInt(rec.BytesSent, 10)
	case config.TraceOperator_TRACE_OPERATOR_DOWNSTREAM_REMOTE_ADDRESS:
		return host(rec.ClientAddr)
	case config.TraceOperator_TRACE_OPERATOR_DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT:
		if !rec.ClientAddr.IsValid() {
			return ""
		}
		return rec.ClientAddr.Addr().String()
	case config.TraceOperator_TRACE_OPERATOR_UPSTREAM_HOST:
		return host(rec.Upstream)
	}
	return ""
}
