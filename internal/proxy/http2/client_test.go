//lint:file-ignore SA1019 x/net serves a single connection that is handed to it, which net/http does not.

package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// plainly has tests go both ways by which bytes leave.
func plainly(t *testing.T, f func(t *testing.T, plain bool)) {
	t.Run("direct", func(t *testing.T) { f(t, false) })
	t.Run("plain", func(t *testing.T) { f(t, true) })
}

// backend serves by an independent implementation until the test ends.
func backend(t testing.TB, h http.HandlerFunc, s *xhttp2.Server) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	served.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, nc)
			mu.Unlock()
			served.Go(func() { s.ServeConn(nc, &xhttp2.ServeConnOpts{Handler: h}) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, nc := range conns {
			nc.Close()
		}
		mu.Unlock()
		served.Wait()
	})
	return l.Addr().String()
}

// connect makes a connection to a backend; it has ended, and all of it, when the test has.
func connect(t testing.TB, addr string, o ClientOptions, plain bool) *Client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if !plain {
		if o.Raw, err = nc.(*net.TCPConn).SyscallConn(); err != nil {
			t.Fatal(err)
		}
	}
	return serveClient(t, nc, o)
}

func serveClient(t testing.TB, nc net.Conn, o ClientOptions) *Client {
	t.Helper()
	c := NewClient(nc, o)
	go c.Serve()
	t.Cleanup(func() {
		c.Close()
		select {
		case <-c.Done():
		case <-time.After(patience):
			t.Error("the connection does not end")
		}
		c.c.mu.Lock()
		defer c.c.mu.Unlock()
		if n := len(c.c.streams); n > 0 {
			t.Errorf("%d streams were not closed", n)
		}
	})
	return c
}

// ask is a request without a body.
func ask(method, path string, pairs ...string) *ClientRequest {
	r := &ClientRequest{RequestHead: RequestHead{Request: &message.Request{}, Scheme: "http", Length: -1}, Last: true, Deadline: time.Now().Add(patience)}
	r.Method, r.Host, r.Path = []byte(method), []byte("a.test"), []byte(path)
	r.Header = *fields(pairs...)
	return r
}

// post is a request with a body that is at hand.
func post(body string) *ClientRequest {
	r := ask("POST", "/")
	r.Body, r.Length = []byte(body), int64(len(body))
	return r
}

func open(t testing.TB, c *Client, r *ClientRequest) *ClientStream {
	t.Helper()
	s, err := c.Open(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer is all of a response, as text.
func answer(s *ClientStream) (string, error) {
	var b strings.Builder
	var r message.Response
	for {
		ended, err := s.ReadHead(&r)
		if err != nil {
			return b.String(), err
		}
		fmt.Fprintf(&b, "%d", r.Status)
		for i := range r.Header.Len() {
			if f := r.Header.At(i); string(f.Name) != "date" {
				fmt.Fprintf(&b, " %s=%s", f.Name, f.Value)
			}
		}
		if r.Status < 200 {
			b.WriteString("; ")
			continue
		}
		fmt.Fprintf(&b, " %d", s.ContentLength())
		if ended {
			return b.String(), nil
		}
		break
	}
	body, err := io.ReadAll(s)
	if len(body) > 100 {
		fmt.Fprintf(&b, " %d bytes", len(body))
	} else {
		fmt.Fprintf(&b, " %q", body)
	}
	if err != nil {
		return b.String(), err
	}
	for i := range s.Trailers().Len() {
		fmt.Fprintf(&b, " %s=%s", s.Trailers().At(i).Name, s.Trailers().At(i).Value)
	}
	return b.String(), nil
}

// exchange opens a stream, reads the answer and closes.
func exchange(t testing.TB, c *Client, r *ClientRequest) (string, error) {
	t.Helper()
	s := open(t, c, r)
	defer s.Close()
	return answer(s)
}

// echo says what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-Sum")
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "%s %s %s %d te=%q expect=%q x=%q", r.Method, r.Host, r.RequestURI, r.ContentLength, r.Header.Get("Te"), r.Header.Get("Expect"), r.Header.Get("X-A"))
	if len(body) < 20 {
		fmt.Fprintf(w, " body=%q", body)
	} else {
		fmt.Fprintf(w, " %d bytes", len(body))
	}
	for name, values := range r.Trailer {
		fmt.Fprintf(w, " %s=%q", name, values)
	}
	w.Header().Set("X-Sum", fmt.Sprint(len(body)))
}

func TestClientRequests(t *testing.T) {
	plainly(t, func(t *testing.T, plain bool) {
		c := connect(t, backend(t, echo, &xhttp2.Server{}), ClientOptions{}, plain)
		query := ask("GET", "/p", "X-A", "b", "Connection", "close", "TE", "gzip", "Host", "other", "Content-Length", "9")
		query.Query, query.HasQuery, query.TETrailers = []byte("q=1"), true, true
		empty := ask("GET", "/")
		empty.HasQuery = true
		none := ask("POST", "/")
		none.Length = 0
		large := post(strings.Repeat("x", 1<<20))
		chunked := post("abc")
		chunked.Length = -1
		for _, x := range []struct {
			r    *ClientRequest
			want string
		}{
			{ask("GET", "/"), `GET a.test / 0 te="" expect="" x="" body=""`},
			{query, `GET a.test /p?q=1 0 te="trailers" expect="" x="b" body=""`},
			{empty, `GET a.test /? 0 te="" expect="" x="" body=""`},
			{ask("OPTIONS", "*"), `OPTIONS a.test * 0 te="" expect="" x="" body=""`},
			{none, `POST a.test / 0 te="" expect="" x="" body=""`},
			{post("abc"), `POST a.test / 3 te="" expect="" x="" body="abc"`},
			{chunked, `POST a.test / -1 te="" expect="" x="" body="abc"`},
			{large, `POST a.test / 1048576 te="" expect="" x="" 1048576 bytes`},
		} {
			got, err := exchange(t, c, x.r)
			want := fmt.Sprintf("200 content-type=text/plain trailer=X-Sum %d %q x-sum=%d", len(x.want), x.want, len(x.r.Body))
			if err != nil || got != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
		}
		if got, err := exchange(t, c, ask("HEAD", "/")); err != nil || !strings.HasPrefix(got, "200 ") {
			t.Errorf("HEAD: %s, %v", got, err)
		}
	})
}

// TestClientConversation sends and receives in turns, with interim responses and trailers.
func TestClientConversation(t *testing.T) {
	plainly(t, func(t *testing.T, plain bool) {
		c := connect(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
			buf := make([]byte, 64<<10)
			for interim := true; ; interim = false {
				n, err := r.Body.Read(buf)
				if interim {
					w.Header().Set("Link", "<a>")
					w.WriteHeader(103)
					w.Header().Del("Link")
				}
				w.Write(buf[:n])
				w.(http.Flusher).Flush()
				if err != nil {
					break
				}
			}
			w.Header().Set(http.TrailerPrefix+"X-Got", r.Trailer.Get("X-Given"))
		}, &xhttp2.Server{}), ClientOptions{}, plain)
		r := ask("POST", "/", "Trailer", "X-Given")
		r.Last, r.ExpectContinue = false, true
		s := open(t, c, r)
		defer s.Close()
		var h message.Response
		for _, want := range []int{100, 103, 200} {
			if want == 103 {
				if err := s.Write([]byte("0"), false); err != nil {
					t.Fatal(err)
				}
			}
			if ended, err := s.ReadHead(&h); err != nil || ended || h.Status != want {
				t.Fatalf("status %d, want %d; %v %v", h.Status, want, ended, err)
			}
			if link, _ := h.Header.Get("link"); (want == 103) != (string(link) == "<a>") {
				t.Errorf("link %q with %d", link, want)
			}
		}
		got := make([]byte, 100<<10)
		if n, err := io.ReadFull(s, got[:1]); err != nil || got[0] != '0' {
			t.Fatal(n, err)
		}
		for i := range 20 {
			piece := bytes.Repeat([]byte{byte(i)}, 1+i*5000)
			if err := s.Write(piece, false); err != nil {
				t.Fatal(err)
			}
			if n, err := io.ReadFull(s, got[:len(piece)]); err != nil || !bytes.Equal(piece, got[:n]) {
				t.Fatalf("%d: %d bytes, %v", i, n, err)
			}
		}
		if err := s.WriteTrailers(fields("X-Given", "abc")); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Read(got); n != 0 || err != io.EOF {
			t.Fatal(n, err)
		}
		if v, _ := s.Trailers().Get("x-got"); string(v) != "abc" {
			t.Errorf("trailer %q", v)
		}
		if err := s.Write(nil, true); err == nil {
			t.Error("written behind the end")
		}
	})
}

func TestClientManyStreams(t *testing.T) {
	plainly(t, func(t *testing.T, plain bool) {
		var mu sync.Mutex
		var c *Client
		free := sync.NewCond(&mu)
		c = connect(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Write(body)
		}, &xhttp2.Server{MaxConcurrentStreams: 20}), ClientOptions{Freed: func() {
			mu.Lock()
			free.Broadcast()
			mu.Unlock()
		}}, plain)
		var wg sync.WaitGroup
		var replayed int
		for i := range 50 {
			wg.Go(func() {
				for j := range 20 {
					body := strings.Repeat("x", i*j*97)
					for {
						mu.Lock()
						for c.Available() == 0 {
							free.Wait()
						}
						mu.Unlock()
						s, err := c.Open(post(body))
						if err == ErrUnavailable {
							continue
						}
						r := &message.Response{}
						_, err = s.ReadHead(r)
						if Unprocessed(err) { // before SETTINGS have come
							s.Close()
							mu.Lock()
							replayed++
							mu.Unlock()
							continue
						}
						got, rerr := io.ReadAll(s)
						s.Close()
						if err = errors.Join(err, rerr); err != nil || string(got) != body || r.Status != 200 {
							t.Errorf("%d bytes of %d, status %d, %v", len(got), len(body), r.Status, err)
						}
						break
					}
				}
			})
		}
		wg.Wait()
		if replayed > 100 {
			t.Errorf("%d requests were refused", replayed)
		}
		if n := c.Available(); n != 20 {
			t.Errorf("%d streams can be opened", n)
		}
	})
}
