package headermodifier

import (
	"errors"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func entries(list ...string) []*config.HeaderField {
	var out []*config.HeaderField
	for _, e := range list {
		name, value, _ := strings.Cut(e, "=")
		out = append(out, &config.HeaderField{Name: name, Value: value})
	}
	return out
}

func section(list ...string) *message.Fields {
	var f message.Fields
	for _, e := range list {
		name, value, _ := strings.Cut(e, "=")
		f.Append(message.Field{Name: []byte(name), Value: []byte(value), Line: []byte(name + ": " + value + "\r\n")})
	}
	return &f
}

func text(f *message.Fields) string {
	var list []string
	for i := range f.Len() {
		list = append(list, string(f.At(i).Name)+"="+string(f.At(i).Value))
	}
	return strings.Join(list, " ")
}

func TestApply(t *testing.T) {
	for _, c := range []struct {
		name     string
		set, add []string
		remove   []string
		before   []string
		want     string
	}{
		{"set takes the place of the first", []string{"x-A=new"}, nil, nil, []string{"B=1", "X-a=2", "C=3", "X-A=4"}, "B=1 x-A=new C=3"},
		{"set appends what was not there", []string{"A=1"}, nil, nil, []string{"B=1"}, "B=1 A=1"},
		{"add keeps the others", nil, []string{"a=1,2"}, nil, []string{"A=0", "B=1"}, "A=0 B=1 a=1,2"},
		{"remove in any case", nil, nil, []string{"x-a"}, []string{"X-A=0", "B=1", "x-A=2"}, "B=1"},
		{"set, then add, then remove", []string{"A=1"}, []string{"A=2", "B=2"}, []string{"b"}, []string{"A=0"}, "A=1 A=2"},
		{"the first of equivalent entries counts", []string{"A=1", "a=2"}, []string{"B=1", "b=2"}, nil, nil, "A=1 B=1"},
		{"white space around a value is none of it", []string{"A= \tb c\t "}, nil, nil, nil, "A=b c"},
		{"an empty value", []string{"A="}, nil, nil, []string{"A=1"}, "A="},
		{"nothing", nil, nil, nil, []string{"A=1"}, "A=1"},
	} {
		m, err := Compile("Test", entries(c.set...), entries(c.add...), c.remove)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		s := section(c.before...)
		m.Apply(s)
		if got := text(s); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		for i := range s.Len() {
			if f := s.At(i); f.Line != nil && string(f.Line) != string(f.Name)+": "+string(f.Value)+"\r\n" {
				t.Errorf("%s: the line %q would be forwarded for %s=%s", c.name, f.Line, f.Name, f.Value)
			}
		}
	}
}

// TestDropDisguised: what a server may take for a field that is set or removed goes, and nothing else.
func TestDropDisguised(t *testing.T) {
	for _, c := range []struct {
		name     string
		set, add []string
		remove   []string
		before   []string
		want     string
	}{
		{"of what is set", []string{"X-A-B=1"}, nil, nil, []string{"X_A_B=2", "x-a_b=3", "X-A-B=4", "C_D=5"}, "X-A-B=4 C_D=5"},
		{"of what is removed", nil, nil, []string{"x-a"}, []string{"X_A=1", "B=2"}, "B=2"},
		{"with any other byte", []string{"X-A=1"}, nil, []string{"b-c"}, []string{"X.A=1", "x+a=1", "B'C=1", "B`C=1", "B-C=2", "XaA=3", "X.B=4", "X.A.=5"}, "B-C=2 XaA=3 X.B=4 X.A.=5"},
		{"not of what is added", nil, []string{"X-A=1"}, nil, []string{"X_A=2", "X.A=3"}, "X_A=2 X.A=3"},
		{"of what is set, though it is added", []string{"X-A=1"}, []string{"X_A=2"}, nil, []string{"X_A=3"}, ""},
		{"with underscores in the entry", []string{"X_A-B=1"}, nil, nil, []string{"X-A-B=2", "X_A_B=3", "x_a-b=4"}, "x_a-b=4"},
		{"with a dot in the entry", nil, nil, []string{"x.a"}, []string{"X-A=2", "X_A=3", "X.A=4"}, "X.A=4"},
		{"with an entry of its own", []string{"X-A=1", "X_A=2"}, nil, []string{"X.A"}, []string{"X_A=3", "X.A=4", "X~A=5"}, "X_A=3 X.A=4"},
		{"nothing like it", []string{"X-A=1"}, nil, []string{"B-C"}, []string{"X-B=1", "A=2"}, "X-B=1 A=2"},
		{"provenance, which a trusted proxy claims", nil, nil, []string{"X_Forwarded_Proto", "X_Real_IP"}, []string{"X-Forwarded-Proto=https", "X-Real-IP=192.0.2.1"},
			"X-Forwarded-Proto=https X-Real-IP=192.0.2.1"},
		{"with a long name", nil, nil, []string{strings.Repeat("x-", 50)}, []string{strings.Repeat("x.", 50) + "=1", strings.Repeat("x", 100) + "=2"}, strings.Repeat("x", 100) + "=2"},
	} {
		m, err := Compile("Test", entries(c.set...), entries(c.add...), c.remove)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		s := section(c.before...)
		m.DropDisguised(s)
		if got := text(s); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestDropDisguisedKeeps: what the gateway or another filter has set is not taken for a client's.
func TestDropDisguisedKeeps(t *testing.T) {
	m, err := Compile("Test", entries("X_User=1"), nil, []string{"X_Request_Id"})
	if err != nil {
		t.Fatal(err)
	}
	s := section("X-User=2")
	s.Add([]byte("X-Request-Id"), []byte("3"))
	s.Add([]byte("X-User"), []byte("4"))
	m.DropDisguised(s)
	m.Apply(s)
	if got, want := text(s), "X-Request-Id=3 X-User=4 X_User=1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLoopsAreNoticed: no entry removes what a loop is noticed by.
func TestLoopsAreNoticed(t *testing.T) {
	for _, name := range []string{"CDN-Loop", "cdn_loop", "cdn.loop"} {
		m, err := Compile("Test", entries(name+"=x"), nil, []string{name})
		if err != nil {
			t.Fatal(err)
		}
		s := section("CDN-Loop=moongate")
		m.DropDisguised(s)
		m.Apply(s)
		if text(s) != "CDN-Loop=moongate" {
			t.Errorf("%s: %s", name, text(s))
		}
	}
}

func TestReservedFieldsStay(t *testing.T) {
	for name := range reserved {
		for _, spelled := range []string{name, strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", ".")} {
			m, err := Compile("Test", entries(spelled+"=1"), entries(spelled+"=2"), nil)
			if err != nil {
				t.Fatal(err)
			}
			s := section("A=1")
			m.Apply(s)
			if text(s) != "A=1" || !Reserved(spelled) {
				t.Errorf("%s was set: %s", spelled, text(s))
			}
		}
	}
	if Reserved("Content-Type") || Reserved("Host") || Reserved("Content.Lengths") {
		t.Error("an ordinary field is reserved")
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		set, add []*config.HeaderField
		remove   []string
		field    string
	}{
		{set: entries("A=1", "B=x\r\nC: y"), field: "set[1].value"},
		{add: entries("A=x\ny"), field: "add[0].value"},
		{add: entries("A=x\ry"), field: "add[0].value"},
		{add: entries("A=x\x00"), field: "add[0].value"},
		{add: entries("A=x\r\n"), field: "add[0].value"},
		{add: entries("Content-Length=1\n"), field: "add[0].value"},
		{add: entries("A=\x7f"), field: "add[0].value"},
		{set: entries("A b=1"), field: "set[0].name"},
		{set: entries("A:=1"), field: "set[0].name"},
		{set: entries("=1"), field: "set[0].name"},
		{set: entries(":path=/"), field: "set[0].name"},
		{set: entries("Ä=1"), field: "set[0].name"},
		{remove: []string{"A", "B\r"}, field: "remove[1]"},
	} {
		var e *filter.Error
		if _, err := Compile("Test", c.set, c.add, c.remove); !errors.As(err, &e) || e.Field != c.field || e.Filter != "Test" || e.Remedy == "" {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func TestTakeHost(t *testing.T) {
	m, err := Compile("Test", entries("A=1", "HOST=h"), entries("host=i", "B=2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	host, set := m.TakeHost()
	s := section()
	m.Apply(s)
	if string(host) != "h" || !set || text(s) != "A=1 B=2" {
		t.Errorf("%q, %v, %s", host, set, text(s))
	}
	if _, again := m.TakeHost(); again {
		t.Error("Host was not taken out")
	}
}

func BenchmarkApply(b *testing.B) {
	m, err := Compile("Test", entries("X-Env=prod"), entries("X-New=1"), []string{"x-new"})
	if err != nil {
		b.Fatal(err)
	}
	s := section("Accept=*/*", "User-Agent=bench", "X-Env=a", "Accept-Encoding=gzip", "Cookie=a=b", "Referer=/")
	b.ReportAllocs()
	for b.Loop() {
		m.DropDisguised(s)
		m.Apply(s)
	}
}
