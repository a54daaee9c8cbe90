package exchange

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// recorder is the client's side of an exchange, which remembers what it was sent.
type recorder struct {
	status []int
	body   bytes.Buffer
}

func (r *recorder) Interim(*message.Response) error { return nil }

func (r *recorder) Start(h Head, p Part) error {
	r.status = append(r.status, h.Status)
	return r.More(p)
}

func (r *recorder) More(p Part) error {
	r.body.Write(p.Data())
	return nil
}

func (r *recorder) WriteBy(time.Time) {}

// TestBreaksBeforeAnythingWasSent has a response break off when its head has been read and nothing of it has been sent: the
// client can still be told, and is.
func TestBreaksBeforeAnythingWasSent(t *testing.T) {
	for how, breakOff := range map[string]func(*xhttp2.Framer, net.Conn){
		"RST_STREAM":            func(f *xhttp2.Framer, _ net.Conn) { f.WriteRSTStream(1, xhttp2.ErrCodeInternal) },
		"end of the connection": func(_ *xhttp2.Framer, c net.Conn) { c.Close() },
	} {
		t.Run(how, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			headRead, seen := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(seen)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				io.ReadFull(c, make([]byte, len(http2.Preface)))
				f := xhttp2.NewFramer(c, c)
				f.WriteSettings()
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					switch frame := frame.(type) {
					case *xhttp2.HeadersFrame:
						var block bytes.Buffer
						hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
						f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
						<-headRead
						f.WriteData(1, false, []byte("beginning"))
						breakOff(f, c)
						f.WritePing(false, [8]byte{1})
					case *xhttp2.PingFrame:
						if frame.IsAck() { // all of it has been dealt with
							return
						}
					}
				}
			}()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			client := http2.NewClient(c, http2.ClientOptions{})
			served := make(chan struct{})
			go func() {
				client.Serve()
				c.Close()
				close(served)
			}()
			request := message.Request{Method: []byte("GET"), Host: []byte("h"), Path: []byte("/")}
			stream, err := client.Open(&http2.ClientRequest{RequestHead: http2.RequestHead{Request: &request, Scheme: "http", Length: -1}, Last: true})
			if err != nil {
				t.Fatal(err)
			}
			got := &recorder{}
			x := New()
			x.Client = &Client{Engine: &Engine{}, Response: got, Limiter: got, Watch: &Watch{}}
			x.Method = request.Method
			a := &x.attempt
			a.engine = x.Client.Engine
			a.http2 = http2Transport{a: a, stream: stream}
			a.transport = &a.http2
			if err := x.readHead(a); err != nil || a.http2.ended {
				t.Fatal(a.http2.ended, err)
			}
			close(headRead)
			<-seen
			if how != "RST_STREAM" {
				<-served
			}
			complete := x.relay(a)
			if complete || !x.complete || len(got.status) != 1 || got.status[0] != 502 || got.body.String() != "moongate: 502 upstream_reset\n" ||
				x.rec.Reason != observe.ReasonUpstreamReset || x.rec.Status != 502 {
				t.Errorf("complete %v, answered %v: %d %q, logged as %d %v", complete, x.complete, got.status, got.body.String(), x.rec.Status, x.rec.Reason)
			}
			a.Give()
			stream.Close()
			client.Close()
			<-served
		})
	}
}

// TestDiscardDoesNotWait: a response to HEAD that is given up for another attempt is at its end when the backend has said so; nobody waits for that.
func TestDiscardDoesNotWait(t *testing.T) {
	near, far := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		io.ReadFull(far, make([]byte, len(http2.Preface)))
		f := xhttp2.NewFramer(far, far)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if head, ok := frame.(*xhttp2.HeadersFrame); ok {
				var block bytes.Buffer
				hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "503"})
				f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: head.StreamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: head.StreamID > 1})
			}
		}
	}()
	client := http2.NewClient(near, http2.ClientOptions{})
	done := make(chan struct{})
	go func() {
		client.Serve()
		near.Close()
		close(done)
	}()
	request := message.Request{Method: []byte("HEAD"), Host: []byte("h"), Path: []byte("/")}
	for _, ended := range []bool{false, true} {
		stream, err := client.Open(&http2.ClientRequest{RequestHead: http2.RequestHead{Request: &request, Scheme: "http", Length: -1}, Last: true})
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{engine: &Engine{}}
		a.http2 = http2Transport{a: a, stream: stream}
		var resp message.Response
		if err := a.http2.readHead(request.Method, &resp); err != nil {
			t.Fatal(err)
		}
		if a.http2.atEnd() != ended {
			t.Errorf("a stream that has ended, %v, is at its end: %v", ended, !ended)
		}
		stream.Close()
	}
	client.Close()
	<-done
	far.Close()
	<-served
}
