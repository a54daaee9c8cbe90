package testkit

import (
	"io"
	"net"
	"testing"
	"time"
)

// CloseWriteToSlowPeer fills the buffers between raw and its peer, and then checks that closeWrite, which ends the stream of a TLS
// 1.3 connection on raw, waits until the peer has read everything: longer than the 5 s that crypto/tls allows for an alert. The data
// that fills the buffers is not TLS and must not be read as such.
func CloseWriteToSlowPeer(t *testing.T, raw net.Conn, peer *net.TCPConn, closeWrite func() error) {
	t.Helper()
	const (
		alertTimeout = 5 * time.Second
		alertSize    = 24 // of a record with an alert
	)
	// What the peer's system accepts beyond its full buffer, and what the sender splits again when it resends that, is little
	// compared with the sender's buffer: a third of it must be free before it counts as writable.
	sent := FillTCP(t, raw, peer)
	done := make(chan error, 1)
	go func() { done <- closeWrite() }()
	select {
	case err := <-done:
		t.Fatalf("ended by %v before all was taken", err)
	case <-time.After(alertTimeout + time.Second):
	}
	peer.SetReadBuffer(1 << 20) // otherwise it takes long
	peer.SetReadDeadline(time.Now().Add(Patience))
	if _, err := io.CopyN(io.Discard, peer, int64(sent)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(peer, make([]byte, alertSize)); err != nil {
		t.Errorf("no end of the stream: %v", err)
	}
}
