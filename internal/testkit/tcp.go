package testkit

import (
	"net"
	"testing"
	"time"
)

// TCPPair returns both ends of a TCP connection over 127.0.0.1. They are closed when the test ends.
func TCPPair(t testing.TB) (dialed, accepted *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return c.(*net.TCPConn), other.(*net.TCPConn)
}

// FillTCP writes to raw until neither its system nor that of its peer, which must not read, accepts more. That takes long if raw has
// a large buffer, which is reduced if raw is a net.TCPConn.
func FillTCP(t testing.TB, raw net.Conn, peer *net.TCPConn) (sent int) {
	t.Helper()
	if raw, ok := raw.(*net.TCPConn); ok {
		raw.SetWriteBuffer(64 << 10)
	}
	peer.SetReadBuffer(4 << 10)
	for n := 1; n > 0; {
		raw.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, _ = raw.Write(make([]byte, 64<<10))
		sent += n
	}
	raw.SetWriteDeadline(time.Time{})
	return sent
}
