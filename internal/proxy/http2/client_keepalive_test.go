package http2

import (
	"errors"
	"os"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

func isPing(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing && f.Header().Flags == 0 }

// TestKeepalive: PINGs are sent at intervals, streams or not, as long as they are answered; one that is not ends the connection.
func TestKeepalive(t *testing.T) {
	o := ClientOptions{Keepalive: Keepalive{Interval: 10 * time.Millisecond, Timeout: patience, JitterPercent: 50}}
	c, r, errs := manual(t, o)
	ping := func() {
		r.WritePing(true, r.until("PING", isPing).(*xhttp2.PingFrame).Data)
	}
	for range quickPings + 2 {
		ping()
	}
	s := open(t, c, ask("GET", "/"))
	for range quickPings + 2 {
		ping()
	}
	r.respond(1, "x")
	if got, err := answer(s); err != nil {
		t.Error(got, err)
	}
	s.Close()
	ping()
	c.Close()
	wait(t, errs)

	o.Keepalive.Timeout = 20 * time.Millisecond
	_, r, errs = manual(t, o)
	r.until("PING", isPing)
	if err := wait(t, errs); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // nil as no stream was open
		t.Error(err)
	}
}

// TestKeepaliveJitter: the time to the next PING is the interval and a random share of it.
func TestKeepaliveJitter(t *testing.T) {
	cl := &Client{o: ClientOptions{Keepalive: Keepalive{Interval: time.Second, JitterPercent: 20}}}
	seen := map[int64]bool{}
	for range 100 {
		cl.pingDue = 0
		due := cl.nextPing(5000)
		if due < 6000 || due > 6200 || cl.nextPing(9999) != due {
			t.Fatalf("due at %d ms, and then at %d", due, cl.nextPing(9999))
		}
		seen[due] = true
	}
	if len(seen) < 20 {
		t.Errorf("%d different times", len(seen))
	}
}

// TestKeepaliveIdle: after a time without streams a PING goes ahead of the next one, and the connection ends where it is not answered; other streams have none.
func TestKeepaliveIdle(t *testing.T) {
	for _, answers := range []bool{true, false} {
		o := ClientOptions{Keepalive: Keepalive{Idle: time.Millisecond, Timeout: 20 * time.Millisecond}}
		if answers {
			o.Keepalive.Timeout = patience
		}
		c, r, errs := manual(t, o)
		first := open(t, c, ask("GET", "/"))
		r.request()
		r.respond(1, "x")
		answer(first)
		first.Close()
		time.Sleep(5 * time.Millisecond) // it idles
		second := open(t, c, ask("GET", "/"))
		f := r.until("PING", isPing)
		if !answers {
			if _, err := answer(second); err != ErrClosed {
				t.Error(err)
			}
			if err := wait(t, errs); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			second.Close()
			continue
		}
		r.WritePing(true, f.(*xhttp2.PingFrame).Data)
		r.respond(3, "x")
		if got, err := answer(second); err != nil {
			t.Error(got, err)
		}
		second.Close()
	}
}

// TestConnWindowOption: a connection grants the window that it is asked for.
func TestConnWindowOption(t *testing.T) {
	for want, o := range map[int]ClientOptions{
		1 << 20:   {ConnWindow: 1 << 20, StreamWindow: 1 << 17},
		4 << 20:   {},
		minWindow: {ConnWindow: 1},
	} {
		if got := max(o.connOptions().withDefaults().ConnWindow, minWindow); got != want {
			t.Errorf("%+v: %d, want %d", o, got, want)
		}
	}
}
