package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// sink is a destination that can be held up or made to fail.
type sink struct {
	mu   sync.Mutex
	got  bytes.Buffer
	gate chan struct{} // where not nil, a write waits until it is closed
	fail func(b []byte) (int, error)
}

func (s *sink) Write(b []byte) (int, error) {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		n, err := s.fail(b)
		s.got.Write(b[:n])
		return n, err
	}
	return s.got.Write(b)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

func openLog(t *testing.T, destination string, w io.Writer) *AccessLog {
	t.Helper()
	l, err := OpenAccessLog(destination, w, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(time.Second) })
	return l
}

func TestAccessLogOff(t *testing.T) {
	l := openLog(t, "off", nil)
	o := Observer{Log: l}
	o.Finish(exampleRecord(nil))
	if err := errors.Join(l.Reopen(), l.Close(0), l.LastError()); err != nil || l.Dropped() != 0 || l.WriteErrors() != 0 {
		t.Errorf("off is not silent: %v, %d dropped", err, l.Dropped())
	}
	var none *Observer
	none.Finish(&Record{})
}

func TestAccessLogFlushesByItself(t *testing.T) {
	var s sink
	o := Observer{Log: openLog(t, "json", &s)}
	for range 3 { // also after the writer has gone to sleep
		before := len(s.String())
		start := time.Now()
		o.Finish(exampleRecord(nil))
		testkit.Eventually(t, "the line is written", func() bool { return len(s.String()) > before })
		if took := time.Since(start); took < logFlushInterval/2 {
			t.Errorf("a line was written after %v: lines are not gathered", took)
		}
	}
}

// Lines from many goroutines, more than fit into one buffer, are all there, whole, once.
func TestAccessLogConcurrent(t *testing.T) {
	var s sink
	l := openLog(t, "json", &s)
	const writers, lines = 8, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			r := exampleRecord(nil)
			r.Shard = uint32(w)
			for i := range lines {
				r.Status, r.Attempts = w, int32(i)
				(&Observer{Log: l}).Finish(r)
			}
		})
	}
	wg.Wait()
	if err := l.Close(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	seen := make(map[[2]int]bool)
	for line := range strings.Lines(s.String()) {
		var got struct {
			Code     int `json:"response_code"`
			Attempts int `json:"attempts"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if k := [2]int{got.Code, got.Attempts}; seen[k] {
			t.Fatalf("line %v is there twice", k)
		} else {
			seen[k] = true
		}
	}
	if len(seen) != writers*lines || l.Dropped() != 0 {
		t.Errorf("%d lines and %d dropped, want %d and 0", len(seen), l.Dropped(), writers*lines)
	}
}

// A destination that takes nothing never holds up a request; what is lost is counted to the line.
func TestAccessLogNeverBlocks(t *testing.T) {
	s := sink{gate: make(chan struct{})}
	l := openLog(t, "json", &s)
	const lines = 20000 // about 8 MB, more than all buffers hold
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := exampleRecord(nil)
		for range lines {
			l.write(r)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("requests wait for the destination")
	}
	if l.DroppedBy(DropBufferFull) == 0 {
		t.Error("nothing was dropped, although nothing could be written")
	}
	err := l.Close(20 * time.Millisecond)
	if lost := l.DroppedBy(DropShuttingDown); err == nil || lost == 0 || !strings.Contains(err.Error(), fmt.Sprint(lost)+" lines") {
		t.Errorf("%d lines are lost, of which Close says %v", lost, err)
	}
	close(s.gate)
	<-l.done
	if got := uint64(strings.Count(s.String(), "\n")); got+l.Dropped() != lines {
		t.Errorf("%d written and %d dropped, want %d together", got, l.Dropped(), lines)
	}
	dropped := l.DroppedBy(DropShuttingDown)
	l.write(exampleRecord(nil))
	if l.DroppedBy(DropShuttingDown) != dropped+1 {
		t.Error("a line after Close is not counted as dropped")
	}
}

func TestAccessLogWriteErrors(t *testing.T) {
	full := true
	s := sink{fail: func(b []byte) (int, error) {
		if full {
			full = false
			return 10, syscall.ENOSPC // within the first line
		}
		return len(b), nil
	}}
	l := openLog(t, "json", &s)
	l.write(exampleRecord(nil))
	l.write(exampleRecord(nil))
	testkit.Eventually(t, "the failure is counted", func() bool { return l.WriteErrors() == 1 })
	if l.DroppedBy(DropWriteFailed) == 0 || !errors.Is(l.LastError(), syscall.ENOSPC) {
		t.Errorf("%d dropped, error %v", l.DroppedBy(DropWriteFailed), l.LastError())
	}
	l.write(exampleRecord(nil))
	if err := l.Close(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(s.String(), "\n"), "\n")
	if last := lines[len(lines)-1]; len(lines) < 2 || !json.Valid([]byte(last)) {
		t.Errorf("the line after a torn one is torn too: %q", last)
	}
}

// TestAccessLogWarns: the log of the process says why lines are dropped, but not of each failure.
func TestAccessLogWarns(t *testing.T) {
	s := sink{fail: func([]byte) (int, error) { return 0, syscall.ENOSPC }}
	l := openLog(t, "json", &s)
	out := &testkit.Log{}
	l.SetLogger(slog.New(slog.NewTextHandler(out, nil)))
	for n := range uint64(2) {
		l.write(exampleRecord(nil))
		testkit.Eventually(t, "the failure is counted", func() bool { return l.WriteErrors() > n })
	}
	if err := l.Close(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, syscall.ENOSPC.Error()) || !strings.Contains(got, "dropped=1") {
		t.Errorf("logged %q", got)
	}
}

func TestAccessLogReopen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	l := openLog(t, path, nil)
	logged := func(method string) {
		r := exampleRecord(nil)
		r.Method = []byte(method)
		l.write(r)
	}
	logged("FIRST")
	testkit.Eventually(t, "the first line is in the file", func() bool { return strings.Contains(content(t, path), "FIRST") })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	logged("SECOND")
	if err := l.Close(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := content(t, path); strings.Contains(got, "FIRST") || !strings.Contains(got, "SECOND") {
		t.Errorf("the new file has %q", got)
	}
	if got := content(t, path+".1"); strings.Contains(got, "SECOND") {
		t.Errorf("the old file has %q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("everybody may read the log: %v %v", info.Mode(), err)
	}
	if err := l.Reopen(); err != nil {
		t.Errorf("Reopen after Close: %v", err)
	}
}

func TestAccessLogReopenFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "logs", "access.log")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l := openLog(t, path, nil)
	moved := filepath.Join(dir, "moved")
	if err := os.Rename(filepath.Dir(path), moved); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil || !strings.Contains(err.Error(), "--access-log") {
		t.Errorf("error %v, want one that names --access-log", err)
	}
	l.write(exampleRecord(nil))
	if err := l.Close(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if content(t, filepath.Join(moved, "access.log")) == "" {
		t.Error("the old file is not used any more")
	}
}

func TestAccessLogCannotOpen(t *testing.T) {
	for _, path := range []string{"", filepath.Join(t.TempDir(), "no", "such", "folder")} {
		if _, err := OpenAccessLog(path, nil, accesslog.Options{}); err == nil || !strings.Contains(err.Error(), "--access-log") {
			t.Errorf("%q: error %v, want one that names --access-log", path, err)
		}
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func BenchmarkAccessLog(b *testing.B) {
	l, err := OpenAccessLog("json", io.Discard, accesslog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(time.Second)
	r := exampleRecord(NewMetrics(MetricsOptions{}).Rule(exampleLabels))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.write(r)
		if i%64 == 0 {
			runtime.Gosched() // as every request does that waits for its bytes
		}
	}
	b.ReportMetric(float64(l.Dropped())/float64(b.N), "dropped/op")
}

// TestAccessLogPipe: a named pipe that nobody reads is an error, at the start and when it is opened again, and neither keeps a log from being closed.
func TestAccessLogPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAccessLog(path, nil, accesslog.Options{}); err == nil || !strings.Contains(err.Error(), "start its reader first") {
		t.Fatalf("opened without a reader: %v", err)
	}
	opened := make(chan *os.File)
	go func() {
		r, _ := os.Open(path)
		opened <- r
	}()
	var l *AccessLog
	testkit.Eventually(t, "opened", func() (ok bool) {
		var err error
		l, err = OpenAccessLog(path, nil, accesslog.Options{})
		return err == nil
	})
	reader := <-opened
	if err := l.Reopen(); err != nil {
		t.Errorf("opened again: %v", err)
	}
	reader.Close()
	if err := l.Reopen(); err == nil {
		t.Error("opened again without a reader")
	}
	if err := l.Close(time.Minute); err != nil {
		t.Error(err)
	}
}
