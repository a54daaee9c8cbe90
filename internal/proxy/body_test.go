package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestMalformedFirstChunk: a body that begins malformed is answered at once and reaches no backend, though one has
// a connection ready.
func TestMalformedFirstChunk(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var heard atomic.Int64
	h2 := frameBackend(t, nil, func(_ int, f *framePeer) {
		f.serve(func(uint32) bool {
			heard.Add(1)
			return true
		}, func(stream uint32, _ string) { f.answer(stream, "ok") })
	})
	h1 := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			heard.Add(1)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	const malformed = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n"
	for _, tc := range []struct {
		name, addr string
		h2c        bool
	}{{"HTTP1", h1, false}, {"HTTP2", h2, true}} {
		t.Run(tc.name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			if tc.h2c {
				g.serveH2C(tc.addr, nil)
			} else {
				g.serve(tc.addr, nil)
			}
			if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Fatal(got)
			}
			before := heard.Load()
			begun := time.Now()
			if got := g.roundTrip(malformed); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("got %q", got)
			}
			if d := time.Since(begun); d > 10*time.Second {
				t.Errorf("answered after %v", d)
			}
			if n := heard.Load() - before; n != 0 {
				t.Errorf("%d backends heard of it", n)
			}
			if r := g.reasonsLogged(2); r[1] != "bad_request_body" {
				t.Errorf("logged %q", r)
			}
		})
	}
}

// heapInUse is the memory of objects that are reachable, when what pools hold has gone.
func heapInUse() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// waitingStreams opens n streams by HTTP/2 that wait for the backend, each with one byte of a body that goes on or, with
// ended, does not, and returns what each of them holds.
func waitingStreams(t *testing.T, g *gateway, heard chan struct{}, connections, each int, ended bool) int64 {
	before := heapInUse()
	for range connections {
		c := g.dial()
		io.WriteString(c, http2.ClientPreface)
		p := &framePeer{Framer: http2.NewFramer(c, c), c: c}
		p.WriteSettings()
		p.WriteSettingsAck()
		go io.Copy(io.Discard, c)
		for i := range each {
			id := uint32(2*i + 1)
			p.head(id, false, ":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/")
			p.WriteData(id, ended, []byte("a"))
		}
	}
	for range connections * each {
		select {
		case <-heard:
		case <-time.After(30 * time.Second):
			t.Fatal("the backend did not hear of all")
		}
	}
	var held int64
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(50 * time.Millisecond) {
		held = (heapInUse() - before) / int64(connections*each)
		if held < maxWaiting() || time.Now().After(deadline) {
			return held
		}
	}
}

// maxWaiting is how many bytes a stream may hold that waits for its backend, with what the goroutines of the test take. A buffer alone
// is 80 KiB. Under the race detector stacks are several times as large, so that the bound says little there.
func maxWaiting() int64 {
	if raceDetector {
		return 192 << 10
	}
	return 64 << 10
}

// TestWaitingStreamsHoldLittle: a stream that has sent one byte of its body and waits holds memory for that byte, not a buffer, whatever
// the backend speaks, before the response and beside one that streams.
func TestWaitingStreamsHoldLittle(t *testing.T) {
	for _, h2c := range []bool{false, true} {
		for _, ended := range []bool{false, true} {
			for _, answers := range []bool{false, true} {
				t.Run(fmt.Sprintf("h2c=%v ended=%v answers=%v", h2c, ended, answers), func(t *testing.T) {
					heard, release := make(chan struct{}, 128), make(chan struct{})
					handle := func(w http.ResponseWriter, r *http.Request) {
						if !h2c {
							http.NewResponseController(w).EnableFullDuplex()
						}
						r.Body.Read(make([]byte, 1))
						if answers {
							w.WriteHeader(200)
							w.(http.Flusher).Flush()
						}
						heard <- struct{}{}
						<-release
					}
					g := startGateway(t, Timeouts{})
					if h2c {
						addr, _ := h2cBackend(t, 0, handle)
						g.serveH2C(addr, nil)
					} else {
						g.serve(httpBackend(t, handle), nil)
					}
					defer close(release)
					held := waitingStreams(t, g, heard, 1, 128, ended)
					t.Logf("%d bytes for each stream", held)
					if held > maxWaiting() {
						t.Errorf("a waiting stream holds %d bytes, want %d at most", held, maxWaiting())
					}
				})
			}
		}
	}
}

// TestWatchesHoldLittle: a stream whose response has begun and has nothing to say, as a watch of gRPC, holds little more than its
// goroutine. The backend is of a few goroutines, so that what is measured is the gateway's.
func TestWatchesHoldLittle(t *testing.T) {
	const connections, each, most = 20, 100, 24 << 10
	heard := make(chan struct{}, connections*each)
	addr := frameBackend(t, nil, func(_ int, f *framePeer) {
		f.serve(func(uint32) bool { return true }, func(stream uint32, _ string) {
			f.head(stream, false, ":status", "200")
			heard <- struct{}{}
		})
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)
	held := waitingStreams(t, g, heard, connections, each, true)
	t.Logf("%d bytes for each stream", held)
	if held > most {
		t.Errorf("a stream holds %d bytes, want %d at most", held, most)
	}
}

// TestWaitingUploadsHoldLittle: a client by HTTP/1.1 that has sent one byte of its body and waits holds no large buffer.
func TestWaitingUploadsHoldLittle(t *testing.T) {
	const connections, most = 200, 80 << 10
	heard := make(chan struct{}, connections)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		heard <- struct{}{}
		io.Copy(io.Discard, c)
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	before := heapInUse()
	for range connections {
		io.WriteString(g.dial(), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\na")
	}
	for range connections {
		select {
		case <-heard:
		case <-time.After(30 * time.Second):
			t.Fatal("the backend did not hear of all")
		}
	}
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(50 * time.Millisecond) {
		held := (heapInUse() - before) / connections
		if held <= most {
			t.Logf("%d bytes for each upload", held)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("an upload holds %d bytes, want %d at most", held, most)
		}
	}
}
