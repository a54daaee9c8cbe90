package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/moongate-dev/moongate/internal/proxy/datagram"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// UDP ports are separate from TCP ports with the same number, so their sockets are laid out separately. Each has one
// listener.

// placeUDP adds a listener to the sockets that it needs.
func placeUDP(l *snapshot.Listener, addrs []listen.Addr, wanted map[listen.Addr]*snapshot.Listener) error {
	for _, addr := range addrs {
		if other := wanted[addr]; other != nil {
			return fmt.Errorf("port %d is taken by listener %s", addr.Port, other.Config.Key)
		}
		wanted[addr] = l
	}
	return nil
}

// relistenUDP binds the needed sockets that are not open, updates the listeners of all, and closes the others.
func (p *Proxy) relistenUDP(wanted map[listen.Addr]*snapshot.Listener) {
	for addr, s := range p.datagrams {
		if wanted[addr] == nil {
			delete(p.datagrams, addr)
			s.Close()
		}
	}
	for _, addr := range sortedAddrs(wanted) {
		l := wanted[addr]
		ls := p.state.listeners[l.Config.Key]
		if s := p.datagrams[addr]; s != nil {
			s.SetListener(l)
		} else if s, err := p.openUDP(addr); err != nil {
			ls.failed.bind(addr, err)
			continue
		} else {
			p.datagrams[addr] = s
			s.SetListener(l)
			s.Serve()
		}
		ls.bound = append(ls.bound, addr)
		if p.closed {
			ls.failed.bind(addr, net.ErrClosed)
		}
	}
}

// updateUDP updates the routes of a listener on its sockets, if it is a UDP listener.
func (p *Proxy) updateUDP(ls *listenerState) {
	if ls.closed {
		return
	}
	for _, addr := range ls.bound {
		s := p.datagrams[addr]
		if s == nil || s.Listener().Config != ls.config {
			continue
		}
		next := *s.Listener()
		next.L4 = ls.l4.hosts
		s.SetListener(&next)
	}
}

func (p *Proxy) openUDP(addr listen.Addr) (*datagram.Socket, error) {
	if p.closed {
		return nil, net.ErrClosed
	}
	return p.sessions.Open(addr)
}

// drainAll lets connections and sessions end by themselves until ctx ends. Then it cuts the rest and returns the error
// of ctx.
func (p *Proxy) drainAll(ctx context.Context) error {
	var failed error
	var sessions sync.WaitGroup
	sessions.Go(func() { failed = p.sessions.Shutdown(ctx) })
	var err error
	select {
	case <-p.clients.Empty():
	case <-ctx.Done():
		err = ctx.Err()
		p.clients.Cut()
		<-p.clients.Empty()
	}
	if sessions.Wait(); err == nil {
		err = failed
	}
	return err
}
