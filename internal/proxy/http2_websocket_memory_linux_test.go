//go:build !race

package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"
)

// openExtended opens n tunnels on a connection of HTTP/2 of its own, has a message pass each way through each, and returns their ends at the backend, of which
// the process holds nothing else.
func (g *gateway) openExtended(n int, l net.Listener) (ends []descriptor) {
	g.t.Helper()
	c := g.dial()
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	// until reads up to a frame of the stream that is asked for.
	until := func(id uint32, is func(http2.Frame) bool) {
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				g.t.Fatal(err)
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					f.WriteSettingsAck()
				}
			case *http2.RSTStreamFrame, *http2.GoAwayFrame:
				g.t.Fatalf("stream %d: %v", id, frame)
			}
			if frame.Header().StreamID == id && is(frame) {
				return
			}
		}
	}
	const message = "message"
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := range n {
		id := uint32(2*i + 1)
		block.Reset()
		for _, p := range [][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/chat"},
			{"sec-websocket-version", "13"}} {
			e.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		backend, err := l.Accept()
		if err != nil {
			g.t.Fatal(err)
		}
		head := make([]byte, 0, 1024)
		for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
			head = head[:len(head)+1]
			if _, err := io.ReadFull(backend, head[len(head)-1:]); err != nil {
				g.t.Fatal(err)
			}
		}
		io.WriteString(backend, acceptingKey(string(head)))
		until(id, func(frame http2.Frame) bool { _, ok := frame.(*http2.HeadersFrame); return ok })
		f.WriteData(id, false, []byte(message))
		got := make([]byte, len(message))
		if _, err := io.ReadFull(backend, got); string(got) != message || err != nil {
			g.t.Fatalf("%q, %v", got, err)
		}
		io.WriteString(backend, message)
		until(id, func(frame http2.Frame) bool { _, ok := frame.(*http2.DataFrame); return ok })
		d := take(g.t.(*testing.T), backend)
		g.t.Cleanup(func() { unix.Close(int(d)) })
		ends = append(ends, d)
	}
	return ends
}

// TestIdleExtendedConnectMemory bounds what an idle tunnel over HTTP/2 costs: two goroutines, its stream, its backend's socket and the state of its exchange.
func TestIdleExtendedConnectMemory(t *testing.T) {
	checkLeaks(t)
	l := listenLocally(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(l.Addr().String(), nil)
	const conns, streams, most = 5, 100, 32 << 10
	g.openExtended(streams, l) // what is made once, and what pools and maps keep
	before := memoryInUse()
	for range conns {
		g.openExtended(streams, l)
	}
	each := int64(memoryInUse()-before) / (conns * streams)
	t.Logf("%d bytes for each tunnel, connections included", each)
	if each > most {
		t.Errorf("%d bytes for each tunnel, want %d at most", each, most)
	}
}
