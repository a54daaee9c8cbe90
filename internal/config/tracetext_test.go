package config

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// TestParseTraceText: operators are found, and percent signs that begin none stand for themselves.
func TestParseTraceText(t *testing.T) {
	request := func(name string) *TraceText {
		return &TraceText{Part: &TraceText_RequestHeader{RequestHeader: name}}
	}
	operator := func(o TraceOperator) *TraceText {
		return &TraceText{Part: &TraceText_Operator{Operator: o}}
	}
	for _, c := range []struct {
		text  string
		want  []*TraceText
		error string
	}{
		{"", nil, ""},
		{"a", []*TraceText{TraceLiteral("a")}, ""},
		{"100%% of %20 %e%", []*TraceText{TraceLiteral("100% of %20 %e%")}, ""},
		{"%REQ(X-User)%/%PROTOCOL%", []*TraceText{request("x-user"), TraceLiteral("/"), operator(TraceOperator_TRACE_OPERATOR_PROTOCOL)}, ""},
		{"%REQ(:PATH)%", []*TraceText{request(":path")}, ""},
		{"%REQ(A?:AUTHORITY):7%", []*TraceText{{Part: &TraceText_RequestHeader{RequestHeader: "a"}, Other: ":authority", Length: 7}}, ""},
		{"%RESP(Server)%", []*TraceText{{Part: &TraceText_ResponseHeader{ResponseHeader: "server"}}}, ""},
		{"%ROUTE_RULE_NAME%", []*TraceText{operator(TraceOperator_TRACE_OPERATOR_ROUTE_RULE_NAME)}, ""},
		{"%UNSPECIFIED%", nil, `"%UNSPECIFIED%" is not known`},
		{"%START_TIME%", nil, `"%START_TIME%" is not known`},
		{"%PROTOCOL(x)%", nil, `"%PROTOCOL(x)%" is not known`},
		{"%DURATION:3%", nil, `"%DURATION:3%" is not known`},
		{"%REQ%", nil, `"%REQ%" is not known`},
		{"%RESP(:PATH)%", nil, `"%RESP(:PATH)%" names no header field`},
		{"%REQ(A?)%", nil, `"%REQ(A?)%" names no header field`},
		{"%REQ(A):0%", nil, "has a length that cannot be used"},
		{"%REQ(A):9999999999%", nil, "has a length that cannot be used"},
	} {
		got, err := ParseTraceText(c.text)
		same := proto.Equal(&TraceTag{Value: got}, &TraceTag{Value: c.want})
		if c.error == "" && (err != nil || !same) || c.error != "" && (err == nil || !strings.Contains(err.Error(), c.error)) {
			t.Errorf("%q: got %v, %v; want %v, %q", c.text, got, err, c.want, c.error)
		}
	}
}

// TestTraceOperators: each operator that is named to people is known.
func TestTraceOperators(t *testing.T) {
	for _, name := range TraceOperators() {
		if parts, err := ParseTraceText(name); err != nil || len(parts) != 1 || parts[0].GetLiteral() != "" {
			t.Errorf("%s: %v, %v", name, parts, err)
		}
	}
}
