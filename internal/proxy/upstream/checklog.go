package upstream

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

const (
	// maxEvents is the largest number of lines of a health check log that wait to be written. Further ones are dropped.
	maxEvents = 1024
	// reopenAfter is how long a file that could not be opened or written is not tried again. Lines are lost meanwhile.
	reopenAfter = time.Second
)

// eventLogs are the health check logs by path. The zero value is ready for use.
type eventLogs struct {
	mu    sync.Mutex
	logs  map[string]*eventLog
	ended bool
}

// eventLog is a log that is written on its own goroutine, so that checks do not wait for a disk or a pipe.
type eventLog struct {
	path  string // "" for standard output
	users int    // guarded by eventLogs.mu
	lines chan []byte
	end   chan struct{}
}

// take returns the log with a path. The first call for a path opens the log.
func (l *eventLogs) take(path string, output io.Writer) *eventLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.logs[path]
	if g == nil {
		g = &eventLog{path: path, lines: make(chan []byte, maxEvents), end: make(chan struct{})}
		if l.ended {
			close(g.end)
			return g
		}
		if l.logs == nil {
			l.logs = map[string]*eventLog{}
		}
		l.logs[path] = g
		go g.write(output)
	}
	g.users++
	return g
}

// give undoes take. The last call closes the log.
func (l *eventLogs) give(g *eventLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.users--; g.users == 0 && l.logs[g.path] == g {
		delete(l.logs, g.path)
		close(g.end)
	}
}

// close ends all logs.
func (l *eventLogs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for path, g := range l.logs {
		delete(l.logs, path)
		close(g.end)
	}
}

// checkEvent is a line of a log.
type checkEvent struct {
	Timestamp string `json:"timestamp"` // RFC 3339
	Backend   string `json:"backend"`
	Endpoint  string `json:"endpoint"`
	Event     string `json:"event"`
	Check     string `json:"check"`
	Reason    string `json:"reason,omitempty"`
}

// eventNames are the names of events in a BackendTrafficPolicy.
var eventNames = map[config.HealthCheckEvent]string{
	config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE:              "Failure",
	config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE_SERIES_START: "FailureSeriesStart",
	config.HealthCheckEvent_HEALTH_CHECK_EVENT_SUCCESS:              "Success",
	config.HealthCheckEvent_HEALTH_CHECK_EVENT_HEALTHY_TRANSITION:   "HealthyTransition",
}

// logged returns the event as which an event is logged, and whether it is logged. An event that begins a series of
// failures is also a failure, and a transition also a success.
func (a *active) logged(event config.HealthCheckEvent) (config.HealthCheckEvent, bool) {
	wanted := a.config.Log.GetEvents()
	if len(wanted) == 0 || slices.Contains(wanted, event) {
		return event, true
	}
	switch event {
	case config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE_SERIES_START:
		event = config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE
	case config.HealthCheckEvent_HEALTH_CHECK_EVENT_HEALTHY_TRANSITION:
		event = config.HealthCheckEvent_HEALTH_CHECK_EVENT_SUCCESS
	}
	return event, slices.Contains(wanted, event)
}

// report logs an event if the policy wants it. It never waits, and returns false if the event was dropped.
func (g *eventLog) report(a *active, e *Endpoint, event config.HealthCheckEvent, reason string) bool {
	event, wanted := a.logged(event)
	if !wanted {
		return true
	}
	line, err := json.Marshal(checkEvent{time.Now().UTC().Format(time.RFC3339Nano), e.backend.key, e.String(), eventNames[event], a.kind, reason})
	if err != nil {
		return false
	}
	select {
	case g.lines <- append(line, '\n'):
		return true
	default:
		return false
	}
}

// write writes the reported lines until the log ends, and then those that still wait.
func (g *eventLog) write(output io.Writer) {
	file := eventFile{path: g.path, output: output}
	defer file.close()
	for {
		select {
		case line := <-g.lines:
			file.write(line)
			continue
		case <-g.end:
		}
		for {
			select {
			case line := <-g.lines:
				file.write(line)
			default:
				return
			}
		}
	}
}

// eventFile is where lines are written: output, or a file that is kept open and is opened again if a write fails.
type eventFile struct {
	path   string
	output io.Writer
	file   *os.File
	failed time.Time // when opening or writing failed
}

func (f *eventFile) write(line []byte) {
	if f.path == "" {
		f.output.Write(line) //nolint:errcheck // there is nowhere to report an error
		return
	}
	for range 2 { // if a write to an open file fails, the file is opened again at once
		fresh := f.file == nil
		if !f.open() {
			return
		}
		if _, err := f.file.Write(line); err == nil {
			return
		}
		f.close()
		if fresh {
			f.failed = time.Now()
			return
		}
	}
}

func (f *eventFile) open() bool {
	if f.file != nil {
		return true
	}
	if !f.failed.IsZero() && time.Since(f.failed) < reopenAfter {
		return false
	}
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		f.failed = time.Now()
		return false
	}
	f.file, f.failed = file, time.Time{}
	return true
}

func (f *eventFile) close() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}
