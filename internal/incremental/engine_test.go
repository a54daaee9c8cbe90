package incremental_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// key is the tests' key.
type key string

func (k key) Compare(o key) int { return strings.Compare(string(k), string(o)) }

func same[V comparable](a, b V) bool { return a == b }

func entries[K incremental.Key[K], V any](c *incremental.Collection[K, V]) string {
	var out []string
	for k, v := range c.All() {
		out = append(out, fmt.Sprintf("%v=%v", k, v))
	}
	return strings.Join(out, " ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func expectRuns(t *testing.T, s incremental.Stats, want map[string]int) {
	t.Helper()
	total := 0
	for _, n := range want {
		total += n
	}
	if fmt.Sprint(s.RunsByName) != fmt.Sprint(want) || s.Runs != total {
		t.Errorf("runs %d %v, want %d %v", s.Runs, s.RunsByName, total, want)
	}
}

func TestInput(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	in.Set("b", 2)
	in.Set("a", 1)
	expect(t, "before the commit", entries(in.Collection), "")
	e.Commit()
	expect(t, "after it", entries(in.Collection), "a=1 b=2")
	in.Set("a", 1)
	in.Set("b", 3)
	in.Delete("c")
	in.Set("d", 4)
	in.Delete("d")
	e.Commit()
	expect(t, "changes", fmt.Sprintf("%+v", in.Changes()), "[{Key:b Old:2 New:3 Added:false Deleted:false}]")
	in.Delete("b")
	in.Set("b", 5)
	in.Delete("a")
	e.Commit()
	expect(t, "changes", fmt.Sprintf("%+v", in.Changes()),
		"[{Key:a Old:1 New:0 Added:false Deleted:true} {Key:b Old:3 New:5 Added:false Deleted:false}]")
	if v, ok := in.Get("b"); v != 5 || !ok || in.Len() != 1 {
		t.Errorf("b is %d, %v; %d entries", v, ok, in.Len())
	}
	e.Commit()
	if len(in.Changes()) != 0 {
		t.Errorf("changes after an empty commit: %v", in.Changes())
	}
}

func TestNilEqualTakesEverySetForAChange(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key, int](e, "in", nil)
	in.Set("a", 1)
	e.Commit()
	in.Set("a", 1)
	e.Commit()
	if len(in.Changes()) != 1 {
		t.Errorf("changes %v, want one", in.Changes())
	}
}

func TestEqualValueStopsTheWave(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	parity := incremental.Map(e, "parity", in.Collection, func(_ *incremental.View, _ key, n int) (int, bool) { return n % 2, true }, same[int])
	text := incremental.Map(e, "text", parity, func(_ *incremental.View, _ key, n int) (string, bool) { return fmt.Sprint(n), true }, same[string])
	in.Set("a", 1)
	in.Set("b", 2)
	expectRuns(t, e.Commit(), map[string]int{"parity": 2, "text": 2})
	in.Set("a", 3)
	expectRuns(t, e.Commit(), map[string]int{"parity": 1})
	if len(text.Changes()) != 0 {
		t.Errorf("changes %v", text.Changes())
	}
	in.Set("a", 4)
	expectRuns(t, e.Commit(), map[string]int{"parity": 1, "text": 1})
	expect(t, "text", entries(text), "a=0 b=0")
	expectRuns(t, e.Commit(), map[string]int{})
}

func TestFetchRecordsAbsence(t *testing.T) {
	e := incremental.New()
	names := incremental.NewInput[key](e, "names", same[int])
	in := incremental.NewInput[key](e, "in", same[key])
	out := incremental.Map(e, "out", in.Collection, func(v *incremental.View, _ key, other key) (int, bool) {
		return incremental.Fetch(v, names.Collection, other)
	}, same[int])
	in.Set("x", "a")
	e.Commit()
	expect(t, "absent", entries(out), "")
	names.Set("b", 1)
	expectRuns(t, e.Commit(), map[string]int{})
	names.Set("a", 2)
	expectRuns(t, e.Commit(), map[string]int{"out": 1})
	expect(t, "present", entries(out), "x=2")
	in.Set("x", "b")
	e.Commit()
	names.Set("a", 3) // no longer read
	expectRuns(t, e.Commit(), map[string]int{})
	names.Delete("b")
	expectRuns(t, e.Commit(), map[string]int{"out": 1})
	expect(t, "deleted", entries(out), "")
	in.Delete("x")
	e.Commit()
	names.Set("b", 9) // its reader is gone
	expectRuns(t, e.Commit(), map[string]int{})
}

func TestOneRunForSeveralReasons(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	out := incremental.Map(e, "out", in.Collection, func(v *incremental.View, k key, n int) (int, bool) {
		a, _ := incremental.Fetch(v, in.Collection, "a")
		b, _ := incremental.Fetch(v, in.Collection, "b")
		again, _ := incremental.Fetch(v, in.Collection, "a")
		return a + b + again + n, true
	}, same[int])
	in.Set("a", 1)
	in.Set("b", 2)
	expectRuns(t, e.Commit(), map[string]int{"out": 2})
	in.Set("a", 10)
	in.Set("b", 20)
	expectRuns(t, e.Commit(), map[string]int{"out": 2})
	expect(t, "out", entries(out), "a=50 b=60")
}

func TestIndex(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[string])
	byWord := incremental.NewIndex(in.Collection, "by word", func(_ key, s string) []string { return strings.Fields(s) })
	words := incremental.NewInput[key](e, "words", same[int])
	keys := incremental.Map(e, "keys", words.Collection, func(v *incremental.View, k key, _ int) (string, bool) {
		return fmt.Sprint(incremental.Lookup(v, byWord, string(k))), true
	}, same[string])
	counts := incremental.Map(e, "counts", words.Collection, func(v *incremental.View, k key, _ int) (int, bool) {
		return incremental.Count(v, byWord, string(k)), true
	}, same[int])
	words.Set("red", 0)
	words.Set("blue", 0)
	in.Set("c", "red red")
	in.Set("a", "red blue")
	e.Commit()
	expect(t, "keys", entries(keys), "blue=[a] red=[a c]")
	expect(t, "counts", entries(counts), "blue=1 red=2")

	in.Set("c", "red green") // another value, the same membership for red
	expectRuns(t, e.Commit(), map[string]int{})
	in.Set("b", "blue")
	expectRuns(t, e.Commit(), map[string]int{"keys": 1, "counts": 1})
	expect(t, "keys", entries(keys), "blue=[a b] red=[a c]")
	in.Set("a", "blue")
	in.Set("d", "red") // red keeps its number, not its members
	expectRuns(t, e.Commit(), map[string]int{"keys": 1})
	expect(t, "keys", entries(keys), "blue=[a b] red=[c d]")
	in.Delete("c")
	in.Delete("d")
	e.Commit()
	expect(t, "keys", entries(keys), "blue=[a b] red=[]")
	expect(t, "counts", entries(counts), "blue=2 red=0")
}

func TestKeys(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[string])
	byWord := incremental.NewIndex(in.Collection, "by word", func(_ key, s string) (words []key) {
		for _, w := range strings.Fields(s) {
			words = append(words, key(w))
		}
		return words
	})
	words := incremental.Keys(byWord, "words")
	lengths := incremental.Map(e, "lengths", words, func(_ *incremental.View, k key, _ struct{}) (int, bool) { return len(k), true }, same[int])
	in.Set("a", "red blue")
	in.Set("b", "red red")
	expectRuns(t, e.Commit(), map[string]int{"lengths": 2})
	expect(t, "lengths", entries(lengths), "blue=4 red=3")
	in.Delete("a")
	in.Set("c", "red green")
	expectRuns(t, e.Commit(), map[string]int{"lengths": 1}) // not for red, whose members are others
	expect(t, "lengths", entries(lengths), "green=5 red=3")
	in.Delete("b")
	in.Set("c", "")
	e.Commit()
	expect(t, "lengths", entries(lengths), "")
	expectRuns(t, e.Commit(), map[string]int{})
}

// TestKeysOfSeveral checks that a key of several indexes is there as long as it has members in one of them.
func TestKeysOfSeveral(t *testing.T) {
	e := incremental.New()
	words, numbers := incremental.NewInput[key](e, "words", same[string]), incremental.NewInput[key](e, "numbers", same[int])
	byWord := incremental.NewIndex(words.Collection, "by word", func(_ key, s string) []key { return []key{key(s)} })
	byNumber := incremental.NewIndex(numbers.Collection, "by number", func(_ key, n int) []key { return []key{key(fmt.Sprint(n))} })
	lengths := incremental.Map(e, "lengths", incremental.Keys(byWord, "keys", byNumber), func(_ *incremental.View, k key, _ struct{}) (int, bool) { return len(k), true }, same[int])
	words.Set("a", "red")
	words.Set("b", "10")
	numbers.Set("a", 10)
	numbers.Set("b", 7)
	expectRuns(t, e.Commit(), map[string]int{"lengths": 3})
	expect(t, "lengths", entries(lengths), "10=2 7=1 red=3")
	words.Delete("b")
	words.Set("a", "7")
	expectRuns(t, e.Commit(), map[string]int{})
	expect(t, "lengths", entries(lengths), "10=2 7=1")
	numbers.Delete("a")
	numbers.Delete("b")
	e.Commit()
	expect(t, "lengths", entries(lengths), "7=1")
}

func TestIndexOverDerived(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	small := incremental.Map(e, "small", in.Collection, func(_ *incremental.View, _ key, n int) (int, bool) { return n, n < 10 }, same[int])
	all := incremental.NewIndex(small, "all", func(key, int) []string { return []string{""} })
	total := incremental.NewInput[key](e, "total", same[int])
	number := incremental.Map(e, "number", total.Collection, func(v *incremental.View, _ key, _ int) (int, bool) {
		return incremental.Count(v, all, ""), true
	}, same[int])
	total.Set("t", 0)
	for i := range 20 {
		in.Set(key(fmt.Sprint(i)), i)
	}
	e.Commit()
	expect(t, "number", entries(number), "t=10")
	in.Set("5", 50)
	expectRuns(t, e.Commit(), map[string]int{"small": 1, "number": 1})
	expect(t, "number", entries(number), "t=9")
}

func TestFlatMapFirstOwnerWins(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[string])
	out := incremental.FlatMap(e, "out", in.Collection, func(_ *incremental.View, k key, s string) (list []incremental.Entry[key, string]) {
		for i, w := range strings.Fields(s) {
			list = append(list, incremental.Entry[key, string]{Key: key(w), Value: fmt.Sprintf("%s%d", k, i)})
		}
		return list
	}, same[string])
	in.Set("b", "x y x")
	e.Commit()
	expect(t, "of one, the first", entries(out), "x=b0 y=b1")
	in.Set("a", "y")
	in.Set("c", "x z")
	e.Commit()
	expect(t, "of several, the first", entries(out), "x=b0 y=a0 z=c1")
	in.Delete("b")
	e.Commit()
	expect(t, "the next takes over", entries(out), "x=c0 y=a0 z=c1")
	if n := len(out.Changes()); n != 1 {
		t.Errorf("%d changes, want 1: %v", n, out.Changes())
	}
	in.Set("a", "")
	in.Delete("c")
	e.Commit()
	expect(t, "nobody is left", entries(out), "")
}

// TestJoin checks that a change wakes the function of the same key and no other, whether it finds a value, loses one or gets another, and is no read.
func TestJoin(t *testing.T) {
	e := incremental.New()
	beside := incremental.NewInput[key](e, "beside", same[int])
	in := incremental.NewInput[key](e, "in", same[int])
	sums := incremental.Map(e, "sum", in.Collection, func(v *incremental.View, _ key, n int) (int, bool) {
		m, ok := incremental.Join(v, beside.Collection)
		if !ok {
			return n, true
		}
		return 10*m + n, true
	}, same[int])
	for i, step := range []struct {
		do   func()
		want string
		runs int
	}{
		{func() { in.Set("a", 1); in.Set("b", 2); beside.Set("b", 3) }, "a=1 b=32", 2},
		{func() { beside.Set("a", 4) }, "a=41 b=32", 1},
		{func() { beside.Set("a", 4); beside.Set("c", 5) }, "a=41 b=32", 0},
		{func() { in.Set("c", 6) }, "a=41 b=32 c=56", 1},
		{func() { beside.Set("b", 7); in.Set("b", 8) }, "a=41 b=78 c=56", 1},
		{func() { beside.Delete("a"); in.Delete("b") }, "a=1 c=56", 1},
		{func() { beside.Delete("b") }, "a=1 c=56", 0},
		{func() { in.Set("b", 9) }, "a=1 b=9 c=56", 1},
	} {
		step.do()
		s := e.Commit()
		expect(t, fmt.Sprint("step ", i), entries(sums), step.want)
		if s.Runs != step.runs || s.Reads != 0 {
			t.Errorf("step %d: %d runs and %d reads, want %d and none", i, s.Runs, s.Reads, step.runs)
		}
	}
}

func TestParts(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	parts := incremental.Parts(e, "parts", in.Collection, func(_ *incremental.View, _ key, n int) (list []int) {
		for i := range n % 10 {
			list = append(list, n/10+i)
		}
		return list
	}, func(k key, i int) key { return key(fmt.Sprintf("%s%d", k, i)) }, same[int])
	for _, step := range []struct {
		do      func()
		want    string
		changes int
	}{
		{func() { in.Set("a", 13); in.Set("b", 21); in.Set("c", 30) }, "a0=1 a1=2 a2=3 b0=2", 4},
		{func() { in.Set("a", 11); in.Set("b", 23); in.Set("c", 0) }, "a0=1 b0=2 b1=3 b2=4", 4},
		{func() { in.Delete("b"); in.Set("c", 51) }, "a0=1 c0=5", 4},
	} {
		step.do()
		e.Commit()
		expect(t, "parts", entries(parts), step.want)
		if n := len(parts.Changes()); n != step.changes {
			t.Errorf("%d changes, want %d: %+v", n, step.changes, parts.Changes())
		}
	}
}

func TestReadsOutOfOrderPanic(t *testing.T) {
	for what, build := range map[string]func(e *incremental.Engine, in *incremental.Input[key, int]) func(v *incremental.View){
		"a later collection": func(e *incremental.Engine, in *incremental.Input[key, int]) func(v *incremental.View) {
			var later *incremental.Input[key, int]
			f := func(v *incremental.View) { incremental.Fetch(v, later.Collection, "a") }
			defer func() { later = incremental.NewInput[key](e, "later", same[int]) }()
			return f
		},
		"another engine": func(*incremental.Engine, *incremental.Input[key, int]) func(v *incremental.View) {
			foreign := incremental.NewInput[key](incremental.New(), "foreign", same[int])
			return func(v *incremental.View) { incremental.Fetch(v, foreign.Collection, "a") }
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := incremental.New()
			in := incremental.NewInput[key](e, "in", same[int])
			var read func(*incremental.View)
			incremental.Map(e, "out", in.Collection, func(v *incremental.View, _ key, n int) (int, bool) {
				read(v)
				return n, true
			}, same[int])
			read = build(e, in)
			in.Set("a", 1)
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "out reads") {
					t.Errorf("panic %v, want one that says what out reads", p)
				}
			}()
			e.Commit()
		})
	}
}

func TestReadOfItselfPanics(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	var out *incremental.Collection[key, int]
	out = incremental.Map(e, "out", in.Collection, func(v *incremental.View, k key, n int) (int, bool) {
		return incremental.Fetch(v, out, k)
	}, same[int])
	in.Set("a", 1)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	e.Commit()
}

// TestReadersAreSwept checks that reads of the past leave nothing behind.
func TestReadersAreSwept(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	words := incremental.NewInput[key](e, "words", same[int])
	index := incremental.NewIndex(words.Collection, "index", func(k key, n int) []int { return []int{n} })
	incremental.Map(e, "out", in.Collection, func(v *incremental.View, _ key, n int) (int, bool) {
		incremental.Fetch(v, words.Collection, key(fmt.Sprint(n)))
		incremental.Lookup(v, index, n)
		incremental.Count(v, index, -n)
		incremental.Fetch(v, words.Collection, "popular")
		return n, true
	}, same[int])
	for i := range 1000 {
		in.Set("a", i+1)
		in.Set("b", i+1)
		e.Commit()
	}
	slots, buckets, readers := incremental.Held(words.Collection, index, "popular")
	if slots != 2 || buckets != 2 || readers > 6 {
		t.Errorf("%d slots, %d buckets, %d readers of the popular one; want 2, 2 and at most 6", slots, buckets, readers)
	}
	in.Delete("a")
	in.Delete("b")
	e.Commit()
	if slots, buckets, _ := incremental.Held(words.Collection, index, "popular"); slots != 0 || buckets != 0 {
		t.Errorf("%d slots and %d buckets are left without readers", slots, buckets)
	}
}

func TestAllIsSortedAndCanStop(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	for i := range 100 {
		in.Set(key(fmt.Sprint(i)), i)
	}
	e.Commit()
	var seen []string
	for k := range in.All() {
		seen = append(seen, string(k))
		if len(seen) == 50 {
			break
		}
	}
	if len(seen) != 50 || !slices.IsSorted(seen) {
		t.Errorf("keys %v", seen)
	}
}

// TestReadsAreCounted: every edge that a run makes counts once, of an absence and of an index too, and what does not run makes none.
func TestReadsAreCounted(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	parity := incremental.NewIndex(in.Collection, "by parity", func(_ key, n int) []int { return []int{n % 2} })
	incremental.Map(e, "reader", in.Collection, func(v *incremental.View, k key, n int) (int, bool) {
		incremental.Fetch(v, in.Collection, k)
		incremental.Fetch(v, in.Collection, k) // the same edge
		incremental.Fetch(v, in.Collection, "absent")
		return len(incremental.Lookup(v, parity, n%2)), true
	}, same[int])
	incremental.Map(e, "alone", in.Collection, func(_ *incremental.View, _ key, n int) (int, bool) { return n, true }, same[int])
	for _, step := range []struct {
		name  key
		value int
		reads int
	}{{"a", 1, 3}, {"b", 2, 3}, {"c", 3, 6}, {"c", 3, 0}} { // c also wakes a, which has counted the odd ones
		in.Set(step.name, step.value)
		s := e.Commit()
		want := map[string]int{}
		if step.reads > 0 {
			want["reader"] = step.reads
		}
		if s.Reads != step.reads || fmt.Sprint(s.ReadsByName) != fmt.Sprint(want) {
			t.Errorf("%s=%d: %d reads %v, want %d", step.name, step.value, s.Reads, s.ReadsByName, step.reads)
		}
	}
}

func TestUnion(t *testing.T) {
	e := incremental.New()
	a, b := incremental.NewInput[key](e, "a", same[int]), incremental.NewInput[key](e, "b", same[int])
	all := incremental.Union(e, "all", a.Collection, b.Collection)
	a.Set("1", 10)
	b.Set("0", 20)
	e.Commit()
	expect(t, "both", entries(all), "0=20 1=10")
	a.Set("1", 11)
	b.Delete("0")
	b.Set("2", 21)
	e.Commit()
	expect(t, "afterwards", entries(all), "1=11 2=21")
	expect(t, "changes", fmt.Sprintf("%+v", all.Changes()),
		"[{Key:0 Old:20 New:0 Added:false Deleted:true} {Key:1 Old:10 New:11 Added:false Deleted:false} {Key:2 Old:0 New:21 Added:true Deleted:false}]")
	a.Set("1", 11)
	e.Commit()
	if len(all.Changes()) != 0 {
		t.Errorf("an equal value changed %v", all.Changes())
	}
}

// TestFirstCommitLeavesNoRoom: the lists of changes that the first Commit makes, of everything, are not kept for later ones.
func TestFirstCommitLeavesNoRoom(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key, int](e, "in", nil)
	out := incremental.Map(e, "out", in.Collection, func(_ *incremental.View, _ key, n int) (int, bool) { return n, true }, nil)
	for i := range 1000 {
		in.Set(key(fmt.Sprint(i)), i)
	}
	e.Commit()
	if n := len(out.Changes()); n != 1000 {
		t.Fatalf("%d changes", n)
	}
	in.Set("1", 2)
	e.Commit()
	if n := cap(out.Changes()); n > 100 {
		t.Errorf("room for %d changes is kept", n)
	}
	if n := len(out.Changes()); n != 1 {
		t.Errorf("%d changes, want 1", n)
	}
}

// TestIndexOfManyKeys holds what becomes of an entry's index keys against all of them searched one by one: few and many, repeated ones, in common or not.
func TestIndexOfManyKeys(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", slices.Equal[[]int])
	index := incremental.NewIndex(in.Collection, "index", func(_ key, keys []int) []int { return keys })
	span := func(from, to int) (keys []int) {
		for i := from; i < to; i++ {
			keys = append(keys, i)
		}
		return keys
	}
	for _, keys := range [][]int{span(0, 3), span(0, 8), span(0, 9), span(2, 9), append(span(0, 500), span(0, 500)...), span(1, 501), span(250, 750), {600, 600}, nil, span(0, 40)} {
		in.Set("a", keys)
		in.Set("b", span(0, 2))
		e.Commit()
		for i := range 1000 {
			want := ""
			if slices.Contains(keys, i) {
				want = "a "
			}
			if i < 2 {
				want += "b"
			}
			got := ""
			for _, k := range index.Get(i) {
				got += string(k) + " "
			}
			expect(t, fmt.Sprintf("members under %d with %d keys", i, len(keys)), strings.TrimSpace(got), strings.TrimSpace(want))
		}
	}
}

// BenchmarkIndexOfManyKeys is one entry with 10,000 index keys to which one is added.
func BenchmarkIndexOfManyKeys(b *testing.B) {
	e := incremental.New()
	in := incremental.NewInput[key, int](e, "in", nil)
	incremental.NewIndex(in.Collection, "index", func(_ key, n int) []int {
		keys := make([]int, n)
		for i := range keys {
			keys[i] = i
		}
		return keys
	})
	in.Set("a", 10_000)
	e.Commit()
	for i := 0; b.Loop(); i++ {
		in.Set("a", 10_000+i%2)
		e.Commit()
	}
}

// TestMembers: what a member costs that joins does not depend on how many there are, and members of other keys cost nothing.
func TestMembers(t *testing.T) {
	e := incremental.New()
	words := incremental.NewInput[key](e, "words", same[int])
	letters := incremental.NewInput[key](e, "letters", same[int])
	index := incremental.NewIndex(words.Collection, "words by letter", func(k key, _ int) []key { return []key{k[:1]} })
	members := incremental.Members(index, "members", letters.Collection, func(letter, word key) key { return letter + ":" + word })
	run := incremental.Map(e, "run", members, func(*incremental.View, key, struct{}) (bool, bool) { return true, true }, same[bool])
	for _, w := range []key{"apple", "ant", "bee", "bear"} {
		words.Set(w, 1)
	}
	e.Commit()
	expect(t, "without letters", entries(run), "")
	letters.Set("a", 1)
	letters.Set("c", 1)
	e.Commit()
	expect(t, "of a", entries(run), "a:ant=true a:apple=true")
	letters.Set("a", 2)
	words.Set("asp", 1)
	words.Set("bug", 1)
	words.Set("cat", 1)
	words.Delete("ant")
	expectRuns(t, e.Commit(), map[string]int{"run": 2})
	expect(t, "edited", entries(run), "a:apple=true a:asp=true c:cat=true")
	letters.Delete("a")
	words.Delete("asp")
	words.Set("ash", 1)
	letters.Set("b", 1)
	words.Delete("bee")
	e.Commit()
	expect(t, "of b and c", entries(run), "b:bear=true b:bug=true c:cat=true")
}

// TestRelease: what the last Commit has changed is let go of, and later ones tell of what they change themselves.
func TestRelease(t *testing.T) {
	e := incremental.New()
	in := incremental.NewInput[key](e, "in", same[int])
	double := incremental.Map(e, "double", in.Collection, func(_ *incremental.View, _ key, v int) (int, bool) { return 2 * v, true }, same[int])
	const many = 1000
	for i := range many {
		in.Set(key(fmt.Sprint(i)), i)
	}
	e.Commit()
	if len(double.Changes()) != many {
		t.Fatalf("%d changes, want %d", len(double.Changes()), many)
	}
	e.Release()
	if len(in.Changes())+len(double.Changes()) != 0 {
		t.Errorf("%d and %d changes are kept", len(in.Changes()), len(double.Changes()))
	}
	in.Set("7", 70)
	e.Commit()
	expect(t, "changes", fmt.Sprintf("%+v", double.Changes()), "[{Key:7 Old:14 New:140 Added:false Deleted:false}]")
	if v, ok := double.Get("8"); v != 16 || !ok {
		t.Errorf("the others: %d, %v", v, ok)
	}
}
