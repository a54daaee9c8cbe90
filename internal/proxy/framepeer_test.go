package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framePeer is a backend's end of an HTTP/2 connection, frame by frame.
type framePeer struct {
	*http2.Framer
	c  net.Conn
	mu sync.Mutex // guards the encoder, and writing of heads
}

// rawFrames is a backend that takes connections by prior knowledge. handle is run on each, behind
// the preface and our SETTINGS.
func rawFrames(t testing.TB, settings []http2.Setting, handle func(*framePeer)) string {
	return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(r, preface); err != nil || string(preface) != http2.ClientPreface {
			return
		}
		f := &framePeer{Framer: http2.NewFramer(c, r), c: c}
		f.SetReuseFrames()
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		f.WriteSettings(settings...)
		handle(f)
	})
}

// head sends a response head.
func (f *framePeer) head(stream uint32, end bool, fields ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: end})
}

// answer sends a whole response.
func (f *framePeer) answer(stream uint32, body string) {
	f.head(stream, false, ":status", "200")
	f.WriteData(stream, true, []byte(body))
}

// acknowledge answers SETTINGS and PING.
func (f *framePeer) acknowledge(frame http2.Frame) {
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		if !frame.IsAck() {
			f.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			f.WritePing(true, frame.Data)
		}
	}
}

// serve reads frames up to the end of the connection. It asks take of each new stream whether it is wanted, and
// tells whole of those that have come to their ends.
func (f *framePeer) serve(take func(stream uint32) bool, whole func(stream uint32, body string)) {
	bodies := map[uint32]*bytes.Buffer{}
	end := func(stream uint32) {
		if b := bodies[stream]; b != nil {
			delete(bodies, stream)
			whole(stream, b.String())
		}
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		f.acknowledge(frame)
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			stream := frame.StreamID
			if frame.PseudoValue("method") != "" && take(stream) { // else it is a trailer section
				bodies[stream] = &bytes.Buffer{}
			}
			if frame.StreamEnded() {
				end(stream)
			}
		case *http2.DataFrame:
			if b := bodies[frame.StreamID]; b != nil {
				b.Write(frame.Data())
			}
			if n := len(frame.Data()); n > 0 {
				f.WriteWindowUpdate(0, uint32(n))
				f.WriteWindowUpdate(frame.StreamID, uint32(n))
			}
			if frame.StreamEnded() {
				end(frame.StreamID)
			}
		}
	}
}
