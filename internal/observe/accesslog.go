package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

const (
	// A log buffer has room for at least one line of the maximum length (maxLine).
	logBufferBytes = 128 << 10
	// Together the buffers limit the memory of the log to 4 MiB.
	logBuffers = 32
	// The maximum time before a line is written.
	logFlushInterval = 50 * time.Millisecond
	// The minimum interval of checks whether the file at the path is still the open one.
	logFileCheck = time.Second
	// The minimum interval of log messages about failed writes.
	logWarnInterval = time.Minute
	// How long Close waits for an export that it has aborted.
	logCancelTime = time.Second
)

// AccessLog writes one line for each request in a separate goroutine. A request never waits for it: if the memory for lines is used
// up, the line is dropped and counted. Lines are whole, but not strictly in order. A nil *AccessLog logs nothing.
type AccessLog struct {
	path   string            // "" if the log is not a file
	layout *accesslog.Layout // nil means JSON with every member
	oneIn  uint32            // one request in this many is logged; 0 means each
	errors failureBudget     // failed requests that are always logged, used only if oneIn is not 0

	shards []logShard
	full   chan []byte // buffers to be written; has room for all
	free   chan []byte // empty buffers; has room for all
	made   atomic.Int32
	wake   chan struct{}
	// pressed has a value if there was no buffer for a line.
	pressed chan struct{}

	closed    atomic.Bool
	stop      chan struct{}
	abandoned atomic.Bool        // Close has given up: nothing more is written
	cancel    context.CancelFunc // aborts an active export
	done      chan struct{}
	dropped   [dropReasons]atomic.Uint64
	failed    atomic.Uint64
	lastErr   atomic.Pointer[error]
	logger    atomic.Pointer[slog.Logger]

	reopen  sync.Mutex // serializes Reopen and Close
	pending atomic.Pointer[os.File]

	// Used only by the writer goroutine:
	out     io.Writer
	file    *os.File // out, if the AccessLog must close it
	broken  bool     // the last write ended within a line
	checked time.Time
	warned  time.Time
}

// DropReason is why a line was not written.
type DropReason uint8

// The reasons; their words are the values of the label reason of moongate_access_log_dropped_total.
const (
	DropBufferFull   DropReason = iota // the memory for lines was used up
	DropWriteFailed                    // a write failed
	DropRejected                       // the collector rejected the line
	DropUnavailable                    // the collector could not be reached, or could not accept it
	DropShuttingDown                   // the process ended before
	dropReasons
)

// String returns the label value.
func (r DropReason) String() string {
	return [dropReasons]string{"buffer_full", "write_failed", "rejected", "unavailable", "shutting_down"}[r]
}

// dropError is an error of a write, with the reason by which its lines are counted.
type dropError struct {
	reason DropReason
	err    error
}

func (e *dropError) Error() string { return e.err.Error() }
func (e *dropError) Unwrap() error { return e.err }

// logShard is a buffer that requests write to; padded so that two shards do not share a cache line.
type logShard struct {
	mu    sync.Mutex
	buf   []byte // nil until a line is written
	clock secondCache
	_     [128 - 64]byte
}

// OpenAccessLog opens the destination of --access-log: "json" and "stdout" are stdout, "off" is a nil AccessLog that logs nothing,
// an http or https URL is an OTLP collector, and everything else is the path of a file that is appended to, created with mode 0640.
// The options must be valid for accesslog.Compile.
func OpenAccessLog(destination string, stdout io.Writer, o accesslog.Options) (*AccessLog, error) {
	layout, problems := accesslog.Compile(o)
	if len(problems) > 0 {
		return nil, fmt.Errorf("access log: %s; %s", problems[0].Text, problems[0].Remedy)
	}
	switch destination {
	case "off":
		return nil, nil
	case "json", "stdout":
		return newAccessLog("", stdout, nil, layout, o.OneIn), nil
	case "":
		return nil, errors.New("--access-log is empty; use stdout, off, the path of a file or the URL of a collector")
	}
	if isCollector(destination) {
		c, err := newLogExporter(destination)
		if err != nil {
			return nil, err
		}
		return newAccessLog("", c, nil, layout, o.OneIn), nil
	}
	f, err := openLogFile(destination)
	if err != nil {
		return nil, err
	}
	return newAccessLog(destination, f, f, layout, o.OneIn), nil
}

func openLogFile(path string) (*os.File, error) {
	// A named pipe without a reader then results in an error instead of waiting forever.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
	if errors.Is(err, syscall.ENXIO) {
		return nil, fmt.Errorf("--access-log: no process reads the pipe: %w; start its reader first", err)
	}
	if err != nil {
		return nil, fmt.Errorf("--access-log: cannot open the file: %w; use stdout, off or a path that can be written", err)
	}
	return f, nil
}

func newAccessLog(path string, out io.Writer, file *os.File, layout *accesslog.Layout, oneIn int) *AccessLog {
	n := 1
	for n < runtime.GOMAXPROCS(0) && n < logBuffers/2 {
		n *= 2
	}
	l := &AccessLog{
		path: path, layout: layout, out: out, file: file,
		shards: make([]logShard, n),
		full:   make(chan []byte, logBuffers),
		free:   make(chan []byte, logBuffers),
		wake:   make(chan struct{}, 1),

		pressed: make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(context.Background())
	if c, ok := out.(*logExporter); ok {
		c.ctx, c.stop, c.pressed, c.usedUp = ctx, l.stop, l.pressed, l.usedUp
	}
	if oneIn > 1 {
		l.oneIn = uint32(oneIn)
	}
	go l.run()
	return l
}

// Headers returns the names, in lower case, of the headers whose values Record.Headers must contain, first of requests, then of
// responses.
func (l *AccessLog) Headers() (request, response []string) {
	if l == nil || l.layout == nil {
		return nil, nil
	}
	return l.layout.RequestHeaders, l.layout.ResponseHeaders
}

// sampled reports whether a request is logged: one in oneIn, and in addition each that failed without a fault of its client, within
// the budget. Clients can cause many failures, for example with a gRPC deadline of a nanosecond, so without a budget any client
// could have all its requests logged.
func (l *AccessLog) sampled(r *Record) bool {
	return rand.Uint32N(l.oneIn) == 0 || hasFailed(r) && l.errors.take(r.end()/int64(time.Second))
}

func hasFailed(r *Record) bool {
	switch r.Reason.Source() {
	case SourceClient:
		return false // regardless of the status, such as 501 and 505
	case SourceUpstream, SourceInternal:
		return true
	}
	return r.Status >= 500 || r.OverriddenStatus >= 500
}

const (
	// maxFailureLines is how many failed requests are logged in a second in any case.
	maxFailureLines = 100
	// clockSetBack is by how many seconds a request must seem to have ended before others for the clock to be considered set back.
	clockSetBack = 600
)

// failureBudget counts these: the second in the upper half, the lines in it in the lower half.
type failureBudget struct{ state atomic.Uint64 }

// take reports whether there is room for another line in the second. Requests that end out of order do not go back to an earlier
// second, unless the clock was set back: until it has caught up there would be no room.
func (f *failureBudget) take(second int64) bool {
	for {
		old := f.state.Load()
		next := old + 1
		if now, last := uint64(uint32(second)), old>>32; now > last || now+clockSetBack < last {
			next = now<<32 | 1
		} else if uint32(old) >= maxFailureLines {
			return false
		}
		if f.state.CompareAndSwap(old, next) {
			return true
		}
	}
}

func (l *AccessLog) write(r *Record) {
	if l.oneIn != 0 && !l.sampled(r) {
		return
	}
	need := lineBound(r)
	if l.layout != nil {
		need += l.layout.Bound + maxEscape*headerBytes(r)
	}
	s := l.lockShard(r.Shard)
	reason, ok := l.append(s, r, need)
	s.mu.Unlock()
	if !ok {
		l.drop(reason, 1)
	}
}

func (l *AccessLog) drop(reason DropReason, lines int) { l.dropped[reason].Add(uint64(lines)) }

// lockShard locks the shard of the hint, or another one if that is busy.
func (l *AccessLog) lockShard(hint uint32) *logShard {
	mask := uint32(len(l.shards) - 1)
	for i := range mask + 1 {
		if s := &l.shards[(hint+i)&mask]; s.mu.TryLock() {
			return s
		}
	}
	s := &l.shards[hint&mask]
	s.mu.Lock() // held at most for the encoding of one line
	return s
}

// append appends a line; the caller must hold the shard's lock. If it returns false, the line is dropped for the returned reason.
func (l *AccessLog) append(s *logShard, r *Record, need int) (DropReason, bool) {
	if l.closed.Load() {
		return DropShuttingDown, false
	}
	if s.buf != nil && cap(s.buf)-len(s.buf) < need {
		l.full <- s.buf
		s.buf = nil
	}
	if s.buf == nil {
		if s.buf = l.buffer(); s.buf == nil {
			return DropBufferFull, false
		}
		l.poke()
	}
	if l.layout == nil {
		s.buf = appendLine(s.buf, r, &s.clock)
	} else {
		s.buf = appendLaidOut(s.buf, r, l.layout, &s.clock)
	}
	return 0, true
}

// buffer returns an empty buffer, or nil if all are waiting to be written.
func (l *AccessLog) buffer() []byte {
	select {
	case b := <-l.free:
		return b
	default:
	}
	if l.made.Add(1) > logBuffers {
		l.made.Add(-1)
		select {
		case l.pressed <- struct{}{}:
		default:
		}
		return nil
	}
	return make([]byte, 0, logBufferBytes)
}

// usedUp reports whether there is no empty buffer.
func (l *AccessLog) usedUp() bool { return l.made.Load() >= logBuffers && len(l.free) == 0 }

func (l *AccessLog) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the writer goroutine. It sleeps while there is nothing to write.
func (l *AccessLog) run() {
	defer close(l.done)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	armed := false
	for {
		select {
		case b := <-l.full:
			l.emit(b)
		case <-l.wake:
			l.switchFile()
			if !armed {
				timer.Reset(logFlushInterval)
				armed = true
			}
		case <-timer.C:
			armed = false
			l.followFile()
			l.flush()
		case <-l.stop:
			timer.Stop()
			l.flush()
			l.switchFile()
			if l.file != nil {
				l.note(l.file.Close())
			}
			return
		}
	}
}

// flush writes everything in the buffers.
func (l *AccessLog) flush() {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		b := s.buf
		s.buf = nil
		s.mu.Unlock()
		l.drain()
		if b != nil {
			l.emit(b)
		}
	}
	l.drain()
}

func (l *AccessLog) drain() {
	for {
		select {
		case b := <-l.full:
			l.emit(b)
		default:
			return
		}
	}
}

// emit writes a buffer and makes it available again.
func (l *AccessLog) emit(b []byte) {
	defer func() { l.free <- b[:0] }()
	if l.abandoned.Load() {
		l.drop(DropShuttingDown, countLines(b))
		return
	}
	l.switchFile()
	if l.broken {
		_, err := l.out.Write([]byte{'\n'})
		l.broken = err != nil
	}
	n, err := l.out.Write(b)
	if err != nil {
		reason := DropWriteFailed
		var dropped *dropError
		if errors.As(err, &dropped) {
			reason = dropped.reason
		}
		l.drop(reason, countLines(b[n:]))
		l.note(err)
		l.broken = l.broken || n > 0 && b[n-1] != '\n'
	}
}

func countLines(b []byte) int { return bytes.Count(b, []byte{'\n'}) }

// switchFile starts to use a file that Reopen has opened.
func (l *AccessLog) switchFile() {
	if f := l.pending.Swap(nil); f != nil {
		l.note(l.file.Close())
		l.out, l.file, l.broken = f, f, false
	}
}

// followFile opens the file again if it was renamed or removed, so that log rotation works without a signal, which cannot be sent to
// a proxy in a container. If that fails, the old file stays in use, and the failure is counted.
func (l *AccessLog) followFile() {
	if l.file == nil || time.Since(l.checked) < logFileCheck {
		return
	}
	l.checked = time.Now()
	l.switchFile()
	own, err := l.file.Stat()
	if err != nil {
		l.note(err)
		return
	}
	if there, err := os.Stat(l.path); err == nil && os.SameFile(own, there) {
		return
	}
	f, err := openLogFile(l.path)
	if err != nil {
		l.note(err)
		return
	}
	l.note(l.file.Close())
	l.out, l.file, l.broken = f, f, false
}

// note counts a failure, and logs the reason at intervals. Only the writer calls it.
func (l *AccessLog) note(err error) {
	if err == nil {
		return
	}
	l.lastErr.Store(&err) // before the count, so that a reader of the count finds it
	l.failed.Add(1)
	if logger := l.logger.Load(); logger != nil && (l.warned.IsZero() || time.Since(l.warned) >= logWarnInterval) {
		l.warned = time.Now()
		logger.Warn("cannot write the access log", "error", err, "dropped", l.Dropped())
	}
}

// SetLogger sets the logger for failed writes, at most one message a minute.
func (l *AccessLog) SetLogger(logger *slog.Logger) {
	if l != nil {
		l.logger.Store(logger)
	}
}

// Reopen opens the file by its path again, for log rotation (SIGHUP). Lines that are logged after it has returned go to the new
// file. It does nothing if the log is not a file. On error the old file stays in use.
func (l *AccessLog) Reopen() error {
	if l == nil || l.path == "" {
		return nil
	}
	l.reopen.Lock()
	defer l.reopen.Unlock()
	if l.closed.Load() {
		return nil
	}
	f, err := openLogFile(l.path)
	if err != nil {
		return err
	}
	if old := l.pending.Swap(f); old != nil {
		old.Close() // it was never written to
	}
	l.poke()
	return nil
}

// Close writes what is buffered and stops the writer. It gives up after timeout: what is not written by then is dropped and counted,
// and so are lines of requests that finish after Close. A second Close does nothing.
func (l *AccessLog) Close(timeout time.Duration) error {
	if l == nil {
		return nil
	}
	l.reopen.Lock()
	first := l.closed.CompareAndSwap(false, true)
	l.reopen.Unlock()
	if !first {
		return nil
	}
	defer l.cancel()
	before := l.dropped[DropShuttingDown].Load()
	close(l.stop)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-l.done:
		return nil
	case <-timer.C:
	}
	l.abandoned.Store(true)
	l.cancel()
	l.abandon()
	pending := ""
	timer.Reset(logCancelTime)
	select {
	case <-l.done:
	case <-timer.C:
		pending = ", and a write has not ended"
	}
	return fmt.Errorf("access log: not everything could be written within %v: %d lines were dropped%s", timeout, l.dropped[DropShuttingDown].Load()-before, pending)
}

// abandon drops all lines except those that the writer is writing.
func (l *AccessLog) abandon() {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		b := s.buf
		s.buf = nil
		s.mu.Unlock()
		l.drop(DropShuttingDown, countLines(b))
	}
	for {
		select {
		case b := <-l.full:
			l.drop(DropShuttingDown, countLines(b))
		default:
			return
		}
	}
}

// Dropped returns the number of lines that were not written since the start.
func (l *AccessLog) Dropped() (n uint64) {
	for reason := range dropReasons {
		n += l.DroppedBy(reason)
	}
	return n
}

// DroppedBy returns the number of lines that were not written for a reason.
func (l *AccessLog) DroppedBy(reason DropReason) uint64 {
	if l == nil {
		return 0
	}
	return l.dropped[reason].Load()
}

// WriteErrors returns the number of failed writes since the start.
func (l *AccessLog) WriteErrors() uint64 {
	if l == nil {
		return 0
	}
	return l.failed.Load()
}

// LastError returns the last error of a write, nil if there was none.
func (l *AccessLog) LastError() error {
	if l == nil {
		return nil
	}
	if p := l.lastErr.Load(); p != nil {
		return *p
	}
	return nil
}
