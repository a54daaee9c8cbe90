package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dice makes one participant's random choices.
type dice struct{ *rand.Rand }

// oneIn is true once in n times.
func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

// send writes b in random pieces.
func (d dice) send(w io.Writer, b []byte) error {
	for len(b) > 0 {
		n := len(b)
		if d.oneIn(3) {
			n = 1 + d.IntN(min(len(b), 1+d.IntN(4000)))
		}
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		if b = b[n:]; len(b) > 0 && d.oneIn(8) {
			time.Sleep(time.Duration(d.IntN(300)) * time.Microsecond)
		}
	}
	return nil
}

// chunked is body in the chunked coding, in random chunks.
func (d dice) chunked(body []byte) []byte {
	var b bytes.Buffer
	for len(body) > 0 {
		n := 1 + d.IntN(len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	b.WriteString("0\r\n\r\n")
	return b.Bytes()
}

// bodyOf is the body that belongs to an identity: requests and responses can be checked by it.
func (d dice) bodyOf(id string) []byte {
	n := d.IntN(40)
	if d.oneIn(6) {
		n = d.IntN(6000)
	}
	return bytes.Repeat([]byte("<"+id+">"), n)
}

func isBodyOf(id string, b []byte) bool {
	piece := "<" + id + ">"
	return len(b)%len(piece) == 0 && strings.Count(string(b), piece)*len(piece) == len(b)
}

// stressed is a run of the stress test.
type stressed struct {
	t                           *testing.T
	answered, refused, received atomic.Int64
}

// backend answers requests in all the ways that are allowed, and some that are not.
func (s *stressed) backend(d dice, c net.Conn, r *bufio.Reader) {
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		id := req.Header.Get("X-Id")
		if id == "" || req.URL.Path != "/"+id {
			s.t.Errorf("a request of two: path %s, id %q", req.URL.Path, id)
		}
		if d.oneIn(40) {
			return // before the response
		}
		early := d.oneIn(10)
		if !early {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			if !isBodyOf(id, body) {
				s.t.Errorf("request %s has the body %.80q", id, body)
			}
			s.received.Add(1)
		}
		if req.Header.Get("Expect") != "" || d.oneIn(8) {
			io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nX-Id: "+id+"\r\n\r\n")
		}
		response, last := d.response(id, req.Method)
		untilClose := !bytes.Contains(response, []byte("Content-Length")) && !bytes.Contains(response, []byte("chunked"))
		if !untilClose && d.oneIn(40) {
			response, last = response[:d.IntN(len(response))], true // breaks off
		}
		// Bytes that nobody asked for, in one segment with the response: were they later, they could
		// be the answer to the next request for all that anyone can tell.
		if !last && len(response) < 1000 && d.oneIn(30) {
			c.Write(append(response, "HTTP/1.1 200 OK\r\nX-Id: stray\r\nContent-Length: 5\r\n\r\nstray"...))
			return
		}
		if d.send(c, response) != nil {
			return
		}
		if early {
			if body, err := io.ReadAll(req.Body); err != nil {
				return
			} else if !isBodyOf(id, body) {
				s.t.Errorf("request %s has the body %.80q", id, body)
			}
		}
		if last || d.oneIn(30) {
			return // without a word before
		}
	}
}

// response is a whole response; last tells that only the end of the connection ends it.
func (d dice) response(id, method string) (b []byte, last bool) {
	body := d.bodyOf(id)
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Id: %s\r\n", id)
	if d.oneIn(10) {
		head, body = fmt.Sprintf("HTTP/1.1 %d X\r\nX-Id: %s\r\n", []int{204, 304}[d.IntN(2)], id), nil
		return []byte(head + "\r\n"), false
	}
	if method == "HEAD" {
		return []byte(head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))), false
	}
	switch d.IntN(5) {
	case 0, 1:
		return append([]byte(head+"Transfer-Encoding: chunked\r\n\r\n"), d.chunked(body)...), false
	case 2:
		return append([]byte(head+"\r\n"), body...), true
	default:
		if d.oneIn(5) {
			head, last = head+"Connection: close\r\n", true
		}
		return append([]byte(fmt.Sprintf("%sContent-Length: %d\r\n\r\n", head, len(body))), body...), last
	}
}

// request is a whole request.
func (d dice) request(id string) (method string, b []byte) {
	method = []string{"GET", "HEAD", "POST", "PUT"}[d.IntN(4)]
	head := fmt.Sprintf("%s /%s HTTP/1.1\r\nHost: h\r\nX-Id: %s\r\n", method, id, id)
	if method == "GET" || method == "HEAD" {
		return method, []byte(head + "\r\n")
	}
	body := d.bodyOf(id)
	if d.oneIn(2) {
		return method, append([]byte(head+"Transfer-Encoding: chunked\r\n\r\n"), d.chunked(body)...)
	}
	return method, append([]byte(fmt.Sprintf("%sContent-Length: %d\r\n\r\n", head, len(body))), body...)
}

// connection sends some requests at once and checks that each gets its own response.
func (s *stressed) connection(d dice, c net.Conn, name string) {
	defer c.Close()
	var methods, ids []string
	var all []byte
	for i := range 1 + d.IntN(6) {
		ids = append(ids, fmt.Sprint(name, "r", i))
		method, b := d.request(ids[i])
		methods, all = append(methods, method), append(all, b...)
	}
	leaves := d.oneIn(15)
	if leaves {
		all = all[:d.IntN(len(all))]
	}
	sent := make(chan struct{})
	sender := dice{rand.New(rand.NewPCG(d.Uint64(), 0))}
	go func() {
		defer close(sent)
		sender.send(c, all)
	}()
	defer func() { c.Close(); <-sent }()
	if leaves {
		time.Sleep(time.Duration(d.IntN(3)) * time.Millisecond)
		return
	}
	r := bufio.NewReader(c)
	for i := range ids {
		if !s.checkResponse(c, r, methods[i], ids[i]) {
			return
		}
	}
}

// checkResponse reads a response; false where it was the last.
func (s *stressed) checkResponse(c net.Conn, r *bufio.Reader, method, id string) bool {
	for {
		c.SetReadDeadline(time.Now().Add(time.Second))
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return false
		}
		from := resp.Header.Get("X-Id")
		if resp.StatusCode >= 100 && resp.StatusCode < 200 {
			if from != id {
				s.t.Errorf("request %s got an interim response to %q", id, from)
			}
			continue
		}
		body, err := io.ReadAll(resp.Body)
		switch {
		case from == "" && resp.StatusCode >= 400 && (method == "HEAD" || strings.HasPrefix(string(body), "moongate: ")):
			s.refused.Add(1)
		case from != id:
			s.t.Errorf("request %s got the response to %q: %d %.80q", id, from, resp.StatusCode, body)
			return false
		case err != nil:
			return false // broken off, and seen to be
		case !isBodyOf(id, body):
			s.t.Errorf("request %s got the body %.80q", id, body)
		default:
			s.answered.Add(1)
		}
		return !resp.Close
	}
}

// TestNoDesync lets clients and backends do whatever they like with bytes and connections: no
// request and no response ever gets another's parts.
func TestNoDesync(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &stressed{t: t}
	var participants atomic.Uint64
	newDice := func() dice { return dice{rand.New(rand.NewPCG(seed, participants.Add(1)))} }
	serve := func(c net.Conn, r *bufio.Reader) { s.backend(newDice(), c, r) }
	g := startGateway(t, Timeouts{Linger: 50 * time.Millisecond})
	first, second := rawBackend(t, serve), rawBackend(t, serve)
	g.serve(first, nil)
	g.apply(backend("Service/default/b/80", first, second)[1:])
	end := time.Now().Add(3 * time.Second)
	if testing.Short() {
		end = time.Now().Add(500 * time.Millisecond)
	}
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			d := newDice()
			for i := 0; time.Now().Before(end) && !t.Failed(); i++ {
				c, err := net.Dial("tcp", g.addr())
				if err != nil {
					t.Error(err)
					return
				}
				s.connection(d, c, fmt.Sprint("k", k, "c", i))
			}
		})
	}
	wg.Wait()
	t.Logf("%d requests answered, %d refused, %d received whole", s.answered.Load(), s.refused.Load(), s.received.Load())
	if s.answered.Load() < 100 {
		t.Errorf("only %d requests were answered", s.answered.Load())
	}
}
