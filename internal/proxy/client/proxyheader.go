package client

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/proxyprotocol"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// acceptProxied reads the PROXY header with which a connection of a trusted proxy begins. Afterwards the connection
// counts as that of the client named in it, made to the destination named in it, or as the proxy's own if it names none.
// It reports whether the connection continues, with the bytes after the header unread.
func (c *Conn) acceptProxied() bool {
	named, err := c.awaitProxyHeader(c.handshakeEnd())
	if err != nil {
		if err != io.EOF { // otherwise nothing was sent, as by a port probe
			c.set.proxyHeaderFailed(c.side.Socket, c.side.Peer, c.side.Mode, err)
		}
		return false
	}
	if named.Client.IsValid() {
		c.setPeer(named.Client)
		destination := named.Destination // a copy, so that the connection does not keep all of named
		c.destination = &destination
	}
	if !c.set.recount(c, keyOf(c.side.Peer.Addr())) {
		c.side.Socket.Stats.ConnectionRefused(observe.LimitPerClient)
		c.set.refuse(observe.LimitPerClient, c.side.Peer.Addr())
		c.tcp.ResetOnClose()
		return false
	}
	return true
}

var errProxyHeaderTimeout = errors.New("the PROXY header did not arrive in time")

// awaitProxyHeader waits for the PROXY header until by, a time of the coarse clock.
func (c *Conn) awaitProxyHeader(by int64) (named proxyprotocol.Addresses, err error) {
	c.wait.set(waitHandshake, by)
	named, err = c.readProxyHeader()
	if !c.leave(&c.wait) {
		return named, errProxyHeaderTimeout
	}
	return named, err
}

// readProxyHeader reads until the header is complete. The bytes after it are then at in[:w].
func (c *Conn) readProxyHeader() (named proxyprotocol.Addresses, err error) {
	for {
		c.makeRoom()
		got, err := c.tcp.Read(c.in[c.w:min(len(c.in), proxyprotocol.MaxHeader)])
		c.w += got
		if got == 0 && err != nil {
			if err == io.EOF && c.w > 0 {
				err = io.ErrUnexpectedEOF
			}
			return named, err
		}
		named, n, err := proxyprotocol.Parse(c.in[:c.w])
		if err == proxyprotocol.ErrIncomplete {
			continue
		}
		if err == nil {
			c.w = copy(c.in, c.in[n:c.w])
			if c.w == 0 {
				c.giveInput()
			}
		}
		return named, err
	}
}

// errUntrusted is why connections from other peers are closed.
var errUntrusted = errors.New("the connection is not from one of the trustedProxies")

// proxyHeaderFailed counts and logs a connection that ended without a valid PROXY header. mode is that of its port.
func (s *Set) proxyHeaderFailed(socket *snapshot.Socket, from netip.AddrPort, mode snapshot.Mode, cause error) {
	s.engine.Observer.Finish(&observe.Record{
		StartUnixNano: time.Now().UnixNano(),
		ClientAddr:    from,
		Scheme:        mode.Scheme(),
		Port:          socket.Addr.Port,
		Cause:         cause.Error(),
		Reason:        observe.ReasonProxyHeaderInvalid,
		Stats:         socket.Stats.Unrouted(),
	})
}
