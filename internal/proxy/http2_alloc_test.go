//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Pair sends the same requests over and over without allocating.
type http2Pair struct {
	c      net.Conn
	stream uint32
	block  []byte // of the next request
	warm   []byte // of all later ones
	body   []byte
	out    []byte
	in     []byte
}

func (g *gateway) http2Pair(t testing.TB, method string, body int) *http2Pair {
	p := &http2Pair{c: g.dial(), stream: 1, body: make([]byte, body), in: make([]byte, 256<<10)}
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	encode := func() []byte {
		b.Reset()
		for _, l := range request2(method, "/api/v2/items?id=7", [2]string{"user-agent", "bench/1.0"}, [2]string{"accept", "*/*"}) {
			enc.WriteField(hpack.HeaderField{Name: l[0], Value: l[1]})
		}
		return bytes.Clone(b.Bytes())
	}
	p.block, p.warm = encode(), encode() // the second time both sides know the fields
	io.WriteString(p.c, http2.ClientPreface)
	fr := http2.NewFramer(p.c, p.c)
	fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	fr.WriteWindowUpdate(0, 1<<31-1-65535)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			fr.WriteSettingsAck()
			return p
		}
	}
}

func (p *http2Pair) frame(kind http2.FrameType, flags http2.Flags, payload []byte) {
	n, s := len(payload), p.stream
	p.out = append(p.out, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags), byte(s>>24), byte(s>>16), byte(s>>8), byte(s))
	p.out = append(p.out, payload...)
}

// roundTrip sends a request and reads up to the end of its response.
func (p *http2Pair) roundTrip(t testing.TB) {
	p.out = p.out[:0]
	flags := http2.FlagHeadersEndHeaders
	if len(p.body) == 0 {
		flags |= http2.FlagHeadersEndStream
	}
	p.frame(http2.FrameHeaders, flags, p.block)
	for rest := p.body; len(rest) > 0; {
		part := rest[:min(len(rest), 16<<10)]
		if rest = rest[len(part):]; len(rest) == 0 {
			p.frame(http2.FrameData, http2.FlagDataEndStream, part)
		} else {
			p.frame(http2.FrameData, 0, part)
		}
	}
	if _, err := p.c.Write(p.out); err != nil {
		t.Fatal(err)
	}
	for have := 0; ; {
		n, err := p.c.Read(p.in[have:])
		if err != nil {
			t.Fatal(err)
		}
		have += n
		at := 0
		for have-at >= 9 {
			b := p.in[at:have]
			size := 9 + (int(b[0])<<16 | int(b[1])<<8 | int(b[2]))
			if len(b) < size {
				break
			}
			kind, flags := http2.FrameType(b[3]), http2.Flags(b[4])
			at += size
			if (kind == http2.FrameData || kind == http2.FrameHeaders) && flags.Has(http2.FlagDataEndStream) {
				p.stream += 2
				p.block = p.warm
				return
			}
			if kind == http2.FrameRSTStream || kind == http2.FrameGoAway {
				t.Fatalf("%v %q", kind, b[9:size])
			}
		}
		have = copy(p.in, p.in[at:have])
	}
}

// TestHTTP2RequestAllocatesNothing is TestRequestAllocatesNothing by HTTP/2, on a warm connection.
func TestHTTP2RequestAllocatesNothing(t *testing.T) {
	for _, tc := range []struct {
		name, method string
		body, resp   int
	}{
		{"GET 1 KiB", "GET", 0, 1 << 10},
		{"GET 64 KiB", "GET", 0, 64 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			g.serve(cannedBackend(t, cannedResponse(tc.resp), tc.body), nil)
			p := g.http2Pair(t, tc.method, tc.body)
			for range 100 {
				p.roundTrip(t)
			}
			if got := testing.AllocsPerRun(1000, func() { p.roundTrip(t) }); got != 0 {
				t.Errorf("%v allocations per request, want 0", got)
			}
		})
	}
}

// BenchmarkHTTP2Request is BenchmarkRequest by HTTP/2.
func BenchmarkHTTP2Request(b *testing.B) {
	for _, bc := range []struct {
		name, method string
		body, resp   int
	}{
		{"GET1KiB", "GET", 0, 1 << 10},
		{"GET64KiB", "GET", 0, 64 << 10},
		{"POST16KiB", "POST", 16 << 10, 1 << 10},
	} {
		b.Run(bc.name, func(b *testing.B) {
			g := startGateway(b, Timeouts{})
			g.serve(cannedBackend(b, cannedResponse(bc.resp), bc.body), nil)
			p := g.http2Pair(b, bc.method, bc.body)
			b.ReportAllocs()
			for b.Loop() {
				p.roundTrip(b)
			}
		})
	}
}
