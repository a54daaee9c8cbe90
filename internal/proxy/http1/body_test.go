package http1

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// outcome is what came of decoding a body: payload, what was left over, trailer, error.
type outcome struct {
	data, rest, trailer string
	done                bool
	err                 error
}

// decode decodes in pieces whose sizes next says.
func decode(f Framing, length int64, in string, lim *Limits, next func(left int) int) (o outcome) {
	var body Body
	body.Init(f, length, lim)
	for in != "" && !body.Done() {
		src := []byte(in[:next(len(in))])
		data, n, err := body.Decode(src)
		if err != nil {
			if _, _, again := body.Decode([]byte("0\r\n\r\n")); again != err || len(data) > 0 || body.EOF() != err {
				panic("an error does not stay")
			}
			return outcome{err: err}
		}
		if n < len(src) && !body.Done() {
			panic("bytes are left though the body goes on")
		}
		o.data += string(data)
		in = in[n:]
	}
	o.rest, o.done = in, body.Done()
	var b strings.Builder
	describe(&b, body.Trailer())
	o.trailer = b.String()
	return o
}

func whole(left int) int { return left }

func byOne(int) int { return 1 }

var acceptedChunks = []struct{ in, data, trailer string }{
	{"0\r\n\r\n", "", ""},
	{"5\r\nhello\r\n0\r\n\r\n", "hello", ""},
	{"5\r\nhello\r\n1\r\n \r\n005\r\nworld\r\n000\r\n\r\n", "hello world", ""},
	{"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", ""},
	{"0000000000000001\r\nx\r\n0000000000000000\r\n\r\n", "x", ""},
	{"2\r\n\r\n\r\n0\r\n\r\n", "\r\n", ""},
	{"1;a\r\nx\r\n0;b=c\r\n\r\n", "x", ""},
	{"1; a=\"q ; \xff\t\" ; b\r\nx\r\n0\r\n\r\n", "x", ""},
	{"1;" + strings.Repeat("e", 4000) + "\r\nx\r\n0\r\n\r\n", "x", ""},
	{"1\r\nx\r\n0\r\nX-Sum: 1\r\nx-b:\t2 \r\n\r\n", "x", " [X-Sum:1] [x-b:2]"},
	{"0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: x\r\nAuthorization: x\r\nSet-Cookie: x\r\nX-Forwarded-For: x\r\nContent_Length: 1\r\nTE: x\r\nOk: y\r\n\r\n", "", " [Ok:y]"},
	{"0\r\nContent.Length: 5\r\nTRANSFER+ENCODING: chunked\r\nSet~Cookie: x\r\nX'Forwarded'For: x\r\nX|Real|IP: x\r\nProxy*Authorization: x\r\nIf.Match: x\r\nIf.Matches: y\r\nX.Real: z\r\n\r\n",
		"", " [If.Matches:y] [X.Real:z]"},
}

var refusedChunks = []struct{ in, reason string }{
	{"\r\n", "chunk"},
	{"x\r\n", "chunk"},
	{" 1\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1 \r\nx\r\n0\r\n\r\n", "chunk"},
	{"1\t\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1 ;a\r\nx\r\n0\r\n\r\n", "chunk"},
	{"0x1\r\nx\r\n0\r\n\r\n", "chunk"},
	{"+1\r\nx\r\n0\r\n\r\n", "chunk"},
	{"-1\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1_0\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1.0\r\nx\r\n0\r\n\r\n", "chunk"},
	{";a\r\nx\r\n0\r\n\r\n", "chunk"},
	{"\"1\"\r\nx\r\n0\r\n\r\n", "chunk"},
	{"\xef\xbc\x91\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1\x00\r\nx\r\n0\r\n\r\n", "chunk"},
	{"8000000000000000\r\n", "chunk"},
	{"ffffffffffffffff\r\n", "chunk"},
	{"10000000000000001\r\n", "chunk"},
	{"00000000000000001\r\n", "chunk"},
	{"1\nx\r\n0\r\n\r\n", "chunk"},
	{"1\rx\r\n0\r\n\r\n", "chunk"},
	{"1\r\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1\r\nxy\r\n0\r\n\r\n", "chunk"},
	{"1\r\nx\n0\r\n\r\n", "chunk"},
	{"1\r\nx\r0\r\n\r\n", "chunk"},
	{"1\r\nx0\r\n\r\n", "chunk"},
	{"2\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1;\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1;=a\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1;a\nx\r\n0\r\n\r\n", "chunk"},
	{"1;a\rx\r\n0\r\n\r\n", "chunk"},
	{"1;a\x00\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1;a=\"\n\"\r\nx\r\n0\r\n\r\n", "chunk"},
	{"1;" + strings.Repeat("a", 4097) + "\r\nx\r\n0\r\n\r\n", "chunk"},
	{strings.Repeat("1;"+strings.Repeat("a", 100)+"\r\nx\r\n", 41) + "0\r\n\r\n", "chunk"},
	{"0\n\r\n", "chunk"},
	{"0\r\n\n", "field_line"},
	{"0\r\n\rX", "field_line"},
	{"0\r\n A: b\r\n\r\n", "field_line"},
	{"0\r\nA : b\r\n\r\n", "field_line"},
	{"0\r\nA: b\n\r\n", "field_line"},
	{"0\r\nA: b\rc\r\n\r\n", "field_line"},
	{"0\r\nA: b\r\n c\r\n\r\n", "field_line"},
	{"0\r\nA: \x00\r\n\r\n", "field_line"},
	{"0\r\n: b\r\n\r\n", "field_line"},
	{"0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "field_line"},
	{"0\r\n" + strings.Repeat("A: b\r\n", 129) + "\r\n", "trailer_too_large"},
	{"0\r\nA: " + strings.Repeat("b", 32<<10), "trailer_too_large"},
}

func TestAcceptedChunks(t *testing.T) {
	for _, c := range acceptedChunks {
		want := outcome{data: c.data, rest: "GET", trailer: c.trailer, done: true}
		if got := decode(Chunked, -1, c.in+"GET", nil, whole); got != want {
			t.Errorf("%q:\n got %+v\nwant %+v", c.in, got, want)
		}
		checkSplits(t, Chunked, -1, c.in+"GET", nil)
	}
}

func TestRefusedChunks(t *testing.T) {
	for _, c := range refusedChunks {
		e, ok := decode(Chunked, -1, c.in, nil, whole).err.(*Error)
		if !ok || e.Reason != c.reason || e.Status != 400 && e.Status != 431 || e.Upstream().Status != 502 {
			t.Errorf("%.80q: error %+v, want %s", c.in, e, c.reason)
			continue
		}
		checkSplits(t, Chunked, -1, c.in, nil)
	}
}

// checkSplits decodes in pieces of one byte, and in random ones: the outcome must
// be that of decoding at once.
func checkSplits(t *testing.T, f Framing, length int64, in string, lim *Limits) {
	t.Helper()
	want := decode(f, length, in, lim, whole)
	if got := decode(f, length, in, lim, byOne); got != want {
		t.Fatalf("%.80q byte by byte:\n got %+v\nwant %+v", in, got, want)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		next := func(left int) int { return 1 + random.IntN(min(left, 1+random.IntN(64))) }
		if got := decode(f, length, in, lim, next); got != want {
			t.Fatalf("%.80q in random pieces:\n got %+v\nwant %+v", in, got, want)
		}
	}
}

// TestSplitsOfRandomBodies does so for bodies of many chunks.
func TestSplitsOfRandomBodies(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var wire []byte
		var payload string
		for range random.IntN(20) {
			chunk := strings.Repeat(string(rune('a'+random.IntN(26))), 1+random.IntN(200))
			payload += chunk
			wire = AppendChunkHead(wire, len(chunk))
			wire = append(wire, chunk+ChunkEnd...)
		}
		in := string(AppendLastChunk(wire, nil)) + "next"
		if got := decode(Chunked, -1, in, nil, whole); got.data != payload || got.rest != "next" || got.err != nil {
			t.Fatalf("%q: %+v", in, got)
		}
		checkSplits(t, Chunked, -1, in, nil)
	}
}

func TestBodiesWithoutChunks(t *testing.T) {
	for _, c := range []struct {
		f      Framing
		length int64
		want   outcome
	}{
		{NoBody, -1, outcome{rest: "hello", done: true}},
		{NoBody, 5, outcome{rest: "hello", done: true}},
		{Length, 0, outcome{rest: "hello", done: true}},
		{Length, 3, outcome{data: "hel", rest: "lo", done: true}},
		{Length, 5, outcome{data: "hello", done: true}},
		{Length, 6, outcome{data: "hello"}},
		{UntilClose, -1, outcome{data: "hello"}},
	} {
		if got := decode(c.f, c.length, "hello", nil, whole); got != c.want {
			t.Errorf("%v %d: got %+v, want %+v", c.f, c.length, got, c.want)
		}
		checkSplits(t, c.f, c.length, "hello", nil)
	}
}

func TestEOF(t *testing.T) {
	for _, c := range []struct {
		f         Framing
		length    int64
		in        string
		ok        bool
		remaining int64
	}{
		{NoBody, -1, "", true, 0},
		{Length, 2, "ab", true, 0},
		{Length, 3, "ab", false, 1},
		{Length, 3, "", false, 3},
		{UntilClose, -1, "ab", true, -1},
		{Chunked, -1, "", false, -1},
		{Chunked, -1, "2\r\na", false, -1},
		{Chunked, -1, "0\r\n", false, 0},
		{Chunked, -1, "0\r\nA: b\r\n\r", false, 0},
		{Chunked, -1, "0\r\n\r\n", true, 0},
	} {
		var body Body
		body.Init(c.f, c.length, nil)
		if _, _, err := body.Decode([]byte(c.in)); err != nil {
			t.Fatal(err)
		}
		if r := body.Remaining(); r != c.remaining {
			t.Errorf("%v %q: remaining %d, want %d", c.f, c.in, r, c.remaining)
		}
		err := body.EOF()
		if (err == nil) != c.ok || body.Done() != c.ok || err != nil && err.(*Error).Reason != "body_truncated" {
			t.Errorf("%v %q: EOF %v, done %v", c.f, c.in, err, body.Done())
		}
	}
}

func TestTrailerLimits(t *testing.T) {
	lim := &Limits{MaxHead: 10, MaxFields: 1}
	for in, ok := range map[string]bool{
		"0\r\nA: bcd\r\n\r\n":     true,
		"0\r\nA: bcde\r\n\r\n":    false,
		"0\r\nA:\r\nB:\r\n\r\n":   false,
		"0\r\nTE:\r\nTE:\r\n\r\n": false, // dropped fields count
	} {
		if got := decode(Chunked, -1, in, lim, whole); (got.err == nil) != ok {
			t.Errorf("%q: %+v", in, got)
		}
		checkSplits(t, Chunked, -1, in, lim)
	}
}

// TestTrailerMemory reuses one body: the second trailer must not show the first.
func TestTrailerMemory(t *testing.T) {
	var body Body
	for i := range 3 {
		body.Init(Chunked, -1, nil)
		in := fmt.Sprintf("0\r\nA: %d\r\n%s\r\n", i, strings.Repeat("B: c\r\n", 100))
		if _, _, err := body.Decode([]byte(in)); err != nil || !body.Done() || body.Trailer().Len() != 101 {
			t.Fatal(err, body.Trailer().Len())
		}
		if v, _ := body.Trailer().Get("a"); string(v) != fmt.Sprint(i) {
			t.Errorf("A is %q in body %d", v, i)
		}
	}
}

// TestTrailerPieces: a line that comes in pieces is not scanned from its beginning for each of them, which would take a time quadratic in its length:
// a byte that may not be there, put into what was scanned, goes unnoticed meanwhile.
func TestTrailerPieces(t *testing.T) {
	var s trailerSection
	s.reset(nil)
	read := func(b string) {
		t.Helper()
		if _, done, err := s.read([]byte(b)); done || err != nil {
			t.Fatalf("after %d bytes: done %v, %v", len(s.buf), done, err)
		}
	}
	bytewise := func(b string) {
		t.Helper()
		first := s.buf[s.line]
		s.buf[s.line] = 0
		for _, c := range []byte(b) {
			read(string(c))
		}
		s.buf[s.line] = first
	}
	name, value := strings.Repeat("n", 1000), strings.Repeat("v ", 1000)
	for range 2 {
		read("n")
		bytewise(name)
		read(":")
		bytewise(value)
		read("v\r")
		read("\n")
	}
	if _, done, err := s.read([]byte("\r\n")); !done || err != nil || s.fields.Len() != 2 {
		t.Fatal(done, err, s.fields.Len())
	}
	for i := range 2 {
		if f := s.fields.At(i); string(f.Name) != "n"+name || string(f.Value) != value+"v" {
			t.Errorf("field %d: %.10q: %.10q", i, f.Name, f.Value)
		}
	}
}
