package observe

import (
	"time"
)

// ControllerStats is what a replica of the controller knows of its work.
type ControllerStats struct {
	Leading bool
	Held    int // statuses that wait until proxies serve what they speak of
	// ReadAway and WriteAway are for how long the API server has not answered who reads objects, and who writes statuses; 0 while it does.
	ReadAway, WriteAway time.Duration
	// StatusWrites are the statuses that were written, by kind, and StatusFailures those that could not be.
	StatusWrites   map[string]uint64
	StatusFailures map[StatusFailure]uint64
	// Reconciled are the parts that make objects of the cluster what they should be, by name.
	Reconciled map[string]ReconcileStats
	// EventsWritten and EventsDropped count Events, the latter by why they were not written.
	EventsWritten uint64
	EventsDropped map[string]uint64
	// Conditions counts objects by their conditions; nil while the replica does not lead.
	Conditions map[ObjectCondition]int
}

// StatusFailure is a kind of object, and why its status could not be written.
type StatusFailure struct{ Kind, Reason string }

// ReconcileStats is how one part does.
type ReconcileStats struct {
	Errors  uint64 // tries that failed
	Failing int    // objects that are not as they should be because of that
}

// ObjectCondition is a kind of object, and the type and status of a condition.
type ObjectCondition struct{ Kind, Type, Status string }

// SetController says where the state of this replica of the controller comes from, at each scrape.
func (m *Metrics) SetController(report func() ControllerStats) { m.controller.Store(&report) }

// SetSourceProblems gives the function that counts, by kind, objects that cannot be used as they are; it is called at each scrape and must be safe for
// concurrent use.
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
