package match

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// TestReadersGoOnDuringEdits replaces routes while others look them up: a route
// that is always there must always be found.
func TestReadersGoOnDuringEdits(t *testing.T) {
	var current atomic.Pointer[Table[string]]
	current.Store(tableByHost(t, 200))
	var stop atomic.Bool
	var wg sync.WaitGroup
	var lookups atomic.Int64
	for reader := range 3 {
		wg.Go(func() {
			for i := reader; !stop.Load() || lookups.Load() < 1000; i++ {
				table := current.Load()
				name := hostname(i % 200)
				rule := lookup(table, browserRequest(name, "/api/x"))
				if rule == nil || rule.Route.Name != fmt.Sprintf("route-%d", i%200) {
					t.Errorf("%s: got %v", name, whereRule(rule))
					return
				}
				table.Explain(browserRequest(name, "/api/health"))
				lookups.Add(1)
			}
		})
	}
	for i := range 2000 {
		edit := current.Load().Edit()
		edit.Add(compile(t, numbered(i%200, "/api")), effective(hostname(i%200)))
		extra := numbered(1000+i, "/api/x")
		edit.Add(compile(t, extra), effective("extra.example.com"))
		edit.Remove(numbered(1000+i-5, "").Key)
		current.Store(edit.Table())
	}
	stop.Store(true)
	wg.Wait()
	if n := current.Load().Len(); n != 205 {
		t.Errorf("%d routes at the end, want 205", n)
	}
}
