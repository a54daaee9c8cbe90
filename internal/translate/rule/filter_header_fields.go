package rule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// fieldValue matches valid values of a field line (RFC 9110 section 5.5). Other characters could inject a further line into the
// message.
var fieldValue = regexp.MustCompile("^[^\x00-\x08\x0a-\x1f\x7f]*$")

// reserved are the fields that frame a message or concern only one hop (RFC 9110 section 7.6.1, RFC 9112 section 6). The data plane
// writes them itself and ignores entries for them.
var reserved = []string{
	"cdn-loop", "connection", "content-length", "expect", "http2-settings", "keep-alive", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade",
}

// isReserved reports whether a field is one of reserved, or one that CGI-like servers take for it.
func isReserved(name string) bool { return slices.Contains(reserved, cginame.Of(name)) }

// checkHeaderFilter checks what the schema does not. Several actions for one name make a filter invalid (HTTPHeaderFilter in the
// Gateway API).
func (s *scope) checkHeaderFilter(f *gwv1.HTTPHeaderFilter, field string) *condition.Problem {
	badName := func(field, name string) *condition.Problem {
		return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field, "correct it", "%q is not the name of a header field", name)
	}
	actions := make(map[string]string, len(f.Set)+len(f.Add)+len(f.Remove)) // the field path of each name
	repeated := func(at, name string) *condition.Problem {
		key := strings.ToLower(name)
		first, ok := actions[key]
		if !ok {
			actions[key] = at
			return nil
		}
		return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, at, "have one action for each header field",
			"%s is in %s already: a filter may do only one thing with a header field", name, strings.TrimPrefix(first, field+"."))
	}
	for _, list := range []struct {
		field  string
		fields []gwv1.HTTPHeader
	}{{"set", f.Set}, {"add", f.Add}} {
		for i, h := range list.fields {
			at := fmt.Sprintf("%s.%s[%d]", field, list.field, i)
			if !config.IsToken(string(h.Name)) {
				return badName(at+".name", string(h.Name))
			}
			if p := repeated(at, string(h.Name)); p != nil {
				return p
			}
			if !fieldValue.MatchString(h.Value) {
				return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, at+".value", "remove control characters", "%q cannot be sent", h.Value)
			}
			if isReserved(string(h.Name)) {
				s.notes = append(s.notes, condition.NewProblem("", at+".name", "remove the entry",
					"it is ignored: %s belongs to the connection, not to the message", h.Name))
			}
		}
	}
	for i, n := range f.Remove {
		at := fmt.Sprintf("%s.remove[%d]", field, i)
		if !config.IsToken(n) {
			return badName(at, n)
		}
		if p := repeated(at, n); p != nil {
			return p
		}
		why := ""
		switch {
		case cginame.Of(n) == "cdn-loop":
			why = "without %s a loop would not be noticed"
		case isReserved(n):
			why = "%s belongs to the connection, not to the message"
		default:
			continue
		}
		s.notes = append(s.notes, condition.NewProblem("", at, "remove the entry", "it is ignored: "+why, n))
	}
	return nil
}

func headerFields(list []gwv1.HTTPHeader) []*config.HeaderField {
	out := make([]*config.HeaderField, len(list))
	for i, h := range list {
		out[i] = &config.HeaderField{Name: string(h.Name), Value: h.Value}
	}
	return out
}
