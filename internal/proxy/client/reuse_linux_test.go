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
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
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
	set, addr := served(t)
	for name, tc := range map[string]struct {
		life     func(*Conn)
		reusable bool
	}{
		"requests":                     {func(c *Conn) { c.served = true }, true},
		"TLS":                          {func(c *Conn) { c.nc = &wire{Conn: c.tcp, c: c} }, false},
		"HTTP/2":                       {func(c *Conn) { c.http2.Store(new(http2.Conn)) }, false},
		"a streamed body or a tunnel":  {func(c *Conn) { c.ranApart = true }, false},
		"was parked":                   {func(c *Conn) { c.watched = true }, false},
		"its hang-up was watched for":  {func(c *Conn) { c.hangUpWatched.Store(true) }, false},
		"was cut":                      {func(c *Conn) { c.cut(observe.ReasonOverloaded) }, false},
		"was found by what lends them": {func(*Conn) { set.lend() }, false},
	} {
		own, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c := newConn(set, nil, of(t, own), snapshot.HTTP, &set.timeouts)
		tc.life(c)
		c.tcp.Close()
		if got := c.isReusable(); got != tc.reusable {
			t.Errorf("%s: %v", name, got)
		}
		set.lent.Store(0)
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
