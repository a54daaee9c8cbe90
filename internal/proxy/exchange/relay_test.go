package exchange

import (
	"io"
	"net"
	"runtime"
	"testing"
	"weak"

	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"

	"github.com/moongate-dev/moongate/internal/config"
)

// slowClient takes responses, and calls more before it takes the second part of one.
type slowClient struct {
	started chan struct{}
}

func (c *slowClient) Interim(*message.Response) error { return nil }
func (c *slowClient) Start(Head, Part) error          { close(c.started); return nil }
func (c *slowClient) More(Part) error                 { return nil }

// TestWaitHoldsNoBuffer: while more of a response is waited for, nothing holds the buffer that its head was read to, so that
// thousands of responses that stream need no more memory than what comes.
func TestWaitHoldsNoBuffer(t *testing.T) {
	for name, head := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nContent-Length: 3\r\nX-Long: 0123456789\r\n\r\na",
		"chunked": "HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
		"close":   "HTTP/1.0 200 OK\r\n\r\na",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			addr := l.Addr().(*net.TCPAddr)
			const key = "Service/default/b/80"
			set := upstream.NewSet(upstream.Options{})
			defer set.Close()
			if err := set.Apply([]*config.Resource{
				{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}},
				{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: key,
					Endpoints: []*config.Endpoint{{Address: addr.IP.String(), Port: uint32(addr.Port)}}}}},
			}, nil); err != nil {
				t.Fatal(err)
			}
			var seed uint64
			ep := set.Get(key).Pick(&seed, new(upstream.Tried))
			client := &slowClient{started: make(chan struct{})}
			x := New()
			x.Client = &Client{Engine: &Engine{}, Response: client, Watch: &Watch{}}
			x.Method, x.rule = []byte("GET"), &snapshot.Rule{Filters: &snapshot.Filters{}, Traffic: &snapshot.Traffic{}}
			a := &x.attempt
			a.engine, a.watch = x.Client.Engine, x.Client.Watch
			ep.Begin()
			defer ep.End()
			if f := x.connect(ep, a); f.kind != notFailed {
				t.Fatal(f.reason)
			}
			backend, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer backend.Close()
			io.WriteString(backend, head)
			if err := x.readHead(a); err != nil {
				t.Fatal(err)
			}
			buf := weak.Make(a.buf)
			done := make(chan bool)
			go func() { done <- x.relay(a) }()
			<-client.started
			for i := 0; buf.Value() != nil; i++ {
				if i == 1000 {
					t.Error("the buffer of the head is held")
					break
				}
				runtime.GC() // what pools hold goes with the second
				runtime.Gosched()
			}
			backend.Close()
			<-done
			a.end(false)
		})
	}
}
