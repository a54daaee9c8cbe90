package client

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

// limit resets a stream whose client does not take a response before the timeout of its rule expires, but only during a
// write: at other times the gateway can still send a better answer.
type limit struct {
	stream *http2.Stream // the stream that the limit is for now
	engine *exchange.Engine
	set    bool   // there is a limit; used only by the stream's goroutine
	expire func() // the method expired, bound once

	mu      sync.Mutex
	by      time.Time // zero means no limit
	timer   *time.Timer
	writing bool

	late atomic.Bool // the stream was reset because of the limit
}

// writeBy sets the limit. The zero time means no limit.
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

// suspend releases the timer until resume. There must be no write between the two.
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

// begin must be called before a write.
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

// end must be called after a write with the error that the write returned, and returns the error to report.
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
	defer func() { // nothing else recovers panics on the timer's goroutine
		if v := recover(); v != nil {
			l.engine.Observer.Panicked("http2", v)
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	// The timer may be late, and the stream may be another one by now.
	if l.writing && !l.by.IsZero() && !time.Now().Before(l.by) {
		l.late.Store(true)
		l.stream.Reset(http2.Cancel)
	}
}
