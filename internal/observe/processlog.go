package observe

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// maxProcessLog is how many bytes of lines wait at most. As many are being written, so that twice of it bounds the memory. maxLastLines is how many bytes of
// lines of Last wait beside them.
const (
	maxProcessLog = 512 << 10
	maxLastLines  = 4 << 10
)

// ProcessLog is the writer of the process's own log, from a goroutine of its own. Where nobody reads standard error, a write to it waits forever; what logs a
// problem of a manifest or the begin of a shutdown must not wait with it. Where memory for lines is used up, or a write fails, lines are dropped and counted, and a line
// says so when it can be written. Each Write must be one line or several whole ones; lines stay in order, and each is one write, so that a pipe keeps it whole.
//
// It is not an AccessLog, which gathers lines of many cores for up to 50 ms and does not keep their order. A nil *ProcessLog has dropped nothing.
type ProcessLog struct {
	out     io.Writer
	handler atomic.Pointer[func(io.Writer) slog.Handler] // the format of the line that says what was dropped
	dropped [dropReasons]atomic.Uint64
	done    chan struct{}

	mu     sync.Mutex
	some   sync.Cond // there are lines, or the log is closed
	lines  [][]byte
	size   int      // of lines
	lost   int      // lines that came after them and found no room
	last   [][]byte // lines of Last that came after these, if there are any, and after those lost
	closed bool

	// Only the writer goroutine touches what follows.
	missing int  // lines that were dropped and of which no line tells yet
	broken  bool // the last write ended within a line
}

// NewProcessLog makes a log that writes to out. Close ends it.
func NewProcessLog(out io.Writer) *ProcessLog {
	l := &ProcessLog{out: out, done: make(chan struct{})}
	l.some.L = &l.mu
	l.SetHandler(func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) })
	go l.run()
	return l
}

// SetHandler says how the line is written that says how many were dropped; it is one of text before.
func (l *ProcessLog) SetHandler(handler func(io.Writer) slog.Handler) { l.handler.Store(&handler) }

// Write implements io.Writer. It never waits and never fails.
func (l *ProcessLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(b)
	return len(b), nil
}

// write is Write; l.mu is held.
func (l *ProcessLog) write(b []byte) {
	switch {
	case l.closed:
		l.drop(DropShuttingDown, 1)
	case !l.fits(b):
		l.lost++
		l.drop(DropBufferFull, 1)
	default:
		l.lines = append(l.lines, append([]byte(nil), b...))
		l.size += len(b)
		l.some.Signal()
	}
}

// fits reports whether there is room for a line. A short one does not overtake a long one that was dropped, so that the log says where it lacks some, nor one of
// Last. l.mu is held.
func (l *ProcessLog) fits(b []byte) bool {
	return l.lost == 0 && len(l.last) == 0 && (len(l.lines) == 0 || l.size+len(b) <= maxProcessLog)
}

// Last is the writer of lines that say why the process ends, such as the error of a verb: they find room where others do not, and are cut where they are too long for it.
func (l *ProcessLog) Last() io.Writer { return lastLines{l} }

type lastLines struct{ *ProcessLog }

// Write implements io.Writer, as ProcessLog.Write does.
func (l lastLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := maxLastLines
	for _, line := range l.last {
		room -= len(line)
	}
	if l.closed || l.fits(b) || room < 2 {
		l.write(b)
		return len(b), nil
	}
	line := append([]byte(nil), b...)
	if len(line) > room {
		line = append(bytes.ToValidUTF8(line[:room-1], nil), '\n')
	}
	l.last = append(l.last, line)
	return len(b), nil
}

func (l *ProcessLog) drop(reason DropReason, lines int) { l.dropped[reason].Add(uint64(lines)) }

// run is the writer.
func (l *ProcessLog) run() {
	defer close(l.done)
	for {
		lines, lost, last := l.take()
		if lines == nil {
			return
		}
		for _, line := range lines {
			l.emit(line)
		}
		if lost > 0 {
			l.missing += lost
			l.tell()
		}
		for _, line := range last {
			l.emit(line)
		}
	}
}

// take waits for lines, and returns none after the last.
func (l *ProcessLog) take() (lines [][]byte, lost int, last [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.lines) == 0 && !l.closed {
		l.some.Wait()
	}
	lines, lost, last = l.lines, l.lost, l.last
	l.lines, l.size, l.lost, l.last = nil, 0, 0, nil
	return lines, lost, last
}

// emit writes a line, and before it what is to be said of those that were dropped: where that fails, the line would too.
func (l *ProcessLog) emit(line []byte) {
	if l.tell() && l.put(line) == nil {
		return
	}
	l.missing++
	l.drop(DropWriteFailed, 1)
}

// tell writes how many lines were dropped, if any were.
func (l *ProcessLog) tell() bool {
	if l.missing == 0 {
		return true
	}
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of this log were dropped: its reader did not keep up, or a write failed", 0)
	r.AddAttrs(slog.Int("dropped", l.missing))
	// Whatever the level is: who wants errors only wants to know that some may be missing.
	if (*l.handler.Load())(writerFunc(l.put)).Handle(context.Background(), r) != nil {
		return false
	}
	l.missing = 0
	return true
}

// put writes a line, behind the end of one that was written in part.
func (l *ProcessLog) put(line []byte) error {
	if l.broken {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.out.Write(line)
	if n > 0 {
		l.broken = line[n-1] != '\n'
	}
	return err
}

// writerFunc is a writer that takes all or fails.
type writerFunc func([]byte) error

func (f writerFunc) Write(b []byte) (int, error) {
	if err := f(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close writes what waits, and gives up after timeout. It may be called again, and by several at a time. What is written after it is dropped.
func (l *ProcessLog) Close(timeout time.Duration) {
	l.mu.Lock()
	l.closed = true
	l.some.Signal()
	l.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	}
}

// DroppedBy is the number of lines that were not written for a reason.
func (l *ProcessLog) DroppedBy(reason DropReason) uint64 {
	if l == nil {
		return 0
	}
	return l.dropped[reason].Load()
}
