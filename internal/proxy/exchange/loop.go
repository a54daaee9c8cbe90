package exchange

import (
	"net"
	"net/netip"
	"sync"

	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// countPass adds this pass to the request. It returns false if there were too many passes.
func (x *Exchange) countPass() bool {
	if message.Passes(&x.Header) >= message.MaxPasses {
		return false
	}
	message.AddPass(&x.Header)
	return true
}

// A layer-4 connection has no field in which passes could be counted. But if a backend leads back to this process, both
// ends of a connection are here, so the listeners that it has passed are known.

// tunnelled identifies a connection made for a tunnel by the addresses of its ends.
type tunnelled struct{ from, to netip.AddrPort }

// addressesOf returns the addresses of a connection that was made to a backend.
func addressesOf(c net.Conn) tunnelled {
	return tunnelled{socket.AddrPortOf(c.LocalAddr()), socket.AddrPortOf(c.RemoteAddr())}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// pass is a listener that a connection has passed, and the ones before it.
type pass struct {
	listener string // its key
	before   *pass  // nil if the connection did not come from this process
}

// has reports whether the listener was passed.
func (p *pass) has(listener string) bool {
	for ; p != nil; p = p.before {
		if p.listener == listener {
			return true
		}
	}
	return false
}

// tunnels records which listeners the connections of open tunnels have passed. The zero value is ready for use. It is
// safe for concurrent use.
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

// remove removes what add has added, unless another connection has the same addresses by now.
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

// get returns what a connection has passed; nil if no tunnel of this process is known, so far, to have made it.
func (t *tunnels) get(c tunnelled) *pass {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made[c]
}

// tunnelPath is the path of a connection through a listener.
type tunnelPath struct {
	tunnels  *tunnels
	listener string
	from, to tunnelled // the client's connection, and the latest one made to a backend
	pass     *pass     // the entry of to; nil if there is none
}

// loops reports whether the connection has passed the listener before.
func (p *tunnelPath) loops() bool { return p.tunnels.get(p.from).has(p.listener) }

// connected records that a connection to a backend was made.
func (p *tunnelPath) connected(c *net.TCPConn) {
	p.made(addressesOf(c))
}

// made is like connected, for a connection given by its addresses.
func (p *tunnelPath) made(c tunnelled) {
	p.end()
	p.to, p.pass = c, &pass{p.listener, p.tunnels.get(p.from)}
	p.tunnels.add(p.to, p.pass)
}

// end removes the record of the connection to the backend.
func (p *tunnelPath) end() { p.tunnels.remove(p.to, p.pass) }
