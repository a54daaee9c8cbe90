package snapshot

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// TestCompileResponseOverrides: what a sender of another version asks for is refused, and does not match what it should not.
func TestCompileResponseOverrides(t *testing.T) {
	for want, c := range map[string]*config.ResponseOverride{
		"101 cannot be the status":  {StatusCode: 101},
		"600 cannot be the status":  {StatusCode: 600},
		"\"%FUTURE%\" is not known": {Body: proto.String("%FUTURE%")},
		"missing closing":           {HeaderFields: []*config.ResponseFieldMatch{{Name: "a", Type: config.StringMatchType_STRING_MATCH_TYPE_REGULAR_EXPRESSION, Value: "("}}},
		"303000 is not a redirect":  {Redirect: &config.RequestRedirect{StatusCode: 303000}},
		"name":                      {Header: &config.ResponseHeaderModifier{Set: []*config.HeaderField{{Name: "a b"}}}},
	} {
		if _, err := compileResponseOverrides([]*config.ResponseOverride{{StatusCode: 500}, c}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "override 1") {
			t.Errorf("%v: %v", want, err)
		}
	}
	o, err := compileResponseOverrides([]*config.ResponseOverride{
		{Statuses: []*config.StatusRange{{First: 500, Last: 502}, {First: 504, Last: 504}}, Source: config.ResponseSource_RESPONSE_SOURCE_LOCAL, StatusCode: 551},
		{Statuses: []*config.StatusRange{{First: 500, Last: 599}}, StatusCode: 552},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int
		local  bool
		want   int // 0: none
	}{{499, true, 0}, {500, true, 551}, {502, true, 551}, {503, true, 552}, {504, true, 551}, {504, false, 552}, {599, false, 552}, {600, false, 0}} {
		got := 0
		if m := o.Match(&message.Response{Status: c.status}, c.local); m != nil {
			got = m.Status
		}
		if got != c.want {
			t.Errorf("%d, local %v: %d, want %d", c.status, c.local, got, c.want)
		}
	}
}

// TestStepsOfResponseOverrides: a long header of a response does not cost what a long request may not.
func TestStepsOfResponseOverrides(t *testing.T) {
	one := func(pattern string, status uint32) *config.ResponseOverride {
		return &config.ResponseOverride{StatusCode: status,
			HeaderFields: []*config.ResponseFieldMatch{{Name: "x", Type: config.StringMatchType_STRING_MATCH_TYPE_REGULAR_EXPRESSION, Value: pattern}}}
	}
	o, err := compileResponseOverrides([]*config.ResponseOverride{one("(a{1,30}){1,30}b", 500), one("a+", 501)})
	if err != nil {
		t.Fatal(err)
	}
	for length, want := range map[int]int{10: 501, 60 << 10: 0} {
		var r message.Response
		r.Status = 200
		r.Header.Add([]byte("X"), bytes.Repeat([]byte("a"), length))
		got := 0
		if m := o.Match(&r, false); m != nil {
			got = m.Status
		}
		if got != want {
			t.Errorf("of %d bytes: override %d, want %d", length, got, want)
		}
	}
}

// TestOverridesAreCompiledOnce: all rules that ask for the same share it, and with the last of them it is forgotten; also what cannot be carried out.
func TestOverridesAreCompiledOnce(t *testing.T) {
	p := newCompiler(t)
	route := func(name, body string) *config.Route {
		c := &config.Route{Key: "HTTPRoute/default/" + name, Namespace: "default", Name: name}
		for i := range 2 {
			c.Rules = append(c.Rules, &config.Rule{Index: uint32(i), Traffic: &config.RuleTraffic{ResponseOverrides: []*config.ResponseOverride{{Body: proto.String(body)}}}})
		}
		return c
	}
	var routes []*Route
	for _, c := range []*config.Route{route("a", "body"), route("b", "body"), route("c", "another")} {
		r, err := p.Route(c)
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, r)
	}
	first := routes[0].rules[0].ResponseOverrides
	if routes[0].rules[1].ResponseOverrides != first || routes[1].rules[0].ResponseOverrides != first || routes[2].rules[0].ResponseOverrides == first {
		t.Error("not those that are equal are shared")
	}
	if _, err := p.Route(route("d", "%NOTHING_KNOWN%")); err == nil {
		t.Error("an operator that is not known is carried out")
	}
	if n := p.overrides.Len(); n != 2 {
		t.Errorf("%d are kept, want 2", n)
	}
	for _, r := range routes {
		r.Release()
	}
	if n := p.overrides.Len(); n != 0 {
		t.Errorf("%d are kept without a route, want none", n)
	}
}
