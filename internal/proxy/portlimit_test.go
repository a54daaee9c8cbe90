//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself

package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// boundPort is a gateway of which a listener's port has bounds of its own.
func boundPort(t *testing.T, o Options, c *config.Connections) *gateway {
	t.Helper()
	web := httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	g := startGatewayWith(t, o)
	l := g.httpListener("http", "")
	l.GetListener().Connections = c
	g.apply(append(backend("Service/default/b/80", web), l, routeOf("r", "default/gw/http", "", anyRule())))
	return g
}

// TestPortTimeouts: the timeouts of a port hold for its connections in the place of the process's, which are an hour here.
func TestPortTimeouts(t *testing.T) {
	t.Parallel()
	long := Timeouts{Idle: time.Hour, Head: time.Hour, BodyIdle: time.Hour}
	for _, tc := range []struct {
		name, sent, answer string
		c                  *config.Connections
	}{
		{"unused", "", "", &config.Connections{IdleTimeoutNanos: int64(300 * time.Millisecond)}},
		{"idle, not parked", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "HTTP/1.1 200 ", &config.Connections{IdleTimeoutNanos: int64(300 * time.Millisecond)}},
		{"idle, parked", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "HTTP/1.1 200 ", &config.Connections{IdleTimeoutNanos: int64(2 * time.Second)}},
		{"head", "GET / HTTP/1.1\r\nHost: a.test\r\n", "HTTP/1.1 408 ", &config.Connections{RequestHeadTimeoutNanos: int64(300 * time.Millisecond)}},
		{"body", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\n1", "HTTP/1.1 408 ", &config.Connections{RequestBodyIdleTimeoutNanos: int64(300 * time.Millisecond)}},
	} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, plain), func(t *testing.T) {
				t.Parallel()
				g := boundPort(t, Options{Timeouts: long, PlainIO: plain}, tc.c)
				if got := g.roundTrip(tc.sent); !strings.HasPrefix(got, tc.answer) || tc.answer == "" && got != "" {
					t.Errorf("%q, want %q", got, tc.answer)
				}
			})
		}
	}
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		g := boundPort(t, Options{Timeouts: long}, &config.Connections{IdleTimeoutNanos: int64(300 * time.Millisecond)})
		h, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(g.dial())
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the connection is closed", func() bool { return h.State().Closed || h.State().Closing })
	})
}

// TestPortTimeoutsDrain: a connection that may idle for an hour by its port ends soon when the proxy does.
func TestPortTimeoutsDrain(t *testing.T) {
	t.Parallel()
	g := boundPort(t, Options{}, &config.Connections{IdleTimeoutNanos: int64(time.Hour)})
	c := g.dial()
	if _, err := speakHTTP(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		t.Errorf("something had to be cut: %v", err)
	}
}

// TestPortMaxConnections: a port takes as many connections as it may have, and another one when one of these has gone. Where listeners say different numbers,
// the lowest counts.
func TestPortMaxConnections(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	a, b, none := g.httpListener("a", "a.test"), g.httpListener("b", "b.test"), g.httpListener("c", "c.test")
	a.GetListener().Connections, b.GetListener().Connections = &config.Connections{MaxConnections: 3}, &config.Connections{MaxConnections: 2}
	g.apply([]*config.Resource{a, b, none})
	ask := func() (net.Conn, error) {
		c, err := net.Dial("tcp", g.addr())
		if err != nil {
			return nil, err // it may be reset so soon
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(testkit.Patience))
		_, err = speakHTTP(c)
		return c, err
	}
	first, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a third connection: %v", err)
	}
	first.Close()
	testkit.Eventually(t, "there is room again", func() bool { _, err := ask(); return err == nil })
}

// TestPortMaxConnectionsOfSuccessor: connections of the socket whose place another one has taken count towards the limit.
func TestPortMaxConnectionsOfSuccessor(t *testing.T) {
	t.Parallel()
	g := boundPort(t, Options{}, &config.Connections{MaxConnections: 2})
	var kept []net.Conn
	for range 2 {
		c := g.dial()
		if got := statusOf(t, c, bufio.NewReader(c), "a.test", "/"); got != "200" {
			t.Fatal(got)
		}
		kept = append(kept, c)
	}
	l := g.httpListener("http", "")
	l.GetListener().Addresses, l.GetListener().Connections = []string{"0.0.0.0"}, &config.Connections{MaxConnections: 2}
	g.apply([]*config.Resource{l})
	third, err := net.Dial("tcp", g.addr())
	if err == nil {
		_, err = io.Copy(io.Discard, third)
		third.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a third connection: %v", err)
	}
	for _, c := range kept {
		if got := statusOf(t, c, bufio.NewReader(c), "a.test", "/"); got != "200" {
			t.Error(got)
		}
	}
}
