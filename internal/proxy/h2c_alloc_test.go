//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// cannedH2CBackend is cannedBackend by HTTP/2: it answers what has ended with the same bytes and allocates
// nothing while it does.
func cannedH2CBackend(t testing.TB, body int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	encode := func() []byte {
		b.Reset()
		for _, f := range [][2]string{{":status", "200"}, {"server", "origin"}, {"date", "Mon, 05 Jan 2026 10:00:00 GMT"}, {"content-type", "application/json"},
			{"content-length", strconv.Itoa(body)}, {"cache-control", "private"}, {"etag", "\"5f2c\""}} {
			e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		return bytes.Clone(b.Bytes())
	}
	first, warm := encode(), encode() // the second time both sides know the fields
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go cannedH2C(c, first, warm, body)
		}
	}()
	return l.Addr().String()
}

func appendFrame(dst []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	dst = binary.BigEndian.AppendUint32(dst, stream)
	return append(dst, payload...)
}

func cannedH2C(c net.Conn, block, warm []byte, body int) {
	defer c.Close()
	in, out, data := make([]byte, 256<<10), make([]byte, 0, 512<<10), bytes.Repeat([]byte("a"), 16<<10)
	have := len(http2.ClientPreface)
	if _, err := io.ReadFull(c, in[:have]); err != nil {
		return
	}
	out = appendFrame(out, http2.FrameSettings, 0, 0, nil)
	have = 0
	for {
		if len(out) > 0 {
			c.Write(out)
			out = out[:0]
		}
		n, err := c.Read(in[have:])
		if err != nil {
			return
		}
		have += n
		at := 0
		for have-at >= 9 {
			b := in[at:have]
			size := 9 + (int(b[0])<<16 | int(b[1])<<8 | int(b[2]))
			if len(b) < size {
				break
			}
			at += size
			kind, flags, stream := http2.FrameType(b[3]), http2.Flags(b[4]), binary.BigEndian.Uint32(b[5:])
			switch {
			case kind == http2.FrameSettings && flags&1 == 0:
				out = appendFrame(out, http2.FrameSettings, 1, 0, nil)
			case kind == http2.FramePing && flags&1 == 0:
				out = appendFrame(out, http2.FramePing, 1, 0, b[9:17])
			case kind == http2.FrameData && size > 9:
				var increment [4]byte
				binary.BigEndian.PutUint32(increment[:], uint32(size-9))
				out = appendFrame(out, http2.FrameWindowUpdate, 0, 0, increment[:])
				if flags&1 == 0 {
					out = appendFrame(out, http2.FrameWindowUpdate, 0, stream, increment[:])
				}
			}
			if (kind == http2.FrameHeaders || kind == http2.FrameData) && flags&1 != 0 {
				out = appendFrame(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, block)
				block = warm
				for left := body; ; {
					part := data[:min(left, len(data))]
					if left -= len(part); left == 0 {
						out = appendFrame(out, http2.FrameData, http2.FlagDataEndStream, stream, part)
						break
					}
					out = appendFrame(out, http2.FrameData, 0, stream, part)
				}
			}
		}
		have = copy(in, in[at:have])
	}
}

// allocationsH2C is what a request to a backend by HTTP/2 may cost.
const allocationsH2C = 0

// TestH2CRequestAllocatesNothing is TestRequestAllocatesNothing with a backend by HTTP/2, for clients of both
// protocols.
func TestH2CRequestAllocatesNothing(t *testing.T) {
	for _, tc := range []struct {
		name, method string
		body, resp   int
	}{
		{"GET 1 KiB", "GET", 0, 1 << 10},
		{"GET 64 KiB", "GET", 0, 64 << 10},
		{"POST 16 KiB", "POST", 16 << 10, 1 << 10},
	} {
		t.Run("HTTP1/"+tc.name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			g.serveH2C(cannedH2CBackend(t, tc.resp), nil)
			c := g.dial()
			request, buf := cannedRequest(tc.method, tc.body), make([]byte, 256<<10)
			size := responseSize(t, c, request, buf, tc.resp)
			for range 200 {
				roundTrip(t, c, request, buf, size)
			}
			if got := testing.AllocsPerRun(1000, func() { roundTrip(t, c, request, buf, size) }); got > allocationsH2C {
				t.Errorf("%v allocations per request, want %v", got, allocationsH2C)
			}
		})
		t.Run("HTTP2/"+tc.name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			g.serveH2C(cannedH2CBackend(t, tc.resp), nil)
			p := g.http2Pair(t, tc.method, tc.body)
			for range 200 {
				p.roundTrip(t)
			}
			if got := testing.AllocsPerRun(1000, func() { p.roundTrip(t) }); got > allocationsH2C {
				t.Errorf("%v allocations per request, want %v", got, allocationsH2C)
			}
		})
	}
}

// BenchmarkH2CRequest is BenchmarkRequest with a backend by HTTP/2.
func BenchmarkH2CRequest(b *testing.B) {
	for _, bc := range []struct {
		name, method string
		body, resp   int
	}{
		{"GET1KiB", "GET", 0, 1 << 10},
		{"GET64KiB", "GET", 0, 64 << 10},
		{"POST16KiB", "POST", 16 << 10, 1 << 10},
	} {
		b.Run("HTTP1/"+bc.name, func(b *testing.B) {
			g := startGateway(b, Timeouts{})
			g.serveH2C(cannedH2CBackend(b, bc.resp), nil)
			c := g.dial()
			request, buf := cannedRequest(bc.method, bc.body), make([]byte, 256<<10)
			size := responseSize(b, c, request, buf, bc.resp)
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, c, request, buf, size)
			}
		})
		b.Run("HTTP2/"+bc.name, func(b *testing.B) {
			g := startGateway(b, Timeouts{})
			g.serveH2C(cannedH2CBackend(b, bc.resp), nil)
			p := g.http2Pair(b, bc.method, bc.body)
			b.ReportAllocs()
			for b.Loop() {
				p.roundTrip(b)
			}
		})
	}
}
