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

// maxProcessLog is the maximum size of pending lines in bytes. As many may be being written, so the memory is limited to twice of
// it. maxLastLines is the size of pending lines of Last in addition.
const (
	maxProcessLog = 512 << 10
	maxLastLines  = 4 << 10
)

// ProcessLog is a writer for the process's own log that writes in a separate goroutine. If nothing reads standard error, a write to
// it blocks forever, and goroutines that log must not block with it. If the memory for lines is used up, or a write fails, lines are
// dropped and counted, and a line reports that as soon as it can be written. Each Write must be one or more whole lines; lines stay
// in order, and each is one write, so that a pipe keeps it whole.
//
// It is not an AccessLog, which collects lines of many cores for up to 50 ms and does not keep their order. A nil *ProcessLog has
// dropped nothing.
type ProcessLog struct {
	out     io.Writer
	handler atomic.Pointer[func(io.Writer) slog.Handler] // the format of the line that reports dropped lines
	dropped [dropReasons]atomic.Uint64
	done    chan struct{}

	mu     sync.Mutex
	some   sync.Cond // signals lines, or that the log is closed
	lines  [][]byte
	size   int      // of lines
	lost   int      // number of lines that followed and found no room
	last   [][]byte // lines of Last that followed these, and the lost ones
	closed bool

	// Used only by the writer goroutine:
	missing int  // dropped lines that were not reported yet
	broken  bool // the last write ended within a line
}

// NewProcessLog returns a log that writes to out, until Close is called.
func NewProcessLog(out io.Writer) *ProcessLog {
	l := &ProcessLog{out: out, done: make(chan struct{})}
	l.some.L = &l.mu
	l.SetHandler(func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) })
	go l.run()
	return l
}

// SetHandler sets the format of the line that reports dropped lines; the default is text.
func (l *ProcessLog) SetHandler(handler func(io.Writer) slog.Handler) { l.handler.Store(&handler) }

// Write implements io.Writer. It never blocks and never fails.
func (l *ProcessLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(b)
	return len(b), nil
}

// write is Write; the caller must hold l.mu.
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

// fits reports whether there is room for a line. A short line does not overtake a long one that was dropped, so that the log shows
// where lines are missing, nor a line of Last. The caller must hold l.mu.
func (l *ProcessLog) fits(b []byte) bool {
	return l.lost == 0 && len(l.last) == 0 && (len(l.lines) == 0 || l.size+len(b) <= maxProcessLog)
}

// Last returns the writer for lines that report why the process ends, such as the error of a verb: they have reserved room, and are
// truncated if they are too long for it.
func (l *ProcessLog) Last() io.Writer { return lastLines{l} }

type lastLines struct{ *ProcessLog }

// Write implements io.Writer, like ProcessLog.Write.
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

// run is the writer goroutine.
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
			l.writeDropped()
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

// emit writes a line, and before it the number of dropped lines: if that fails, the line would fail too.
func (l *ProcessLog) emit(line []byte) {
	if l.writeDropped() && l.put(line) == nil {
		return
	}
	l.missing++
	l.drop(DropWriteFailed, 1)
}

// writeDropped writes how many lines were dropped, if any were.
func (l *ProcessLog) writeDropped() bool {
	if l.missing == 0 {
		return true
	}
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of this log were dropped: its reader did not keep up, or a write failed", 0)
	r.AddAttrs(slog.Int("dropped", l.missing))
	// It is written regardless of the level: if only errors are logged, some of these may be missing.
	if (*l.handler.Load())(writerFunc(l.put)).Handle(context.Background(), r) != nil {
		return false
	}
	l.missing = 0
	return true
}

// put writes a line, after completing one that was written in part.
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

// writerFunc is a writer that writes everything or fails.
type writerFunc func([]byte) error

func (f writerFunc) Write(b []byte) (int, error) {
	if err := f(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close writes what is pending, and gives up after timeout. It may be called again, and concurrently. What is written afterwards is
// dropped.
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

// DroppedBy returns the number of lines that were not written for a reason.
func (l *ProcessLog) DroppedBy(reason DropReason) uint64 {
	if l == nil {
		return 0
	}
	return l.dropped[reason].Load()
}
