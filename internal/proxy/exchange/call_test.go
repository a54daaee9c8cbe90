package exchange

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// endpointOf is the endpoint of a backend that listens there.
func endpointOf(t *testing.T, addr net.Addr) *upstream.Endpoint {
	t.Helper()
	a := addr.(*net.TCPAddr)
	set := upstream.NewSet(upstream.Options{})
	t.Cleanup(set.Close)
	if err := set.Apply([]*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b"}}},
		{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: "b", Endpoints: []*config.Endpoint{{Address: a.IP.String(), Port: uint32(a.Port)}}}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	return set.Get("b").Endpoints()[0]
}

func listenOn(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func requestOf(method string, framing http1.Framing, length int64) *Request {
	return &Request{Request: message.Request{Method: []byte(method), Host: []byte("h"), Path: []byte("/p")}, Framing: framing, Length: length}
}

// TestCall has calls with and without a body answered on one connection, behind interim responses.
func TestCall(t *testing.T) {
	l := listenOn(t)
	var accepted atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			r := bufio.NewReader(c)
			for {
				req, err := http.ReadRequest(r)
				if err != nil {
					break
				}
				body, _ := io.ReadAll(req.Body)
				io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nX-Method: "+req.Method+"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
				io.WriteString(c, "0\r\nX-Body: "+string(body)+"\r\n\r\n")
			}
			c.Close()
		}
	}()
	ep := endpointOf(t, l.Addr())
	e := &Engine{}
	for _, c := range []struct {
		method string
		body   []string
	}{{"GET", nil}, {"POST", []string{"whole"}}, {"PUT", []string{"in ", "two"}}} {
		r := requestOf(c.method, http1.NoBody, -1)
		first, last := []byte(nil), true
		switch len(c.body) {
		case 1:
			r.Framing, r.Length, first = http1.Length, int64(len(c.body[0])), []byte(c.body[0])
		case 2:
			r.Framing, last = http1.Chunked, false
		}
		ep.Begin()
		call, err := e.call(context.Background(), ep, upstream.For{}, time.Now().Add(10*time.Second), r, first, last)
		if err != nil {
			t.Fatal(err)
		}
		if !last {
			for i, part := range c.body {
				if err := call.write([]byte(part), i == len(c.body)-1, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		var resp message.Response
		if err := call.readHead(r.Method, &resp); err != nil {
			t.Fatalf("%s: %v", c.method, err)
		}
		if m, _ := resp.Header.Get("x-method"); resp.Status != 200 || string(m) != c.method {
			t.Errorf("%s: %d %s", c.method, resp.Status, m)
		}
		if err := call.discard(); err != nil {
			t.Fatalf("%s: %v", c.method, err)
		}
		call.end(true)
		call.end(true) // does nothing
		ep.End()
	}
	if n := accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestCallWithoutTime: a call that has no time left is no failure of an endpoint, which is not asked.
func TestCallWithoutTime(t *testing.T) {
	l := listenOn(t)
	ep := endpointOf(t, l.Addr())
	var seed uint64
	c := &filter.Call{Request: requestOf("GET", http1.NoBody, -1).Request, Backend: ep.Backend()}
	if err := (&Engine{}).carryOut(t.Context(), nil, &seed, time.Now().Add(-time.Second), c); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
	if n := ep.Stats(); n.Dialled != 0 || n.Failures != 0 {
		t.Errorf("the endpoint was asked: %+v", n)
	}
}

// TestCallEnds: a call ends by its deadline, and with its context, while nothing comes.
func TestCallEnds(t *testing.T) {
	l := listenOn(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	ep := endpointOf(t, l.Addr())
	e := &Engine{}
	for name, c := range map[string]struct{ patience, deadline time.Duration }{"deadline": {time.Minute, 50 * time.Millisecond}, "context": {50 * time.Millisecond, time.Minute}} {
		ctx, cancel := context.WithTimeout(context.Background(), c.patience)
		ep.Begin()
		call, err := e.call(ctx, ep, upstream.For{}, time.Now().Add(c.deadline), requestOf("GET", http1.NoBody, -1), nil, true)
		if err != nil {
			t.Fatal(err)
		}
		var resp message.Response
		if err := call.readHead([]byte("GET"), &resp); !isTimeout(err) {
			t.Errorf("%s: %v", name, err)
		}
		call.end(false)
		ep.End()
		cancel()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.call(ended, ep, upstream.For{}, time.Now().Add(time.Minute), requestOf("GET", http1.NoBody, -1), nil, true); err == nil {
		t.Error("a context that has ended begins a call")
	}
}
