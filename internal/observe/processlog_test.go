package observe

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// numbered logs lines with numbers.
func numbered(l *ProcessLog, from, to int, padding string) {
	for i := from; i < to; i++ {
		fmt.Fprintf(l, "line %d%s\n", i, padding)
	}
}

// Lines come at once, whole and in the order in which each writer wrote them.
func TestProcessLog(t *testing.T) {
	var s sink
	l := NewProcessLog(&s)
	log := slog.New(slog.NewTextHandler(l, nil))
	log.Info("first")
	testkit.Eventually(t, "the line is written", func() bool { return strings.Contains(s.String(), "msg=first\n") })
	const writers, lines = 4, 200
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range lines {
				log.Info("more", "writer", w, "line", i)
			}
		})
	}
	wg.Wait()
	l.Close(testkit.Patience)
	var next [writers]int
	for line := range strings.Lines(s.String()) {
		_, attributes, ok := strings.Cut(line, "msg=more ")
		if !ok {
			continue
		}
		var w, i int
		if _, err := fmt.Sscanf(attributes, "writer=%d line=%d\n", &w, &i); err != nil || i != next[w] {
			t.Fatalf("%q: %v, want line %d of the writer", line, err, next[w])
		}
		next[w]++
	}
	if want := [writers]int{lines, lines, lines, lines}; next != want {
		t.Errorf("%v lines, want %v", next, want)
	}
	l.Close(0)
	numbered(l, 0, 1, "")
	if strings.Contains(s.String(), "line 0") || l.DroppedBy(DropShuttingDown) != 1 {
		t.Error("a line after Close is written, or not counted")
	}
}

// A destination that takes nothing holds up neither those who log nor Close; when it goes on, the log says how much it lacks, and where.
func TestProcessLogNeverBlocks(t *testing.T) {
	s := sink{gate: make(chan struct{})}
	l := NewProcessLog(&s)
	l.SetHandler(func(w io.Writer) slog.Handler {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelError})
	})
	const lines = 3 * maxProcessLog / 1000
	numbered(l, 0, 1, strings.Repeat(".", 1000))
	testkit.Eventually(t, "a line is being written", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.lines) == 0
	})
	numbered(l, 1, lines, strings.Repeat(".", 1000))
	dropped := l.DroppedBy(DropBufferFull)
	if dropped < lines/2 || dropped >= lines {
		t.Fatalf("%d of %d lines are dropped, of which a third has room", dropped, lines)
	}
	numbered(l, lines, lines+1, "") // short, but it must not overtake
	if got := l.DroppedBy(DropBufferFull); got != dropped+1 {
		t.Errorf("%d dropped, want %d", got, dropped+1)
	}
	close(s.gate)
	testkit.Eventually(t, "the log says what it lacks", func() bool { return strings.Contains(s.String(), "were dropped") })
	numbered(l, lines+1, lines+2, "")
	l.Close(testkit.Patience)
	all := strings.Split(strings.TrimSuffix(s.String(), "\n"), "\n")
	want := lines + 1 - int(dropped+1)
	if len(all) != want+2 {
		t.Fatalf("%d lines, want %d, one about those dropped, and one more", len(all), want)
	}
	for i, line := range all[:want] {
		if !strings.HasPrefix(line, fmt.Sprintf("line %d.", i)) {
			t.Fatalf("line %d is %.20q", i, line)
		}
	}
	if notice := all[want]; !strings.HasPrefix(notice, "{") || !strings.Contains(notice, `"level":"WARN","msg":"lines of this log were dropped`) ||
		!strings.Contains(notice, fmt.Sprintf(`"dropped":%d}`, dropped+1)) {
		t.Errorf("the line about those dropped, %d: %s", dropped+1, notice)
	}
	if last := all[want+1]; last != fmt.Sprint("line ", lines+1) {
		t.Errorf("the last line: %s", last)
	}
}

// TestProcessLogLast: what says why the process ends has room where no other line has, behind the one that says how many were dropped.
func TestProcessLogLast(t *testing.T) {
	s := sink{gate: make(chan struct{})}
	l := NewProcessLog(&s)
	numbered(l, 0, 1, "")
	testkit.Eventually(t, "a line is being written", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.lines) == 0
	})
	fmt.Fprintln(l.Last(), "with room")
	numbered(l, 1, 2*maxProcessLog/1000, strings.Repeat(".", 1000))
	dropped := l.DroppedBy(DropBufferFull)
	fmt.Fprintln(l.Last(), "the error")
	fmt.Fprintln(l.Last(), "long "+strings.Repeat("é", maxLastLines))
	numbered(l, 0, 1, "") // it must not overtake
	fmt.Fprintln(l.Last(), "too many")
	if got := l.DroppedBy(DropBufferFull); dropped == 0 || got != dropped+2 {
		t.Errorf("%d dropped, and %d later", dropped, got)
	}
	close(s.gate)
	l.Close(testkit.Patience)
	fmt.Fprintln(l.Last(), "closed")
	all := strings.Split(strings.TrimSuffix(s.String(), "\n"), "\n")
	if all[1] != "with room" {
		t.Errorf("the second line: %.40q", all[1])
	}
	end := all[len(all)-3:]
	if !strings.HasSuffix(end[0], fmt.Sprintf("dropped=%d", dropped+2)) || end[1] != "the error" || !strings.HasPrefix(end[2], "long éé") || !strings.HasSuffix(end[2], "é") || len(end[2]) > maxLastLines {
		t.Errorf("the last lines: %.80q", end)
	}
	if got := l.DroppedBy(DropShuttingDown); got != 1 {
		t.Errorf("%d lines were dropped after Close", got)
	}
}

// TestProcessLogLongLine: a line that is longer than what may wait is written where nothing else waits.
func TestProcessLogLongLine(t *testing.T) {
	var s sink
	l := NewProcessLog(&s)
	numbered(l, 0, 1, strings.Repeat(".", 2*maxProcessLog))
	l.Close(testkit.Patience)
	if n := len(s.String()); n < 2*maxProcessLog {
		t.Errorf("%d bytes are written", n)
	}
}

// Close does not wait for a destination that takes nothing, however many call it.
func TestProcessLogCloseStuck(t *testing.T) {
	s := sink{gate: make(chan struct{})}
	defer close(s.gate)
	l := NewProcessLog(&s)
	numbered(l, 0, 2, "")
	begin := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { l.Close(50 * time.Millisecond) })
	}
	wg.Wait()
	if took := time.Since(begin); took < 50*time.Millisecond || took > testkit.Patience/2 {
		t.Errorf("Close took %v", took)
	}
}

// Lines that a write has not taken are counted, and the log says so once one succeeds; one that was written in part does not run into the next.
func TestProcessLogWriteFails(t *testing.T) {
	failing := true
	var s sink
	s.fail = func(b []byte) (int, error) { // called with s.mu held
		if failing {
			return min(3, len(b)), syscall.ENOSPC
		}
		return len(b), nil
	}
	l := NewProcessLog(&s)
	numbered(l, 0, 3, "")
	testkit.Eventually(t, "the lines are dropped", func() bool { return l.DroppedBy(DropWriteFailed) == 3 })
	s.mu.Lock()
	failing = false
	s.got.Reset()
	s.got.WriteString("lin")
	s.mu.Unlock()
	numbered(l, 3, 4, "")
	l.Close(testkit.Patience)
	all := strings.Split(s.String(), "\n")
	if len(all) != 4 || all[0] != "lin" || !strings.HasSuffix(all[1], "dropped=3") || all[2] != "line 3" || all[3] != "" {
		t.Errorf("%q", all)
	}
	want(t, NewMetrics(MetricsOptions{ProcessLog: l}), "moongate_process_log_dropped_total", map[string]float64{"reason=buffer_full": 0, "reason=write_failed": 3})
	var none *ProcessLog
	if none.DroppedBy(DropWriteFailed) != 0 {
		t.Error("none has dropped something")
	}
}
