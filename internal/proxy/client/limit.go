package client

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

// limit resets a stream whose client does not take a response before a rule's timeout runs out, but
// only during a write: at other times there is still something better to tell it.
type limit struct {
	stream *http2.Stream // whose it is at the moment
	engine *exchange.Engine
	set    bool   // there is a limit; the stream's goroutine alone uses it
	expire func() // expired, made once

	mu      sync.Mutex
	by      time.Time // zero is never
	timer   *time.Timer
	writing bool

	late atomic.Bool // the stream was reset for it
}

// writeBy sets the limit; zero is none.
func (l *limit) writeBy(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by, l.set = t, !t.IsZero()
	l.late.Store(false)
	switch {
	case l.set && l.timer == nil:
		l.timer = time.AfterFunc(time.Until(t), l.expire)
	case l.set:
		l.timer.Reset(time.Until(t))
	case l.timer != nil:
		l.timer.Stop()
	}
}

// suspend gives up the timer until resume. No write may come between them.
func (l *limit) suspend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

func (l *limit) resume() {
	if l.set {
		l.writeBy(l.by)
	}
}

// begin comes before a write.
func (l *limit) begin() error {
	if !l.set {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.by) {
		return os.ErrDeadlineExceeded
	}
	l.writing = true
	return nil
}

// end comes after a write, with what it returned.
func (l *limit) end(err error) error {
	if !l.set {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
	if err != nil && l.late.Load() {
		return os.ErrDeadlineExceeded
	}
	return err
}

func (l *limit) expired() {
	defer func() { // the timer's goroutine is nobody else's
		if v := recover(); v != nil {
			l.engine.Observer.Panicked("http2", v)
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	// The timer may be late, and the stream another.
	if l.writing && !l.by.IsZero() && !time.Now().Before(l.by) {
		l.late.Store(true)
		l.stream.Reset(http2.Cancel)
	}
}
