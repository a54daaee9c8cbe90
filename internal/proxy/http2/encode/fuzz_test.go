package encode

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// decode reads frames by an independent implementation.
func decode(t *testing.T, b []byte, wantEnd bool) []hpack.HeaderField {
	t.Helper()
	framer := xhttp2.NewFramer(nil, bytes.NewReader(b))
	var block []byte
	for first, ended := true, false; !ended; first = false {
		f, err := framer.ReadFrame()
		if err != nil || f.Header().StreamID != 7 {
			t.Fatalf("frame %v, %v", f, err)
		}
		switch f := f.(type) {
		case *xhttp2.HeadersFrame:
			if !first || f.StreamEnded() != wantEnd {
				t.Fatalf("frame %v", f)
			}
			block, ended = append(block, f.HeaderBlockFragment()...), f.HeadersEnded()
		case *xhttp2.ContinuationFrame:
			block, ended = append(block, f.HeaderBlockFragment()...), f.HeadersEnded()
		}
	}
	if _, err := framer.ReadFrame(); err == nil {
		t.Fatal("frames behind the section")
	}
	fields, err := hpack.NewDecoder(4096, nil).DecodeFull(block)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// judge has the strict reader of our own look at the fields.
func judge(x *head.Section, h *head.Head, fields []hpack.HeaderField) {
	for _, f := range fields {
		x.Add(f.Name, f.Value, h, 1<<30, 1<<30)
	}
}

// lines are field lines as text, names in lower case; Cookie lines are one.
func lines(f *message.Fields) string {
	var b strings.Builder
	var cookies []string
	for i := range f.Len() {
		name := string(message.AppendLower(nil, f.At(i).Name))
		if name == "cookie" {
			cookies = append(cookies, string(f.At(i).Value))
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", name, f.At(i).Value)
	}
	return b.String() + "cookie: " + strings.Join(cookies, "; ")
}

// FuzzRequest: what the parser of HTTP/1.1 has accepted is a request of HTTP/2 with the same meaning, by an
// independent decoder and by our own strict checks. So a backend understands what was routed.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET /a/b?c=d HTTP/1.1\r\nHost: a.test\r\nCookie: a\r\nUser-Agent: x\r\nCookie: b\r\nAccept: */*\r\n\r\n"), true, int64(-1))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a.test:80\r\nConnection: x-a\r\nX-A: b\r\nTE: trailers\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"), false, int64(5))
	f.Add([]byte("OPTIONS * HTTP/1.1\r\nHost: [::1]\r\n"+"X-Long: "+strings.Repeat("v", 20_000)+"\r\n\r\n"), true, int64(0))
	f.Add([]byte("PROPFIND https://a.test/%2e%2E/ä? HTTP/1.0\r\nA: \xff\t\r\n\r\n"), true, int64(-1))
	f.Fuzz(func(t *testing.T, in []byte, end bool, length int64) {
		var m message.Request
		var h http1.RequestHead
		if _, err := http1.ParseRequest(in, &m, &h, nil); err != nil || h.Form == http1.Authority || len(m.Host) == 0 {
			return
		}
		if length < 0 || end {
			length = -1
		}
		r := &Request{Request: &m, Scheme: "http", Length: length, TETrailers: h.TETrailers, ExpectContinue: h.ExpectContinue}
		fields := decode(t, AppendRequest(nil, 7, r, end, true), end)
		size := int64(0)
		for _, f := range fields {
			size += int64(f.Size())
			if !f.Sensitive && f.Name[0] != ':' {
				t.Errorf("%v may enter the table of somebody on the way", f)
			}
		}
		if got := ListSize(r); got != size {
			t.Errorf("%q has size %d, want %d", in, got, size)
		}
		if most := int64(len(AppendRequest(nil, 7, r, end, true))) + MostOverhead(r); most < size {
			t.Errorf("%q has size %d, and at most %d by what is sent", in, size, most)
		}
		var x head.Section
		var got head.Head
		x.Reset(head.RequestHeader)
		judge(&x, &got, fields)
		if err := x.Settle(&got, end, false); err != nil {
			t.Fatalf("%q became %v: %v", in, fields, err)
		}
		path := string(m.Path)
		if m.HasQuery {
			path += "?" + string(m.Query)
		}
		wantLength := length
		if end {
			wantLength = 0
		}
		if string(got.Method) != string(m.Method) || string(got.Authority) != string(m.Host) || string(got.Path) != path ||
			string(got.Scheme) != "http" || lines(&got.Fields) != lines(&m.Header) || got.ContentLength != wantLength ||
			got.TETrailers != h.TETrailers || got.ExpectContinue != (h.ExpectContinue && !end) {
			t.Errorf("%q became %v", in, fields)
		}
	})
}

// FuzzResponse is FuzzRequest for responses.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: a\r\nset-cookie: b\r\nConnection: close, x\r\nX: y\r\n\r\n"), false)
	f.Add([]byte("HTTP/1.1 304 \r\nETag: \"a\"\r\nTE: trailers\r\nTrailer: a\r\nContent-Length: 7\r\n\r\n"), true)
	f.Add([]byte("HTTP/1.0 999 \xff\r\nA:\r\n\r\n"), true)
	f.Fuzz(func(t *testing.T, in []byte, end bool) {
		var m message.Response
		var h http1.ResponseHead
		if _, err := http1.ParseResponse(in, []byte("GET"), &m, &h, nil); err != nil || m.Status == 101 {
			return
		}
		end = end && m.Status >= 200
		fields := decode(t, AppendSection(nil, 7, m.Status, &m.Header, -1, end, true), end)
		var x head.Section
		x.Reset(head.ResponseHeader)
		judge(&x, nil, fields)
		if _, _, err := x.SettleResponse(end, false); err != nil || x.Status() != m.Status || lines(&x.Fields) != lines(&m.Header) {
			t.Errorf("%q became %v: %v", in, fields, err)
		}
	})
}
