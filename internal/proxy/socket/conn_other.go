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

// FromTCP creates a Conn from a connection of package net, which belongs to the Conn from then on.
func FromTCP(tcp *net.TCPConn) (*Conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return &Conn{tcp, raw}, nil
}

// Raw returns the connection for the caller's own system calls.
func (c *Conn) Raw() syscall.RawConn { return c.raw }

// WriteBoth writes two pieces, with one system call if the socket takes both.
func (c *Conn) WriteBoth(first, second []byte) error {
	parts := net.Buffers{first, second}
	_, err := parts.WriteTo(c.TCPConn)
	return err
}

// ResetOnClose makes Close reset the connection, and the kernel discard unsent data.
func (c *Conn) ResetOnClose() { c.SetLinger(0) } // a broken socket is already reset

// Peer returns the remote address; the zero value if it is no longer known.
func (c *Conn) Peer() netip.AddrPort { return AddrPortOf(c.RemoteAddr()) }

// Local returns the local address; the zero value if it is no longer known.
func (c *Conn) Local() netip.AddrPort { return AddrPortOf(c.LocalAddr()) }
