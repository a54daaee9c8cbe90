package backendtraffic

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

const (
	maxTags      = 32   // as many as proxies keep of a span in addition to the attributes of an XTelemetryPolicy
	maxTraceText = 1024 // bytes of a tag or name before its operators are evaluated; proxies keep as many of the result
	// maxTraceFields limits the header fields of a policy: a proxy keeps them for each recorded request until the request ends.
	maxTraceFields = 64
	maxStatName    = 256 // bytes before its operators are evaluated: names of objects have at most 253
)

// ruleOperators stand for properties of a rule, which are known at translation.
var ruleOperators = []string{"%ROUTE_NAME%", "%ROUTE_NAMESPACE%", "%ROUTE_KIND%", "%ROUTE_RULE_NAME%"}

// variables are the environment variables of a proxy that only describe where it runs.
var variables = []string{"HOSTNAME", "NODE_NAME", "POD_IP", "POD_NAME", "POD_NAMESPACE"}

// telemetry reads how requests are traced and counted.
func (r *reader) telemetry(t *config.RuleTraffic, s *eg.BackendTelemetry) {
	if s == nil {
		return
	}
	if s.Metrics != nil {
		t.RouteStatName = r.routeStatName(ptr.Deref(s.Metrics.RouteStatName, ""))
	}
	t.Tracing = r.tracing(s.Tracing)
}

var percentWord = regexp.MustCompile(`%[^%]*%?`)

func (r *reader) routeStatName(name string) string {
	const field = "telemetry.metrics.routeStatName"
	if len(name) > maxStatName {
		r.invalid(field, fmt.Sprintf("use at most %d bytes", maxStatName), "it has %d bytes", len(name))
	}
	rest := name
	for _, o := range ruleOperators {
		rest = strings.ReplaceAll(rest, o, "")
	}
	if wrong := percentWord.FindString(rest); wrong != "" {
		r.invalid(field, "use "+condition.AnyOf(ruleOperators), "operator %q is not known", wrong)
	}
	return name
}

func (r *reader) tracing(s *eg.Tracing) *config.RuleTracing {
	if s == nil {
		return nil
	}
	const at = "telemetry.tracing."
	t := &config.RuleTracing{
		Sampling:        r.fraction(s.SamplingFraction, at+"samplingFraction"),
		ClientSampling:  r.fraction(s.ClientSamplingFraction, at+"clientSamplingFraction"),
		OverallSampling: r.fraction(s.OverallSamplingFraction, at+"overallSamplingFraction"),
		Tags:            r.tags(s),
	}
	if n := s.SpanName; n != nil {
		t.SpanName = r.traceText(n.Client, at+"spanName.client")
		if r.traceText(n.Server, at+"spanName.server"); n.Server != "" {
			r.note(at+"spanName.server", "it changes nothing: a request has one span, which spanName.client names")
		}
	}
	fields := map[string]bool{}
	for _, tag := range append([]*config.TraceTag{{Value: t.SpanName}}, t.Tags...) {
		for _, part := range tag.Value {
			if part.GetRequestHeader()+part.GetResponseHeader() != "" {
				fields[part.String()] = true
			}
		}
	}
	if len(fields) > maxTraceFields {
		r.invalid("telemetry.tracing", "leave out some", "it has %d header fields: at most %d are kept of a request", len(fields), maxTraceFields)
	}
	if proto.Equal(t, &config.RuleTracing{}) {
		return nil
	}
	return t
}

// tags reads tags and customTags; tags take precedence if both contain a name.
func (r *reader) tags(s *eg.Tracing) (list []*config.TraceTag) {
	all := map[string]*config.TraceTag{}
	for _, name := range slices.Sorted(maps.Keys(s.CustomTags)) {
		if field := tagField("customTags", name); r.tagName(name, field) {
			tag := s.CustomTags[name]
			all[name] = &config.TraceTag{Name: name, Value: r.customTag(&tag, field)}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tags)) {
		if field := tagField("tags", name); r.tagName(name, field) {
			all[name] = &config.TraceTag{Name: name, Value: r.traceText(s.Tags[name], field)}
		}
	}
	if len(all) > maxTags {
		r.invalid("telemetry.tracing.tags", "remove some", "there are %d, customTags included: at most %d are kept of a span", len(all), maxTags)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}

func tagField(field, name string) string {
	return fmt.Sprintf("telemetry.tracing.%s[%q]", field, name)
}

func (r *reader) tagName(name, field string) bool {
	if name == "" || len(name) > maxTraceText {
		r.invalid(field, "name it", "a tag must have a name of 1 to %d bytes", maxTraceText)
		return false
	}
	return true
}

// customTag reads a tag of customTags, the older form.
func (r *reader) customTag(s *eg.CustomTag, field string) []*config.TraceText {
	part := &config.TraceText{}
	switch {
	case s.Type == "Literal" && s.Literal != nil:
		r.traceLength(s.Literal.Value, field+".literal.value")
		if s.Literal.Value == "" {
			return nil
		}
		return []*config.TraceText{config.TraceLiteral(s.Literal.Value)}
	case s.Type == "Environment" && s.Environment != nil:
		part.Part = &config.TraceText_Environment{Environment: s.Environment.Name}
		part.DefaultValue = ptr.Deref(s.Environment.DefaultValue, "")
		// A policy's author must not read what an administrator has set in the environment of proxies.
		if !slices.Contains(variables, s.Environment.Name) {
			r.invalid(field+".environment.name", "use "+condition.AnyOf(variables)+", or a Literal", "variable %q of the proxy is not for policies", s.Environment.Name)
		}
		r.traceLength(part.DefaultValue, field+".environment.defaultValue")
	case s.Type == "RequestHeader" && s.RequestHeader != nil:
		name := strings.ToLower(s.RequestHeader.Name)
		part.Part = &config.TraceText_RequestHeader{RequestHeader: name}
		part.DefaultValue = ptr.Deref(s.RequestHeader.DefaultValue, "")
		if !config.IsToken(name) {
			r.invalid(field+".requestHeader.name", "correct it", "%q is not the name of a header field", s.RequestHeader.Name)
		}
		r.traceLength(part.DefaultValue, field+".requestHeader.defaultValue")
	default:
		r.invalid(field, "use type Literal, Environment or RequestHeader, with the field literal, environment or requestHeader", "a tag of type %q has no value", s.Type)
	}
	return []*config.TraceText{part}
}

// traceText reads a text with operators.
func (r *reader) traceText(text, field string) []*config.TraceText {
	if r.traceLength(text, field); len(text) > maxTraceText {
		return nil
	}
	parts, err := config.ParseTraceText(text)
	if err != nil {
		r.invalid(field, "use "+condition.AnyOf(config.TraceOperators())+", and %% for a percent sign that begins none", "operator %v", err)
	}
	return parts
}

func (r *reader) traceLength(text, field string) {
	if len(text) > maxTraceText {
		r.invalid(field, fmt.Sprintf("use at most %d bytes", maxTraceText), "it has %d bytes", len(text))
	}
}

// fraction reads a share of requests; it returns nil if the field is absent.
func (r *reader) fraction(f *gwv1.Fraction, field string) *config.Share {
	if f == nil {
		return nil
	}
	numerator, denominator := f.Numerator, ptr.Deref(f.Denominator, 100)
	if denominator < 1 || numerator < 0 || numerator > denominator {
		r.invalid(field, "use a fraction from 0 to 1", "%d/%d is not a share", numerator, denominator)
		return nil
	}
	return &config.Share{Numerator: uint32(numerator), Denominator: uint32(denominator)}
}

// ForRule returns t for a rule: its names replace the operators that stand for them, "-" for a rule without a name. It does not
// change t, and returns t itself if it contains no such operators.
func ForRule(t *config.RuleTraffic, kind, namespace, route, rule string) *config.RuleTraffic {
	if t.GetTracing() == nil && t.GetRouteStatName() == "" {
		return t
	}
	if rule == "" {
		rule = "-"
	}
	names := map[config.TraceOperator]string{
		config.TraceOperator_TRACE_OPERATOR_ROUTE_NAME:      route,
		config.TraceOperator_TRACE_OPERATOR_ROUTE_NAMESPACE: namespace,
		config.TraceOperator_TRACE_OPERATOR_ROUTE_KIND:      kind,
		config.TraceOperator_TRACE_OPERATOR_ROUTE_RULE_NAME: rule,
	}
	named := func(parts []*config.TraceText) bool {
		return slices.ContainsFunc(parts, func(p *config.TraceText) bool { return names[p.GetOperator()] != "" })
	}
	statNamed := strings.Contains(t.RouteStatName, "%")
	if !statNamed && !named(t.GetTracing().GetSpanName()) && !slices.ContainsFunc(t.GetTracing().GetTags(), func(tag *config.TraceTag) bool { return named(tag.Value) }) {
		return t
	}
	// The rest is shared by the rules: a policy may be in force for thousands of them.
	tracing := t.Tracing
	of := t
	t = &config.RuleTraffic{}
	of.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		t.ProtoReflect().Set(f, v)
		return true
	})
	t.Tracing = proto.CloneOf(tracing)
	t.RouteStatName = strings.NewReplacer("%ROUTE_NAME%", route, "%ROUTE_NAMESPACE%", namespace, "%ROUTE_KIND%", kind, "%ROUTE_RULE_NAME%", rule).Replace(t.RouteStatName)
	resolve := func(parts []*config.TraceText) []*config.TraceText {
		room := maxTraceText // the maximum that proxies keep
		for i, p := range parts {
			if name := names[p.GetOperator()]; name != "" {
				parts[i] = config.TraceLiteral(name)
			}
			if room -= len(parts[i].GetLiteral()); room < 0 {
				return parts[:i+1]
			}
		}
		return parts
	}
	if t.Tracing != nil {
		t.Tracing.SpanName = resolve(t.Tracing.SpanName)
		for _, tag := range t.Tracing.Tags {
			tag.Value = resolve(tag.Value)
		}
	}
	return t
}
