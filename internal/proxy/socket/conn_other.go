//go:build !linux

package socket

import (
	"net"
	"net/netip"
	"syscall"
)

// Conn is a connection of package net on this system.
type Conn struct {
	*net.TCPConn
	raw syscall.RawConn
}

// FromTCP makes a Conn of a connection of package net, which belongs to it from then on.
func FromTCP(tcp *net.TCPConn) (*Conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return &Conn{tcp, raw}, nil
}

// Raw returns the connection for calls of one's own.
func (c *Conn) Raw() syscall.RawConn { return c.raw }

// WriteBoth writes two pieces, by one system call where the socket takes them.
func (c *Conn) WriteBoth(first, second []byte) error {
	parts := net.Buffers{first, second}
	_, err := parts.WriteTo(c.TCPConn)
	return err
}

// ResetOnClose has Close reset the connection, and the kernel keep nothing of what was not sent.
func (c *Conn) ResetOnClose() { c.SetLinger(0) } // a broken socket is reset already

// Peer is who has made the connection; the zero value where that is not known any more.
func (c *Conn) Peer() netip.AddrPort { return addrPort(c.RemoteAddr()) }

// Local is the address of the connection's own end; the zero value where that is not known any more.
func (c *Conn) Local() netip.AddrPort { return addrPort(c.LocalAddr()) }
