package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// TestOldFailureIsNotTold: why a dial failed long ago is not why the present one does, to which nobody answers.
func TestOldFailureIsNotTold(t *testing.T) {
	_, e := sharedEndpoint(t, Options{ConnectTimeout: 100 * time.Millisecond}, full(t))
	e.use().sharing.failure.Store(e.dialError(ReasonResources, false, errTooManyWaiting))
	_, _, err := e.Connect(context.Background(), time.Time{}, true)
	wantDialError(t, err, ReasonTimeout, true)
}

// TestSlowHandshakeIsNotBlamedTwice has requests wait for a handshake that takes most of the connect timeout, and brings HTTP/1.1: one
// of them has the connection. The dial of the other has what is left, and that it is not enough says nothing of the endpoint.
func TestSlowHandshakeIsNotBlamedTwice(t *testing.T) {
	const timeout = 2 * time.Second
	cert, secured := tlsIdentity(t)
	srv := listenTo(t, func(c net.Conn) {
		time.Sleep(timeout * 3 / 4)
		tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}).Handshake() //nolint:errcheck // the second is too late
	})
	s, b := newSet(t, Options{ConnectTimeout: timeout}, endpoint(srv.addrPort()))
	apply(t, s, secured...)
	e := b.Endpoints()[0]
	got := make(chan connected, 2)
	for range 2 {
		go func() {
			c, place, err := e.Connect(context.Background(), time.Time{}, true)
			got <- connected{c, place, err}
		}()
	}
	first, second := <-got, <-got
	if first.err != nil || first.conn == nil {
		t.Fatalf("%+v", first)
	}
	wantDialError(t, second.err, ReasonTimeout, true)
	if e.avoided() || b.Stats().Failures != 0 {
		t.Errorf("avoided %v, %+v", e.avoided(), b.Stats())
	}
}
