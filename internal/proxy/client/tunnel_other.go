//go:build !linux

package client

import (
	"syscall"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
)

// Raw implements tunnel.Socket.
func (d *duplex) Raw() syscall.RawConn { return nil }

func (c *Conn) readRecords(b exchange.Buffer) (int, error) { return c.nc.Read(b.Take()) }
