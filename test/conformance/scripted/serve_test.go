package main

import "testing"

func TestRuleMatches(t *testing.T) {
	for _, test := range []struct {
		rule rule
		path string
		want bool
	}{
		{rule{path: "/"}, "/any", true},
		{rule{path: "/one"}, "/one", true},
		{rule{path: "/one"}, "/one/two", true},
		{rule{path: "/one/"}, "/one", true},
		{rule{path: "/one"}, "/onetwo", false},
		{rule{path: "/one", exact: true}, "/one", true},
		{rule{path: "/one", exact: true}, "/one/", false},
	} {
		if got := test.rule.matches(test.path); got != test.want {
			t.Errorf("%+v matches %s: %t, want %t", test.rule, test.path, got, test.want)
		}
	}
}
