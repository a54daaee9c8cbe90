// Package socket has connections by TCP that enter the runtime's poller when something must wait for them, and not before. It exists because that, and what package net asks the
// kernel about each connection, is a fifth of what a connection with one request costs.
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
