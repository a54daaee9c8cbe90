package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// FuzzTranslationBackFromHTTP2 lets a backend of HTTP/2 answer with any frames and fields. Clients of
// both protocols must get that response and nothing else, its end only where it has one, or one
// of ours; and the answer to another request stays its own.
func FuzzTranslationBackFromHTTP2(f *testing.F) {
	add := func(status, name1, value1, name2, value2, body, tname, tvalue string, sh shape) {
		f.Add(status, name1, value1, name2, value2, []byte(body), tname, tvalue, uint16(sh), "GET")
	}
	add("200", "content-type", "text/plain", "set-cookie", "a=b", "hello", "", "", rightLength)
	add("200", "set-cookie", "a=b", "set-cookie", "c=d", "hello", "x-sum", "9", withTrailer|manyFrames)
	add("200", "grpc-status", "0", "x-a", "", "", "", "", noBody)
	add("204", "x-a", "1", "x-b", "2", "", "", "", noBody)
	add("304", "etag", "a", "content-length", "5", "", "", "", noBody)
	add("103", "link", "</a>", "x-b", "2", "", "", "", noBody)
	add("101", "connection", "upgrade", "upgrade", "h2c", "hello", "", "", 0)
	add("200", "x-a", "1\r\n\r\nHTTP/1.1 200 OK", "x\r\ny", "2", "hello", "", "", 0)
	add("200", "transfer-encoding", "chunked", "x-b", "2", "0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "", "", 0)
	add("200", "transfer_encoding", "chunked", "content_length", "3", "hello", "content-length", "3", withTrailer)
	add("200", "x-a", "1", "x-b", "2", "hello", "", "", wrongLength)
	add("200", "x-a", "1", "x-b", "2", "hello", "", "", shortLength|slow)
	add("200", "x-a", "1", "x-b", "2", "hello", "", "", cancelled)
	add("20", ":path", "/", "X-B", "2", "hello", ":status", "200", withTrailer|pseudoLast|continued|padded)
	f.Add("200", "x-a", "1", "content-length", "5", []byte{}, "", "", uint16(noBody), "HEAD")

	b := newStenographer()
	g := startGateway(f, Timeouts{})
	g.serveH2C(rawBackend(f, b.handle), nil)
	f.Fuzz(func(t *testing.T, status, name1, value1, name2, value2 string, body []byte, tname, tvalue string, sh uint16, method string) {
		s := &spoken{status: status, fields: [][2]string{{name1, value1}, {name2, value2}}, trailer: [2]string{tname, tvalue}, body: body,
			shape: shape(sh) % lastShape &^ endlessly}
		if s.tooLarge() || status == "" {
			return
		}
		if method != "HEAD" {
			method = "GET"
		}
		asked := 0
		answer := func(w *http2.Framer, stream uint32) {
			if asked++; asked > 1 {
				answerOK(w, stream)
				return
			}
			again := *s
			again.stream = stream
			again.say(w, func() {})
			if s.shape&noBody == 0 && s.shape&cancelled == 0 {
				return
			}
			w.WriteRSTStream(stream, http2.ErrCodeNo) // it may have lacked an end, as an interim response
		}
		b.reset(answer)
		a := askHTTP2(t, g, &spoken{method: method, scheme: "http", authority: "h", path: "/", shape: noBody})
		b.finish(t, g)
		checkBack(t, s, method, &a)

		asked = 0
		b.reset(answer)
		got := speak(t, g, []byte(method+" /1 HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), false)
		b.finish(t, g)
		first, rest := heardByHTTP1(t, got, method)
		checkBack(t, s, method, &first)
		if !first.ended {
			if len(rest) > 0 {
				t.Fatalf("%v: the client gets %q", s, got)
			}
			return
		}
		if second, rest := heardByHTTP1(t, rest, "GET"); !second.ended || second.status != 200 || string(second.body) != "ok" || len(rest) > 0 {
			t.Fatalf("%v: the client gets %q", s, got)
		}
	})
}

// checkBack compares what a client got with what the backend has answered.
func checkBack(t *testing.T, s *spoken, method string, a *answered) {
	t.Helper()
	if a.status == 0 || a.status == 502 && len(a.field("content-type"))+len(a.field("Content-Type")) == 1 &&
		(method == "HEAD" || bytes.HasPrefix(a.body, []byte("moongate: 502 "))) {
		return
	}
	if fmt.Sprint(a.status) != s.status {
		t.Fatalf("%v: the client gets %+v", s, a)
	}
	var want, got []string
	dated := false
	for _, f := range s.fields {
		dated = dated || f[0] == "date"
		if f[0] != "content-length" && !strings.HasPrefix(f[0], "proxy-authenticat") && f[0] != "proxy-authorization" && f[0] != "http2-settings" && f[0] != "te" {
			want = append(want, f[0]+": "+f[1])
		}
	}
	for _, f := range a.fields {
		switch strings.ToLower(f[0]) {
		case "content-length":
			if a.ended && f[1] != fmt.Sprint(len(a.body)) && method != "HEAD" && a.status != 304 {
				t.Fatalf("%v: the client gets %+v", s, a)
			}
			continue
		case "date":
			if !dated {
				continue
			}
		case "transfer-encoding", "connection":
			if f[0] != strings.ToLower(f[0]) {
				continue // ours
			}
		}
		got = append(got, f[0]+": "+f[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%v: the client gets fields %q", s, got)
	}
	body := s.wholeBody()
	if method == "HEAD" {
		body = nil
	}
	if a.ended && !bytes.Equal(a.body, body) || !bytes.HasPrefix(body, a.body) {
		t.Fatalf("%v: the client gets body %q", s, a.body)
	}
	if a.ended && len(body) > 0 && (s.shape&cancelled != 0 && s.length() < 0 || s.shape&wrongLength != 0) {
		t.Fatalf("%v: the client gets the whole of what has no end: %+v", s, a)
	}
	for _, f := range a.trailer {
		if f != s.trailer || !toldBehind(f[0]) || s.shape&withTrailer == 0 {
			t.Fatalf("%v: the client gets trailer %q", s, a.trailer)
		}
	}
}

// heardByHTTP1 is the first response in what a client of HTTP/1 got, as net/http and two lenient
// clients read it, and what is behind it.
func heardByHTTP1(t *testing.T, got []byte, method string) (a answered, rest []byte) {
	t.Helper()
	all := bytes.NewReader(got)
	r := bufio.NewReaderSize(all, 64<<10)
	for len(got) > 0 {
		at := len(got) - all.Len() - r.Buffered()
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if cutOff(err) {
			return a, nil
		}
		if err != nil {
			t.Fatalf("the client gets %q: %v", got, err)
		}
		if resp.StatusCode < 200 {
			a.interim = append(a.interim, resp.StatusCode)
			continue
		}
		a.status = resp.StatusCode
		_, head, _ := lenient{}.line(got[at:])
		a.fields, _, _ = lenient{}.section(head)
		_, head, _ = lenient{crEnds: true}.line(got[at:])
		if again, _, _ := (lenient{crEnds: true}).section(head); fmt.Sprint(again) != fmt.Sprint(a.fields) {
			t.Fatalf("%q is read in two ways", got)
		}
		a.body, err = io.ReadAll(resp.Body)
		if a.ended = err == nil; !a.ended && !cutOff(err) {
			t.Fatalf("the client gets %q: %v", got, err)
		}
		for name, values := range resp.Trailer {
			for _, v := range values {
				a.trailer = append(a.trailer, [2]string{strings.ToLower(name), v})
			}
		}
		return a, got[len(got)-all.Len()-r.Buffered():]
	}
	return a, nil
}
