package match

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// answer is what a table said once, and must go on saying.
type answer struct {
	table *Table[string]
	req   *message.Request
	where string
}

// checkEdits runs the edits and requests that data stands for, and compares with the naive order.
// It returns how many requests found a rule.
func checkEdits(t *testing.T, data []byte) (hits int) {
	t.Helper()
	c := &chooser{data}
	table := &Table[string]{}
	model := naive{}
	var before []answer
	for len(c.data) > 0 {
		edit := table.Edit()
		for range 1 + c.below(3) {
			changeBoth(t, c, edit, model)
		}
		table = edit.Table()
		if table.Len() != len(model) {
			t.Fatalf("%d routes in the table, want %d", table.Len(), len(model))
		}
		for range 4 {
			req := c.request()
			got, want := whereRule(lookup(table, req)), model.winner(req)
			if got != want {
				t.Fatalf("%s\n got %q\nwant %q", show(req), got, want)
			}
			if got != "" {
				hits++
			}
			checkExplain(t, table, model, req)
			before = append(before, answer{table, req, want})
		}
	}
	for _, a := range before {
		if got := whereRule(lookup(a.table, a.req)); got != a.where {
			t.Fatalf("%s: a later edit changed the answer of an older table\n got %q\nwant %q", show(a.req), got, a.where)
		}
	}
	edit := table.Edit()
	for key := range model {
		edit.Remove(key)
	}
	if empty := edit.Table(); empty.Len() != 0 || empty.hosts.Len() != 0 || len(empty.hosts.labels) > 0 {
		t.Fatalf("after removal of all routes there are %d hosts", empty.hosts.Len())
	}
	return hits
}

func changeBoth(t *testing.T, c *chooser, edit *Edit[string], model naive) {
	a := c.attached()
	if c.below(4) == 1 {
		edit.Remove(a.route.Key)
		delete(model, a.route.Key)
		return
	}
	edit.Add(compile(t, a.route), a.hostnames)
	model[a.route.Key] = a
}

func checkExplain(t *testing.T, table *Table[string], model naive, req *message.Request) {
	t.Helper()
	var want []string
	seen := map[string]bool{}
	for _, f := range model.fitting(req) {
		if !seen[f.where] {
			seen[f.where] = true
			want = append(want, f.where)
		}
	}
	candidates := table.Explain(req)
	var got []string
	for i, c := range candidates {
		if c.Matched {
			got = append(got, whereRule(c.Rule))
		}
		if winner := c.Matched && len(got) == 1; (c.Why == "") != winner {
			t.Fatalf("%s: candidate %d has Matched %v and Why %q", show(req), i, c.Matched, c.Why)
		}
	}
	if len(candidates) > MaxCandidates {
		t.Fatalf("%d candidates", len(candidates))
	}
	if len(want) > MaxCandidates {
		want = want[:MaxCandidates]
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: matched candidates\n got %q\nwant %q", show(req), got, want)
	}
}

func TestTableChoosesAsTheSpecificationOrders(t *testing.T) {
	hits, rounds := 0, 100
	if testing.Short() {
		rounds = 20
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 1))
		data := make([]byte, 3000)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		hits += checkEdits(t, data)
	}
	// The comparison says something only if requests find rules.
	if hits < rounds*10 {
		t.Errorf("only %d requests found a rule", hits)
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 2))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1024 {
			return // the naive order takes its time
		}
		checkEdits(t, data)
	})
}

// FuzzRequest gives one full table requests out of hostile bytes.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "a.example.com", "/a/b", "q=1&a+b=2", "X-A", "1", "2")
	f.Add("", "", "*", "%", "", "", "")
	f.Add("POST", "...com", "///a//b", "&&=&q=%4", "x-b", ",", "")
	f.Add("GET", ".a.example.com", "/caf%C3%A9", "%71=%zz", "HOST", "example.com", "")
	c := &chooser{}
	rng := rand.New(rand.NewPCG(3, 3))
	for range 20000 {
		c.data = append(c.data, byte(rng.Uint32()))
	}
	model := naive{}
	edit := (*Table[string])(nil).Edit()
	for len(c.data) > 0 {
		a := c.attached()
		route, err := Compile(a.route, func(*config.Rule) string { return "" })
		if err != nil {
			f.Fatal(err)
		}
		edit.Add(route, a.hostnames)
		model[a.route.Key] = a
	}
	table := edit.Table()
	f.Fuzz(func(t *testing.T, method, host, path, query, name, v1, v2 string) {
		if path == "" || path[0] != '/' && path != "*" {
			path = "/" + path
		}
		req := &message.Request{Method: []byte(method), Host: []byte(host), MatchHost: []byte(host), Path: []byte(path), Query: []byte(query)}
		req.Header.Add([]byte(name), []byte(v1))
		req.Header.Add([]byte(name), []byte(v2))
		if !plain(name + v1 + v2) {
			return // not what a parser lets through
		}
		if got, want := whereRule(lookup(table, req)), model.winner(req); got != want {
			t.Fatalf("%s\n got %q\nwant %q", show(req), got, want)
		}
		checkExplain(t, table, model, req)
	})
}

// plain is what a field can hold without surrounding white space, in ASCII.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
