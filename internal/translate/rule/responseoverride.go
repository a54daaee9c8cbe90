package rule

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// ResponseHeader compiles the header modifier that a policy applies to responses. The notes are about entries that are ignored;
// field is the prefix of all paths.
func ResponseHeader(f *gwv1.HTTPHeaderFilter, field string) (m *config.ResponseHeaderModifier, notes []*condition.Problem, p *condition.Problem) {
	s := &scope{}
	p = s.checkHeaderFilter(f, field)
	return &config.ResponseHeaderModifier{Set: headerFields(f.Set), Add: headerFields(f.Add), Remove: f.Remove}, s.notes, p
}

// Redirect compiles a redirect of a policy, which has no path of type ReplacePrefixMatch; field is the prefix of the path of a
// problem.
func Redirect(spec *gwv1.HTTPRequestRedirectFilter, field string) (*config.RequestRedirect, *condition.Problem) {
	return (&scope{}).redirect(spec, field)
}
