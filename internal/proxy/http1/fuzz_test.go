package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// checkError fails unless err is ErrIncomplete or an Error with one of the statuses.
func checkError(t *testing.T, err error, statuses ...int) {
	t.Helper()
	if err == ErrIncomplete {
		return
	}
	e, ok := err.(*Error)
	if !ok || e.Reason == "" || e.Detail == "" {
		t.Fatalf("error %#v", err)
	}
	for _, s := range statuses {
		if e.Status == s {
			return
		}
	}
	t.Fatalf("status %d", e.Status)
}

func FuzzRequest(f *testing.F) {
	for _, c := range acceptedRequests {
		f.Add([]byte(c.in))
		f.Add([]byte(c.in + "5\r\nhello\r\n0\r\nA: b\r\n\r\nGET"))
	}
	for _, c := range append(refusedRequests[:len(refusedRequests):len(refusedRequests)], refusedLines...) {
		f.Add([]byte(c.input() + "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: b\r\n\r\n"))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var req message.Request
		var h RequestHead
		n, err := ParseRequest(in, &req, &h, nil)
		if err != nil {
			checkError(t, err, 400, 414, 417, 431, 501, 505)
			return
		}
		for _, name := range []string{"host", "connection", "content-length", "transfer-encoding", "te", "upgrade", "expect"} {
			if _, ok := req.Header.Get(name); ok {
				t.Fatalf("%s was not consumed", name)
			}
		}
		checkLookalikes(t, &req.Header)
		if h.Form != Authority {
			checkRequestRoundTrip(t, &req, &h)
			checkStandardRequest(t, in, n, &req, &h)
		}
	})
}

// checkLookalikes fails if CGI-like servers take a field for one of framing.
func checkLookalikes(t *testing.T, h *message.Fields) {
	t.Helper()
	for i := range h.Len() {
		switch name := h.At(i).Name; string(cginame.Append(nil, name)) {
		case "content-length", "transfer-encoding":
			t.Fatalf("%s was accepted", name)
		}
	}
}

// checkRequestRoundTrip serialises a request and parses it again: the same request,
// the same bytes, and nothing behind it.
func checkRequestRoundTrip(t *testing.T, req *message.Request, h *RequestHead) {
	t.Helper()
	if len(req.Host) == 0 { // HTTP/1.0: what we write is HTTP/1.1, where Host may not be empty
		req.Host, req.MatchHost = []byte("a"), []byte("a")
	}
	hop := Hop{Upgrade: h.Upgrade, TETrailers: h.TETrailers, ExpectContinue: h.ExpectContinue}
	out := AppendRequestHead(nil, req, h.Framing, h.ContentLength, hop)
	var req2 message.Request
	var h2 RequestHead
	lim := &Limits{MaxHead: 1 << 20, MaxTarget: 1 << 20} // framing in canonical form may be longer
	n, err := ParseRequest(out, &req2, &h2, lim)
	if err != nil || n != len(out) {
		t.Fatalf("%q: n %d, error %v", out, n, err)
	}
	if a, b := meaning(req, h), meaning(&req2, &h2); a != b {
		t.Fatalf("serialised as %q:\n%s\n%s", out, a, b)
	}
	if again := AppendRequestHead(nil, &req2, h2.Framing, h2.ContentLength, hop); !bytes.Equal(again, out) {
		t.Fatalf("%q\n%q", out, again)
	}
}

// checkStandardRequest parses in with net/http, which must accept what we accept and
// see the same method, host, framing and body. Left out are requests where net/http
// looks at a field that we only forward (Trailer, Pragma), and Form Asterisk by URL.
func checkStandardRequest(t *testing.T, in []byte, n int, req *message.Request, h *RequestHead) {
	t.Helper()
	if _, ok := req.Header.Get("trailer"); ok || h.Form == Asterisk && h.Scheme != nil {
		return
	}
	head := bytes.TrimPrefix(in[:n], []byte("\r\n"))
	r := bufio.NewReader(io.MultiReader(bytes.NewReader(head), bytes.NewReader(in[n:])))
	std, err := http.ReadRequest(r)
	if err != nil {
		t.Fatalf("%q: net/http: %v", in[:n], err)
	}
	if std.Method != string(req.Method) || h.hasHost && std.Host != string(req.Host) {
		t.Fatalf("%q: net/http sees %s %s", in[:n], std.Method, std.Host)
	}
	chunked := len(std.TransferEncoding) > 0
	if chunked != (h.Framing == Chunked) || !chunked && std.ContentLength != max(h.ContentLength, 0) {
		t.Fatalf("%q: net/http frames by %v %d", in[:n], std.TransferEncoding, std.ContentLength)
	}
	checkStandardBody(t, in[n:], std.Body, h.Framing, h.ContentLength)
}

// checkStandardBody compares a body that we decode completely with what net/http reads.
// Chunk extensions are left out: net/http bounds them otherwise.
func checkStandardBody(t *testing.T, rest []byte, std io.Reader, f Framing, length int64) {
	t.Helper()
	if f == Chunked && bytes.IndexByte(rest, ';') >= 0 {
		return
	}
	got := decode(f, length, string(rest), nil, whole)
	if !got.done || got.err != nil {
		return
	}
	data, err := io.ReadAll(std)
	if err != nil && !strings.Contains(err.Error(), "too much") || err == nil && string(data) != got.data {
		t.Fatalf("%q: net/http reads %q, %v; we read %q", rest, data, err, got.data)
	}
}

func FuzzResponse(f *testing.F) {
	for _, c := range acceptedResponses {
		f.Add([]byte(c.in+"5\r\nhello\r\n0\r\n\r\n"), c.method == "HEAD")
	}
	for _, c := range refusedResponses {
		f.Add([]byte(c.in), false)
	}
	f.Fuzz(func(t *testing.T, in []byte, isHead bool) {
		method := "GET"
		if isHead {
			method = "HEAD"
		}
		var resp, resp2 message.Response
		var h, h2 ResponseHead
		n, err := ParseResponse(in, []byte(method), &resp, &h, nil)
		if err != nil {
			checkError(t, err, 502)
			return
		}
		checkLookalikes(t, &resp.Header)
		out := AppendResponseHead(nil, &resp, h.Framing, h.ContentLength, Hop{Upgrade: h.Upgrade})
		n2, err := ParseResponse(out, []byte(method), &resp2, &h2, &Limits{MaxHead: 1 << 20})
		if err != nil || n2 != len(out) {
			t.Fatalf("%q: n %d, error %v", out, n2, err)
		}
		if a, b := responseMeaning(&resp, &h), responseMeaning(&resp2, &h2); a != b {
			t.Fatalf("serialised as %q:\n%s\n%s", out, a, b)
		}
		checkStandardResponse(t, in, n, method, &resp, &h)
	})
}

// checkStandardResponse does for responses what checkStandardRequest does for requests.
// Answers whose framing net/http does not report (NoBody) are only parsed.
func checkStandardResponse(t *testing.T, in []byte, n int, method string, resp *message.Response, h *ResponseHead) {
	t.Helper()
	if _, ok := resp.Header.Get("trailer"); ok {
		return
	}
	r := bufio.NewReader(bytes.NewReader(in))
	std, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: net/http: %v", in[:n], err)
	}
	if std.StatusCode != resp.Status {
		t.Fatalf("%q: net/http sees %d", in[:n], std.StatusCode)
	}
	switch h.Framing {
	case Length, Chunked:
		chunked := len(std.TransferEncoding) > 0
		if chunked != (h.Framing == Chunked) || !chunked && std.ContentLength != h.ContentLength {
			t.Fatalf("%q: net/http frames by %v %d", in[:n], std.TransferEncoding, std.ContentLength)
		}
		checkStandardBody(t, in[n:], std.Body, h.Framing, h.ContentLength)
	}
}

func FuzzBody(f *testing.F) {
	for _, c := range acceptedChunks {
		f.Add([]byte(c.in), uint8(Chunked), int64(0), []byte{1, 2, 3})
	}
	for _, c := range refusedChunks {
		f.Add([]byte(c.in), uint8(Chunked), int64(0), []byte{7})
	}
	f.Add([]byte("hello"), uint8(Length), int64(4), []byte{1})
	f.Add([]byte("hello"), uint8(UntilClose), int64(0), []byte{1})
	f.Fuzz(func(t *testing.T, in []byte, framing uint8, length int64, pieces []byte) {
		fr := Framing(framing % 4)
		want := decode(fr, length, string(in), nil, whole)
		if want.err != nil {
			checkError(t, want.err, 400, 431)
		}
		i := 0
		next := func(left int) int {
			size := 1
			if len(pieces) > 0 {
				size += int(pieces[i%len(pieces)])
				i++
			}
			return min(left, size)
		}
		if got := decode(fr, length, string(in), nil, next); got != want {
			t.Fatalf("in pieces:\n%+v\n%+v", got, want)
		}
		if fr == Chunked && want.done {
			checkBodyRoundTrip(t, want)
		}
	})
}

// checkBodyRoundTrip serialises a decoded body as one chunk and decodes it again.
func checkBodyRoundTrip(t *testing.T, want outcome) {
	t.Helper()
	var wire []byte
	if want.data != "" {
		wire = AppendChunkHead(nil, len(want.data))
		wire = append(wire, want.data+ChunkEnd...)
	}
	wire = AppendLastChunk(wire, nil)
	got := decode(Chunked, -1, string(wire)+want.rest, nil, whole)
	if got.data != want.data || got.rest != want.rest || got.err != nil || !got.done {
		t.Fatalf("%+v\n%+v", got, want)
	}
}
