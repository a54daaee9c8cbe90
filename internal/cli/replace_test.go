package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/handover"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// TestReplaceCovered: a successor may serve more than this process, and not less.
func TestReplaceCovered(t *testing.T) {
	serves := func(listeners map[string]int, lacks ...string) handover.State {
		s := handover.State{Serves: listeners, Lacks: map[string]string{}}
		for _, text := range lacks {
			key, why, _ := strings.Cut(text, "|")
			s.Lacks[key] = why
		}
		return s
	}
	one, both := map[string]int{"a at :1": 1}, map[string]int{"a at :1": 1, "b at :2": 0}
	for name, tc := range map[string]struct {
		ours, theirs handover.State
		want         string // "" for covered
	}{
		"nothing":           {serves(nil), serves(nil), ""},
		"the same":          {serves(both, "x"), serves(both, "x"), ""},
		"other words":       {serves(one, "x|not good"), serves(one, "x|bad"), ""},
		"an object more":    {serves(one, "x", "y"), serves(one, "y"), ""},
		"an object less":    {serves(one, "y"), serves(one, "x|bad", "y"), "it does not use x: bad; moongate check may report why"},
		"a listener more":   {serves(one), serves(both), ""},
		"a listener less":   {serves(both), serves(one), "it does not serve listener b at :2; moongate check may report why"},
		"another address":   {serves(one), serves(map[string]int{"a at :3": 1}), "it does not serve listener a at :1; moongate check may report why"},
		"a route more":      {serves(one), serves(map[string]int{"a at :1": 2}), ""},
		"a route less":      {serves(one), serves(map[string]int{"a at :1": 0, "b at :2": 9}), "its listener a at :1 has 0 routes, that of this process 1; moongate check may report why"},
		"more than is told": {serves(nil), serves(nil, "a", "b", "c", "d", "e", "f", "g"), "it does not use a; it does not use b; it does not use c; it does not use d; it does not use e; and 2 more; moongate check may report why"},
	} {
		got := ""
		if err := coveredBy(tc.ours, tc.theirs); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestReplaceLacks: objects that are not used are known by their names.
func TestReplaceLacks(t *testing.T) {
	s := newObjectStore(controllerName)
	if got := s.lacks(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	at := manifest.Position{File: "a.yaml", Line: 3}
	s.change(files.Change{Problems: []files.Problem{
		{Position: at, Object: kind.HTTPRoute.Key("default", "r"), Message: "one"},
		{Position: at, Object: kind.HTTPRoute.Key("default", "r"), Message: "two"},
		{Position: at, Message: "no YAML"},
		{Position: at, Object: kind.HTTPRoute.Key("default", "unused"), Ignored: true},
	}})
	s.waiting[kind.Gateway.Key("default", "gw")] = "port 80\nis taken"
	got := s.lacks()
	want := map[string]string{"HTTPRoute default/r in a.yaml": "one", "a document in a.yaml": "no YAML", "Gateway default/gw": oneLine("port 80\nis taken")}
	for key, why := range want {
		if got[key] != why {
			t.Errorf("%s: %q, want %q", key, got[key], why)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%q", got)
	}
}

// TestReplaceUnknownProgram: who does not know which program to start serves, and says so when it is to be replaced.
func TestReplaceUnknownProgram(t *testing.T) {
	g := &gateway{o: RunOptions{ProgramError: errors.New("no /proc")}}
	if err := g.replaceable(); err == nil || !strings.Contains(err.Error(), "no /proc") {
		t.Error(err)
	}
}
