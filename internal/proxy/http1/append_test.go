package http1

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func TestAppendRequestHead(t *testing.T) {
	var req message.Request
	var h RequestHead
	in := "PUT /a/../b?c HTTP/1.1\r\nX-A:1\r\nHost: A:80\r\nx-b:  2 \r\nX-C: 3\r\nConnection: close\r\nX-D: 4\r\n\r\n"
	if _, err := ParseRequest([]byte(in), &req, &h, nil); err != nil {
		t.Fatal(err)
	}
	req.Header.Set([]byte("X-C"), []byte("new"))
	req.Header.Add([]byte("X-Forwarded-For"), []byte("192.0.2.1"))
	const start = "PUT /b?c HTTP/1.1\r\nHost: A:80\r\nX-A:1\r\nx-b:  2 \r\nX-C: new\r\nX-D: 4\r\nX-Forwarded-For: 192.0.2.1\r\n"
	for _, c := range []struct {
		f      Framing
		length int64
		hop    Hop
		want   string
	}{
		{NoBody, -1, Hop{}, ""},
		{NoBody, 0, Hop{}, ""},
		{Length, 0, Hop{}, "Content-Length: 0\r\n"},
		{Length, 12, Hop{ExpectContinue: true}, "Content-Length: 12\r\nExpect: 100-continue\r\n"},
		{Chunked, -1, Hop{TETrailers: true}, "Transfer-Encoding: chunked\r\nConnection: TE\r\nTE: trailers\r\n"},
		{UntilClose, -1, Hop{Close: true}, "Transfer-Encoding: chunked\r\nConnection: close\r\n"},
		{NoBody, -1, Hop{Upgrade: []byte("websocket")}, "Connection: Upgrade\r\nUpgrade: websocket\r\n"},
		{NoBody, -1, Hop{Close: true, KeepAlive: true, TETrailers: true, Upgrade: []byte("x")},
			"Connection: close, TE, Upgrade\r\nUpgrade: x\r\nTE: trailers\r\n"},
	} {
		if got := string(AppendRequestHead(nil, &req, c.f, c.length, c.hop)); got != start+c.want+"\r\n" {
			t.Errorf("%v %d %+v:\n got %q\nwant %q", c.f, c.length, c.hop, got, start+c.want+"\r\n")
		}
	}
}

func TestAppendResponseHead(t *testing.T) {
	for _, c := range []struct {
		status int
		reason string
		f      Framing
		length int64
		hop    Hop
		want   string
	}{
		{200, "OK", Length, 5, Hop{}, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\n\r\n"},
		{200, "", Chunked, -1, Hop{KeepAlive: true}, "HTTP/1.1 200 \r\nA: b\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"},
		{200, "OK", UntilClose, -1, Hop{KeepAlive: true}, "HTTP/1.1 200 OK\r\nA: b\r\nConnection: close\r\n\r\n"},
		{304, "x", NoBody, 7, Hop{}, "HTTP/1.1 304 x\r\nA: b\r\nContent-Length: 7\r\n\r\n"},
		{200, "x", NoBody, -1, Hop{TETrailers: true}, "HTTP/1.1 200 x\r\nA: b\r\n\r\n"},
		{204, "x", NoBody, 0, Hop{}, "HTTP/1.1 204 x\r\nA: b\r\n\r\n"},
		{103, "x", NoBody, 0, Hop{}, "HTTP/1.1 103 x\r\nA: b\r\n\r\n"},
		{101, "x", NoBody, -1, Hop{Upgrade: []byte("ws")}, "HTTP/1.1 101 x\r\nA: b\r\nConnection: Upgrade\r\nUpgrade: ws\r\n\r\n"},
	} {
		resp := message.Response{Status: c.status, Reason: []byte(c.reason)}
		resp.Header.Add([]byte("A"), []byte("b"))
		if got := string(AppendResponseHead(nil, &resp, c.f, c.length, c.hop)); got != c.want {
			t.Errorf("%d: got %q, want %q", c.status, got, c.want)
		}
	}
}

// TestAppendRuns changes the order of lines and mixes buffers: a run is copied at
// once only where the lines really are neighbours.
func TestAppendRuns(t *testing.T) {
	buf := []byte("A: 1\r\nB: 2\r\nC: 3\r\n")
	a, b, c := buf[:6], buf[6:12], buf[12:]
	own := []byte("D: 4\r\n")
	for _, order := range [][][]byte{
		{a, b, c}, {a, c}, {b, a, c}, {c, b, a}, {a, b, own, c}, {a, a, b}, {a, nil, b}, {nil}, {own[:6:6], a, b[:6:6], c}, {},
	} {
		var fields message.Fields
		var want string
		for _, line := range order {
			if line == nil {
				fields.Add([]byte("N"), []byte("v"))
				want += "N: v\r\n"
				continue
			}
			fields.Append(message.Field{Name: line[:1], Value: line[3:4], Line: line})
			want += string(line)
		}
		if got := string(appendFields([]byte("x"), &fields)); got != "x"+want {
			t.Errorf("got %q, want %q", got, "x"+want)
		}
	}
}

func TestAppendChunks(t *testing.T) {
	out := AppendChunkHead(nil, 0x1af)
	if string(out) != "1af\r\n" {
		t.Errorf("chunk head %q", out)
	}
	if out = AppendLastChunk(nil, nil); string(out) != "0\r\n\r\n" {
		t.Errorf("last chunk %q", out)
	}
	var trailer message.Fields
	trailer.Add([]byte("A"), []byte("b"))
	if out = AppendLastChunk(nil, &trailer); string(out) != "0\r\nA: b\r\n\r\n" {
		t.Errorf("last chunk %q", out)
	}
}

// TestDropNominated: what Connection nominated is gone from the trailer section too.
func TestDropNominated(t *testing.T) {
	var req message.Request
	var h RequestHead
	in := "POST / HTTP/1.1\r\nHost: a\r\nConnection: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
	if _, err := ParseRequest([]byte(in), &req, &h, nil); err != nil {
		t.Fatal(err)
	}
	var body Body
	body.Init(h.Framing, h.ContentLength, nil)
	if _, _, err := body.Decode([]byte("0\r\nx-sum: 1\r\nY: 2\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	h.DropNominated(body.Trailer())
	if body.Trailer().Len() != 1 || string(body.Trailer().At(0).Name) != "Y" {
		t.Errorf("%d fields left", body.Trailer().Len())
	}
}

// TestAllocations is the limit 0 on the whole path of one exchange.
func TestAllocations(t *testing.T) {
	var (
		req      message.Request
		resp     message.Response
		reqHead  RequestHead
		respHead ResponseHead
		body     Body
		dst      []byte
	)
	hard := []byte("POST http://WWW.Example.com:80/a/%7e/../b HTTP/1.1\r\nHost: x\r\nConnection: te, upgrade, x-y\r\nX-Y: 1\r\n" +
		"TE: trailers\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
	easy, bad, answer := []byte(browserHead), []byte("GET /\x00"), []byte(plainResponse)
	chunks := []byte("5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n")
	src := make([]byte, len(chunks))
	exchange := func() {
		for _, in := range [...][]byte{easy, hard} {
			if _, err := ParseRequest(in, &req, &reqHead, nil); err != nil {
				t.Fatal(err)
			}
			hop := Hop{Upgrade: reqHead.Upgrade, TETrailers: reqHead.TETrailers, ExpectContinue: reqHead.ExpectContinue}
			dst = AppendRequestHead(dst[:0], &req, reqHead.Framing, reqHead.ContentLength, hop)
		}
		if _, err := ParseRequest(bad, &req, &reqHead, nil); err == nil {
			t.Fatal("accepted")
		}
		if _, err := ParseResponse(answer, req.Method, &resp, &respHead, nil); err != nil {
			t.Fatal(err)
		}
		dst = AppendResponseHead(dst[:0], &resp, respHead.Framing, respHead.ContentLength, Hop{KeepAlive: true})
		copy(src, chunks)
		body.Init(Chunked, -1, nil)
		data, _, err := body.Decode(src)
		if err != nil || !body.Done() {
			t.Fatal(err)
		}
		dst = AppendChunkHead(dst, len(data))
		dst = AppendLastChunk(dst, body.Trailer())
	}
	if n := testing.AllocsPerRun(100, exchange); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
