package rule

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// pathModifier compiles the path of RequestRedirect and URLRewrite; nil keeps the path.
func (s *scope) pathModifier(m *gwv1.HTTPPathModifier, field string) (*config.PathModifier, *condition.Problem) {
	if m == nil {
		return nil, nil
	}
	unsupported := func(at, remedy, format string, args ...any) *condition.Problem {
		return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+at, remedy, format, args...)
	}
	switch m.Type {
	case gwv1.FullPathHTTPPathModifier:
		path := ptr.Deref(m.ReplaceFullPath, "")
		if !sendable(path) {
			return nil, unsupported(".replaceFullPath", "remove spaces and control characters, and %00", "%q is not a path", path)
		}
		return &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: path}}, nil
	case gwv1.PrefixMatchHTTPPathModifier:
		replacement := ptr.Deref(m.ReplacePrefixMatch, "")
		if !sendable(replacement) {
			return nil, unsupported(".replacePrefixMatch", "remove spaces and control characters, and %00", "%q is not a path", replacement)
		}
		// A match that an earlier CORS filter has added for preflight requests has the path of the original match.
		own := func(m *config.Match) bool { return !m.Preflight }
		if len(s.rule.Matches) == 0 || slices.ContainsFunc(s.rule.Matches[1:], own) || s.rule.Matches[0].Path.Type != config.PathMatchType_PATH_MATCH_TYPE_PREFIX {
			return nil, unsupported(".type", "give the rule exactly one match, with a path of type PathPrefix",
				"ReplacePrefixMatch needs the one prefix that matched")
		}
		return &config.PathModifier{Kind: &config.PathModifier_ReplacePrefix{ReplacePrefix: &config.ReplacePrefix{
			Prefix: s.rule.Matches[0].Path.Value, Replacement: replacement,
		}}}, nil
	}
	return nil, unsupported(".type", "use ReplaceFullPath or ReplacePrefixMatch", "%q is not known", m.Type)
}

// sendable reports whether s can be part of a request line or a Location; %00 would break the recipient.
func sendable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return !strings.Contains(s, "%00")
}
