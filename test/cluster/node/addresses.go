package node

import (
	"fmt"
	"net/netip"
	"sync"
)

// pool hands out the pod addresses of one host, the longest unused first, so
// that a peer that still remembers an ended pod does not meet a new one.
type pool struct {
	mu    sync.Mutex
	next  netip.Addr // the first never taken
	given []netip.Addr
	all   netip.Prefix
}

func newPool(all netip.Prefix) *pool {
	return &pool{all: all, next: all.Masked().Addr().Next()}
}

func (p *pool) take() (netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if after := p.next.Next(); p.all.Contains(after) {
		address := p.next
		p.next = after
		return address, nil
	}
	if len(p.given) == 0 {
		return netip.Addr{}, fmt.Errorf("every pod address of %s is taken", p.all)
	}
	address := p.given[0]
	p.given = p.given[1:]
	return address, nil
}

func (p *pool) give(address netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given = append(p.given, address)
}
