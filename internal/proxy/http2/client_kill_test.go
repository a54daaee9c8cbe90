//lint:file-ignore SA1019 x/net serves a single connection that is handed to it, which net/http does not.

package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// script is what a backend sends in answer to three streams, with all kinds of frames.
func script() []byte {
	return frames(func(f *xhttp2.Framer, block func(...string) []byte) {
		f.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 50})
		f.WriteSettingsAck()
		f.WriteWindowUpdate(0, 1000)
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":status", "103", "link", "a"), EndHeaders: true})
		b := block(":status", "200", "content-length", "5")
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: b[:2], PadLength: 3})
		f.WriteContinuation(3, true, b[2:])
		f.WriteDataPadded(3, false, []byte("hel"), make([]byte, 4))
		f.WritePing(false, [8]byte{})
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":status", "200"), EndHeaders: true})
		f.WriteWindowUpdate(5, 100_000)
		f.WriteData(3, true, []byte("lo"))
		f.WriteData(1, false, []byte("body"))
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block("sum", "4"), EndHeaders: true, EndStream: true})
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 5, BlockFragment: block(":status", "413"), EndHeaders: true, EndStream: true})
		f.WriteRSTStream(5, xhttp2.ErrCodeNo)
		f.WriteGoAway(5, xhttp2.ErrCodeNo, []byte("bye"))
	})
}

// TestKillBackend: the backend dies after each byte that it sends. Every call returns, and a response is
// whole or an error.
func TestKillBackend(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := script()
	want := [...]string{`103 link=a; 200 -1 "body" sum=4`, `200 5 "hello"`, "413 -1"}
	var whole atomic.Int32
	for n := range len(sent) + 1 {
		ours, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		var o ClientOptions
		if n%2 == 0 {
			o.Raw, _ = ours.(*net.TCPConn).SyscallConn()
		}
		c := NewClient(ours, o)
		theirs, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		upload := ask("POST", "/")
		upload.Last = false
		streams := [...]*ClientStream{open(t, c, ask("GET", "/")), open(t, c, ask("GET", "/")), open(t, c, upload)}
		go c.Serve()
		var calls sync.WaitGroup
		calls.Go(func() { // without end: it is for the backend to stop it
			for streams[2].Write(make([]byte, 10_000), false) == nil {
			}
		})
		for i, s := range streams {
			calls.Go(func() {
				got, err := answer(s)
				switch {
				case err == nil && got != want[i]:
					t.Errorf("%d bytes: %s", n, got)
				case err != nil && (Malformed(err) || errors.Is(err, os.ErrDeadlineExceeded)):
					t.Errorf("%d bytes: %v", n, err)
				case err == nil:
					whole.Add(1)
				}
			})
		}
		theirs.Write(sent[:n])
		// What came is read before the connection ends; else the end would be a reset, which overtakes.
		theirs.(*net.TCPConn).CloseWrite()
		go func() { io.Copy(io.Discard, theirs); theirs.Close() }()
		calls.Wait()
		for _, s := range streams {
			s.Close()
		}
		c.Close()
		<-c.Done()
	}
	if n := whole.Load(); n < 3 {
		t.Errorf("%d responses were whole", n)
	}
}

// TestClientChaos has many streams begin, end, break off and be given up at random; all calls return, every
// complete answer is right, and nothing is left.
func TestClientChaos(t *testing.T) {
	plainly(t, func(t *testing.T, plain bool) {
		addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
			random := rand.New(rand.NewPCG(uint64(r.ContentLength), 1))
			if random.IntN(10) == 0 {
				panic(http.ErrAbortHandler)
			}
			if random.IntN(10) == 0 {
				w.WriteHeader(103)
			}
			if random.IntN(5) > 0 {
				io.CopyN(io.Discard, r.Body, int64(random.IntN(100_000)))
			}
			w.Write(make([]byte, random.IntN(80_000)))
		}, &xhttp2.Server{MaxConcurrentStreams: 30})
		var done, whole atomic.Int32
		for round := range 2 {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			o := ClientOptions{StreamWindow: 64 << 10}
			if !plain {
				o.Raw, _ = nc.(*net.TCPConn).SyscallConn()
			}
			c := NewClient(nc, o)
			go c.Serve()
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
					for range 25 {
						if chaos(t, c, random) {
							whole.Add(1)
						}
						if done.Add(1) == 700 {
							c.Close()
						}
					}
				})
			}
			wg.Wait()
			c.c.mu.Lock()
			if n, m := len(c.c.streams), c.c.open; n != 0 || m != 0 || !c.c.queue.Empty() {
				t.Errorf("%d streams are left, %d open", n, m)
			}
			c.c.mu.Unlock()
			c.Close()
			<-c.Done()
		}
		if whole.Load() < 100 {
			t.Errorf("only %d responses were whole", whole.Load())
		}
	})
}

func chaos(t *testing.T, c *Client, random *rand.Rand) (whole bool) {
	q := post(string(bytes.Repeat([]byte("x"), random.IntN(3)*random.IntN(40_000))))
	q.Last = random.IntN(2) == 0
	if !q.Last {
		q.Length = -1
	}
	if random.IntN(5) == 0 {
		q.Deadline = time.Now().Add(time.Duration(random.IntN(2000)) * time.Microsecond)
	}
	s, err := c.Open(q)
	if err != nil {
		return false
	}
	defer s.Close()
	var others sync.WaitGroup
	defer others.Wait()
	if !q.Last {
		size := random.IntN(80_000)
		others.Go(func() {
			for size > 0 {
				if s.Write(make([]byte, min(size, 10_000)), false) != nil {
					return
				}
				size -= 10_000
			}
			s.Write(nil, true) // a server of x/net takes trailers that cross its reset for a new stream
		})
	}
	switch random.IntN(10) {
	case 0:
		others.Go(func() { s.Reset(Cancel) })
	case 1:
		others.Go(func() { s.SetDeadline(longAgo) })
	}
	var h message.Response
	for h.Status < 200 {
		if _, err := s.ReadHead(&h); err != nil {
			s.Reset(Cancel) // so that the upload ends
			return false
		}
	}
	n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{s}, make([]byte, 1+random.IntN(50_000)))
	s.Reset(NoError)
	if l := s.ContentLength(); err == nil && l >= 0 && n != l {
		t.Error(fmt.Errorf("%d bytes of %d", n, l))
	}
	return err == nil
}
