package http2

import (
	"math/rand/v2"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestTableSizeUpdates sends updates of the table's size at places where they may stand and where not (RFC 7541 section 4.2).
func TestTableSizeUpdates(t *testing.T) {
	const (
		zero  = "\x20"
		small = "\x3f\x61" // 128
		full  = "\x3f\xe1\x1f"
		above = "\x3f\xe2\x1f" // 4097
		field = "\x00\x01a\x01b"
	)
	plain := func(r *raw) string { // enters nothing in the table
		var b strings.Builder
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a.test"}, {":path", "/"}} {
			b.WriteString("\x00" + string(rune(len(f[0]))) + f[0] + string(rune(len(f[1]))) + f[1])
		}
		return b.String()
	}
	indexed := func(r *raw) string { return string(r.block(get("/", "x-long", strings.Repeat("a", 40))...)) }
	for _, c := range []struct {
		name   string
		before bool // a request that fills the table comes first
		block  func(*raw) string
		ok     bool
	}{
		{"at the start", false, func(r *raw) string { return zero + plain(r) }, true},
		{"two at the start", false, func(r *raw) string { return zero + full + plain(r) }, true},
		{"at the start, with a table", true, func(r *raw) string { return small + plain(r) }, true},
		{"two at the start, with a table", true, func(r *raw) string { return small + full + plain(r) }, true},
		{"of nothing but the size", true, func(r *raw) string { return full + indexed(r) }, true},
		{"too large", false, func(r *raw) string { return above + plain(r) }, false},
		{"second too large", true, func(r *raw) string { return small + above + plain(r) }, false},
		{"at the end", false, func(r *raw) string { return plain(r) + zero }, false},
		{"at the end, of the same size", false, func(r *raw) string { return plain(r) + full }, false},
		{"at the end, with a table", true, func(r *raw) string { return plain(r) + full }, false},
		{"in the middle", false, func(r *raw) string { return plain(r) + small + field }, false},
		{"at both ends", false, func(r *raw) string { return zero + plain(r) + zero }, false},
		{"cut off", false, func(r *raw) string { return "\x3f" }, false},
	} {
		for _, pieces := range []int{1, 3, 1000} {
			t.Run(c.name, func(t *testing.T) {
				s := serve(t, Options{}, hello)
				r := s.raw(t)
				id := uint32(1)
				if c.before {
					r.headers(id, true, get("/", "x-a", "a", "x-b", "b")...)
					r.until("the answer", func(f xhttp2.Frame) bool { d, ok := f.(*xhttp2.DataFrame); return ok && d.StreamEnded() })
					id += 2
				}
				block := []byte(c.block(r))
				if pieces > 1 { // of at least 3 bytes, in few enough frames
					pieces = min(pieces, len(block)/3+1)
				}
				each := (len(block) + pieces - 1) / pieces
				for at := 0; at < len(block); at += each {
					end := min(at+each, len(block))
					if at == 0 {
						r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block[:end], EndStream: true, EndHeaders: end == len(block)})
					} else {
						r.WriteContinuation(id, end == len(block), block[at:end])
					}
				}
				if !c.ok {
					if code, why := r.goAway(); code != xhttp2.ErrCodeCompression {
						t.Errorf("GOAWAY %v %s", code, why)
					}
					return
				}
				r.until("the answer", func(f xhttp2.Frame) bool {
					if g, ok := f.(*xhttp2.GoAwayFrame); ok {
						t.Fatalf("GOAWAY %v %s", g.ErrCode, g.DebugData())
					}
					d, ok := f.(*xhttp2.DataFrame)
					return ok && d.StreamEnded() && d.StreamID == id
				})
			})
		}
	}
}

// TestUpdatesFindFields has an encoder write blocks of random fields, which scan goes through to their ends however they
// are cut; an update behind any of the fields is found.
func TestUpdatesFindFields(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var buf strings.Builder
	enc := hpack.NewEncoder(&buf)
	names := []string{":path", "cookie", "x-" + strings.Repeat("n", 150), "accept", "x-y"}
	for range 2000 {
		buf.Reset()
		var ends []int
		for range 1 + rnd.IntN(6) {
			value := make([]byte, []int{0, 1, 10, 126, 127, 128, 300}[rnd.IntN(7)])
			for i := range value {
				value[i] = byte(rnd.IntN(256))
			}
			enc.WriteField(hpack.HeaderField{Name: names[rnd.IntN(len(names))], Value: string(value), Sensitive: rnd.IntN(4) == 0})
			ends = append(ends, buf.Len())
		}
		block := buf.String()
		at := ends[rnd.IntN(len(ends))]
		for text, want := range map[string]bool{block: true, block[:at] + "\x3f\x01" + block[at:]: false} {
			var u updates
			found := true
			for p, from := []byte(text), 0; len(p) > 0 && found; {
				k := 1 + rnd.IntN(len(p))
				var n int
				if n, found = u.scan(p[:k]); n < k && found {
					t.Fatal("an update at the start")
				}
				if want {
					whole := 0
					for _, end := range ends {
						if from < end && end <= from+k {
							whole = end - from
						}
					}
					if u.whole != whole {
						t.Fatalf("%q from %d by %d: whole to %d, want %d", text, from, k, u.whole, whole)
					}
				}
				p, from = p[k:], from+k
			}
			if found != want {
				t.Fatalf("%q: %v", text, found)
			}
			if want && u.state != atStart {
				t.Fatalf("%q ends in state %d", text, u.state)
			}
		}
	}
}

func BenchmarkUpdates(b *testing.B) {
	var buf strings.Builder
	enc := hpack.NewEncoder(&buf)
	for range 2 { // the second time indexed, as on a connection in use
		buf.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "www.example.com"}, {":path", "/a/b?c=d"},
			{"user-agent", "Mozilla/5.0 (X11; Linux x86_64)"}, {"accept", "*/*"}, {"accept-encoding", "gzip, deflate, br"},
			{"accept-language", "en"}, {"cookie", "a=b"}, {"x-request-id", "1234"}} {
			enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
	}
	block := []byte(buf.String())
	b.ReportAllocs()
	for b.Loop() {
		var u updates
		u.scan(block)
	}
}
