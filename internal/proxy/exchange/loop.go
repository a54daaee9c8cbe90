package exchange

import (
	"net"
	"net/netip"
	"sync"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// countPass adds this pass to the request; false where there were too many.
func (x *Exchange) countPass() bool {
	if message.Passes(&x.Header) >= message.MaxPasses {
		return false
	}
	message.AddPass(&x.Header)
	return true
}

// A connection of a layer-4 route has nothing that passes could be counted in. But where a backend leads back to this process, both ends of a connection
// are here, so that the listeners which it has passed are known.

// tunnelled is a connection that was made for a tunnel, by the addresses of its ends.
type tunnelled struct{ from, to netip.AddrPort }

// addressesOf returns those of a connection that was made to a backend.
func addressesOf(c net.Conn) tunnelled {
	return tunnelled{addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())}
}

// addrPort returns an address in the form in which those of both ends can be compared.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return unmapped(tcp.AddrPort())
	}
	return netip.AddrPort{}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// pass is a listener that a connection has passed, and those before it.
type pass struct {
	listener string // its key
	before   *pass  // nil where the connection came from elsewhere
}

// has reports whether the listener is among them.
func (p *pass) has(listener string) bool {
	for ; p != nil; p = p.before {
		if p.listener == listener {
			return true
		}
	}
	return false
}

// tunnels holds what the connections have passed that were made for tunnels which are open. The zero value is ready. It is safe for concurrent use.
type tunnels struct {
	mu   sync.Mutex
	made map[tunnelled]*pass
}

func (t *tunnels) add(c tunnelled, p *pass) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made == nil {
		t.made = make(map[tunnelled]*pass)
	}
	t.made[c] = p
}

// remove takes out what was added, unless another connection has the same addresses by now.
func (t *tunnels) remove(c tunnelled, p *pass) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p == nil || t.made[c] != p {
		return
	}
	if delete(t.made, c); len(t.made) == 0 {
		t.made = nil // a map does not shrink
	}
}

// get returns what a connection has passed, nil where it was not made by a tunnel of this process, as far as is known yet.
func (t *tunnels) get(c tunnelled) *pass {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made[c]
}

// tunnelPath is the way of a connection through a listener.
type tunnelPath struct {
	tunnels  *tunnels
	listener string
	from, to tunnelled // the client's connection, and the one that was made to a backend last
	pass     *pass     // what is known of the latter; nil without one
}

// loops reports whether the connection has passed the listener before.
func (p *tunnelPath) loops() bool { return p.tunnels.get(p.from).has(p.listener) }

// connected notes that a connection to a backend was made.
func (p *tunnelPath) connected(c *net.TCPConn) {
	p.made(addressesOf(c))
}

// made is connected, by the addresses.
func (p *tunnelPath) made(c tunnelled) {
	p.end()
	p.to, p.pass = c, &pass{p.listener, p.tunnels.get(p.from)}
	p.tunnels.add(p.to, p.pass)
}

// end forgets it.
func (p *tunnelPath) end() { p.tunnels.remove(p.to, p.pass) }
