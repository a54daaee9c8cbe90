package filter

import (
	"strings"
	"testing"
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

func TestResetKeepsMemory(t *testing.T) {
	var x Exchange
	use := func() {
		x.Reset()
		x.Seed, x.Scheme = 1, "http"
		start := len(x.Scratch)
		x.Scratch = append(x.Scratch, "value"...)
		x.Reply(302, "redirect").Header.Add(x.Made(start), x.Made(start))
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
