package backendtraffic

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/moongate-dev/moongate/internal/config"
)

// Values from the request are escaped so that they cannot end the text, attribute or string that contains them. If that is not
// enough, because the context is a script or a URL, the operator is rejected there.

// checkPlaces returns what is wrong with the places of request operators in a body, and the remedy; "" if nothing.
func checkPlaces(parts []config.BodyPart, escape config.BodyEscape) (what, remedy string) {
	fromRequest := func(p config.BodyPart) bool { return p.Operator == config.BodyRequestField }
	if !slices.ContainsFunc(parts, fromRequest) {
		return "", ""
	}
	switch escape {
	case config.EscapeJSON:
		return checkJSON(parts)
	case config.EscapeHTML:
		return checkHTML(parts)
	case config.EscapeUnknown:
		return "values of the request cannot be escaped for its content type", "use text/html, application/json or text/plain, or leave out %REQ(NAME)%"
	}
	return "", ""
}

// checkJSON is checkPlaces for JSON, where operators may be in strings that are not names of members.
func checkJSON(parts []config.BodyPart) (what, remedy string) {
	remedy = `have %REQ(NAME)% stand in a string, as in {"path": "%REQ(:PATH)%"}`
	mark := markFor(parts)
	body := withMarks(parts, mark)
	var v any
	if json.Unmarshal([]byte(body), &v) != nil {
		return "with values in the place of its operators it is not JSON", remedy
	}
	if hasName(v, mark) {
		return "an operator stands in the name of a member, so that requests could say which it is", remedy
	}
	return "", ""
}

// hasName reports whether an object in a JSON value has a member whose name contains the mark.
func hasName(v any, mark string) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return hasName(e, mark) })
	case map[string]any:
		for name, e := range v {
			if strings.Contains(name, mark) || hasName(e, mark) {
				return true
			}
		}
	}
	return false
}

// markFor returns a text that does not occur in the body.
func markFor(parts []config.BodyPart) string {
	mark := "operator"
	for strings.Contains(strings.ToLower(withMarks(parts, "")), mark) {
		mark += "x"
	}
	return mark
}

// withMarks returns the body with marks in place of values from the request.
func withMarks(parts []config.BodyPart, mark string) string {
	var b strings.Builder
	for _, p := range parts {
		switch p.Operator {
		case config.BodyText:
			b.WriteString(p.Text)
		case config.BodyResponseCode:
			b.WriteString("200")
		case config.BodyRequestField:
			b.WriteString(mark)
		default:
			b.WriteString("ok")
		}
	}
	return b.String()
}

// rawText lists elements whose content is not parsed as HTML, at least by some parsers.
var rawText = []string{"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "xmp"}

// plainAttributes are attributes whose values are only displayed or stored.
var plainAttributes = []string{"title", "alt", "value", "placeholder", "label"}

// links are attributes that contain a URL, by the element on which the URL has no other use than to be followed.
var links = map[string][]string{
	"href": {"a", "area"}, "src": {"img"}, "action": {"form"}, "formaction": {"button", "input"},
}

const textRemedy = "have %REQ(NAME)% stand in text, or in an attribute such as title or data-path, where a script may read it"

// foreign matches constructs whose content is parsed by other rules than those of HTML, or differently by different parsers.
var foreign = regexp.MustCompile(`(?i)<(?:svg|math|select|template)\b|<!\[CDATA\[|<(?:iframe|noembed|noframes|noscript|plaintext|script|style|textarea|title|xmp)\b[^>]*/>`)

// checkHTML is checkPlaces for HTML.
func checkHTML(parts []config.BodyPart) (what, remedy string) {
	mark := markFor(parts)
	if found := foreign.FindString(withMarks(parts, mark)); found != "" {
		return fmt.Sprintf("it has %q, beside which values cannot be escaped", found), "leave that out, or %REQ(NAME)%"
	}
	if what, remedy = checkTokens(withMarks(parts, mark), mark); what != "" {
		return what, remedy
	}
	// These characters are harmless in quotes or in text.
	mark += " x>y=z"
	if what, _ = checkTokens(withMarks(parts, mark), mark); what != "" {
		return "an operator stands in an attribute without quotes", "put the value of the attribute in quotes"
	}
	return "", ""
}

// checkTokens is checkHTML with a given mark.
func checkTokens(body, mark string) (what, remedy string) {
	missing := strings.Count(body, mark)
	z := html.NewTokenizer(strings.NewReader(body))
	raw := "" // the element that was just opened, if its content is not HTML
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		text := string(z.Raw())
		n := strings.Count(text, mark)
		missing -= n
		token := z.Token()
		if n > 0 {
			if what, remedy = checkToken(token, text, mark, raw); what != "" {
				return what, remedy
			}
			if kind == html.StartTagToken || kind == html.SelfClosingTagToken {
				for _, a := range token.Attr {
					n -= strings.Count(a.Val, mark)
				}
				missing += n // the mark is split between values
			}
		}
		raw = ""
		if kind == html.StartTagToken || kind == html.SelfClosingTagToken {
			raw = token.Data
		}
	}
	if missing != 0 {
		return "an operator stands in a tag that does not end", "end it"
	}
	return "", ""
}

// checkToken is checkHTML for a part of the body that contains a mark. raw is the element that was opened just before, "" if none.
func checkToken(t html.Token, text, mark, raw string) (what, remedy string) {
	switch t.Type {
	case html.TextToken:
		if slices.Contains(rawText, raw) {
			return fmt.Sprintf("an operator stands in a %s element, where values cannot be escaped", raw), textRemedy
		}
	case html.CommentToken:
		return "an operator stands in a comment, which values could end", textRemedy
	case html.StartTagToken, html.SelfClosingTagToken:
		if strings.Contains(t.Data, mark) {
			return "an operator stands in the name of an element", textRemedy
		}
		for _, a := range t.Attr {
			switch {
			case strings.Contains(a.Key, mark):
				return "an operator stands in a tag of " + t.Data + ", in the place of the name of an attribute", textRemedy
			case !strings.Contains(a.Val, mark), slices.Contains(plainAttributes, a.Key), strings.HasPrefix(a.Key, "aria-"), strings.HasPrefix(a.Key, "data-"):
			case !slices.Contains(links[a.Key], t.Data):
				return fmt.Sprintf("an operator stands in the attribute %s of %s, where values cannot be escaped", a.Key, t.Data), textRemedy
			case !inQuery(a.Val[:strings.Index(a.Val, mark)]):
				return fmt.Sprintf("an operator stands in the attribute %s of %s before a question mark, so that requests could say where it leads", a.Key, t.Data), "have it stand in the query, as in /login?from=%REQ(:PATH)%"
			}
		}
	default:
		return "an operator stands in a tag or declaration", textRemedy
	}
	return "", ""
}

// inQuery reports whether what follows the beginning of a URL cannot change its destination.
func inQuery(begin string) bool {
	place, _, ok := strings.Cut(begin, "?")
	if !ok {
		place, _, ok = strings.Cut(begin, "#")
	}
	u, err := url.Parse(place)
	return ok && err == nil && (u.Scheme == "" || u.Scheme == "http" || u.Scheme == "https")
}
