//go:build !race

// Without the race detector: it empties pools at random.
package http2

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// warmBackend is a connection to a backend that answers each request alike and allocates nothing, and one more
// request on it, with a body of so many bytes. Reading it whole is part of it.
func warmBackend(t testing.TB, plain bool, size int) func() {
	return warmBackends(t, plain, size, 1)[0]
}

// warmBackends is warmBackend for so many requests at a time.
func warmBackends(t testing.TB, plain bool, size, streams int) (requests []func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := connect(t, l.Addr().String(), ClientOptions{}, plain)
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	r := raw{t: t}
	r.enc = hpack.NewEncoder(&r.buf)
	pairs := []string{":status", "200", "content-type", "text/plain", "date", "Sat, 21 Nov 2026 20:00:00 GMT", "content-length", "1024", "x-y", "z"}
	first := bytes.Clone(r.block(pairs...))
	again := bytes.Clone(r.block(pairs...)) // everything is in the table
	go answerAll(nc, first, again, make([]byte, 1024))

	for range streams {
		requests = append(requests, warmRequest(t, c, size))
	}
	return requests
}

func warmRequest(t testing.TB, c *Client, size int) func() {
	q := ask("POST", "/some/path", "user-agent", "test", "accept", "*/*", "x-forwarded-for", "127.0.0.1")
	q.Body = make([]byte, size)
	q.Length = int64(size)
	buf, h := make([]byte, 4<<10), new(message.Response)
	return func() {
		s, err := c.Open(q)
		if err != nil {
			t.Fatal(err)
		}
		if ended, err := s.ReadHead(h); err != nil || ended || h.Status != 200 || h.Header.Len() != 3 {
			t.Fatal(h.Status, h.Header.Len(), ended, err)
		}
		n := 0
		for err = nil; err == nil; {
			var m int
			m, err = s.Read(buf)
			n += m
		}
		if err != io.EOF || n != 1024 {
			t.Fatal(n, err)
		}
		s.Close()
	}
}

// answerAll answers every request with a head and body, until the connection ends.
func answerAll(nc net.Conn, block, again, body []byte) {
	in, out := make([]byte, 64<<10), make([]byte, 0, 64<<10)
	out = frame.AppendHeader(out, 0, frame.Settings, 0, 0)
	out = frame.AppendHeader(out, 0, frame.Settings, frame.FlagAck, 0)
	if _, err := io.ReadFull(nc, in[:len(Preface)]); err != nil {
		return
	}
	unread := 0
	for {
		if _, err := io.ReadFull(nc, in[:frame.HeaderLen]); err != nil {
			return
		}
		h := frame.ParseHeader(in)
		if _, err := io.ReadFull(nc, in[:h.Length]); err != nil {
			return
		}
		if h.Type == frame.Data {
			unread += h.Length
		}
		if h.Type != frame.Headers && h.Type != frame.Data || !h.Has(frame.FlagEndStream) {
			continue
		}
		if unread > 0 {
			out = frame.AppendWindowUpdate(out, 0, unread)
			unread = 0
		}
		out = frame.AppendHeader(out, len(block), frame.Headers, frame.FlagEndHeaders, h.Stream)
		out = append(out, block...)
		out = frame.AppendHeader(out, len(body), frame.Data, frame.FlagEndStream, h.Stream)
		out = append(out, body...)
		if _, err := nc.Write(out); err != nil {
			return
		}
		out, block = out[:0], again
	}
}

func TestClientAllocations(t *testing.T) {
	plainly(t, func(t *testing.T, plain bool) {
		for _, size := range []int{0, 1000, 30_000} {
			request := warmBackend(t, plain, size)
			for range 200 {
				request()
			}
			if n := testing.AllocsPerRun(1000, request); n > 0 {
				t.Errorf("%v allocations with a body of %d bytes on a warm connection, want 0", n, size)
			}
		}
	})
}

// BenchmarkClientStreams has 8 requests at a time on a connection.
func BenchmarkClientStreams(b *testing.B) {
	requests := warmBackends(b, false, 0, 8)
	b.ReportAllocs()
	var all sync.WaitGroup
	n := b.N / len(requests)
	for _, request := range requests {
		all.Go(func() {
			for range n {
				request()
			}
		})
	}
	all.Wait()
}

func BenchmarkClientRequest(b *testing.B) {
	for _, c := range []struct {
		name  string
		plain bool
	}{{"direct", false}, {"plain", true}} {
		b.Run(c.name, func(b *testing.B) {
			request := warmBackend(b, c.plain, 0)
			b.ReportAllocs()
			for b.Loop() {
				request()
			}
		})
	}
}
