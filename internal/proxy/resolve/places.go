package resolve

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxAsking is the largest number of concurrent queries, and ownAsking how many a namespace may have in any case.
	maxAsking = 64
	ownAsking = 2
)

// places shares maxAsking among namespaces: one may have as many places as are free, and therefore at most half of
// them. So hosts without answers only delay those of their own namespace, and leave places to others. The zero value is
// ready for use.
type places struct {
	mu      sync.Mutex
	active  int
	of      map[string]int             // of active, by namespace
	waiting map[string][]chan struct{} // in order, by namespace; never empty
	turns   []string                   // keys of waiting, in the order of their turns
}

// enter waits for a place, which leave returns. It returns false if ctx has ended before.
func (p *places) enter(ctx context.Context, namespace string) bool {
	p.mu.Lock()
	if len(p.waiting[namespace]) == 0 && p.free(namespace) {
		p.take(namespace)
		p.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	p.wait(namespace, turn)
	p.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	waited := p.abandon(namespace, turn)
	p.mu.Unlock()
	if !waited { // its turn came at the same moment
		p.leave(namespace)
	}
	return false
}

// leave returns a place.
func (p *places) leave(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	if p.of[namespace]--; p.of[namespace] == 0 {
		delete(p.of, namespace)
	}
	for i := 0; i < len(p.turns); {
		next := p.turns[i]
		if !p.free(next) {
			i++
			continue
		}
		p.take(next)
		turn := p.waiting[next][0]
		p.abandon(next, turn)
		close(turn)
		if at := slices.Index(p.turns, next); at >= 0 { // other namespaces have had their turn since this one had its last
			p.turns = append(slices.Delete(p.turns, at, at+1), next)
		}
	}
}

// free reports whether a namespace may have another place. mu must be held.
func (p *places) free(namespace string) bool {
	of := p.of[namespace]
	return of < ownAsking || of < maxAsking-p.active
}

// take counts a place. mu must be held.
func (p *places) take(namespace string) {
	if p.of == nil {
		p.of = make(map[string]int)
	}
	p.active++
	p.of[namespace]++
}

// wait arranges that turn is closed when there is a place for it. mu must be held.
func (p *places) wait(namespace string, turn chan struct{}) {
	if p.waiting == nil {
		p.waiting = make(map[string][]chan struct{})
	}
	if len(p.waiting[namespace]) == 0 {
		p.turns = append(p.turns, namespace)
	}
	p.waiting[namespace] = append(p.waiting[namespace], turn)
}

// abandon ends a wait. It returns false if the wait has already ended. mu must be held.
func (p *places) abandon(namespace string, turn chan struct{}) bool {
	list := p.waiting[namespace]
	i := slices.Index(list, turn)
	if i < 0 {
		return false
	}
	if list = slices.Delete(list, i, i+1); len(list) > 0 {
		p.waiting[namespace] = list
		return true
	}
	delete(p.waiting, namespace)
	at := slices.Index(p.turns, namespace)
	p.turns = slices.Delete(p.turns, at, at+1)
	return true
}
