package observe

import (
	"fmt"
	"runtime/debug"
)

// Panicked counts and logs a panic that ended one thing only, with the stack of the goroutine. It is called by the deferred
// function that has recovered v, and where is one of few words: connection, exchange, upload, mirror, http2, connect, sweep, accept, translate. A nil
// Observer does nothing.
func (o *Observer) Panicked(where string, v any) {
	if o == nil {
		return
	}
	o.Metrics.Panicked(where)
	if o.Logger != nil {
		o.Logger.Error("panic: please report it", "where", where, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// Panicked counts a panic that ended one thing only. Nil counts nothing.
func (m *Metrics) Panicked(where string) {
	if m != nil {
		m.panics.WithLabelValues(where).Inc()
	}
}
