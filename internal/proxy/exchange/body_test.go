package exchange

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// silent is a connection to a server that says nothing.
func silent(t *testing.T) *upstream.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	set := upstream.NewSet(upstream.Options{})
	t.Cleanup(func() {
		set.Close()
		l.Close()
	})
	port := l.Addr().(*net.TCPAddr).Port
	err = set.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b"}}}, {Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{
		Key: "b", Endpoints: []*config.Endpoint{{Address: "127.0.0.1", Port: uint32(port)}}}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	u, err := set.Get("b").Endpoints()[0].Dial(t.Context(), time.Now().Add(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func attemptOn(u *upstream.Conn) *attempt {
	a := &attempt{}
	a.useHTTP1(u)
	return a
}

// TestWatchRemembers: what ends an exchange while no backend is waited for ends all waits that begin later, and none of
// the next exchange.
func TestWatchRemembers(t *testing.T) {
	var w Watch
	w.start()
	w.Fail()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.begin(interrupterFunc(cancel))
	if ctx.Err() == nil {
		t.Error("a dial is not interrupted")
	}
	w.end()
	for range 2 {
		u := silent(t)
		w.begin(attemptOn(u))
		got := make(chan error, 1)
		go func() {
			_, err := u.Read(make([]byte, 1))
			got <- err
		}()
		select {
		case err := <-got:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the wait ended by %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("an attempt is not interrupted")
		}
		if !w.end() {
			t.Error("the client has not left")
		}
	}
	w.start()
	w.begin(attemptOn(silent(t)))
	if w.end() {
		t.Error("the next exchange is interrupted")
	}
	w.since.Store(2)
	w.Interrupt(1)
	if w.goneNow() {
		t.Error("a wait that has begun later is interrupted")
	}
}

// fakeBody gives its parts, and then its error, or waits to be stopped where that is nil.
type fakeBody struct {
	parts   []string
	err     error
	panics  bool          // behind the parts
	waits   chan struct{} // closed when it waits
	stopped chan struct{}
}

func (f *fakeBody) Next(b Buffer, wait bool) ([]byte, bool, error) {
	if len(f.parts) > 0 {
		data := b.Take()
		n := copy(data, f.parts[0])
		f.parts = f.parts[1:]
		return data[:n], false, nil
	}
	if f.panics {
		panic("body of the test")
	}
	if !wait || f.err != nil {
		return nil, false, f.err
	}
	close(f.waits)
	<-f.stopped
	return nil, false, os.ErrDeadlineExceeded
}

func (f *fakeBody) Trailer() *message.Fields { return nil }
func (f *fakeBody) Stop()                    { close(f.stopped) }

func withBody(f *fakeBody) *Exchange {
	f.waits, f.stopped = make(chan struct{}), make(chan struct{})
	x := New()
	x.Client = &Client{Engine: &Engine{}, Watch: &Watch{}, Body: f}
	x.reset()
	x.Streamed, x.Framing, x.Length = true, http1.Chunked, -1
	return x
}

// TestBodyErrors: the error of a client outlives that it is told to stop, and what that brings about is none.
func TestBodyErrors(t *testing.T) {
	malformed := &http1.Error{Status: 400}
	for _, tc := range []struct {
		name string
		err  error
	}{{"malformed", malformed}, {"slow", os.ErrDeadlineExceeded}, {"none", nil}} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fakeBody{parts: []string{"a", "b"}, err: tc.err}
			x := withBody(f)
			if err := x.body.begin(); err != nil {
				t.Fatal(err)
			}
			a := attemptOn(silent(t))
			x.Client.Watch.begin(a)
			if err := x.open(a); err != nil {
				t.Fatal(err)
			}
			if tc.err != nil {
				if _, err := a.http1.u.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the wait for the backend ended by %v", err)
				}
			} else {
				<-f.waits
			}
			if x.body.finish(a, false) {
				t.Error("all of the body was sent")
			}
			if got := x.body.failed(); got != tc.err {
				t.Errorf("failed by %v, want %v", got, tc.err)
			}
			x.body.release()
		})
	}
}

// TestPanicInUpload: a panic of the goroutine that sends the body ends the wait for the backend, and is what the exchange fails by.
func TestPanicInUpload(t *testing.T) {
	x := withBody(&fakeBody{parts: []string{"a"}, panics: true})
	if err := x.body.begin(); err != nil {
		t.Fatal(err)
	}
	a := attemptOn(silent(t))
	x.Client.Watch.begin(a)
	if err := x.open(a); err != nil {
		t.Fatal(err)
	}
	if _, err := a.http1.u.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the wait for the backend ended by %v", err)
	}
	x.body.finish(a, false)
	if err := x.body.failed(); err != errPanicked {
		t.Errorf("failed by %v", err)
	}
	x.body.release()
	// One of the goroutine that the exchange runs on passes through, and leaves no lock held.
	x = withBody(&fakeBody{panics: true})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not pass through")
			}
		}()
		x.body.begin()
	}()
	x.body.detach(a)
	x.body.finish(a, false)
}

// TestBodyIsForgotten: no attempt begins when the first byte is not at hand any more, and nothing of a body is left in
// the next exchange.
func TestBodyIsForgotten(t *testing.T) {
	long := string(make([]byte, replayable))
	f := &fakeBody{parts: []string{"a", long}}
	x := withBody(f)
	if err := x.body.begin(); err != nil {
		t.Fatal(err)
	}
	a := attemptOn(silent(t))
	if _, err := x.body.rewind(); err != nil {
		t.Fatal(err)
	}
	x.body.detach(a) // refused before anything was sent
	if err := x.open(a); err != nil {
		t.Fatal(err)
	}
	<-f.waits // all that came was sent
	x.body.detach(a)
	if _, err := x.body.rewind(); err != errForgotten {
		t.Errorf("another attempt begins: %v", err)
	}
	if x.body.first != nil {
		t.Error("memory is held for what is not needed any more")
	}
	x.body.finish(a, false)
	x.body.release()
	x.reset()
	if x.body.bodyState != (bodyState{}) {
		t.Errorf("the next exchange begins with %+v", x.body.bodyState)
	}
}

// fedBody gives the parts that the test sends it.
type fedBody chan []byte

func (f fedBody) Next(b Buffer, wait bool) ([]byte, bool, error) {
	if !wait && len(f) == 0 {
		return nil, false, nil
	}
	part, ok := <-f
	if !ok {
		return nil, false, os.ErrDeadlineExceeded
	}
	data := b.Take()
	return data[:copy(data, part)], false, nil
}

func (f fedBody) Trailer() *message.Fields { return nil }
func (f fedBody) Stop()                    { close(f) }

// TestBodyIsPinned: when a response was judged to be followed by another attempt, its sender, who goes on until the response is given up,
// does not make that impossible.
func TestBodyIsPinned(t *testing.T) {
	f := make(fedBody, 2)
	x := failing(t, 1, &snapshot.Retry{Attempts: 1, Statuses: []uint16{503}})
	x.Client.Body, x.endpoint = f, x.backend.Endpoints()[0]
	x.Streamed, x.Framing, x.Length = true, http1.Chunked, -1
	f <- []byte("a")
	if err := x.body.begin(); err != nil {
		t.Fatal(err)
	}
	a := attemptOn(silent(t))
	if err := x.open(a); err != nil {
		t.Fatal(err)
	}
	if v := x.decide(failure{kind: failedByStatus}); !v.again {
		t.Fatalf("nothing follows a response while the body is at hand: %+v", v)
	}
	f <- make([]byte, replayable)
	testkit.Eventually(t, "all that came was sent", func() bool {
		x.body.mu.Lock()
		defer x.body.mu.Unlock()
		return x.body.cursor.at == 1+replayable
	})
	x.body.detach(a)
	if _, err := x.body.rewind(); err != nil {
		t.Errorf("the attempt that was to follow does not begin: %v", err)
	}
	x.body.finish(a, false)
	x.body.release()
}

// TestBodyMemory: what is held of a body is about as much as its bytes, in whatever bursts they come.
func TestBodyMemory(t *testing.T) {
	for _, burst := range []int{1, 512, 513, 4097, 16384, 16385, 20000, 32769, 50000, 65536} {
		f := &fakeBody{}
		var want strings.Builder
		for i := 0; want.Len()+burst <= replayable; i++ {
			f.parts = append(f.parts, strings.Repeat(string(rune('a'+i%26)), burst))
			want.WriteString(f.parts[i])
		}
		x := withBody(f)
		for range len(f.parts) {
			if err := x.body.begin(); err != nil {
				t.Fatal(err)
			}
		}
		var got strings.Builder
		held := 0
		for p := x.body.first; p != nil; p = p.next {
			if p.at != int64(got.Len()) {
				t.Errorf("bursts of %d bytes: a piece at %d stands behind %d bytes", burst, p.at, got.Len())
			}
			got.Write(p.bytes)
			if p.large != nil {
				held += buffer.Size
			} else {
				held += cap(p.bytes)
			}
		}
		if got.String() != want.String() {
			t.Errorf("bursts of %d bytes: another body", burst)
		}
		if most := want.Len() + 32<<10; held > most {
			t.Errorf("bursts of %d bytes: %d are held of %d, want %d at most", burst, held, want.Len(), most)
		}
		x.body.release()
	}
}

// TestCursorKeepsItsPlace: what is sent next is found without a look at what was sent before, however long the body is, also where memory is given up and where it grows.
func TestCursorKeepsItsPlace(t *testing.T) {
	f := &fakeBody{}
	for range 8 {
		f.parts = append(f.parts, strings.Repeat("a", 20000))
	}
	x := withBody(f)
	x.rule = &snapshot.Rule{Traffic: &snapshot.Traffic{BufferLimit: 1 << 20}}
	b := &x.body
	read := func() {
		t.Helper()
		if err := b.begin(); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		read()
	}
	for range 2 { // attempts
		number, err := b.rewind()
		if err != nil {
			t.Fatal(err)
		}
		for sent := 0; sent < 50000; {
			data, _, ok := b.next(number, false)
			if !ok || len(data) == 0 {
				t.Fatalf("nothing is next after %d bytes", sent)
			}
			p := b.cursor.piece
			if p == nil || p.at > b.cursor.at || b.cursor.at >= p.end() || &p.bytes[b.cursor.at-p.at] != &data[0] {
				t.Errorf("after %d bytes the piece that is kept is not that of what is next", sent)
			}
			n := min(len(data), 7000)
			b.sent(number, n, false, nil)
			sent += n
		}
	}
	x.rule = nil // nothing is kept any more
	number, sent := b.cursor.number, b.cursor.at
	for {
		data, _, ok := b.next(number, false)
		if !ok {
			t.Fatal("nothing is next")
		}
		if len(data) == 0 {
			if len(f.parts) == 0 {
				break
			}
			read()
			continue
		}
		if strings.Trim(string(data), "a") != "" {
			t.Fatalf("%q is next", data)
		}
		sent += int64(len(data))
		b.sent(number, len(data), false, nil)
	}
	if sent != b.end || b.first != nil || b.cursor.piece != nil {
		t.Errorf("%d bytes of %d were sent, %v is kept", sent, b.end, b.first)
	}
	b.release()
}

// TestMemoryIsShortBeforeTheRuleIsKnown: a body that a listener's filter has read is let go by another goroutine while the rule is looked for.
func TestMemoryIsShortBeforeTheRuleIsKnown(t *testing.T) {
	f := &fakeBody{parts: []string{strings.Repeat("a", 20000)}}
	x := withBody(f)
	if err := x.body.begin(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		x.body.letGo()
		close(done)
	}()
	x.rule = &snapshot.Rule{Traffic: &snapshot.Traffic{BufferLimit: 1}}
	<-done
	if _, err := x.body.rewind(); err != nil {
		t.Errorf("the body cannot be sent any more: %v", err)
	}
	x.body.release()
}
