package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzTranslationBack lets a backend of HTTP/1.1 answer with any bytes and close. A client of HTTP/2
// must get the response that net/http reads there, its end only where it has one, or one of ours.
func FuzzTranslationBack(f *testing.F) {
	for _, c := range conversations {
		f.Add([]byte(c.response), false)
	}
	f.Add([]byte("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\nX-Hop: 1\r\nTrailer: X-Sum\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Sum: 9\r\nX-Hop: 2\r\nContent-Length: 9\r\n\r\n"), false)
	f.Add([]byte("HTTP/1.0 200 OK\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-Empty:\r\n\r\nhello"), false)
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), true)
	f.Add([]byte("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello"), false)
	f.Add([]byte("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), false)
	f.Add([]byte("HTTP/1.1 200 \xe4\r\nA:\t\xe4 b\t\r\nContent-Length: 10\r\n\r\nhello"), false)
	f.Add([]byte("HTTP/1.1 200 OK\r\nKeep-Alive: 1\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nTE: x\r\nContent-Length: 0\r\n\r\n"), false)
	tr := newTranslator(f)
	f.Fuzz(func(t *testing.T, says []byte, isHead bool) {
		if len(says) > 24<<10 {
			return
		}
		s := &spoken{method: "GET", scheme: "http", authority: "h", path: "/", shape: noBody}
		if isHead {
			s.method = "HEAD"
		}
		a, _ := tr.ask(t, s, says, true)
		if a.status == 502 && strings.HasPrefix(fmt.Sprint(a.field("content-type")), "[text/plain") && (isHead || bytes.HasPrefix(a.body, []byte("moongate: 502 "))) {
			return // ours: it may be stricter than net/http
		}
		checkTranslated(t, says, s.method, &a)
	})
}

func (a *answered) field(name string) (values []string) {
	for _, f := range a.fields {
		if f[0] == name {
			values = append(values, f[1])
		}
	}
	return values
}

// checkTranslated compares what a client of HTTP/2 got with what net/http reads of a backend.
func checkTranslated(t *testing.T, says []byte, method string, a *answered) {
	t.Helper()
	r := bufio.NewReaderSize(bytes.NewReader(says), 64<<10) // whole heads can be peeked at
	var interim []int
	for {
		head, want, err := readFinal(r, method)
		if err != nil {
			if a.ended {
				t.Fatalf("%q is no response (%v), and the client got %+v", says, err, a)
			}
			return
		}
		if want.StatusCode < 200 {
			interim = append(interim, want.StatusCode)
			continue
		}
		if a.status == 0 && !a.ended { // it broke off at once
			return
		}
		if a.status != want.StatusCode || !slices.Equal(a.interim, interim) {
			t.Fatalf("%q: the client got %+v", says, a)
		}
		checkTranslatedFields(t, says, head, want, a)
		body, err := io.ReadAll(want.Body)
		if a.ended != (err == nil) && !cutOff(err) || a.ended && !bytes.Equal(a.body, body) || !bytes.HasPrefix(body, a.body) {
			t.Fatalf("%q: body %q, %v; the client got %+v", says, body, err, a)
		}
		if a.ended && errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%q breaks off, and the client got the whole of %+v", says, a)
		}
		for _, f := range a.trailer {
			if !slices.Contains(want.Trailer[http.CanonicalHeaderKey(f[0])], f[1]) || !toldBehind(f[0]) || strings.HasPrefix(cgiName(f[0]), "content-") || strings.HasPrefix(cgiName(f[0]), "transfer-") {
				t.Fatalf("%q: trailer %q; the client got %q", says, want.Trailer, a.trailer)
			}
		}
		return
	}
}

// readFinal reads a head and what net/http makes of it. The body stays.
func readFinal(r *bufio.Reader, method string) (head []byte, resp *http.Response, err error) {
	all, _ := r.Peek(r.Buffered())
	if len(all) == 0 {
		r.Peek(1)
		all, _ = r.Peek(r.Buffered())
	}
	head = bytes.Clone(all)
	resp, err = http.ReadResponse(r, &http.Request{Method: method})
	return head, resp, err
}

// checkTranslatedFields compares the head as it was sent with what the client got.
func checkTranslatedFields(t *testing.T, says, head []byte, r *http.Response, a *answered) {
	t.Helper()
	_, rest, _ := lenient{}.line(head)
	sent, _, _ := lenient{}.section(rest)
	dropped := map[string]bool{"connection": true, "keep-alive": true, "proxy-connection": true, "transfer-encoding": true, "upgrade": true,
		"te": true, "http2-settings": true, "proxy-authenticate": true, "proxy-authorization": true, "proxy-authentication-info": true, "content-length": true}
	for _, option := range strings.Split(strings.Join(r.Header["Connection"], ","), ",") {
		dropped[strings.ToLower(strings.Trim(option, " \t"))] = true
	}
	var want, got []string
	dated := false
	for _, f := range sent {
		name := strings.ToLower(f[0])
		dated = dated || name == "date"
		if !dropped[name] {
			want = append(want, name+": "+strings.Trim(f[1], " \t"))
		}
	}
	for _, f := range a.fields {
		switch {
		case f[0] == "date" && !dated:
		case f[0] == "content-length":
			if f[1] != strings.TrimLeft(r.Header.Get("Content-Length"), "0") && fmt.Sprint(r.ContentLength) != f[1] {
				t.Fatalf("%q: the client got %+v", says, a)
			}
		default:
			got = append(got, f[0]+": "+f[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%q: fields %q; the client got %q", says, want, got)
	}
}
