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
	// maxEvents bounds the lines of a log of health checks that wait to be written. Those that find no room are dropped.
	maxEvents = 1024
	// reopenAfter is how long after a file could not be opened or written that is tried again. Lines that come meanwhile are lost.
	reopenAfter = time.Second
)

// eventLogs are the logs of health checks by path. The zero value is ready.
type eventLogs struct {
	mu    sync.Mutex
	logs  map[string]*eventLog
	ended bool
}

// eventLog is written by a goroutine of its own, so that nothing waits for a disk or a pipe.
type eventLog struct {
	path  string // "" for output
	users int    // guarded by eventLogs.mu
	lines chan []byte
	end   chan struct{}
}

// take returns the log of a path, and opens it with the first who takes it.
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

// give is the counterpart of take.
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

// checkEvent is a line.
type checkEvent struct {
	Timestamp string `json:"timestamp"` // RFC 3339
	Backend   string `json:"backend"`
	Endpoint  string `json:"endpoint"`
	Event     string `json:"event"`
	Check     string `json:"check"`
	Reason    string `json:"reason,omitempty"`
}

// eventNames are as BackendTrafficPolicies have them.
var eventNames = map[config.HealthCheckEvent]string{
	config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE:              "Failure",
	config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE_SERIES_START: "FailureSeriesStart",
	config.HealthCheckEvent_HEALTH_CHECK_EVENT_SUCCESS:              "Success",
	config.HealthCheckEvent_HEALTH_CHECK_EVENT_HEALTHY_TRANSITION:   "HealthyTransition",
}

// logged returns as what an event is logged, if it is: one that begins a series is a failure too, and a transition a success.
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

// report logs an event if it is wanted, and never waits; false is that it was dropped.
func (g *eventLog) report(a *active, e *Endpoint, event config.HealthCheckEvent, reason string) bool {
	event, wanted := a.logged(event)
	if !wanted {
		return true
	}
	line, err := json.Marshal(checkEvent{time.Now().UTC().Format(time.RFC3339Nano), e.backend.key, e.text, eventNames[event], a.kind, reason})
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

// write writes what is reported until the log ends, and then what was reported before.
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

// eventFile is where lines go: output, or a file that is kept open and opened anew where a write fails.
type eventFile struct {
	path   string
	output io.Writer
	file   *os.File
	failed time.Time // when it could not be opened or written
}

func (f *eventFile) write(line []byte) {
	if f.path == "" {
		f.output.Write(line) //nolint:errcheck // there is nowhere to report it
		return
	}
	for range 2 { // a file that was good until now is opened anew at once
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
