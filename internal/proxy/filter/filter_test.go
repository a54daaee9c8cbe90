package filter

import (
	"reflect"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func TestHost(t *testing.T) {
	for host, want := range map[string]string{
		"www.example.com":        "www.example.com",
		"WWW.example.com.":       "WWW.example.com.",
		"a_b.example":            "a_b.example",
		"192.0.2.1":              "192.0.2.1",
		"::1":                    "[::1]",
		"[2001:db8::1]":          "[2001:db8::1]",
		"":                       "",
		".":                      "",
		"a..b":                   "",
		"a b":                    "",
		"a/b":                    "",
		"a:80":                   "",
		"user@a":                 "",
		"a\r\nb":                 "",
		"ä.example":              "",
		"[::1":                   "",
		"[www.example.com]":      "",
		"fe80::1%eth0":           "",
		"[]":                     "",
		strings.Repeat("a", 256): "",
	} {
		got, err := Host(host)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", host, got, err, want)
		}
	}
}

func TestAuthority(t *testing.T) {
	for value, want := range map[string]string{
		"a.example":    "a.example",
		"a.example:80": "a.example:80",
		"[::1]:8080":   "[::1]:8080",
		"::1":          "[::1]",
		"a:":           "",
		"a:0":          "",
		"a:65536":      "",
		"a:+1":         "",
		":80":          "",
		"a:80:80":      "",
	} {
		got, err := Authority(value)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", value, got, err, want)
		}
	}
}

var owners [2]int

func TestNote(t *testing.T) {
	var x Exchange
	x.Note(&owners[0], []byte("first"))
	x.Note(&owners[1], nil)
	if value, ok := x.Noted(&owners[0]); string(value) != "first" || !ok {
		t.Errorf("%q %v", value, ok)
	}
	if value, ok := x.Noted(&owners[1]); value != nil || !ok {
		t.Errorf("a note without a value: %q %v", value, ok)
	}
	x.Reset()
	if value, ok := x.Noted(&owners[0]); value != nil || ok {
		t.Errorf("left for the next exchange: %q", value)
	}
}

func TestResetKeepsMemory(t *testing.T) {
	var x Exchange
	use := func() {
		x.Reset()
		x.Seed, x.Scheme = 1, "http"
		start := len(x.Scratch)
		x.Scratch = append(x.Scratch, "value"...)
		x.Reply(302, "redirect").Header.Add(x.Made(start), x.Made(start))
		x.Note(&owners[0], x.Made(start))
	}
	use()
	if n := testing.AllocsPerRun(100, use); n != 0 {
		t.Errorf("%v allocations", n)
	}
	x.Scratch = append(x.Scratch, make([]byte, scratchKept)...)
	x.Reset()
	if cap(x.Scratch) != 0 || x.Seed != 0 || x.reply.Header.Len() != 0 {
		t.Errorf("after Reset: %d bytes kept, %+v", cap(x.Scratch), x)
	}
}

// TestMadeValuesStay: a value made earlier survives whatever is appended later.
func TestMadeValuesStay(t *testing.T) {
	var x Exchange
	var made [][]byte
	for i := range 200 {
		start := len(x.Scratch)
		x.Scratch = append(x.Scratch, strings.Repeat(string(rune('a'+i%26)), i)...)
		made = append(made, x.Made(start))
	}
	for i, value := range made {
		_ = append(value, '!') // must not reach the neighbour
		if string(value) != strings.Repeat(string(rune('a'+i%26)), i) {
			t.Fatalf("value %d is now %q", i, value)
		}
	}
}

// Reset sets field by field, and so must know all of them.
func TestResetLeavesNothing(t *testing.T) {
	x := Exchange{Request: new(message.Request), Response: new(message.Response), Scheme: "http", ListenerPort: 1, Seed: 1,
		Scratch: []byte("x"), Engine: engine{}, reply: Reply{Status: 1, Reason: "x", Body: []byte("x")},
		notes: []note{{&owners[0], []byte("x")}}}
	x.reply.Header.Add([]byte("a"), []byte("b"))
	for i, v := 0, reflect.ValueOf(x); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("the test does not set %s", v.Type().Field(i).Name)
		}
	}
	for i, v := 0, reflect.ValueOf(x.reply); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("the test does not set reply.%s", v.Type().Field(i).Name)
		}
	}
	x.Reset()
	if len(x.Scratch) != 0 || x.reply.Header.Len() != 0 || len(x.notes) != 0 || x.notes[:1][0].value != nil {
		t.Errorf("%d bytes, %d lines and %d notes are left", len(x.Scratch), x.reply.Header.Len(), len(x.notes))
	}
	if x.Engine == nil { // it is that of the next request too
		t.Error("the engine is gone")
	}
	x.Scratch, x.notes, x.reply.Header, x.Engine = nil, nil, message.Fields{}, nil
	if !reflect.DeepEqual(x, Exchange{}) {
		t.Errorf("left: %+v", x)
	}
}

type engine struct{ Engine }
