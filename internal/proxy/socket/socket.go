// Package socket has TCP connections that enter the runtime's poller when something has to wait for them, and not before. It exists because the system calls of that, and those by which
// package net sets up each connection, are up to a fifth of the cost of a connection with one request.
//
// It must never know what is spoken on a connection.
package socket

import (
	"net"
	"net/netip"
)

// addrPort returns an end of a connection as Peer and Local do.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
