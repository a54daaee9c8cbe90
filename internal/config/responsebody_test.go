package config

import (
	"reflect"
	"strings"
	"testing"
)

// TestParseBody: operators are found, and percent signs that begin none stand for themselves.
func TestParseBody(t *testing.T) {
	text := func(s string) BodyPart { return BodyPart{Text: s} }
	for _, c := range []struct {
		body  string
		want  []BodyPart
		error string
	}{
		{"", nil, ""},
		{"out of order", []BodyPart{text("out of order")}, ""},
		{"%RESPONSE_CODE%", []BodyPart{{Operator: BodyResponseCode}}, ""},
		{"<b>%RESPONSE_CODE%%RESPONSE_CODE_DETAILS%</b>", []BodyPart{text("<b>"), {Operator: BodyResponseCode}, {Operator: BodyReason}, text("</b>")}, ""},
		{"%PROTOCOL% %REQ(X-Request-Id)%", []BodyPart{{Operator: BodyProtocol}, text(" "), {Operator: BodyRequestField, Name: "x-request-id"}}, ""},
		{"%REQ(A?B):7%", []BodyPart{{Operator: BodyRequestField, Name: "a", Other: "b", Length: 7}}, ""},
		{"width: 100%; height: 50%", []BodyPart{text("width: 100%; height: 50%")}, ""},
		{"100%% of %20 %2F% %e% %", []BodyPart{text("100% of %20 %2F% %e% %")}, ""},
		{"%%RESPONSE_CODE%%", []BodyPart{text("%RESPONSE_CODE%")}, ""},
		{"%START_TIME%", nil, `"%START_TIME%" is not known`},
		{"%RESPONSE_CODE(x)%", nil, `"%RESPONSE_CODE(x)%" is not known`},
		{"%REQ%", nil, `"%REQ%" is not known`},
		{"%REQ(X-Original-Path?:PATH)%", []BodyPart{{Operator: BodyRequestField, Name: "x-original-path", Other: ":path"}}, ""},
		{"%REQ(:SCHEME)%", nil, `"%REQ(:SCHEME)%" names no header field`},
		{"%REQ(A?)%", nil, `"%REQ(A?)%" names no header field`},
		{"%REQ(A):0%", nil, `"%REQ(A):0%" has a length that cannot be used`},
		{"%REQ(A):99999999999999999999%", nil, "has a length that cannot be used"},
	} {
		got, err := ParseBody(c.body)
		if c.error == "" && (err != nil || !reflect.DeepEqual(got, c.want)) || c.error != "" && (err == nil || !strings.Contains(err.Error(), c.error)) {
			t.Errorf("%q: got %+v, %v; want %+v, %q", c.body, got, err, c.want, c.error)
		}
	}
}

// TestBodyEscape: what a client has sent is escaped as the content type demands, wherever that is set.
func TestBodyEscape(t *testing.T) {
	header := func(name, value string) *ResponseHeaderModifier {
		return &ResponseHeaderModifier{Set: []*HeaderField{{Name: name, Value: value}}}
	}
	for _, c := range []struct {
		of   *ResponseOverride
		want BodyEscape
	}{
		{&ResponseOverride{}, EscapeNothing},
		{&ResponseOverride{ContentType: "Text/Plain; charset=utf-8"}, EscapeNothing},
		{&ResponseOverride{ContentType: "text/html"}, EscapeHTML},
		{&ResponseOverride{ContentType: "image/svg+xml"}, EscapeUnknown},
		{&ResponseOverride{ContentType: "application/x-unknown"}, EscapeUnknown},
		{&ResponseOverride{ContentType: "application/json"}, EscapeJSON},
		{&ResponseOverride{ContentType: "application/problem+json; charset=utf-8"}, EscapeJSON},
		{&ResponseOverride{Header: header("Content-type", "text/html")}, EscapeHTML},
		{&ResponseOverride{ContentType: "application/json", Header: header("Content-Type", "text/html")}, EscapeUnknown},
		{&ResponseOverride{ContentType: "text/html", Header: header("Content-Type", "text/html; charset=utf-8")}, EscapeHTML},
		{&ResponseOverride{ContentType: ";charset=utf-8"}, EscapeUnknown},
		{&ResponseOverride{Header: header("Content-Type", "")}, EscapeUnknown},
		{&ResponseOverride{ContentType: "text/javascript"}, EscapeUnknown},
		{&ResponseOverride{Header: header("X-Content-Type", "text/html")}, EscapeNothing},
	} {
		if got := c.of.BodyEscape(); got != c.want {
			t.Errorf("%v: %v, want %v", c.of, got, c.want)
		}
	}
}
