package backendtraffic

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestBoundsOfTelemetry: a policy does not have proxies keep much of each request, nor tell what an operator has put into their environment.
func TestBoundsOfTelemetry(t *testing.T) {
	variable := func(name string) string {
		return "telemetry: {tracing: {customTags: {a: {type: Environment, environment: {name: " + name + "}}}}}"
	}
	for text, want := range map[string]string{
		"telemetry: {tracing: {tags: {a: '" + strings.Repeat("%REQ(X)%", 100) + "'}}}": "", // one field
		variable("POD_NAME"):              "",
		variable("AWS_SECRET_ACCESS_KEY"): `variable "AWS_SECRET_ACCESS_KEY" of the proxy is not for policies`,
		variable(`""`):                    `variable "" of the proxy is not for policies`,
		"telemetry: {tracing: {tags: {a: '" + strings.Repeat("%", 1<<20) + "'}}}": "it has 1048576 bytes",
		"telemetry: {tracing: {tags: {" + manyFields(maxTraceFields) + "}}}":      "",
		"telemetry: {tracing: {tags: {" + manyFields(maxTraceFields+1) + "}}}":    "it has 65 header fields: at most 64 are kept of a request",
	} {
		if got := problemOf(t, text); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.100s: %q, want %q", text, got, want)
		}
	}
}

// manyFields are tags with so many header fields together.
func manyFields(n int) string {
	var tags []string
	for i := range n {
		if i%8 == 0 {
			tags = append(tags, fmt.Sprintf("t%d: '", i))
		}
		tags[len(tags)-1] += fmt.Sprintf("%%REQ(X-%d)%%", i)
	}
	return strings.Join(tags, "', ") + "'"
}

// TestForRuleShares: what names of rules do not change is the same object for all rules, and what they make longer is bounded.
func TestForRuleShares(t *testing.T) {
	name := &config.TraceText{Part: &config.TraceText_Operator{Operator: config.TraceOperator_TRACE_OPERATOR_ROUTE_NAME}}
	whole := &config.RuleTraffic{ResponseOverrides: []*config.ResponseOverride{{Body: proto.String("body")}}, Tracing: &config.RuleTracing{}}
	for range 100 {
		whole.Tracing.SpanName = append(whole.Tracing.SpanName, name)
	}
	before := proto.CloneOf(whole)
	got := ForRule(whole, "HTTPRoute", "n", strings.Repeat("r", 200), "")
	if got.ResponseOverrides[0] != whole.ResponseOverrides[0] {
		t.Error("response overrides are copied")
	}
	length := 0
	for _, p := range got.Tracing.SpanName {
		length += len(p.GetLiteral())
	}
	if length < maxTraceText || length > maxTraceText+200 {
		t.Errorf("the name has %d bytes", length)
	}
	if !proto.Equal(whole, before) {
		t.Error("the policy's own has changed")
	}
	if plain := (&config.RuleTraffic{ResponseOverrides: whole.ResponseOverrides}); ForRule(plain, "HTTPRoute", "n", "r", "") != plain {
		t.Error("what has no telemetry is copied")
	}
}
