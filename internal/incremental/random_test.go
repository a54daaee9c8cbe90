package incremental_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// graph is a random engine: a few inputs, then collections of all kinds, whose
// functions read earlier collections in ways that depend on the values read.
type graph struct {
	engine *incremental.Engine
	inputs []*incremental.Input[key, int]
	all    []*incremental.Collection[key, int]
	index  []*incremental.Index[int, key, int]
}

const keys = 12

func newGraph(seed uint64) *graph {
	r := rand.New(rand.NewPCG(seed, 3))
	g := &graph{engine: incremental.New()}
	for i := range 1 + r.IntN(3) {
		in := incremental.NewInput[key](g.engine, fmt.Sprint("in", i), same[int])
		g.inputs = append(g.inputs, in)
		g.all = append(g.all, in.Collection)
	}
	for i := range 3 + r.IntN(8) {
		source := g.all[r.IntN(len(g.all))]
		read, name := g.reader(r), fmt.Sprint("derived", i)
		switch r.IntN(8) {
		case 0:
			g.index = append(g.index, incremental.NewIndex(source, "index of "+name, func(_ key, n int) []int {
				return []int{n % 5, n % 3, n % 5}
			}))
			fallthrough
		case 1:
			g.all = append(g.all, incremental.Map(g.engine, name, source, func(v *incremental.View, _ key, n int) (int, bool) {
				out := read(v, n)
				return out % 20, out%4 != 0
			}, same[int]))
		case 2:
			g.all = append(g.all, incremental.FlatMap(g.engine, name, source, func(v *incremental.View, k key, n int) (list []incremental.Entry[key, int]) {
				out := read(v, n)
				for j := range out % 3 {
					list = append(list, incremental.Entry[key, int]{Key: key(fmt.Sprint((out + j) % keys)), Value: out + len(k)})
				}
				return list
			}, same[int]))
		case 6:
			g.all = append(g.all, incremental.Parts(g.engine, name, source, func(v *incremental.View, _ key, n int) (list []int) {
				out := read(v, n)
				for j := range out % 4 {
					list = append(list, (out+j)%20)
				}
				return list
			}, func(k key, i int) key { return key(fmt.Sprint("part ", i, " of ", k)) }, same[int]))
		case 7:
			beside, also := g.all[r.IntN(len(g.all))], g.all[r.IntN(len(g.all))]
			g.all = append(g.all, incremental.Map(g.engine, name, source, func(v *incremental.View, _ key, n int) (int, bool) {
				if n%3 > 0 {
					m, ok := incremental.Join(v, beside)
					if n += 2 * m; ok {
						n++
					}
				}
				if n%2 > 0 {
					m, _ := incremental.Join(v, also)
					n += m
				}
				out := read(v, n)
				return out % 20, out%4 != 0
			}, same[int]))
		case 5:
			among, after := g.all[r.IntN(len(g.all))], r.IntN(2) == 0
			index := incremental.NewIndex(source, "index for members of "+name, func(_ key, n int) []key {
				return []key{key(fmt.Sprint(n % 5)), key(fmt.Sprint(n % 3)), key(fmt.Sprint(n % 5))}[n%2:]
			})
			if after {
				among = incremental.Map(g.engine, "keys for members of "+name, among, func(_ *incremental.View, _ key, n int) (int, bool) { return n, n%3 != 0 }, same[int])
			}
			members := incremental.Members(index, "members of "+name, among, func(under, k key) key { return under + " has " + k })
			g.all = append(g.all, incremental.Map(g.engine, name, members, func(v *incremental.View, k key, _ struct{}) (int, bool) {
				return read(v, len(k)), true
			}, same[int]))
		case 4:
			other := incremental.FlatMap(g.engine, name+" renamed", source, func(v *incremental.View, k key, n int) []incremental.Entry[key, int] {
				return []incremental.Entry[key, int]{{Key: "renamed " + k + key(name), Value: read(v, n) % 20}}
			}, same[int])
			g.all = append(g.all, incremental.Union(g.engine, name, source, other))
		case 3:
			index := incremental.NewIndex(source, "index by keys of "+name, func(_ key, n int) []key {
				return []key{key(fmt.Sprint(n % 5)), key(fmt.Sprint(n % 3)), key(fmt.Sprint(n % 5))}[n%2:]
			})
			var more []incremental.Grouped[key]
			if r.IntN(2) == 0 {
				more = append(more, incremental.NewIndex(g.all[r.IntN(len(g.all))], "index of others by keys of "+name, func(_ key, n int) []key {
					return []key{key(fmt.Sprint(n % 4))}
				}))
			}
			g.all = append(g.all, incremental.Map(g.engine, name, incremental.Keys(index, "keys of "+name, more...), func(v *incremental.View, k key, _ struct{}) (int, bool) {
				return read(v, len(incremental.Lookup(v, index, k))), true
			}, same[int]))
		}
	}
	return g
}

// reader makes a function that follows the values it finds.
func (g *graph) reader(r *rand.Rand) func(v *incremental.View, n int) int {
	collections, indexes := g.all, g.index
	steps, salt := r.IntN(4), r.IntN(100)
	return func(v *incremental.View, n int) int {
		for i := range steps {
			n += salt
			switch at := (n + i) % (len(collections) + len(indexes)); {
			case at < len(collections):
				m, ok := incremental.Fetch(v, collections[at], key(fmt.Sprint(n%keys)))
				if !ok {
					m = 7
				}
				n += m
			case n%2 == 0:
				n += incremental.Count(v, indexes[at-len(collections)], n%5)
			default:
				for _, k := range incremental.Lookup(v, indexes[at-len(collections)], n%5) {
					n += int(k[0])
				}
			}
		}
		return n % 1000
	}
}

func (g *graph) print() (out string) {
	for _, c := range g.all {
		out += entries(c) + "\n"
	}
	return out
}

// TestRandomGraphs compares random sequences of changes with a computation from
// scratch, and the sum of the reported changes with what is there.
func TestRandomGraphs(t *testing.T) {
	for seed := range uint64(150) {
		g := newGraph(seed)
		r := rand.New(rand.NewPCG(seed, 5))
		current := make([]map[key]int, len(g.inputs))
		for i := range current {
			current[i] = map[key]int{}
		}
		shadow := make([]map[key]int, len(g.all))
		for i := range shadow {
			shadow[i] = map[key]int{}
		}
		for step := range 40 {
			for range 1 + r.IntN(6) {
				i, k := r.IntN(len(g.inputs)), key(fmt.Sprint(r.IntN(keys)))
				if r.IntN(4) == 0 {
					g.inputs[i].Delete(k)
					delete(current[i], k)
				} else {
					n := r.IntN(30)
					g.inputs[i].Set(k, n)
					current[i][k] = n
				}
			}
			g.engine.Commit()
			for i, c := range g.all {
				follow(t, shadow[i], c)
			}
			fresh := newGraph(seed)
			for i, m := range current {
				for k, n := range m {
					fresh.inputs[i].Set(k, n)
				}
			}
			fresh.engine.Commit()
			if got, want := g.print(), fresh.print(); got != want {
				t.Fatalf("seed %d step %d: incremental\n%s\nfrom scratch\n%s", seed, step, got, want)
			}
			if again := g.engine.Commit(); again.Runs != 0 {
				t.Fatalf("seed %d step %d: %v ran without a change", seed, step, again.RunsByName)
			}
		}
	}
}

// follow applies the reported changes and compares with the collection.
func follow(t *testing.T, shadow map[key]int, c *incremental.Collection[key, int]) {
	t.Helper()
	last := key("")
	for _, ch := range c.Changes() {
		old, had := shadow[ch.Key]
		if had == ch.Added || had && old != ch.Old || !ch.Deleted && had && ch.New == old || ch.Key < last {
			t.Fatalf("change %+v of %d (%v)", ch, old, had)
		}
		last = ch.Key
		if ch.Deleted {
			delete(shadow, ch.Key)
		} else {
			shadow[ch.Key] = ch.New
		}
	}
	if c.Len() != len(shadow) {
		t.Fatalf("%d entries, the changes tell of %d", c.Len(), len(shadow))
	}
	for k, v := range c.All() {
		if shadow[k] != v {
			t.Fatalf("%s is %d, the changes tell of %d", k, v, shadow[k])
		}
	}
}

// wide is n keys that read one value and an index of a shared collection.
func wide(n int) (*incremental.Engine, *incremental.Input[key, int], *incremental.Input[key, int]) {
	e := incremental.New()
	shared := incremental.NewInput[key](e, "shared", same[int])
	in := incremental.NewInput[key](e, "in", same[int])
	out := incremental.Map(e, "out", in.Collection, func(v *incremental.View, _ key, m int) (int, bool) {
		s, _ := incremental.Fetch(v, shared.Collection, "s")
		return s + m, true
	}, same[int])
	incremental.NewIndex(out, "index", func(_ key, m int) []int { return []int{m % 10} })
	shared.Set("s", 1)
	for i := range n {
		in.Set(key(fmt.Sprint(i)), i)
	}
	e.Commit()
	return e, shared, in
}

func BenchmarkOneOf10000(b *testing.B) {
	e, _, in := wide(10000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.Set("77", -i-1)
		if s := e.Commit(); s.Runs != 1 {
			b.Fatal(s)
		}
	}
}

func BenchmarkSharedBy10000(b *testing.B) {
	e, shared, _ := wide(10000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		shared.Set("s", i+2)
		if s := e.Commit(); s.Runs != 10000 {
			b.Fatal(s)
		}
	}
}

// BenchmarkLeave50000 lets all members of an index key leave at once.
func BenchmarkLeave50000(b *testing.B) {
	for b.Loop() {
		e := incremental.New()
		in := incremental.NewInput[key](e, "in", same[int])
		shares := incremental.Keys(incremental.NewIndex(in.Collection, "index", func(key, int) []key { return []key{"all"} }), "keys")
		for i := range 50000 {
			in.Set(key(fmt.Sprint(i)), i)
		}
		e.Commit()
		for i := range 50000 {
			in.Delete(key(fmt.Sprint(i)))
		}
		if e.Commit(); shares.Len() != 0 {
			b.Fatal(shares.Len())
		}
	}
}

func BenchmarkFirst10000(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		wide(10000)
	}
}
