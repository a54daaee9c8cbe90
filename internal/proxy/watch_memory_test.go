//go:build !race

package proxy

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// openWatches opens n watches on a connection of its own, and waits for their first messages.
func (g *gateway) openWatches(n int) {
	g.t.Helper()
	c := g.dial()
	c.Write([]byte(http2.ClientPreface))
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := range n {
		block.Reset()
		for _, p := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a.test"}, {":path", "/test.Watch/Watch"},
			{"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-timeout", "1H"}} {
			e.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	for n > 0 {
		frame, err := f.ReadFrame()
		if err != nil {
			g.t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.DataFrame:
			n--
		}
	}
}

// TestIdleWatchMemory bounds what an idle watch costs: two streams and the state of its request.
func TestIdleWatchMemory(t *testing.T) {
	checkLeaks(t)
	_, addr := newWatched(t)
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)
	const conns, streams, most = 10, 100, 10 << 10
	used := func() uint64 {
		suspended(t)
		return memoryInUse()
	}
	g.openWatches(streams)
	before := used()
	for range conns {
		g.openWatches(streams)
	}
	after := used()
	each := int64(after-before) / (conns * streams)
	t.Logf("%d bytes for each watch, connections included", each)
	if each > most {
		t.Errorf("%d bytes for each watch, want %d at most", each, most)
	}
}
