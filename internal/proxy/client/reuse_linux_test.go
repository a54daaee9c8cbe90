package client

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// askOnce sends a request on a new connection that ends with it.
func askOnce(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// TestReusedConnIsZero: the Conn of the next connection has nothing of the previous one.
func TestReusedConnIsZero(t *testing.T) {
	_, addr := served(t)
	testkit.Eventually(t, "a Conn to be used again", func() bool {
		if err := askOnce(addr); err != nil {
			t.Fatal(err)
		}
		c, ok := conns.Get().(*Conn)
		if !ok { // a pool may drop what it gets
			return false
		}
		if c.methods.start == nil || c.methods.step == nil {
			t.Error("a Conn without methods")
		}
		c.methods = methods{}
		v := reflect.ValueOf(c).Elem()
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				t.Errorf("%s is not zero", v.Type().Field(i).Name)
			}
		}
		return true
	})
}

// TestKnownConnIsNotReused: a Conn to which anything may still refer is left to the collector.
func TestKnownConnIsNotReused(t *testing.T) {
	for name, tc := range map[string]struct {
		life     func(t *testing.T, set *Set, c net.Conn, server *Conn)
		reusable bool
	}{
		"requests": {func(t *testing.T, _ *Set, c net.Conn, _ *Conn) {
			ask(t, c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			ask(t, c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
		}, true},
		"a streamed body": {func(t *testing.T, _ *Set, c net.Conn, _ *Conn) {
			ask(t, c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
		}, false},
		"was parked": {func(t *testing.T, set *Set, c net.Conn, server *Conn) {
			server.holding.Store(true)
			testkit.Eventually(t, "the connection to be parked", func() bool {
				set.Sweep(set.engine.Now() + 2*parkAfter.Milliseconds())
				kind, _, _ := server.wait.get()
				return kind == waitParked
			})
			ask(t, c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		}, false},
		"HTTP/2": {func(t *testing.T, _ *Set, c net.Conn, server *Conn) {
			io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			testkit.Eventually(t, "HTTP/2", func() bool { return server.http2.Load() != nil })
		}, false},
		"was cut": {func(_ *testing.T, _ *Set, _ net.Conn, server *Conn) { server.cut(observe.ReasonOverloaded) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			set, addr := served(t)
			c, server := idleClient(t, set, addr) // which lends it to the test, so that it is not reused in fact
			tc.life(t, set, c, server)
			c.Close()
			testkit.Eventually(t, "the end of the connection", func() bool {
				left := 0
				set.Each(func(*Conn) { left++ })
				return left == 0
			})
			set.lent.Store(0)
			if got := server.isReusable(); got != tc.reusable {
				t.Errorf("reusable: %v", got)
			}
		})
	}
}

// ask sends a request and reads the response.
func ask(t *testing.T, c net.Conn, request string) {
	t.Helper()
	io.WriteString(c, request)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
}

// TestConnsAreLent: no Conn is reused while a function that refers to some outside of their shards runs.
func TestConnsAreLent(t *testing.T) {
	set, _ := served(t)
	for name, f := range map[string]func(){
		"Sweep":             func() { set.Sweep(set.engine.Now()) },
		"CutLargest":        func() { set.CutLargest(1) },
		"EndStuckTunnels":   func() { set.EndStuckTunnels(1) },
		"EndStuckResponses": func() { set.EndStuckResponses(1) },
		"EndUnusedTunnels":  func() { set.EndUnusedTunnels() },
	} {
		done := make(chan struct{})
		func() {
			last := &set.shards[shards-1] // at which f has to wait
			last.mu.Lock()
			defer last.mu.Unlock()
			go func() {
				defer close(done)
				f()
			}()
			testkit.Eventually(t, name+" to borrow the connections", func() bool { return set.lent.Load() == 1 })
		}()
		<-done
		if set.lent.Load() != 0 {
			t.Errorf("%s keeps the connections", name)
		}
	}
}

// TestReuseWhileCutting: a connection that is ended from outside just when it ends by itself takes no other with it, although the next
// one begins at the same moment.
func TestReuseWhileCutting(t *testing.T) {
	set, addr := served(t)
	const clients, each = 8, 300
	var cuts, failed, running atomic.Int64
	var all sync.WaitGroup
	running.Store(clients)
	for range clients {
		all.Go(func() {
			defer running.Add(-1)
			for range each {
				if askOnce(addr) != nil {
					failed.Add(1)
				}
			}
		})
	}
	for running.Load() > 0 {
		done := set.lend()
		var last *Conn
		set.Each(func(c *Conn) { last = c })
		set.Sweep(set.engine.Now())
		if last != nil {
			last.cut(observe.ReasonOverloaded) // it may have ended since
			cuts.Add(1)
		}
		done()
		time.Sleep(200 * time.Microsecond)
	}
	all.Wait()
	if cuts.Load() == 0 || failed.Load() > cuts.Load() {
		t.Errorf("%d of %d requests failed, %d connections were cut", failed.Load(), clients*each, cuts.Load())
	}
	t.Logf("%d of %d requests failed, %d connections were cut", failed.Load(), clients*each, cuts.Load())
}
