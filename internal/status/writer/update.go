package writer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/status"
)

// newerWait is how long the Writer waits for a newer version of an object after a conflict before it reads the object.
const newerWait = time.Second

// attempt is the state of writing one object.
type attempt struct {
	pace pace
	// seen is the API server's last response; nil once Objects has it, or a newer one.
	seen metav1.Object
	// unknown is when parents were last unknown; kept is set if a part of the status is kept for that reason.
	unknown map[parent]time.Time
	kept    bool
	fight   bool // was logged
	// stored is the digest of the status that resulted from writing storedOf; nil if there is none.
	stored   *digest
	storedOf uint64
	storedAt int64    // the object's generation
	omitted  string   // was reported
	trouble  *trouble // nil once there is nothing to write, as for most objects
}

// trouble is what is remembered of writes that failed.
type trouble struct {
	// conflict is the version for which a write was too late; "" if none. At readAt the object is read, if no newer version was seen
	// until then.
	conflict string
	readAt   time.Time
	// The number of consecutive failed writes of the status in revision failedOf.
	failures int
	failedOf uint64
	retryAt  time.Time
	failure  string // was logged
}

// update writes one object if necessary, and returns when to try again. swept is set if change comes from Sweep.
func (w *Writer) update(ctx context.Context, a *attempt, change Change, swept bool, revision uint64) time.Duration {
	for ctx.Err() == nil {
		object, wait := w.newest(ctx, a, change.Key)
		if object == nil {
			return wait
		}
		body, corrects, err := w.next(a, object, change, swept, revision)
		if err != nil {
			w.options.Logger.Error("a status cannot be written", "object", change.Key.String(), "error", err)
			return 0 // the result would be the same each time
		}
		var subresource []string
		if body != nil {
			subresource = []string{"status"}
		} else if body = w.finalizerPatch(a, object); body == nil {
			a.trouble = nil
			if a.kept {
				return unknownPoll
			}
			return 0
		}
		now := w.options.Now()
		if t := a.trouble; t != nil && t.failures > 0 && t.failedOf == revision && now.Before(t.retryAt) {
			return t.retryAt.Sub(now)
		}
		if wait := a.pace.take(now); wait > 0 {
			w.noteFight(a, change.Key, corrects)
			return wait
		}
		after, err := w.client.patch(ctx, change.Key, object, body, subresource...)
		if wait, ok := w.outcome(ctx, a, change.Key, revision, object, err); !ok {
			return wait
		}
		a.seen = after
		if subresource != nil {
			a.stored, a.storedOf, a.storedAt = digestOf(after), revision, after.GetGeneration()
			w.noteWrite(change.Key)
			if w.options.Written != nil {
				w.options.Written(object, after)
			}
		}
	}
	return newerWait // only the next Run handles it
}

// newest returns the newest known version of the object; nil if it is gone, or if it must be waited for.
func (w *Writer) newest(ctx context.Context, a *attempt, key kind.ObjectKey) (metav1.Object, time.Duration) {
	object, ok := w.options.Objects.Get(key)
	if !ok {
		a.seen = nil
		return nil, 0
	}
	if a.seen != nil {
		order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), a.seen.GetResourceVersion())
		if err != nil || order >= 0 {
			a.seen = nil
		} else {
			object = a.seen
		}
	}
	t := a.trouble
	if t == nil {
		return object, 0
	}
	if t.conflict == "" || t.conflict != object.GetResourceVersion() {
		t.conflict = ""
		return object, 0
	}
	if wait := t.readAt.Sub(w.options.Now()); wait > 0 {
		return nil, wait
	}
	read, err := w.client.get(ctx, key, object)
	if wait, ok := w.outcome(ctx, a, key, t.failedOf, object, err); !ok {
		t.readAt = w.options.Now().Add(wait)
		return nil, wait
	}
	a.seen, t.conflict = read, ""
	return read, 0
}

// next returns the patch that must be written; nil if none. corrects is set if another writer has changed what was written before.
func (w *Writer) next(a *attempt, object metav1.Object, change Change, swept bool, revision uint64) (body []byte, corrects bool, err error) {
	unknown := w.unknown(a, object.GetNamespace())
	switch {
	case change.Desired == nil && !w.abandoned(object, swept, unknown):
		return nil, false, nil
	case change.Desired != nil && (change.Generation != object.GetGeneration() || change.UID != "" && change.UID != object.GetUID()):
		return nil, false, nil // a status for this generation, or for this object, will follow
	case w.options.Unwritable != nil && w.options.Unwritable(change.Key):
		a.kept = a.kept || change.Desired == nil // otherwise it would be forgotten after a Change that clears the status
		return nil, false, nil
	}
	m := status.Merger{ControllerName: w.options.ControllerName, Now: w.options.Now(), Unknown: unknown}
	merged, changed, ok := m.Merge(object, change.Desired)
	if !ok {
		return nil, false, errMismatch{object, change.Desired}
	}
	w.noteOmitted(a, object, change, status.Omitted(merged, change.Desired, w.options.ControllerName))
	if !changed {
		return nil, false, nil
	}
	corrects = a.stored != nil && a.storedOf == revision && a.storedAt == object.GetGeneration()
	if corrects {
		if now := digestOf(object); now != nil && *now == *a.stored {
			return nil, false, nil // the API server drops a part of it, for example with an older CRD
		}
	}
	body, err = status.Patch(object, merged)
	return body, corrects, err
}

// outcome handles the result of a write: ok, or when to try again, 0 for never.
func (w *Writer) outcome(ctx context.Context, a *attempt, key kind.ObjectKey, revision uint64, object metav1.Object, err error) (wait time.Duration, ok bool) {
	switch {
	case ctx.Err() != nil:
		return newerWait, false // the next leader will see the result
	case err == nil:
		w.noteAnswer()
		return 0, true
	case apierrors.IsNotFound(err):
		w.noteAnswer()
		return 0, false // if there is another object with the name, it will be observed
	}
	if a.trouble == nil {
		a.trouble = &trouble{}
	}
	t := a.trouble
	if apierrors.IsConflict(err) {
		w.noteAnswer()
		t.conflict, t.readAt = object.GetResourceVersion(), w.options.Now().Add(newerWait)
		return newerWait, false
	}
	if t.failedOf != revision {
		t.failures = 0
	}
	t.failures++
	t.failedOf = revision
	w.countFailure(key, err)
	if isAway(err) {
		w.noteAway(err)
		wait = backoff(t.failures, backoffAway)
	} else {
		w.noteAnswer()
		w.noteFailure(t, key, err)
		if wait = backoffMax; !isUndecoded(err) { // which stays the same until the object changes
			wait = backoff(t.failures, backoffMax)
		}
	}
	if seconds, says := apierrors.SuggestsClientDelay(err); says {
		wait = max(wait, min(time.Duration(seconds)*time.Second, backoffMax))
	}
	t.retryAt = w.options.Now().Add(wait)
	return wait, false
}

// isAway reports whether the API server did not process the request at all.
func isAway(err error) bool {
	if isUndecoded(err) {
		return false
	}
	reason := apierrors.ReasonForError(err)
	return reason == metav1.StatusReasonUnknown || reason == metav1.StatusReasonServiceUnavailable || reason == metav1.StatusReasonInternalError ||
		reason == metav1.StatusReasonTooManyRequests || reason == metav1.StatusReasonServerTimeout || reason == metav1.StatusReasonTimeout
}

// digest identifies a status: the text of thousands of them would be large.
type digest [sha256.Size]byte

func digestOf(object metav1.Object) *digest {
	text, err := json.Marshal(status.Of(object))
	if err != nil {
		return nil
	}
	return new(digest(sha256.Sum256(text)))
}
