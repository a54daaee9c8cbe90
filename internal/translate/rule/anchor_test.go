package rule

import (
	"regexp"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestWithoutAnchors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ from, want string }{
		{`shop\..*`, `shop\..*`},
		{`^Get$`, `Get`},
		{`\AGet\z`, `Get`},
		{`(?m)^Get$`, `(?m)Get`},
		{`^^Get$$`, `Get`},
		{`^$`, ``},
		{`^(Get|List)$`, `(Get|List)`},
		{`^Get$|^List$`, `Get|List`},
		{`(?i)^Get$`, `(?i)Get`},
		{`^Get\$`, `Get\$`},
		{`^Get\\$`, `Get\\`},
		{`[^|^]|^X$`, `[^|^]|X`},
		{`^[]|]X$`, `[]|]X`},
		{`^[[:alpha:]|]X$`, `[[:alpha:]|]X`},
		{`^\Qa|^b\E$|^X`, `\Qa|^b\E|X`},
		{`^(a|b)$`, `(a|b)`},
		{`^\Qa$`, `\Qa$`},
		{`^\Qa\z`, `\Qa\z`},
		{`^\Qa\E$`, `\Qa\E`},
		{`^\Q\\E$`, `\Q\\E`},
		{`^\Q\\E\z`, `\Q\\E`},
		{`^\Q$\E`, `\Q$\E`},
		{`^\Qa\Eb\Q$`, `\Qa\Eb\Q$`},
		{`^\\Qa$`, `\\Qa`},
		{`^Get\\\z`, `Get\\`},
		{`^Get\\z`, `Get\\z`},
		{`^[a$]$`, `[a$]`},
		{`(^Get|List)(A|B$)`, "refused"},
		{`(^Get)?X`, "refused"},
		{`^(^Get$)$`, "refused"},
		{`Get^`, "refused"},
		{`$Get`, "refused"},
		{`a$b`, "refused"},
		{`(^Get)*`, "refused"},
		{`(a|b$)c`, "refused"},
	} {
		s := &scope{}
		got, p := s.withoutAnchors(tc.from, ".method")
		if p != nil {
			got = "refused"
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.from, got, tc.want)
		}
	}
}

// TestOpenQuotation: a quotation that is open at the end of the expression for a service does not extend to that for the method.
func TestOpenQuotation(t *testing.T) {
	t.Parallel()
	expressions := gwv1.GRPCMethodMatchRegularExpression
	for _, service := range []string{`\Qa.b`, `^\Qa.b\E$`, `(a)\Q.b`} {
		for _, method := range []string{`\QGet`, `\QGet\E`, `Get`} {
			spec := GRPC(&gwv1.GRPCRouteRule{Matches: []gwv1.GRPCRouteMatch{{Method: &gwv1.GRPCMethodMatch{Type: &expressions, Service: &service, Method: &method}}}})
			r := Compile(&spec, 0, 0, resolved)
			if r.Problem != nil {
				t.Errorf("%s, %s: %v", service, method, r.Problem)
				continue
			}
			path := r.Rule.Matches[0].Path.Value
			if re := regexp.MustCompile(`\A(?:` + path + `)\z`); !re.MatchString("/a.b/Get") || re.MatchString("/axb/Get") {
				t.Errorf("%s, %s: %s", service, method, path)
			}
		}
	}
}
