package writer

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// noteFight logs once that another writer keeps changing what this one writes.
func (w *Writer) noteFight(a *attempt, key kind.ObjectKey, corrects bool) {
	if !corrects || a.fight {
		return
	}
	a.fight = true
	w.options.Logger.Warn("another controller keeps changing a status; it is corrected at most once a second",
		"object", key.String(), "remedy", "look for a second controller of the same controllerName: "+string(w.options.ControllerName))
}

// noteOmitted reports entries of this controller for which a status has no room, once for each message, and when there is room.
func (w *Writer) noteOmitted(a *attempt, object metav1.Object, change Change, message string) {
	if a.omitted == message {
		return
	}
	a.omitted = message
	switch {
	case message != "":
		w.options.Logger.Warn("a status has no room for entries of this controller", "object", change.Key.String(), "message", message,
			"remedy", "remove entries of controllers that no longer run")
	case change.Desired == nil:
		return // no entry is wanted any more
	}
	if w.options.Omitted != nil {
		w.options.Omitted(object, message)
	}
}

// noteWrite counts a status that was written.
func (w *Writer) noteWrite(key kind.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes[key.Kind]++
}

// countFailure counts a request that was rejected, or not answered.
func (w *Writer) countFailure(key kind.ObjectKey, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures[Failure{key.Kind, failureReason(err)}]++
}

// noteFailure logs why one object cannot be written, once for each reason.
func (w *Writer) noteFailure(t *trouble, key kind.ObjectKey, err error) {
	reason := string(apierrors.ReasonForError(err))
	if isUndecoded(err) {
		reason = reasonOther
	}
	if t.failure == reason {
		return
	}
	t.failure = reason
	w.options.Logger.Error("a status cannot be written", "object", key.String(), "reason", reason, "error", err, "remedy", remedy(key, err))
}

func remedy(key kind.ObjectKey, err error) string {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Sprintf("give the controller's ServiceAccount the verbs get and patch on %s and %[1]s/status of group %s", kind.Named(key.Kind).Resource, key.Group)
	case apierrors.IsInvalid(err), isUndecoded(err):
		return "check that the CRDs of the Gateway API in the cluster are of a version that this moongate supports"
	}
	return "see what the API server says; it is tried again at least once a minute"
}

// noteAway logs once that the API server does not answer.
func (w *Writer) noteAway(err error) {
	w.mu.Lock()
	begins := w.awaySince.IsZero()
	if begins {
		w.awaySince = w.options.Now()
	}
	w.mu.Unlock()
	if begins {
		w.options.Logger.Warn("the API server accepts no statuses; they are kept until it does", "error", err)
	}
}

// noteAnswer logs that the API server answers again.
func (w *Writer) noteAnswer() {
	w.mu.Lock()
	over := !w.awaySince.IsZero()
	w.awaySince = time.Time{}
	w.mu.Unlock()
	if over {
		w.options.Logger.Info("the API server answers again")
	}
}

// errMismatch is a defect of this program: a status for an object of another kind.
type errMismatch struct {
	object  metav1.Object
	desired any
}

func (e errMismatch) Error() string {
	return fmt.Sprintf("%T has no status of type %T", e.object, e.desired)
}
