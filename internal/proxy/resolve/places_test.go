package resolve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// enters has so many wait for places, and returns how many have one.
func enters(ctx context.Context, p *places, namespace string, n int) (has int) {
	for range n {
		go p.enter(ctx, namespace)
	}
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[namespace]
}

// TestShares: a namespace may have as many places as are free, and each has some; who waits has its turn when there is a place for its namespace, and who has given up
// holds none.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var p places
		for i, want := range []int{32, 16, 8, 4, 2, 2, 2} {
			if got := enters(ctx, &p, fmt.Sprint(i), 100); got != want {
				t.Errorf("namespace %d has %d places, want %d", i, got, want)
			}
		}
		for range 20 { // of the first; what it leaves is shared again
			p.leave("0")
			synctest.Wait()
			sum := 0
			for _, n := range p.of {
				sum += n
			}
			if p.active > maxAsking+7*ownAsking || p.of["0"] > 32 || sum != p.active {
				t.Fatalf("%d places: %v", p.active, p.of)
			}
		}
		if p.of["6"] < ownAsking || p.of["1"] < 16 {
			t.Errorf("places %v", p.of)
		}
		cancel()
		synctest.Wait()
		if len(p.waiting)+len(p.turns) != 0 {
			t.Errorf("%d namespaces and %d turns wait", len(p.waiting), len(p.turns))
		}
		for namespace, n := range p.of {
			for range n {
				p.leave(namespace)
			}
		}
		if p.active != 0 || len(p.of) != 0 {
			t.Errorf("%d places are left: %v", p.active, p.of)
		}
	})
}

// TestTurns: those of a namespace come in their order, one for each place.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p places
		enters(t.Context(), &p, "busy", maxAsking/2)
		var turns []string
		for i := range 3 {
			go func() {
				p.enter(t.Context(), "busy")
				turns = append(turns, fmt.Sprint(i))
			}()
			synctest.Wait()
		}
		for i, want := range []string{"0", "0 1", "0 1 2"} {
			if n := len(turns); n != i {
				t.Fatalf("%d have had their turn, want %d", n, i)
			}
			p.leave("busy")
			synctest.Wait()
			if got := strings.Join(turns, " "); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}
