package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

const (
	// A log buffer holds the longest possible line (maxLine) at least once.
	logBufferBytes = 128 << 10
	// All buffers together bound the memory of the log to 4 MiB.
	logBuffers = 32
	// A line waits at most this long before it is written.
	logFlushInterval = 50 * time.Millisecond
	// So often at most it is looked whether the file is still the one at its path.
	logFileCheck = time.Second
)

// AccessLog writes one line for each request from a goroutine of its own. A request
// never waits for it: where memory for lines is used up, the line is dropped and
// counted. Lines are whole but not strictly in order. A nil *AccessLog logs nothing.
type AccessLog struct {
	path   string            // "" where the log is no file
	layout *accesslog.Layout // nil is JSON with every member
	oneIn  uint32            // of so many requests that have not failed one has a line; 0 is each

	shards []logShard
	full   chan []byte // buffers to write; has room for all there are
	free   chan []byte // empty buffers; has room for all there are
	made   atomic.Int32
	wake   chan struct{}

	closed  atomic.Bool
	stop    chan struct{}
	done    chan struct{}
	dropped atomic.Uint64
	failed  atomic.Uint64
	lastErr atomic.Pointer[error]

	reopen  sync.Mutex // Reopen and Close exclude each other
	pending atomic.Pointer[os.File]

	// Only the writer goroutine touches what follows.
	out     io.Writer
	file    *os.File // what out is, where it is ours to close
	broken  bool     // the last write ended within a line
	checked time.Time
}

// logShard is what requests write to; padded so that two shards share no cache line.
type logShard struct {
	mu    sync.Mutex
	buf   []byte // nil until a line is written
	clock secondCache
	_     [128 - 64]byte
}

// OpenAccessLog opens what --access-log says: "json" and "stdout" are stdout, "off" is a nil AccessLog that
// logs nothing, an http or https URL is a collector of OTLP, everything else is the path of a file that is appended to, created with mode 0640. The options must be ones that
// accesslog.Compile accepts.
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
		return nil, errors.New("--access-log is empty; say stdout, off, the path of a file or the URL of a collector")
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
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("--access-log: cannot open the file: %w; say stdout, off or a path that can be written", err)
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
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	if oneIn > 1 {
		l.oneIn = uint32(oneIn)
	}
	go l.run()
	return l
}

// Headers are the names, in lower case, of the headers whose values Record.Headers is to have, first of requests, then of responses.
func (l *AccessLog) Headers() (request, response []string) {
	if l == nil || l.layout == nil {
		return nil, nil
	}
	return l.layout.RequestHeaders, l.layout.ResponseHeaders
}

// sampled reports whether a request has a line: each that failed by no fault of its client, and one of oneIn others.
func (l *AccessLog) sampled(r *Record) bool {
	switch r.Reason.Source() {
	case SourceUpstream, SourceInternal:
		return true
	}
	return r.Status >= 500 || r.OverriddenStatus >= 500 || rand.Uint32N(l.oneIn) == 0
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
	if !l.append(s, r, need) {
		l.dropped.Add(1)
	}
	s.mu.Unlock()
}

// lockShard prefers the shard of the hint and takes another one where that is busy.
func (l *AccessLog) lockShard(hint uint32) *logShard {
	mask := uint32(len(l.shards) - 1)
	for i := range mask + 1 {
		if s := &l.shards[(hint+i)&mask]; s.mu.TryLock() {
			return s
		}
	}
	s := &l.shards[hint&mask]
	s.mu.Lock() // held for the encoding of a line at most
	return s
}

// append is called with the shard's lock held; false means that the line is dropped.
func (l *AccessLog) append(s *logShard, r *Record, need int) bool {
	if l.closed.Load() {
		return false
	}
	if s.buf != nil && cap(s.buf)-len(s.buf) < need {
		l.full <- s.buf
		s.buf = nil
	}
	if s.buf == nil {
		if s.buf = l.buffer(); s.buf == nil {
			return false
		}
		l.poke()
	}
	if l.layout == nil {
		s.buf = appendLine(s.buf, r, &s.clock)
	} else {
		s.buf = appendLaidOut(s.buf, r, l.layout, &s.clock)
	}
	return true
}

// buffer returns an empty buffer, or nil where all are waiting to be written.
func (l *AccessLog) buffer() []byte {
	select {
	case b := <-l.free:
		return b
	default:
	}
	if l.made.Add(1) > logBuffers {
		l.made.Add(-1)
		return nil
	}
	return make([]byte, 0, logBufferBytes)
}

func (l *AccessLog) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the writer. It sleeps while there is nothing to write.
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

// flush writes all that is buffered.
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

// emit writes a buffer and gives it back.
func (l *AccessLog) emit(b []byte) {
	l.switchFile()
	if l.broken {
		_, err := l.out.Write([]byte{'\n'})
		l.broken = err != nil
	}
	n, err := l.out.Write(b)
	if err != nil {
		l.note(err)
		l.dropped.Add(uint64(bytes.Count(b[n:], []byte{'\n'})))
		l.broken = l.broken || n > 0 && b[n-1] != '\n'
	}
	l.free <- b[:0]
}

// switchFile takes over a file that Reopen opened.
func (l *AccessLog) switchFile() {
	if f := l.pending.Swap(nil); f != nil {
		l.note(l.file.Close())
		l.out, l.file, l.broken = f, f, false
	}
}

// followFile opens the file anew where it was renamed or removed, so that who rotates it need not send a signal, which nobody can where the proxy
// is a container. Where that fails the old file stays in use, and the failure is counted.
func (l *AccessLog) followFile() {
	if l.file == nil || time.Since(l.checked) < logFileCheck {
		return
	}
	l.checked = time.Now()
	l.switchFile()
	ours, err := l.file.Stat()
	if err != nil {
		l.note(err)
		return
	}
	if there, err := os.Stat(l.path); err == nil && os.SameFile(ours, there) {
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

func (l *AccessLog) note(err error) {
	if err != nil {
		l.failed.Add(1)
		l.lastErr.Store(&err)
	}
}

// Reopen opens the file by its path again, for log rotation (SIGHUP). Lines logged
// after it returned go to the new file. It does nothing where the log is no file.
// On error the old file stays in use.
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
		old.Close() // never written to
	}
	l.poke()
	return nil
}

// Close writes what is buffered and ends the writer; it gives up after timeout. Lines of
// requests that finish after Close are dropped and counted. A second Close does nothing.
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
	close(l.stop)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-l.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("access log: its destination took nothing for %v; up to %d KiB of lines are lost", timeout, logBuffers*logBufferBytes>>10)
	}
}

// Dropped is the number of lines that were not written since the start.
func (l *AccessLog) Dropped() uint64 {
	if l == nil {
		return 0
	}
	return l.dropped.Load()
}

// WriteErrors is the number of failed writes since the start.
func (l *AccessLog) WriteErrors() uint64 {
	if l == nil {
		return 0
	}
	return l.failed.Load()
}

// LastError is the last failure to write, nil where there was none.
func (l *AccessLog) LastError() error {
	if l == nil {
		return nil
	}
	if p := l.lastErr.Load(); p != nil {
		return *p
	}
	return nil
}
