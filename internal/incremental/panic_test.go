package incremental_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// fragile is a graph whose functions panic for values from bad on, each in its way.
type fragile struct {
	engine *incremental.Engine
	in     *incremental.Input[key, int]
	other  *incremental.Input[key, int]
	out    *incremental.Collection[key, int]
	flat   *incremental.Collection[key, int]
	index  *incremental.Index[int, key, int]
	counts *incremental.Collection[key, int]
	said   []incremental.Panic
}

const bad = 100

func newFragile() *fragile {
	g := &fragile{engine: incremental.New()}
	e := g.engine
	e.Panicked = func(p incremental.Panic, v any) { g.said = append(g.said, p) }
	g.other = incremental.NewInput[key](e, "other", same[int])
	g.in = incremental.NewInput[key](e, "in", same[int])
	g.out = incremental.Map(e, "out", g.in.Collection, func(v *incremental.View, k key, n int) (int, bool) {
		o, _ := incremental.Fetch(v, g.other.Collection, k)
		if n+o >= bad && n+o < 2*bad {
			panic("a defect in a function")
		}
		return n + o, true
	}, func(a, b int) bool {
		if b >= 4*bad {
			panic("a defect in a comparison")
		}
		return a == b
	})
	g.flat = incremental.FlatMap(e, "flat", g.out, func(v *incremental.View, k key, n int) []incremental.Entry[key, int] {
		if n >= 2*bad && n < 3*bad {
			panic("a defect in a function of many")
		}
		return []incremental.Entry[key, int]{{Key: k + "x", Value: n}, {Key: k + "y", Value: n}}
	}, same[int])
	g.index = incremental.NewIndex(g.out, "index", func(_ key, n int) []int {
		if n >= 3*bad && n < 4*bad {
			panic("a defect in an index")
		}
		return []int{n % 3}
	})
	g.counts = incremental.Map(e, "counts", g.in.Collection, func(v *incremental.View, _ key, n int) (int, bool) {
		return len(incremental.Lookup(v, g.index, n%3)), true
	}, same[int])
	return g
}

func (g *fragile) print() string {
	return entries(g.out) + "|" + entries(g.flat) + "|" + entries(g.counts)
}

// TestPanic has each kind of function panic for one key: its last result stays, others are up to date, and the next edit
// that does not make it panic is as if nothing had been.
func TestPanic(t *testing.T) {
	for name, value := range map[string]int{"out": bad, "flat": 2 * bad, "index": 3 * bad, "out, comparison": 4 * bad} {
		t.Run(name, func(t *testing.T) {
			g := newFragile()
			g.in.Set("a", 1)
			g.in.Set("b", 2)
			g.engine.Commit()
			g.in.Set("a", value)
			g.in.Set("b", 3)
			g.in.Set("c", 4)
			g.engine.Commit()
			want := incremental.Panic{Function: name, Key: key("a")}
			if len(g.said) != 1 || g.said[0] != want || !slices.Equal(slices.Collect(g.engine.Panics()), g.said) {
				t.Errorf("told of %v", g.said)
			}
			if v, _ := g.out.Get("a"); name == "out" && v != 1 {
				t.Errorf("a is %d", v)
			}
			if v, _ := g.flat.Get("ax"); name == "flat" && v != 1 {
				t.Errorf("ax is %d", v)
			}
			if v, _ := g.out.Get("b"); v != 3 {
				t.Errorf("b is %d", v)
			}
			if v, _ := g.flat.Get("cy"); v != 4 {
				t.Errorf("cy is %d", v)
			}
			if s := g.engine.Commit(); s.Runs != 0 {
				t.Errorf("%v ran without a change", s)
			}
			g.in.Set("a", 5)
			g.engine.Commit()
			fresh := newFragile()
			for k, v := range map[key]int{"a": 5, "b": 3, "c": 4} {
				fresh.in.Set(k, v)
			}
			fresh.engine.Commit()
			if got, want := g.print(), fresh.print(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if n := len(slices.Collect(g.engine.Panics())); n != 0 {
				t.Errorf("%d functions are still said to have panicked", n)
			}
		})
	}
}

// TestPanicRecovers has what a function read before it panicked change, and its key go.
func TestPanicRecovers(t *testing.T) {
	g := newFragile()
	g.in.Set("a", 1)
	g.in.Set("b", 1)
	g.engine.Commit()
	for _, k := range []key{"a", "b"} {
		g.other.Set(k, bad)
	}
	g.engine.Commit()
	g.other.Set("a", 7)
	g.in.Delete("b")
	g.engine.Commit()
	expect(t, "out", entries(g.out), "a=8")
	if n := len(slices.Collect(g.engine.Panics())); n != 0 || len(g.said) != 2 {
		t.Errorf("%d, told %v", n, g.said)
	}
}

// TestPanicsAtRandom compares random edits, of which many make functions panic, with a computation from scratch each time that
// none does.
func TestPanicsAtRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		g := newFragile()
		for range 20 {
			for range 4 {
				k := key(fmt.Sprint(rnd.IntN(5)))
				if rnd.IntN(5) == 0 {
					g.in.Delete(k)
				} else {
					g.in.Set(k, rnd.IntN(5*bad))
				}
				g.other.Set(k, rnd.IntN(2)*bad)
			}
			g.engine.Commit()
		}
		fresh := newFragile()
		for i := range 5 {
			k, n := key(fmt.Sprint(i)), rnd.IntN(bad)
			g.other.Set(k, 0)
			fresh.other.Set(k, 0)
			g.in.Set(k, n)
			fresh.in.Set(k, n)
		}
		g.engine.Commit()
		fresh.engine.Commit()
		if got, want := g.print(), fresh.print(); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
		if n := len(slices.Collect(g.engine.Panics())); n != 0 {
			t.Errorf("%d functions are still said to have panicked", n)
		}
	}
}
