//go:build !linux

package client

import (
	"net"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
)

// rawIO reports that connections can be run by runRaw on this system.
const rawIO = false

// methods holds a method of a Conn as a function, which is an allocation.
type methods struct{ start func() }

func (c *Conn) bind() methods { return methods{c.start} }

// rawLoop has no state on this system.
type rawLoop struct{}

func (c *Conn) runRaw() (int, error) { return c.readHead() }

func (c *Conn) readSocket(b exchange.Buffer) (int, error) { return c.nc.Read(b.Take()) }

func (c *Conn) writeRaw(b []byte, last bool) []byte { return b }

func (c *Conn) writingApart() net.Conn { return c.nc }

func (c *Conn) wireEnded() bool { return true }

func (c *Conn) fed([]byte) {}

// wire is the connection below TLS.
type wire struct {
	*socket.Conn
	c        *Conn
	demanded *tls.Clients // client certificate settings of the listener that the handshake chose
}

// Demand implements tls.Demander.
func (w *wire) Demand(clients *tls.Clients) { w.demanded = clients }

func (w *wire) Write(b []byte) (int, error) { return w.c.writeWire(w.Conn, b) }
