package explain

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestExplainPreflight: explain has preflight requests go where the proxy has them go.
func TestExplainPreflight(t *testing.T) {
	on := func(path string, methods ...string) (all []*config.Match) {
		for _, m := range methods {
			match := prefix(path)[0]
			match.Method = m
			all = append(all, match)
		}
		return all
	}
	preflights := func(path string) []*config.Match {
		match := on(path, "OPTIONS")[0]
		match.Headers = []*config.ValueMatch{{Name: "origin", Value: ".+", RegularExpression: true}, {Name: "access-control-request-method", Value: "GET"}}
		match.Preflight, match.AddedHeaders = true, 2
		return append(on(path, "GET"), match)
	}
	cors := []*anypb.Any{packed(t, &config.CORS{AllowOrigins: []string{"https://a.test"}})}
	one := []*config.BackendRef{ref("one", 1)}
	w := World{ControllerName: "example.com/c", Place: func(_, _, _ string) string { return "" }, Resources: slices.Concat([]*config.Resource{
		listener("all", "", 80),
		route("r", []string{"all"},
			&config.Rule{Matches: preflights("/own"), Filters: cors, BackendRefs: one},
			&config.Rule{Matches: on("/own", "OPTIONS"), BackendRefs: one},
			&config.Rule{Matches: preflights("/added"), Filters: cors, BackendRefs: one},
			&config.Rule{Matches: prefix("/added"), BackendRefs: one},
			&config.Rule{Matches: preflights("/alone"), Filters: cors},
		),
	}, backend("one", "10.0.0.1"))}
	for _, test := range []struct {
		method, path, reason string
		says                 []string
	}{
		{"OPTIONS", "/own", "ok", []string{"rule       HTTPRoute n/r rules[1]", "runner-up  HTTPRoute n/r rules[0]", "takes OPTIONS only for preflight requests"}},
		{"OPTIONS", "/alone", "preflight", []string{"answer     204 preflight"}},
		{"GET", "/alone", "no_backend", []string{"filter     CORS", "answer     500 no_backend"}},
		{"OPTIONS", "/added", "preflight", []string{"rule       HTTPRoute n/r rules[2]", "runner-up  HTTPRoute n/r rules[3]", "no method match", "answer     204 preflight"}},
	} {
		e := explained(t, w, test.method, "http://a.test"+test.path, "Origin: https://a.test", "Access-Control-Request-Method: GET")
		var text strings.Builder
		if err := e.Print(&text); err != nil {
			t.Fatal(err)
		}
		rest := text.String()
		for _, want := range test.says {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("%s %s: no %q behind what comes before it in\n%s", test.method, test.path, want, text.String())
			}
			rest = after
		}
		if e.Answer.Reason != test.reason || (e.Forwarded != nil) != (test.reason == "ok") {
			t.Errorf("%s %s: %s, forwarded as %v, want %s", test.method, test.path, e.Answer.Reason, e.Forwarded, test.reason)
		}
	}
}
