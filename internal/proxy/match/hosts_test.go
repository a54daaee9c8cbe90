package match

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestHostsFindsTheMostSpecific(t *testing.T) {
	h := &Hosts[string]{}
	for _, name := range []string{"", "example.com", "*.example.com", "*.a.example.com", "b.a.example.com", "*.com"} {
		h = h.With(name, name+"!")
	}
	for host, want := range map[string]string{
		"example.com":         "example.com!",
		"x.example.com":       "*.example.com!",
		"x.y.example.com":     "*.example.com!",
		"a.example.com":       "*.example.com!",
		"x.a.example.com":     "*.a.example.com!",
		"b.a.example.com":     "b.a.example.com!",
		"c.b.a.example.com":   "*.a.example.com!",
		"badexample.com":      "*.com!",
		"com":                 "!",
		".com":                "!",
		"":                    "!",
		"example.org":         "!",
		"*.example.com":       "*.example.com!",
		"127.0.0.1":           "!",
		"[::1]":               "!",
		"...":                 "!",
		"x.example.com.":      "!",
		"xn--caf-dma.example": "!",
	} {
		if got, ok := h.Find([]byte(host)); !ok || got != want {
			t.Errorf("Find(%q) = %q, %v, want %q", host, got, ok, want)
		}
	}
}

func TestHostsWithoutEveryHostCanFail(t *testing.T) {
	h := (*Hosts[int])(nil).With("*.example.com", 1)
	for _, host := range []string{"example.com", "", "x.example.org", ".example.com"} {
		if v, ok := h.Find([]byte(host)); ok {
			t.Errorf("Find(%q) = %d", host, v)
		}
	}
}

func TestHostsIsImmutable(t *testing.T) {
	names := []string{"", "a.b", "*.b", "*.a.b", "c"}
	var versions []*Hosts[int]
	h := (*Hosts[int])(nil)
	for i, name := range names {
		versions = append(versions, h)
		h = h.With(name, i)
	}
	for i, v := range versions {
		if v.Len() != i {
			t.Errorf("version %d has %d entries", i, v.Len())
		}
		for j, name := range names {
			if _, ok := v.Get(name); ok != (j < i) {
				t.Errorf("version %d: Get(%q) is %v", i, name, ok)
			}
		}
	}
	if r := h.With("*.b", 9); r.Len() != 5 {
		t.Errorf("replacing an entry made %d entries", r.Len())
	}
	for _, name := range names {
		h = h.Without(name).Without("nothing").Without("*.nothing").Without(name)
	}
	if h.Len() != 0 || len(h.labels) != 0 {
		t.Errorf("emptied, it has %d entries and depths %v", h.Len(), h.labels)
	}
	if (*Hosts[int])(nil).Without("x") != nil || (*Hosts[int])(nil).Len() != 0 {
		t.Error("nil is not empty")
	}
	if _, ok := (*Hosts[int])(nil).Find([]byte("x")); ok {
		t.Error("nil finds something")
	}
}

func TestHostsOrder(t *testing.T) {
	names := []string{"a.example.com", "b.example.com", "c", "*.bb.example.com", "*.a.example.com", "*.example.com", "*.com", "*.net", ""}
	var h *Hosts[string]
	for _, i := range []int{3, 8, 1, 0, 7, 5, 6, 2, 4} {
		h = h.With(names[i], names[i])
	}
	var got []string
	for name, v := range h.All() {
		if name != v {
			t.Errorf("%q has the value %q", name, v)
		}
		got = append(got, name)
	}
	if !slices.Equal(got, names) {
		t.Errorf("order is %q", got)
	}
	for stop := range 9 {
		n := 0
		for range h.All() {
			if n++; n > stop {
				break
			}
		}
		if n != stop+1 {
			t.Errorf("the loop went on after its end at %d", stop)
		}
	}
	for range (*Hosts[int])(nil).All() {
		t.Error("nil has an entry")
	}
}

// FuzzHosts compares with a search through all names.
func FuzzHosts(f *testing.F) {
	f.Add("example.com *.example.com *.com", "a.example.com")
	f.Add("*.a.b *.b a.b *.c.a.b", "x.c.a.b")
	f.Add("*. . ..", "...")
	f.Fuzz(func(t *testing.T, names, host string) {
		var h *Hosts[string]
		best := ""
		for name := range strings.FieldsSeq(names) {
			if strings.ContainsAny(strings.TrimPrefix(name, "*."), "*") {
				continue // no hostname
			}
			h = h.With(name, name)
			if naiveHost(name, host) && (best == "" || compareHostnames(name, best) < 0) {
				best = name
			}
		}
		if strings.Contains(host, "*") {
			return
		}
		if got, _ := h.Find([]byte(host)); got != best {
			t.Errorf("Find(%q) among %q = %q, want %q", host, names, got, best)
		}
		all := h.With("", "") // also where there are no names
		for name := range all.All() {
			all = all.Without(name)
		}
		if all.Len() != 0 || len(all.labels) != 0 {
			t.Errorf("emptied: %v", fmt.Sprint(all))
		}
	})
}
