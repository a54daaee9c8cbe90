package observe

import (
	"time"
)

// ControllerStats is the state of a replica of the controller.
type ControllerStats struct {
	Leading bool
	Held    int // statuses that are held back until proxies serve what they report
	// ReadAway and WriteAway are for how long the API server has not answered reads of objects, and writes of statuses; 0 while it
	// does.
	ReadAway, WriteAway time.Duration
	// StatusWrites counts the statuses that were written, by kind, and StatusFailures those that could not be.
	StatusWrites   map[string]uint64
	StatusFailures map[StatusFailure]uint64
	// Reconciled are the parts of the controller that reconcile objects of the cluster, by name.
	Reconciled map[string]ReconcileStats
	// EventsWritten and EventsDropped count Events, the latter by reason.
	EventsWritten uint64
	EventsDropped map[string]uint64
	// Conditions counts objects by their conditions; nil unless the replica is leader.
	Conditions map[ObjectCondition]int
}

// StatusFailure is a kind of object, and why its status could not be written.
type StatusFailure struct{ Kind, Reason string }

// ReconcileStats is the state of one part.
type ReconcileStats struct {
	Errors  uint64 // failed attempts
	Failing int    // objects that are not up to date because of failures
}

// ObjectCondition is a kind of object, and the type and status of a condition.
type ObjectCondition struct{ Kind, Type, Status string }

// SetController sets the function that reports the state of this replica of the controller; it is called at each scrape and must be
// safe for concurrent use.
func (m *Metrics) SetController(report func() ControllerStats) { m.controller.Store(&report) }

// SetSourceProblems sets the function that counts, by kind, objects that cannot be used; it is called at each scrape and must be
// safe for concurrent use.
func (m *Metrics) SetSourceProblems(report func() map[string]int) { m.sourceProblems.Store(&report) }

func (e emitter) controller(s ControllerStats) {
	e.gauge(descLeading, oneIf(s.Leading))
	e.gauge(descHeld, float64(s.Held))
	e.gauge(descAway, s.ReadAway.Seconds(), "read")
	e.gauge(descAway, s.WriteAway.Seconds(), "write")
	for kind, n := range s.StatusWrites {
		e.counter(descStatusWrites, n, kind)
	}
	for f, n := range s.StatusFailures {
		e.counter(descStatusFailures, n, f.Kind, f.Reason)
	}
	for part, r := range s.Reconciled {
		e.counter(descReconcileErrors, r.Errors, part)
		e.gauge(descReconcileFailing, float64(r.Failing), part)
	}
	e.counter(descEventsWritten, s.EventsWritten)
	for reason, n := range s.EventsDropped {
		e.counter(descEventsDropped, n, reason)
	}
	for c, n := range s.Conditions {
		e.gauge(descObjects, float64(n), c.Kind, c.Type, c.Status)
	}
}
