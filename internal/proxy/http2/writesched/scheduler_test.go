package writesched

import (
	"strings"
	"testing"
)

type stream struct {
	Entry[stream]
	name string
}

// order serves the queue until it is empty, each stream as often as its name is long.
func order(q *Scheduler[stream]) string {
	served := map[*stream]int{}
	var names []string
	for s := q.Front(); s != nil; s = q.Front() {
		q.Serve(&s.Entry)
		names = append(names, s.name[:1])
		if served[s]++; served[s] < len(s.name) {
			q.Again(&s.Entry)
		}
	}
	return strings.Join(names, "")
}

func TestOrder(t *testing.T) {
	for _, c := range []struct{ streams, want string }{
		{"aaa bbb ccc", "abcabcabc"},                 // turns
		{"aaa:u=4 bbb ccc:u=2", "cccbbbaaa"},         // urgency
		{"aaa:u=3 bbb:u=3", "aaabbb"},                // whole
		{"aaa:u=3,i bbb:i,u=3 ccc", "abcabcabc"},     // incremental
		{"aaa:u=8 bbb:u=-1,q cc:i=?1;x", "aaabbbcc"}, // not understood
		{"aaa bbb S s", "Sasbabab"},                  // short ones between the turns
		{"aa:u=0,i O:u=7 P:u=1", "OPaa"},             // opened by us, in their order
		{"aa Z b", "aba"},                            // starved
	} {
		var q Scheduler[stream]
		for _, text := range strings.Fields(c.streams) {
			name, priority, given := strings.Cut(text, ":")
			s := &stream{name: name}
			s.Begin(s)
			if given {
				s.Prioritise([]byte(strings.ReplaceAll(priority, ",", " ,\t")))
			}
			switch name {
			case "O", "P":
				q.Open(&s.Entry)
			case "Z":
				q.Starve(&s.Entry, true)
			default:
				q.Add(&s.Entry, name == "S" || name == "s")
				q.Add(&s.Entry, false)
			}
		}
		if got := order(&q); got != c.want {
			t.Errorf("%s: %s, want %s", c.streams, got, c.want)
		}
		starved := !q.Empty()
		q.Feed()
		if got := order(&q); got != "" != starved || !q.Empty() {
			t.Errorf("%s: fed, %q, starved %v", c.streams, got, starved)
		}
	}
}

func TestMoves(t *testing.T) {
	var q Scheduler[stream]
	a, b, c := &stream{name: "a"}, &stream{name: "b"}, &stream{name: "c"}
	for _, s := range []*stream{a, b, c} {
		s.Begin(s)
		q.Add(&s.Entry, false)
	}
	b.Leave()
	b.Leave()
	q.Reprioritise(&c.Entry, []byte("u=1"))
	q.Reprioritise(&b.Entry, []byte("u=0"))
	if b.Waits() || q.Front() != c {
		t.Error("left, and first of all")
	}
	q.Add(&b.Entry, false)
	if got := order(&q); got != "bca" {
		t.Error(got)
	}
	q.Starve(&a.Entry, false)
	q.Reprioritise(&a.Entry, []byte("u=0"))
	if !q.Starved(&a.Entry) || q.Front() != nil || q.Empty() {
		t.Error("a new priority opens no window")
	}
}
