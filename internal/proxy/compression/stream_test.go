package compression

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

var everyEncoding = []Encoding{Gzip, Brotli, Zstd}

// decoder reads what an encoding has made, by a library that is not the encoder's where there is one.
func decoder(t testing.TB, e Encoding, r io.Reader) io.Reader {
	switch e {
	case Gzip:
		d, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	case Brotli:
		return brotli.NewReader(r)
	}
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// someBytes returns a body of random words, or of noise.
func someBytes(r *rand.Rand, n int, noise bool) []byte {
	b := make([]byte, 0, n+16)
	for len(b) < n {
		if noise {
			b = append(b, byte(r.Uint32()))
		} else {
			b = fmt.Appendf(b, "%d word ", r.IntN(500))
		}
	}
	return b[:n]
}

// TestRoundTrip: bodies of any size in pieces of any size come out as they went in, and what has come out behind each piece is enough for all of it.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, e := range everyEncoding {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(40) {
				r := rand.New(rand.NewPCG(seed, uint64(e)))
				var encoders Encoders
				var out bytes.Buffer
				var s Stream
				if !s.Begin(&encoders, e, &out, seed%4 == 1 && e == Gzip) {
					t.Fatal("there is no encoder")
				}
				size := r.IntN(1 << (1 + r.IntN(19)))
				body := someBytes(r, size, seed%5 == 0)
				done := 0
				for pieces := 0; done < size; pieces++ {
					n := min(1+r.IntN(1+size/3), size-done)
					last := done+n == size && seed%2 == 0
					if err := s.Write(body[done:done+n], last); err != nil {
						t.Fatal(err)
					}
					if done += n; pieces < 4 {
						got := make([]byte, done)
						if _, err := io.ReadFull(decoder(t, e, bytes.NewReader(out.Bytes())), got); err != nil || !bytes.Equal(got, body[:done]) {
							t.Fatalf("seed %d: behind %d bytes of %d not all has come: %v", seed, done, size, err)
						}
					}
					if r.IntN(4) == 0 {
						s.Slow()
					}
				}
				if seed%2 != 0 || size == 0 {
					if err := s.Write(nil, true); err != nil {
						t.Fatal(err)
					}
				}
				s.End()
				sent := int64(out.Len())
				got, err := io.ReadAll(decoder(t, e, &out))
				if err != nil || !bytes.Equal(got, body) {
					t.Fatalf("seed %d: %d bytes became %d, %v", seed, size, len(got), err)
				}
				c := encoders.Stats()[e-1]
				if c.Encoding != e || c.Responses != 1 || c.In != uint64(size) || c.Out != uint64(sent) || encoders.Held() != 0 {
					t.Errorf("seed %d: %+v, held %d, after %d bytes that became %d", seed, c, encoders.Held(), size, sent)
				}
			}
		})
	}
}

// TestAppend: a whole body is encoded behind what is there, and no encoder is kept.
func TestAppend(t *testing.T) {
	t.Parallel()
	for _, e := range everyEncoding {
		var encoders Encoders
		for _, size := range []int{1, 1000, 200 << 10} {
			body := someBytes(rand.New(rand.NewPCG(11, 12)), size, false)
			out := encoders.Append([]byte("before"), e, body)
			rest, ok := bytes.CutPrefix(out, []byte("before"))
			got, err := io.ReadAll(decoder(t, e, bytes.NewReader(rest)))
			if !ok || err != nil || !bytes.Equal(got, body) || encoders.Held() != 0 {
				t.Errorf("%v of %d bytes: %v, %d bytes are held", e, size, err, encoders.Held())
			}
		}
	}
}

// TestTruncated: what ends without its end is no body.
func TestTruncated(t *testing.T) {
	t.Parallel()
	body := []byte(strings.Repeat("what breaks off ", 1000))
	for _, e := range everyEncoding {
		var encoders Encoders
		var out bytes.Buffer
		var s Stream
		s.Begin(&encoders, e, &out, false)
		if err := s.Write(body, false); err != nil {
			t.Fatal(err)
		}
		s.End()
		if _, err := io.ReadAll(decoder(t, e, &out)); err == nil {
			t.Errorf("%v: a body without its end was read without an error", e)
		}
	}
}

// failing is a writer that takes so many bytes.
type failing struct {
	left int
	err  error
}

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.left {
		return 0, f.err
	}
	f.left -= len(b)
	return len(b), nil
}

// TestWriteFails: the error is the writer's, it is not asked again, and the encoder serves the next stream.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	body := someBytes(rand.New(rand.NewPCG(1, 2)), 64<<10, true)
	for _, e := range everyEncoding {
		for _, after := range []int{0, 5, 1000, 40000} {
			var encoders Encoders
			var s Stream
			to := &failing{after, errors.New("the client has left")}
			s.Begin(&encoders, e, to, false)
			if err := s.Write(body, false); err != to.err {
				t.Errorf("%v after %d: got %v", e, after, err)
			}
			to.left = 1 << 20
			if err := s.Write(body, true); err != to.err || to.left != 1<<20 {
				t.Errorf("%v after %d: got %v the second time, %d", e, after, err, to.left)
			}
			s.End()
			var out bytes.Buffer
			s.Begin(&encoders, e, &out, false)
			if err := s.Write(body, true); err != nil {
				t.Fatal(err)
			}
			s.End()
			if got, err := io.ReadAll(decoder(t, e, &out)); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%v after %d: the next body is another, %v", e, after, err)
			}
		}
	}
}

// TestHeldIsBounded: so many streams keep encoders and no more. Those of Gzip go on without; what they hold is given back at their ends, and by slow ones of Gzip before.
func TestHeldIsBounded(t *testing.T) {
	t.Parallel()
	for _, e := range everyEncoding {
		var encoders Encoders
		most := int(maxHeld / weights[e])
		streams := make([]Stream, most+3)
		for i := range streams {
			if got, want := streams[i].Begin(&encoders, e, io.Discard, false), i < most || e == Gzip; got != want {
				t.Fatalf("%v: stream %d: got %v", e, i, got)
			}
		}
		if h := encoders.Held(); h > maxHeld || h < maxHeld-weights[e] {
			t.Errorf("%v: %d bytes are held", e, h)
		}
		if c := encoders.Stats()[e-1]; e != Gzip && (c.Refused != 3 || c.Responses != uint64(most)) {
			t.Errorf("%v: %+v", e, c)
		}
		if streams[0].Slow(); e == Gzip && !streams[0].alone || e != Gzip && streams[0].alone {
			t.Errorf("%v: slow, it keeps an encoder: %v", e, !streams[0].alone)
		}
		for i := range streams {
			streams[i].End()
			streams[i].End()
		}
		if h := encoders.Held(); h != 0 {
			t.Errorf("%v: %d bytes are held in the end", e, h)
		}
	}
}

// roomy is a writer that has been asked for room.
type roomy struct {
	bytes.Buffer
	left  int
	short int // how often more was written than there was room for
}

func (r *roomy) Room(n int) error {
	r.left = n
	return nil
}

func (r *roomy) Write(b []byte) (int, error) {
	if r.left -= len(b); r.left < 0 {
		r.short++
	}
	return r.Buffer.Write(b)
}

// TestRoom: while an encoder is at work that is not kept, the writer has the room that it was asked for, even for noise. So no wait for a client keeps it.
func TestRoom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for _, noise := range []bool{false, true} {
		var encoders Encoders
		var s Stream
		out := &roomy{left: len(gzipHead)}
		s.Begin(&encoders, Gzip, out, true)
		body := someBytes(r, 300<<10, noise)
		if err := s.Write(body, false); err != nil {
			t.Fatal(err)
		}
		if out.short > 0 || s.enc != nil {
			t.Errorf("noise %v: %d writes found no room, encoder kept: %v", noise, out.short, s.enc != nil)
		}
		if err := s.Write(nil, true); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(decoder(t, Gzip, &out.Buffer)); err != nil || !bytes.Equal(got, body) {
			t.Errorf("noise %v: another body, %v", noise, err)
		}
	}
}

// TestRatio: small bodies and long streams become smaller by what is to be expected of text.
func TestRatio(t *testing.T) {
	t.Parallel()
	body := someBytes(rand.New(rand.NewPCG(5, 6)), 256<<10, false)
	for _, e := range everyEncoding {
		for _, piece := range []int{2 << 10, 64 << 10} {
			var encoders Encoders
			var out bytes.Buffer
			var s Stream
			s.Begin(&encoders, e, &out, false)
			for at := 0; at < len(body); at += piece {
				if err := s.Write(body[at:at+piece], at+piece == len(body)); err != nil {
					t.Fatal(err)
				}
			}
			s.End()
			t.Logf("%v in pieces of %d: %.1f %%", e, piece, 100*float64(out.Len())/float64(len(body)))
			if out.Len() > len(body)/2 {
				t.Errorf("%v in pieces of %d: %d bytes became %d", e, piece, len(body), out.Len())
			}
		}
	}
}

// TestEncoderMemory compares what encoders hold with what is counted for them.
func TestEncoderMemory(t *testing.T) { // alone: it measures the heap
	body := someBytes(rand.New(rand.NewPCG(7, 8)), 512<<10, false)
	const n = 16
	for _, e := range everyEncoding {
		var before, after runtime.MemStats
		var encoders Encoders
		streams := make([]Stream, n)
		runtime.GC()
		runtime.GC() // what pools had goes with the second one
		runtime.ReadMemStats(&before)
		for i := range streams {
			streams[i].Begin(&encoders, e, io.Discard, false)
			for at := 0; at < len(body); at += 64 << 10 {
				if err := streams[i].Write(body[at:at+64<<10], false); err != nil {
					t.Fatal(err)
				}
			}
		}
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
		t.Logf("%v: %d KiB", e, each>>10)
		if each > weights[e] || each < weights[e]/2 {
			t.Errorf("%v: an encoder holds %d KiB, and is counted as %d", e, each>>10, weights[e]>>10)
		}
		for i := range streams {
			streams[i].End()
		}
	}
}

func BenchmarkStream(b *testing.B) {
	for _, e := range everyEncoding {
		for _, size := range []int{1 << 10, 64 << 10} {
			for _, scarce := range []bool{false, true} {
				if scarce && e != Gzip {
					continue
				}
				b.Run(fmt.Sprintf("%v/%dKiB/alone=%v", e, size>>10, scarce), func(b *testing.B) {
					body := someBytes(rand.New(rand.NewPCG(9, 10)), size, false)
					var encoders Encoders
					var s Stream
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						s.Begin(&encoders, e, io.Discard, scarce)
						s.Write(body, true)
						s.End()
					}
				})
			}
		}
	}
}
