package resolve

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxAsking bounds the hosts that are asked for at a time, and ownAsking how many of a namespace there may be in addition where that is used up.
	maxAsking = 64
	ownAsking = 2
)

// places shares maxAsking among namespaces: one may have as many as are free, and half of them at most therefore. So hosts about which nobody answers delay those
// of their own namespace, and leave places to the others. The zero value is ready for use.
type places struct {
	mu      sync.Mutex
	active  int
	of      map[string]int             // of active, by namespace
	waiting map[string][]chan struct{} // in their order, by namespace; never empty
	turns   []string                   // keys of waiting, in the order of their turns
}

// enter waits for a place; false is that ctx has ended before. It is given back by leave.
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

// leave gives a place back.
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
		if at := slices.Index(p.turns, next); at >= 0 { // others had their turn since it had one
			p.turns = append(slices.Delete(p.turns, at, at+1), next)
		}
	}
}

// free reports whether a namespace may have another place; mu is held.
func (p *places) free(namespace string) bool {
	of := p.of[namespace]
	return of < ownAsking || of < maxAsking-p.active
}

// take counts a place; mu is held.
func (p *places) take(namespace string) {
	if p.of == nil {
		p.of = make(map[string]int)
	}
	p.active++
	p.of[namespace]++
}

// wait has turn closed when there is a place for it; mu is held.
func (p *places) wait(namespace string, turn chan struct{}) {
	if p.waiting == nil {
		p.waiting = make(map[string][]chan struct{})
	}
	if len(p.waiting[namespace]) == 0 {
		p.turns = append(p.turns, namespace)
	}
	p.waiting[namespace] = append(p.waiting[namespace], turn)
}

// abandon ends a wait; false is that it has ended. mu is held.
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
