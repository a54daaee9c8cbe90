package writer

import (
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/status"
)

// Stats is what a Writer has done since New, and its present state.
type Stats struct {
	// Writes are the statuses that were written, by kind.
	Writes map[string]uint64
	// Failures counts the writes that the API server has rejected or not answered, without conflicts, which are normal.
	Failures map[Failure]uint64
	// Away is for how long the API server has not accepted statuses although there are some to write; 0 while it does.
	Away time.Duration
}

// Failure is a kind of object, and why its status was not written.
type Failure struct{ Kind, Reason string }

// Reasons of a Failure in addition to those of the API server.
const (
	reasonUnreachable = "Unreachable" // no response
	reasonOther       = "Other"       // an unknown reason, or a response that cannot be decoded
)

// reasons are those of API servers; others would make an unlimited number of series.
var reasons = []metav1.StatusReason{
	metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest,
	metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonNotAcceptable, metav1.StatusReasonRequestEntityTooLarge,
	metav1.StatusReasonUnsupportedMediaType, metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout,
	metav1.StatusReasonTooManyRequests, metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable,
}

func failureReason(err error) string {
	switch reason := apierrors.ReasonForError(err); {
	case isUndecoded(err):
		return reasonOther
	case reason == metav1.StatusReasonUnknown:
		return reasonUnreachable
	case slices.Contains(reasons, reason):
		return string(reason)
	}
	return reasonOther
}

// Stats returns the present Stats. The maps are copies.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{Writes: maps.Clone(w.writes), Failures: maps.Clone(w.failures)}
	if !w.awaySince.IsZero() && w.unsettled > 0 { // the objects that could not be written may be gone
		s.Away = max(w.options.Now().Sub(w.awaySince), time.Nanosecond)
	}
	return s
}

// Condition is a kind, or "Listener" for the listeners of Gateways and ListenerSets, with the type and the status of a condition.
type Condition struct {
	Kind, Type string
	Status     metav1.ConditionStatus
}

// kindListener stands for listeners, which have their own conditions.
const kindListener = "Listener"

// Conditions returns how many objects and listeners have a condition with a status, among those whose status this Writer writes; an
// object with several entries that differ is counted for each status. It returns nil unless Run is running.
func (w *Writer) Conditions() map[Condition]int {
	w.mu.Lock()
	changes := make([]Change, 0, len(w.entries))
	for key, e := range w.entries {
		if e.latest.desired != nil {
			changes = append(changes, e.latest.of(key))
		}
	}
	w.mu.Unlock()
	var counts map[Condition]int
	seen := map[Condition]bool{} // of one object
	for _, change := range changes {
		clear(seen)
		for _, part := range status.Parts(change.Desired, "") {
			for _, c := range part.Conditions {
				counted := Condition{change.Key.Kind, c.Type, c.Status}
				if part.Listener != "" {
					counted.Kind = kindListener
				} else if seen[counted] {
					continue
				} else {
					seen[counted] = true
				}
				if counts == nil {
					counts = map[Condition]int{}
				}
				counts[counted]++
			}
		}
	}
	return counts
}
