package upstream

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestPanicInDial has the dial for requests that wait panic: they are told, and the next one dials anew.
func TestPanicInDial(t *testing.T) {
	l := listenTo(t, func(c net.Conn) { io.Copy(io.Discard, c) }) // an echo of the preface would end the connection
	said := make(chan string, 10)
	set, b := newSet(t, Options{Panicked: func(where string, v any) { said <- where }}, endpoint(l.addrPort()))
	apply(t, set, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: b.Key(), Protocol: config.BackendProtocol_BACKEND_PROTOCOL_H2C}}})
	seed := uint64(1)
	e := b.Pick(&seed, new(Tried))
	for range 3 {
		w := &waiter{ready: make(chan struct{})}
		e.use().sharing.mu.Lock()
		e.use().sharing.waiting = append(e.use().sharing.waiting, w)
		transport := e.transport
		e.transport = nil // a defect: it is never nil
		e.dialMore()
		e.use().sharing.mu.Unlock()
		select {
		case <-w.ready:
		case <-time.After(10 * time.Second):
			t.Fatal("the request waits for ever")
		}
		e.transport = transport
		if w.err == nil || !w.err.Retryable || <-said != "connect" {
			t.Errorf("%+v", w.err)
		}
		e.use().sharing.mu.Lock()
		if e.use().sharing.dialling != 0 {
			t.Errorf("%d dials under way", e.use().sharing.dialling)
		}
		e.use().sharing.mu.Unlock()
	}
	if _, place, err := e.Connect(context.Background(), time.Now().Add(10*time.Second), true); err != nil || place == nil {
		t.Fatalf("%v %v", place, err)
	} else {
		place.Leave(false)
	}
}
