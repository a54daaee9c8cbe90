package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// connKey finds the connection of a request.
type connKey struct{}

// h2cHandler answers in all the ways that are allowed, resets streams, goes away and cuts connections.
func (s *stressed) h2cHandler(d dice, w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Id")
	if id == "" || r.URL.Path != "/"+id {
		s.t.Errorf("a request of two: path %s, id %q", r.URL.Path, id)
	}
	switch {
	case d.oneIn(200):
		r.Context().Value(connKey{}).(net.Conn).Close()
	case d.oneIn(40):
		panic(http.ErrAbortHandler) // RST_STREAM
	case d.oneIn(60):
		w.Header().Set("Connection", "close") // GOAWAY
	}
	read := func() {
		body, err := io.ReadAll(r.Body)
		if err == nil && !isBodyOf(id, body) {
			s.t.Errorf("request %s has the body %.80q", id, body)
		}
		if err == nil {
			s.received.Add(1)
		}
	}
	early := d.oneIn(5)
	if !early {
		read()
	}
	w.Header().Set("X-Id", id)
	if d.oneIn(8) {
		// The server may still be writing these as WriteHeader returns, because the stream has ended; with a length, which
		// is no field of such a response, it writes a copy.
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(103)
		w.Header().Del("Content-Length")
	}
	if d.oneIn(10) {
		w.WriteHeader([]int{204, 304}[d.IntN(2)])
		return
	}
	body := d.bodyOf(id)
	if d.oneIn(2) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	} else if d.oneIn(3) {
		w.Header().Set(http.TrailerPrefix+"X-Sum", id)
	}
	cut := len(body) + 1
	if d.oneIn(30) {
		cut = d.IntN(cut)
	}
	for len(body) > 0 {
		n := 1 + d.IntN(len(body))
		if cut -= n; cut <= 0 {
			panic(http.ErrAbortHandler)
		}
		w.Write(body[:n])
		if body = body[n:]; d.oneIn(3) {
			w.(http.Flusher).Flush()
		}
	}
	if early && d.oneIn(2) { // else the server tells by RST_STREAM(NO_ERROR) that it wants no more
		read()
	}
}

// TestNoDesyncH2C is TestNoDesync with backends by HTTP/2, whose connections many requests share.
func TestNoDesyncH2C(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &stressed{t: t}
	var participants atomic.Uint64
	newDice := func() dice { return dice{rand.New(rand.NewPCG(seed, participants.Add(1)))} }
	start := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{
			Protocols: new(http.Protocols), ErrorLog: log.New(&bytes.Buffer{}, "", 0),
			Handler:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.h2cHandler(newDice(), w, r) }),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
			HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: 5},
		}
		server.Protocols.SetUnencryptedHTTP2(true)
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
		return l.Addr().String()
	}
	g := startGateway(t, Timeouts{Linger: 50 * time.Millisecond})
	first, second := start(), start()
	g.serveH2C(first, nil)
	g.apply(backend("Service/default/b/80", first, second)[1:])
	end := time.Now().Add(2 * time.Second)
	if testing.Short() {
		end = time.Now().Add(500 * time.Millisecond)
	}
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			d := newDice()
			for i := 0; time.Now().Before(end) && !t.Failed(); i++ {
				c, err := net.Dial("tcp", g.addr())
				if err != nil {
					t.Error(err)
					return
				}
				s.connection(d, c, fmt.Sprint("k", k, "c", i))
			}
		})
	}
	wg.Go(func() { // endpoints come and go
		for i := 0; time.Now().Before(end); i++ {
			time.Sleep(50 * time.Millisecond)
			g.apply(backend("Service/default/b/80", [][]string{{first, second}, {first}, {second}}[i%3]...)[1:])
		}
	})
	wg.Wait()
	t.Logf("%d requests answered, %d refused, %d received whole", s.answered.Load(), s.refused.Load(), s.received.Load())
	if s.answered.Load() < 20 {
		t.Errorf("only %d requests were answered", s.answered.Load())
	}
	for _, e := range g.upstreams.Backends()[0].Endpoints() {
		for deadline := time.Now().Add(testkit.Patience); e.Stats().InFlight != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", e, e.Stats())
			}
		}
	}
}
