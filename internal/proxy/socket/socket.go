// Package socket implements TCP connections that are registered with the runtime's poller only when something has to
// wait for them. It exists because the system calls for that, and those by which package net sets up each connection,
// are up to a fifth of the cost of a connection with one request.
//
// It must never know the protocol of a connection.
package socket

import (
	"net"
	"net/netip"
	"os"
)

// ErrNothingYet is returned by connections below crypto/tls that read without waiting, if nothing has arrived. It is a
// temporary error, so that crypto/tls keeps the part of a record that it has and can be called again.
var ErrNothingYet net.Error = nothingYet{os.ErrDeadlineExceeded}

type nothingYet struct{ error }

func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

// AddrPortOf returns an address of TCP in the form of Conn.Peer and Conn.Local, in which addresses can be compared. It
// returns the zero value for any other address.
func AddrPortOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
