package accesslog

import (
	"slices"
	"strings"
	"testing"
)

func TestCompile(t *testing.T) {
	for _, o := range []Options{{}, {Format: JSON}, {OneIn: 10}, {Format: JSON, OneIn: 1}} {
		if l, problems := Compile(o); l != nil || problems != nil {
			t.Errorf("%+v: %+v, %+v, want none, so that the default costs nothing", o, l, problems)
		}
	}
	l, problems := Compile(Options{Members: []string{"method", "response_header.Server", "request_header.referer", "request_header.x-team"}})
	if problems != nil {
		t.Fatal(problems)
	}
	if want := []string{"referer", "x-team"}; !slices.Equal(l.RequestHeaders, want) || !slices.Equal(l.ResponseHeaders, []string{"server"}) {
		t.Errorf("headers %q and %q", l.RequestHeaders, l.ResponseHeaders)
	}
	want := []Part{
		{`"method":`, Method, 0, false}, {`"response_header.server":`, ResponseHeader, 2, false},
		{`"request_header.referer":`, RequestHeader, 0, true}, {`"request_header.x-team":`, RequestHeader, 1, false},
	}
	if !slices.Equal(l.Parts, want) {
		t.Errorf("parts %+v, want %+v", l.Parts, want)
	}
	l, problems = Compile(Options{Members: []string{"all", "client_ip"}, Redact: []string{"token", "*"}})
	if problems != nil || len(l.Parts) != int(Cause)+2 || !l.RedactAll || !slices.Equal(l.Redact, []string{"token"}) {
		t.Errorf("all: %+v, %v", l, problems)
	}
	l, problems = Compile(Options{Format: "{{{method}}} {path}!"})
	if problems != nil || !l.Text || l.Tail != "!" || !slices.Equal(l.Parts, []Part{{"{", Method, 0, false}, {"} ", Path, 0, false}}) {
		t.Errorf("template: %+v, %v", l, problems)
	}
	if l, problems = Compile(Options{Format: Combined}); problems != nil || !l.Text || len(l.Parts) != 9 {
		t.Errorf("combined: %+v, %v", l, problems)
	}
}

func TestCompileRefuses(t *testing.T) {
	var headers []string
	for i := range MaxHeaders + 1 {
		headers = append(headers, "request_header."+strings.Repeat("x", i+1))
	}
	for name, tc := range map[string]struct {
		o      Options
		option Option
		index  int
		text   string
	}{
		"unknown member":       {Options{Members: []string{"method", "methods"}}, OptionMembers, 1, `"methods" is not a member`},
		"member twice":         {Options{Members: []string{"method", "method"}}, OptionMembers, 1, "twice"},
		"member and all":       {Options{Members: []string{"method", "all"}}, OptionMembers, 1, `"method" is named twice`},
		"header twice":         {Options{Members: []string{"request_header.a", "request_header.A"}}, OptionMembers, 1, "twice"},
		"header without name":  {Options{Members: []string{"request_header."}}, OptionMembers, 0, "not the name of a header"},
		"header with a quote":  {Options{Members: []string{`request_header.a"b`}}, OptionMembers, 0, "not the name of a header"},
		"placeholder":          {Options{Members: []string{"request_header.<name>"}}, OptionMembers, 0, "not the name of a header"},
		"long header":          {Options{Members: []string{"request_header." + strings.Repeat("a", MaxHeaderName+1)}}, OptionMembers, 0, "not the name of a header"},
		"many headers":         {Options{Members: headers}, OptionMembers, MaxHeaders, "more than 16 headers"},
		"many members":         {Options{Members: make([]string, MaxMembers+1)}, OptionMembers, -1, "65 members"},
		"credentials":          {Options{Members: []string{"request_header.Authorization"}}, OptionMembers, 0, "credentials"},
		"credentials in text":  {Options{Format: "{response_header.set-cookie}"}, OptionFormat, -1, "credentials"},
		"members of a text":    {Options{Format: Combined, Members: []string{"method"}}, OptionMembers, -1, "a text has the members"},
		"no member":            {Options{Format: "xml"}, OptionFormat, -1, `"xml" names no member`},
		"open brace":           {Options{Format: "{path} {method"}, OptionFormat, -1, "a { is not closed"},
		"closing brace":        {Options{Format: "{path} }"}, OptionFormat, -1, "a } closes nothing"},
		"member twice in text": {Options{Format: "{path} {path}"}, OptionFormat, -1, "twice"},
		"line break":           {Options{Format: "{path}\n"}, OptionFormat, -1, "control character"},
		"not UTF-8":            {Options{Format: "{path}\xff"}, OptionFormat, -1, "UTF-8"},
		"long":                 {Options{Format: "{path}" + strings.Repeat(" ", MaxFormat)}, OptionFormat, -1, "1024 at most"},
		"empty parameter":      {Options{Redact: []string{"a", ""}}, OptionRedact, 1, "not the name of a query parameter"},
		"many parameters":      {Options{Redact: make([]string, MaxRedacted+1)}, OptionRedact, -1, "65 names"},
		"negative":             {Options{OneIn: -1}, OptionOneIn, -1, "-1 is out of bounds"},
		"too many":             {Options{OneIn: MaxOneIn + 1}, OptionOneIn, -1, "out of bounds"},
	} {
		l, problems := Compile(tc.o)
		if len(problems) != 1 {
			if name != "member and all" || len(problems) == 0 {
				t.Errorf("%s: %+v", name, problems)
				continue
			}
		}
		if p := problems[0]; p.Option != tc.option || p.Index != tc.index || !strings.Contains(p.Text, tc.text) || p.Remedy == "" {
			t.Errorf("%s: %+v", name, p)
		}
		if l != nil && tc.option != OptionOneIn {
			t.Errorf("%s: there is a layout", name)
		}
	}
}

// TestHeadersWithURLs: what a proxy or a script in the browser repeats of a URL has its parameters too.
func TestHeadersWithURLs(t *testing.T) {
	for _, name := range []string{"Referer", "Location", "Destination", "HX-Current-URL", "HX-Redirect", "X-Auth-Request-Redirect", "X-Envoy-Original-Path", "X-Forwarded-Url", "X-Original-URI"} {
		l, problems := Compile(Options{Members: []string{"request_header." + name, "response_header." + name}, Redact: []string{"token"}})
		if problems != nil {
			t.Fatal(problems)
		}
		for _, p := range l.Parts {
			if !p.URL {
				t.Errorf("parameters are not redacted in %s", p.Literal)
			}
		}
	}
}
