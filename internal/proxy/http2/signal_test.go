package http2

import (
	"io"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// waits runs f, which waits with mu held, and returns its result; ok is false if it does not return.
func waits(t *testing.T, f func(mu *sync.Mutex) bool) bool {
	t.Helper()
	result := make(chan bool, 1)
	go func() {
		var mu sync.Mutex
		mu.Lock()
		defer mu.Unlock()
		result <- f(&mu)
	}()
	select {
	case r := <-result:
		return r
	case <-time.After(testkit.Patience):
		t.Fatal("the wait does not end")
		return false
	}
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }

// TestSignalDeadlines: a wait ends at its own deadline, whether the timer of an earlier wait is due before or after it.
func TestSignalDeadlines(t *testing.T) {
	const short, long = 20 * time.Millisecond, time.Hour
	for name, before := range map[string][]time.Duration{
		"first": nil, "after a longer one": {long}, "after a shorter one": {short}, "after both": {long, short}, "after both, shorter first": {short, long},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSignal()
			for _, d := range before {
				s.send()
				if !waits(t, func(mu *sync.Mutex) bool { return s.wait(mu, in(d)) }) {
					t.Fatal("the signal was not reported")
				}
			}
			begun := time.Now()
			if waits(t, func(mu *sync.Mutex) bool { return s.wait(mu, in(3*short)) }) {
				t.Error("a signal was reported that nobody has sent")
			}
			if after := time.Since(begun); after < 3*short {
				t.Errorf("the wait ended after %v, before its deadline", after)
			}
		})
	}
}

// TestSignalPassedDeadline: a wait whose deadline has passed ends at once, also when the timer is due later.
func TestSignalPassedDeadline(t *testing.T) {
	s := newSignal()
	for _, d := range []time.Time{longAgo, in(-time.Second), in(-time.Minute)} {
		if waits(t, func(mu *sync.Mutex) bool { return s.wait(mu, d) }) {
			t.Errorf("a wait until %v has not ended by its deadline", d)
		}
		s.send()
		waits(t, func(mu *sync.Mutex) bool { return s.wait(mu, in(time.Hour)) })
	}
}

// TestSignalGoesOn: a timer that goes off between two waits, or for the deadline of an earlier one, ends no later wait,
// and neither does one that was armed before the signal was cleared or its memory released.
func TestSignalGoesOn(t *testing.T) {
	const short = 10 * time.Millisecond
	for name, between := range map[string]func(*signal){
		"nothing": func(*signal) {}, "clear": (*signal).clear, "forget": (*signal).forget,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSignal()
			s.send()
			waits(t, func(mu *sync.Mutex) bool { return s.wait(mu, in(short)) })
			between(&s)
			sent := time.AfterFunc(5*short, s.send)
			defer sent.Stop()
			if !waits(t, func(mu *sync.Mutex) bool { return s.wait(mu, in(time.Hour)) }) {
				t.Error("the timer of an earlier wait has ended this one")
			}
			time.Sleep(2 * short)
			s.send()
			if !waits(t, func(mu *sync.Mutex) bool { return s.wait(mu, time.Time{}) }) {
				t.Error("the signal was not reported")
			}
		})
	}
}

// TestSignalConcurrently: each wait with a deadline ends by the signal or at the deadline while timers go off.
func TestSignalConcurrently(t *testing.T) {
	s := newSignal()
	done := make(chan struct{})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(50 * time.Microsecond):
					s.send()
				}
			}
		})
	}
	for i := range 2000 {
		d := time.Duration(i%7) * 30 * time.Microsecond
		waits(t, func(mu *sync.Mutex) bool { return s.wait(mu, in(d)) })
		if i%100 == 0 {
			s.clear()
		}
	}
	close(done)
	senders.Wait()
}

// TestDataBeforeTheDeadline: data that has come before the deadline is read although the reading goroutine runs only after it.
func TestDataBeforeTheDeadline(t *testing.T) {
	s := &Stream{c: &Conn{}, readable: newSignal(), readDeadline: in(50 * time.Millisecond)}
	result := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		close(begun)
		result <- s.await()
	}()
	<-begun
	s.c.mu.Lock()
	s.remoteEnded = true
	s.readable.send()
	time.Sleep(80 * time.Millisecond)
	s.c.mu.Unlock()
	if err := <-result; err != io.EOF {
		t.Errorf("got %v, want the end of the body", err)
	}
}
