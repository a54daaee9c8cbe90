package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/client"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// fuzzPause is after which silence a participant of FuzzConversation has said all.
const fuzzPause = 10 * time.Millisecond

// script is a backend that says the same bytes on each connection and remembers what it was told.
type script struct {
	mu    sync.Mutex
	says  []byte
	heard []*bytes.Buffer
}

func (s *script) handle(c net.Conn, _ *bufio.Reader) {
	heard := &bytes.Buffer{}
	s.mu.Lock()
	s.heard = append(s.heard, heard)
	says := s.says
	s.mu.Unlock()
	buf := make([]byte, 64<<10)
	said := false
	for {
		c.SetReadDeadline(time.Now().Add(fuzzPause))
		n, err := c.Read(buf)
		s.mu.Lock()
		heard.Write(buf[:n])
		whole := bytes.Contains(heard.Bytes(), []byte("\r\n\r\n"))
		s.mu.Unlock()
		if whole && !said {
			said = true
			c.Write(says)
		}
		if err != nil && (said || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return
		}
	}
}

// logged is what the access log says of a request.
type logged struct {
	Method   string `json:"method"`
	Code     int    `json:"response_code"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	Upstream string `json:"upstream_host"`
}

// FuzzConversation lets a client and a backend say anything. What the backend hears must be, for
// net/http, exactly the requests that the gateway says it has forwarded, and what the client
// hears the responses to what it asked.
func FuzzConversation(f *testing.F) {
	for _, tc := range conversations {
		f.Add([]byte(tc.request), []byte(tc.response))
	}
	f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n0\r\n\r\nGGET / HTTP/1.1\r\nHost: h\r\n\r\n"), []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx"))
	f.Add([]byte("HEAD / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f.Add([]byte("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok"), []byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Add([]byte("\r\nGET /../ HTTP/1.1\r\nHost: h\r\n\r\n"), []byte("HTTP/1.0 200 OK\r\n\r\n"))

	s := &script{}
	g := startGateway(f, Timeouts{Linger: 5 * time.Millisecond, Head: time.Millisecond, BodyIdle: time.Millisecond})
	addr := rawBackend(f, s.handle)
	g.apply(append(backend("Service/default/b/80", addr), g.httpListener("http", ""),
		routeOf("r", "default/gw/http", "", &config.Rule{
			Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
			BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
		})))
	f.Fuzz(func(t *testing.T, client, backend []byte) {
		if len(client) > 32<<10 || len(backend) > 32<<10 {
			return
		}
		s.mu.Lock()
		s.says, s.heard = backend, nil
		s.mu.Unlock()
		log := &testkit.Log{}
		al, err := observe.OpenAccessLog("json", log, accesslog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g.fence()
		g.engine.Observer.Log = al
		g.fence()
		got := converse(t, g, client)
		al.Close(time.Second)
		requests := parseLog(t, log.String())
		checkHeard(t, s, requests)
		checkGot(t, got, requests)
	})
}

// fence takes the lock that a connection takes when it begins and ends: raw reads tell the race
// detector nothing.
func (g *gateway) fence() { g.clients.Each(func(*client.Conn) {}) }

// converse says the client's bytes and returns what the gateway answers, when it has done with them.
func converse(t *testing.T, g *gateway, client []byte) (got []byte) {
	c, err := net.Dial("tcp", g.addr())
	if err != nil {
		t.Fatal(err)
	}
	go c.Write(client)
	buf := make([]byte, 64<<10)
	for idle := 0; idle < 3; {
		c.SetReadDeadline(time.Now().Add(fuzzPause))
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			idle++
		} else if err != nil {
			break
		}
	}
	c.Close()
	select {
	case <-g.clients.Empty():
	case <-time.After(5 * time.Second):
		t.Fatal("the connection does not end")
	}
	return got
}

func parseLog(t *testing.T, text string) (requests []logged) {
	for line := range strings.Lines(text) {
		var r logged
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		requests = append(requests, r)
	}
	return requests
}

// checkHeard reads with net/http what each connection to the backend carried.
func checkHeard(t *testing.T, s *script, requests []logged) {
	forwarded := map[string]int{}
	for _, r := range requests {
		forwarded[r.Method] += r.Attempts
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, heard := range s.heard {
		r := bufio.NewReader(bytes.NewReader(heard.Bytes()))
		for {
			if _, err := r.Peek(1); err != nil {
				break
			}
			req, err := http.ReadRequest(r)
			if cutOff(err) {
				break
			}
			if err != nil {
				t.Fatalf("the backend heard %q: %v", heard, err)
			}
			if forwarded[req.Method]--; forwarded[req.Method] < 0 {
				t.Fatalf("the backend heard %q, of which %s is not what was logged: %+v", heard, req.Method, requests)
			}
			if _, err = io.Copy(io.Discard, req.Body); cutOff(err) {
				break
			} else if err != nil {
				t.Fatalf("the backend heard %q: body: %v", heard, err)
			}
		}
	}
}

// cutOff tells an end in the middle from what is malformed. That net/http forbids some names in
// Trailer is no question of framing.
func cutOff(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "bad trailer key")
}

// checkGot reads with net/http what the client was sent.
func checkGot(t *testing.T, got []byte, requests []logged) {
	r := bufio.NewReader(bytes.NewReader(got))
	for _, request := range requests {
		if request.Code == 0 {
			break
		}
		method := request.Method
		if method != "HEAD" {
			method = "GET"
		}
		for {
			resp, err := http.ReadResponse(r, &http.Request{Method: method})
			if cutOff(err) {
				return
			}
			if err != nil {
				t.Fatalf("the client heard %q: %v", got, err)
			}
			if resp.StatusCode < 200 {
				continue
			}
			if resp.StatusCode != request.Code {
				t.Fatalf("the client heard %q, logged was %+v", got, requests)
			}
			if _, err = io.Copy(io.Discard, resp.Body); cutOff(err) {
				return
			} else if err != nil {
				t.Fatalf("the client heard %q: body: %v", got, err)
			}
			break
		}
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 && !bytes.HasPrefix(rest, []byte("HTTP/1.1 1")) {
		t.Fatalf("the client heard %q behind all responses in %q", rest, got)
	}
}
