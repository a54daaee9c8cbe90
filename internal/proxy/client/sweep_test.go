package client

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// served is a Set behind a socket with one listener, which has no route: every request is a 404.
// The test advances the clock.
func served(t *testing.T) (set *Set, addr string) { return servedBy(t, false, nil) }

// of makes of a connection what a Set serves.
func of(t *testing.T, accepted net.Conn) *socket.Conn {
	c, err := socket.FromTCP(accepted.(*net.TCPConn))
	if err != nil {
		t.Error(err)
	}
	return c
}

// waited makes a connection one that has waited before. The first wait begins twice, since the poller has to learn of the descriptor, and tests that
// look for a wait and then put another in its place need the one that lasts.
func waited(c *socket.Conn) *socket.Conn {
	waits := false
	c.Raw().Read(func(uintptr) bool {
		waits = !waits
		return !waits
	})
	return c
}

// servedBy is served, with or without raw calls, and over TLS where that is not nil.
func servedBy(t *testing.T, plainIO bool, secure *tls.Config, adjust ...func(*Set)) (set *Set, addr string) {
	t.Helper()
	mode := snapshot.HTTP
	if secure != nil {
		mode = snapshot.HTTPS
	}
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	engine := &exchange.Engine{Observer: &observe.Observer{Metrics: metrics}}
	engine.Clock.Store(time.Now().UnixMilli())
	socket := &snapshot.Socket{Socket: &listen.Socket{}, TLS: secure, Stats: metrics.Socket(observe.SocketLabels{Port: 80})}
	l := &snapshot.Listener{Config: &config.Listener{Key: "default/gw/http", Port: 80}, Mode: mode,
		Stats: metrics.Listener(observe.ListenerLabels{Gateway: "default/gw", Listener: "http", Port: 80})}
	var hosts *match.Hosts[*snapshot.Listener]
	engine.Snapshot.Store(&snapshot.Snapshot{Sockets: []*snapshot.Port{{Owner: socket, Mode: mode, Number: 80, Listeners: hosts.With("", l)}}})
	set = NewSet(engine, Timeouts{}, plainIO)
	for _, f := range adjust {
		f(set)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			set.Serve(socket, waited(of(t, c)), &snapshot.Port{Mode: mode})
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		set.Cut()
		<-set.Empty()
		set.Close()
	})
	return set, ln.Addr().String()
}

// TestSweeperLosesRace: bytes that arrive just when the sweeper gives up on an idle connection are
// a request like any other; the deadline that the sweeper set must not hit what follows.
func TestSweeperLosesRace(t *testing.T) {
	set, addr := served(t)
	for i := range 300 {
		c, server := idleClient(t, set, addr)
		r := bufio.NewReader(c)
		go func() {
			time.Sleep(time.Duration(i) * time.Microsecond / 2)
			// As if pooled memory had idled for too long.
			server.holding.Store(true)
			server.sweep(set.engine.Now() + 3000)
		}()
		for n := range 3 {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != 404 {
				t.Fatalf("connection %d, request %d: %v %v", i, n, resp, err)
			}
			io.Copy(io.Discard, resp.Body)
		}
		c.Close()
	}
}
