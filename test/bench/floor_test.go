//go:build linux

package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/test/bench/origin"
	"github.com/moongate-dev/moongate/test/bench/response"
)

// TestMain lets the tests start this program in a role.
func TestMain(m *testing.M) {
	if !runRole(os.Args) {
		os.Exit(m.Run())
	}
}

// serveOrigin runs an origin in this process.
func serveOrigin(t *testing.T) (*certificate, *originPorts) {
	t.Helper()
	cert, err := newCertificate()
	if err != nil {
		t.Fatal(err)
	}
	server, ports, err := newOrigin(keyPair{cert.chain, cert.key})
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve()
	return cert, ports
}

// TestFloor: what the others are compared with forwards everything that it is measured with, whoever leaves in the middle or reads slowly.
func TestFloor(t *testing.T) {
	_, ports := serveOrigin(t)
	b := &bench{settings: &settings{}, ctx: t.Context(), dir: t.TempDir(), origin: *ports, out: io.Discard}
	c, err := b.startFloor()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.stop() })
	if err := b.verify([]*contender{c}); err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", c.plain.String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	for range 20 { // in the middle of what is on its way to them
		conn := dial()
		conn.Write(getHuge)
		io.CopyN(io.Discard, conn, 1000)
		conn.Close()
	}
	slow := dial()
	slow.(*net.TCPConn).SetReadBuffer(64 << 10)
	slow.Write(getHuge)
	if _, err := exchange(c.plain, false, [][]byte{getSmall, postHuge, getBig, getClosing}); err != nil {
		t.Fatal("while a client reads nothing:", err)
	}
	if answer, err := response.Read(bufio.NewReader(slow)); err != nil || len(answer.Body) != origin.HugeBody {
		t.Fatalf("the slow client's answer: %v", err)
	}
	socket := dial()
	if _, err := socket.Write(getSocket); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(socket)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("WebSocket: %+v, %v", resp, err)
	}
	sent := make([]byte, 16<<20) // more than sockets hold, and nothing is read before it is written
	for i := range sent {
		sent[i] = byte(i / 1000)
	}
	if _, err := socket.Write(sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	if n, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, equal %v: %v", n, bytes.Equal(got, sent), err)
	}
}
