package http2

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

func TestServeRequests(t *testing.T) {
	s := serve(t, Options{}, func(s *Stream) {
		got, err := io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
		about := fmt.Sprintf("%s %s %s %s %d", s.Head.Method, s.Head.Scheme, s.Head.Authority, s.Head.Path, len(got))
		s.WriteHead(201, fields("X-About", about, "Set-Cookie", "a=b", "Connection", "close"), -1, false)
		for p := got; len(p) > 0; {
			n := min(len(p), 10000)
			if err := s.Write(p[:n], false); err != nil {
				t.Error(err)
				return
			}
			p = p[n:]
		}
		if err := s.WriteTrailers(fields("X-Sum", fmt.Sprint(len(got)))); err != nil {
			t.Error(err)
		}
	})
	client := s.client(t)
	var all sync.WaitGroup
	for i, size := range []int{0, 1, 100, 16384, 70000, 1 << 20, 5 << 20} {
		all.Go(func() {
			body := bytes.Repeat([]byte{byte('a' + i)}, size)
			req, _ := http.NewRequest("POST", "http://a.test/p?q", bytes.NewReader(body))
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes of %d: %v", len(got), size, err)
			}
			if want := fmt.Sprintf("POST http a.test /p?q %d", size); resp.Header.Get("X-About") != want || resp.StatusCode != 201 {
				t.Errorf("%d %q, want %q", resp.StatusCode, resp.Header.Get("X-About"), want)
			}
			if resp.Trailer.Get("X-Sum") != fmt.Sprint(size) {
				t.Errorf("trailers %v", resp.Trailer)
			}
		})
	}
	all.Wait()
}

func TestHeadAsHandedOver(t *testing.T) {
	heads := make(chan string, 1)
	s := serve(t, Options{}, func(s *Stream) {
		var b strings.Builder
		for i := range s.Head.Fields.Len() {
			b.Write(s.Head.Fields.At(i).Line)
		}
		fmt.Fprintf(&b, "%d %v %v %v", s.Head.ContentLength, s.Head.HasBody, s.Head.ExpectContinue, s.Head.TETrailers)
		heads <- b.String()
		s.WriteHead(204, nil, -1, true)
	})
	r := s.raw(t)
	r.headers(1, false, get("/", "cookie", "a=1", "x-a", "v", "te", "trailers", "host", "A.test", "cookie", "b=2", "x-empty", "",
		"content-length", "3", "expect", "100-continue", "proxy-authorization", "x", "priority", "u=1, i")...)
	want := "x-a: v\r\nx-empty: \r\npriority: u=1, i\r\ncookie: a=1; b=2\r\n3 true true true"
	if got := <-heads; got != want {
		t.Errorf("handed over\n%q, want\n%q", got, want)
	}
	r.reset(1)
}
