package rule

import "testing"

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
