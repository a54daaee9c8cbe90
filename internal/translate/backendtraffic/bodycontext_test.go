package backendtraffic

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestPlacesOfOperators: what a client has sent does not stand where it could be a program, or lead somewhere.
func TestPlacesOfOperators(t *testing.T) {
	const v = "%REQ(X)%"
	for body, want := range map[string]string{
		"<p>" + v: "",
		v:         "",
		"<p title=\"a " + v + "\" data-path='" + v + "' aria-label='" + v + "'>":           "",
		"<title>" + v + "</title><textarea>" + v + "</textarea>":                           "",
		"<a href=\"/login?from=" + v + "\">":                                               "",
		"<a href=\"https://login.example.com/?a=b&amp;from=" + v + "#x\">":                 "",
		"<form action='#" + v + "'><input value='" + v + "'><img src='?" + v + "'>":        "",
		"<script>let a = 1 < 2;</script><p>" + v:                                           "",
		"<p>operator operatorx" + v:                                                        "",
		"<script>let code = %RESPONSE_CODE%; let why = '%RESPONSE_CODE_DETAILS%'</script>": "",

		"<script>let a = '" + v + "'</script>":                  "script element",
		"<style>p { color: " + v + " }</style>":                 "style element",
		"<noscript><p title='" + v + "'></noscript>":            "noscript element",
		"<plaintext>" + v:                                       "plaintext element",
		"<svg><title><a onclick=\"" + v + "\"></title></svg>":   "it has \"<svg\"",
		"<p onclick=\"f('" + v + "')\">":                        "attribute onclick of p",
		"<P ONCLICK=\"f('" + v + "')\">":                        "attribute onclick of p",
		"<p title=a onclick='" + v + "'>":                       "attribute onclick of p",
		"<p style='color: " + v + "'>":                          "attribute style of p",
		"<iframe srcdoc='" + v + "'></iframe>":                  "attribute srcdoc of iframe",
		"<script src='/a.js?x=" + v + "'></script>":             "attribute src of script",
		"<meta http-equiv=refresh content='0;url=/?" + v + "'>": "attribute content of meta",
		"<svg><set attributeName=href to='" + v + "'></svg>":    "it has \"<svg\"",
		"<a href='" + v + "'>":                                  "attribute href of a before a question mark",
		"<a href='/" + v + "?x'>":                               "attribute href of a before a question mark",
		"<a href='javascript:f(?" + v + ")'>":                   "attribute href of a before a question mark",
		"<a href='&#106;avascript:f(?" + v + ")'>":              "attribute href of a before a question mark",
		"<a href='data:text/html,?" + v + "'>":                  "attribute href of a before a question mark",
		"<" + v + ">":                                           "name of an element",
		"<a" + v + ">":                                          "name of an element",
		"<p " + v + ">":                                         "name of an attribute",
		"<p data-" + v + "=1>":                                  "name of an attribute",
		"</p " + v + ">":                                        "in a tag or declaration",
		"<!doctype " + v + ">":                                  "in a tag or declaration",
		"<?xml-stylesheet href='" + v + "'?><a/>":               "in a comment",
		"<a title='" + v:                                        "a tag that does not end",
		"<a title=\"" + v + ">b":                                "a tag that does not end",
		"<!-- " + v + " -->":                                    "in a comment",
		"<p title=" + v + ">":                                   "without quotes",
		"<p title=" + v + " alt=\"a onclick=" + v + "\">":       "without quotes",
		"<svg><style/><rect onclick=\"f('" + v + "')\"/></svg>": "it has \"<svg\"",
		"<script/>g(" + v + ")</script>":                        "it has \"<script/>\"",
		"<SCRIPT SRC=a />g(" + v + ")</script>":                 "it has \"<SCRIPT SRC=a />\"",
		"<svg><![CDATA[><!--]]><a onclick=\"" + v + "\">-->":    "it has \"<svg\"",
		"<p><![CDATA[" + v + "]]>":                              "it has \"<![CDATA[\"",
		"<svg><style><a onclick=\"</style>" + v + "\">":         "it has \"<svg\"",
		"<select><style><a onclick=\"</style>" + v + "\">":      "it has \"<select\"",
		"<math><title><a onclick=\"</title>" + v + "\">":        "it has \"<math\"",
	} {
		checkPlace(t, body, config.EscapeHTML, want)
	}
	for body, want := range map[string]string{
		`{"path": "` + v + `", "b": [1, "a` + v + `"]}`: "",
		`{"admin": false, "` + v + `": 1}`:              "name of a member",
		`[{"a": [{"x` + v + `": 1}]}]`:                  "name of a member",
		`{"code": %RESPONSE_CODE%, "why": "%RESPONSE_CODE_DETAILS%", "by": "%PROTOCOL%", "p": "` + v + `"}`: "",
		`"` + v + `"`:                       "",
		`{"path": ` + v + `}`:               "not JSON",
		`{"path": "\` + v + `"}`:            "not JSON",
		`{"path": "\u00` + v + `"}`:         "not JSON",
		v:                                   "not JSON",
		`{"a": "` + v + `"} {"b": 1}`:       "not JSON",
		"without operators of the request":  "",
		"%RESPONSE_CODE% has no such value": "",
	} {
		checkPlace(t, body, config.EscapeJSON, want)
	}
	checkPlace(t, "<script>"+v, config.EscapeNothing, "")
	checkPlace(t, "let a = "+v, config.EscapeUnknown, "cannot be escaped for its content type")
	checkPlace(t, "let a = %RESPONSE_CODE%", config.EscapeUnknown, "")
}

func checkPlace(t *testing.T, body string, escape config.BodyEscape, want string) {
	t.Helper()
	parts, err := config.ParseBody(body)
	if err != nil {
		t.Fatal(err)
	}
	what, remedy := checkPlaces(parts, escape)
	if (what == "") != (want == "") || !strings.Contains(what, want) || (what == "") != (remedy == "") {
		t.Errorf("%s: %q (remedy %q), want %q", body, what, remedy, want)
	}
}

// FuzzPlacesOfOperators: no body keeps the check from coming to an end.
func FuzzPlacesOfOperators(f *testing.F) {
	for _, s := range []string{"<p>%REQ(X)%", "<svg><![CDATA[%REQ(X)%]]>", "<a href=?%REQ(X)%", "<script><!--<script>%REQ(X)%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		parts, err := config.ParseBody(body)
		if err != nil {
			return
		}
		for _, escape := range []config.BodyEscape{config.EscapeNothing, config.EscapeHTML, config.EscapeJSON} {
			if what, remedy := checkPlaces(parts, escape); (what == "") != (remedy == "") {
				t.Errorf("%q: %q has the remedy %q", body, what, remedy)
			}
		}
	})
}
