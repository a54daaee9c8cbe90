//go:build linux

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// http2Asker is a client that uses one connection of HTTP/2 at a time.
type http2Asker struct {
	t    *testing.T
	http *http.Client
	tcp  *net.TCPConn // which its last request has used

	mu    sync.Mutex
	all   []*net.TCPConn // more than one also if http.Transport has dialed before it found that it can use an earlier connection
	ended bool
}

func http2AskerOf(t *testing.T, addr string, secure bool) *http2Asker {
	a := &http2Asker{t: t}
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "h"},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.ended {
				c.Close()
			}
			a.all = append(a.all, c.(*net.TCPConn))
			return c, nil
		}}
	if secure {
		tr.Protocols.SetHTTP2(true)
	} else {
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	a.http = &http.Client{Transport: tr, Timeout: 20 * time.Second}
	return a
}

func (a *http2Asker) ask() {
	a.t.Helper()
	if err := a.tryAsk(); err != nil {
		a.t.Fatal(err)
	}
}

func (a *http2Asker) tryAsk() error {
	scheme := "http"
	if a.http.Transport.(*http.Transport).Protocols.HTTP2() {
		scheme = "https"
	}
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		under := got.Conn
		if secure, ok := under.(*tls.Conn); ok {
			under = secure.NetConn()
		}
		a.tcp = under.(*net.TCPConn)
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), http.MethodGet, scheme+"://h/", nil)
	if err != nil {
		return err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// end ends all its connections, after how was called for each. It asks no more.
func (a *http2Asker) end(how func(*net.TCPConn)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, c := range a.all {
		how(c)
		c.Close()
	}
}

// askOnTheSame is ask, and fails the test where that needs another connection.
func (a *http2Asker) askOnTheSame() {
	a.t.Helper()
	before := a.tcp
	if a.ask(); a.tcp != before {
		a.t.Error("the request needed another connection")
	}
}

func secureHTTP2(t *testing.T) *tls.Config {
	c := selfSigned(t)
	c.NextProtos = []string{protocolHTTP2}
	return c
}

func parkedHTTP2(t *testing.T, set *Set, n int) {
	t.Helper()
	testkit.Eventually(t, "parked", func() bool { return count(set, waitParked) == n })
}

// TestParkHTTP2: a connection of HTTP/2 without streams has no goroutine, and serves on.
func TestParkHTTP2(t *testing.T) {
	for name, secure := range map[string]bool{"clear": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			var with *tls.Config
			if secure {
				with = secureHTTP2(t)
			}
			set, addr := servedBy(t, false, with)
			const n = 10
			var all []*http2Asker
			for range n {
				a := http2AskerOf(t, addr, secure)
				a.ask()
				all = append(all, a)
			}
			busy := runtime.NumGoroutine() // with those of the clients
			for range 2 {
				parkedHTTP2(t, set, n)
				testkit.Eventually(t, "no goroutines", func() bool { return runtime.NumGoroutine() <= busy-n+1 }) // and the idle poller's
				for _, a := range all {
					a.askOnTheSame()
				}
			}
			parkedHTTP2(t, set, n)
			for _, a := range all {
				a.tcp.Close()
			}
			<-set.Empty()
		})
	}
}

// TestParkedHTTP2Ends: whatever ends a parked connection of HTTP/2, nothing is left, and who drains it loses no request.
func TestParkedHTTP2Ends(t *testing.T) {
	for name, end := range map[string]func(*Set, *http2Asker){
		"client":     func(_ *Set, a *http2Asker) { a.tcp.Close() },
		"half-close": func(_ *Set, a *http2Asker) { a.tcp.CloseWrite() },
		"reset":      func(_ *Set, a *http2Asker) { a.tcp.SetLinger(0); a.tcp.Close() },
		"cut":        func(set *Set, _ *http2Asker) { set.Cut() },
		"scarce memory": func(set *Set, _ *http2Asker) {
			set.CloseIdle()
		},
		"drain": func(set *Set, _ *http2Asker) {
			set.engine.Draining.Store(true)
			set.Sweep(set.engine.Now() + drainIdle.Milliseconds())
		},
		"drain, with a request": func(set *Set, a *http2Asker) {
			set.engine.Draining.Store(true)
			a.ask()
			set.Sweep(set.engine.Now())
		},
		"idle": func(set *Set, a *http2Asker) {
			// By the sweeper's clock its idle time is over, by its own not: it is parked again, for what is left.
			set.Sweep(set.engine.Now() + set.timeouts.Idle.Milliseconds())
			testkit.Eventually(a.t, "parked again", func() bool { return count(set, waitParked) == 1 })
			set.Cut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, addr := served(t)
			a := http2AskerOf(t, addr, false)
			a.ask()
			parkedHTTP2(t, set, 1)
			end(set, a)
			<-set.Empty()
			set.idlePoller.Load().mu.Lock()
			defer set.idlePoller.Load().mu.Unlock()
			for _, c := range set.idlePoller.Load().byFD {
				if c != nil {
					t.Error("the idle poller still has the connection")
				}
			}
		})
	}
}

// TestParkHTTP2Races: requests, ends and drains meet connections of HTTP/2 at any moment of being parked and taken up again. Each request is answered
// or its connection had ended; nothing is left.
func TestParkHTTP2Races(t *testing.T) {
	set, addr := servedBy(t, false, nil, func(s *Set) { s.parkHTTP2After = time.Millisecond })
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if set.Sweep(set.engine.Now()); i%50 == 0 {
				set.CloseIdle()
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	var answered, failed int
	var mu sync.Mutex
	var clients sync.WaitGroup
	for k := range 8 {
		clients.Go(func() {
			for i := range 20 {
				a := http2AskerOf(t, addr, false)
				for n := range 10 {
					err := a.tryAsk()
					mu.Lock()
					if err == nil {
						answered++
					} else {
						failed++
					}
					mu.Unlock()
					time.Sleep(time.Duration((i+n)%7) * 400 * time.Microsecond)
				}
				a.end(func(tcp *net.TCPConn) {
					switch (k + i) % 3 {
					case 0:
						tcp.SetLinger(0)
					case 1:
						set.Each(func(c *Conn) {
							if c.side.Peer.Port() == uint16(tcp.LocalAddr().(*net.TCPAddr).Port) {
								c.cut(observe.ReasonShuttingDown)
							}
						})
					}
				})
			}
		})
	}
	clients.Wait()
	close(stop)
	others.Wait()
	<-set.Empty()
	if failed > 0 { // the client asks again on another connection where GOAWAY leaves its request out
		t.Errorf("%d requests failed, %d were answered", failed, answered)
	}
}

// TestParkHTTP2EndRaces: whoever ends a connection of HTTP/2 at the moment at which it is parked or taken up again, it ends, and once.
func TestParkHTTP2EndRaces(t *testing.T) {
	for name, end := range map[string]func(*Conn){
		"for another": func(c *Conn) { c.endHTTP2(c.http2.Load(), 0) },
		"drain": func(c *Conn) { // as the sweeper does, which comes again where the connection was parked or taken up meanwhile
			for told := false; !told; {
				if kind, _, _ := c.wait.get(); kind != waitParked {
					c.http2.Load().Drain()
					told = true
				}
				if c.claim() {
					go c.expireParked()
					told = true
				}
			}
		},
		"cut": func(c *Conn) { c.cut(observe.ReasonShuttingDown) },
		"all": func(c *Conn) {
			c.endHTTP2(c.http2.Load(), 0)
			c.cut(observe.ReasonShuttingDown)
			if c.claim() {
				go c.expireParked()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, addr := servedBy(t, false, nil, func(s *Set) { s.parkHTTP2After = time.Millisecond })
			set.engine.Draining.Store(name == "drain")
			var clients sync.WaitGroup
			for i := range 200 {
				clients.Go(func() { meetPark(t, set, addr, i, end) })
			}
			clients.Wait()
			<-set.Empty()
			if n := set.connections.ending.Load(); n != 0 {
				t.Errorf("%d connections are still to end", n)
			}
		})
	}
}

// TestParkHTTP2ToldBefore: a connection that is told to end after it has come to rest, and before it is parked, is not parked.
func TestParkHTTP2ToldBefore(t *testing.T) {
	for name, tell := range map[string]func(*http2.Conn){
		"EndIfIdle": func(h *http2.Conn) { h.EndIfIdle(0) },
		"Drain":     (*http2.Conn).Drain,
	} {
		t.Run(name, func(t *testing.T) {
			set, addr := served(t)
			http2AskerOf(t, addr, false).ask()
			parkedHTTP2(t, set, 1)
			var c *Conn
			set.Each(func(one *Conn) { c = one })
			if !c.claim() {
				t.Fatal("somebody else has claimed it")
			}
			c.unpark()
			h := c.http2.Load()
			tell(h)
			if !c.parkHTTP2(h) {
				c.runHTTP2(nil)
			} else if name != "Drain" { // the answer of the client to that may have come, by which another goroutine has it go on
				t.Fatal("it is parked, and nobody would have it go on")
			}
			select {
			case <-set.Empty():
			case <-time.After(testkit.Patience):
				t.Fatal("it does not end")
			}
		})
	}
}

// meetPark has end meet one connection around the moment at which it is parked, and reads to its end.
func meetPark(t *testing.T, set *Set, addr string, i int, end func(*Conn)) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(nc, http2.Preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"+"\x00\x00\x00\x04\x01\x00\x00\x00\x00") // SETTINGS, and that ours are known
	if _, err := io.ReadFull(nc, make([]byte, 9)); err != nil {
		t.Error(err)
		return
	}
	for from := time.Now(); time.Since(from) < time.Duration(i%100)*20*time.Microsecond; {
		runtime.Gosched()
	}
	if i%3 == 0 {
		io.WriteString(nc, "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678") // a PING
	}
	set.Each(func(c *Conn) {
		if c.side.Peer.Port() == uint16(nc.LocalAddr().(*net.TCPAddr).Port) {
			end(c)
		}
	})
	if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection does not end")
	}
}
