package explain

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
)

// tracing describes whether the request would be traced, however it ends, and the collector of its span. own are the settings of the
// rule, nil if none.
func (d *decision) tracing(own *config.RuleTracing) []string {
	t := d.listener.Tracing
	if t == nil {
		if own != nil {
			return []string{"not traced: telemetry.tracing of the policy changes nothing, because no XTelemetryPolicy has requests to the Gateway traced"}
		}
		return nil
	}
	text, share := "traced", cmp.Or(own.GetSampling(), t.Sampling)
	parent, brings := d.req.Header.Get("traceparent")
	if brings = brings && !t.IgnoreParent; brings {
		text += " if traceparent " + string(parent) + " is valid and says that the trace is sampled"
		share = cmp.Or(own.GetClientSampling(), t.SampledParents)
	}
	if _, asks := d.req.Header.Get("x-client-trace-id"); asks && !brings && own.GetClientSampling() != nil {
		text += ", " + portion(own.ClientSampling) + " such requests because of x-client-trace-id, and of the others"
		if share == nil {
			text += " all"
		}
	} else if share != nil {
		text += ","
	}
	if share != nil {
		text += " " + portion(share) + " such requests"
	}
	if own.GetOverallSampling() != nil {
		text += ", and " + portion(own.OverallSampling) + " of these"
	}
	text += ": span of service " + t.ServiceName
	server := d.upstreams.Get(t.Backend)
	if server != nil {
		text += " to " + d.serverOf(server)
		if len(endpointsOf(server)) == 0 {
			text += ", which has no endpoint that is ready: spans are dropped"
		}
	}
	lines := []string{text}
	if own != nil {
		lines = append(lines, ownSpan(own)...)
	}
	return lines
}

func portion(s *config.Share) string { return fmt.Sprintf("%d of %d", s.Numerator, s.Denominator) }

// ownSpan describes what is specific to the span of a rule's request.
func ownSpan(own *config.RuleTracing) (lines []string) {
	if len(own.SpanName) > 0 {
		lines = append(lines, "the span is called "+traceText(own.SpanName))
	}
	for _, tag := range own.Tags {
		lines = append(lines, "the span has the tag "+tag.Name+": "+traceText(tag.Value))
	}
	return lines
}

// traceText returns a text as it is written in a policy, with operators.
func traceText(parts []*config.TraceText) string {
	var b strings.Builder
	header := func(operator, name string, p *config.TraceText) {
		b.WriteString("%" + operator + "(" + name)
		if p.Other != "" {
			b.WriteString("?" + p.Other)
		}
		b.WriteString(")")
		if p.Length > 0 {
			fmt.Fprintf(&b, ":%d", p.Length)
		}
		b.WriteString("%")
	}
	for _, p := range parts {
		switch of := p.Part.(type) {
		case *config.TraceText_Literal:
			b.WriteString(of.Literal)
		case *config.TraceText_RequestHeader:
			header("REQ", of.RequestHeader, p)
		case *config.TraceText_ResponseHeader:
			header("RESP", of.ResponseHeader, p)
		case *config.TraceText_Environment:
			b.WriteString("the variable " + of.Environment)
		case *config.TraceText_Operator:
			b.WriteString("%" + strings.TrimPrefix(of.Operator.String(), "TRACE_OPERATOR_") + "%")
		}
		if p.DefaultValue != "" {
			b.WriteString(" or else " + p.DefaultValue)
		}
	}
	return b.String()
}
