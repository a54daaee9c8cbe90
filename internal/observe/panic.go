package observe

import (
	"fmt"
	"runtime/debug"
)

// panicPlaces are the values of the label where. Their counters are 0 from the start, because the PromQL function increase does not
// see the first value of a series.
var panicPlaces = []string{
	"accept", "connect", "connection", "datagrams", "exchange", "hash table", "health", "health check", "http2", "load reports",
	"mirror", "resolve", "sweep", "tracing", "translate", "tunnel", "upload",
}

// Panicked counts and logs a panic that ended one unit of work only, with the stack of the goroutine. It must be called by the
// deferred function that has recovered v, and where must be one of panicPlaces. A nil Observer does nothing.
func (o *Observer) Panicked(where string, v any) {
	if o == nil {
		return
	}
	o.Metrics.Panicked(where)
	if o.Logger != nil {
		o.Logger.Error("panic: please report it", "where", where, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// Panicked counts a panic that ended one unit of work only. It does nothing if m is nil.
func (m *Metrics) Panicked(where string) {
	if m != nil {
		m.panics.WithLabelValues(where).Inc()
	}
}
