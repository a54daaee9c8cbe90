// Package event writes Events of the API group events.k8s.io, which report on an object what a user should look at. It exists
// because the recorders of client-go have no limit on pending Events: here there is one queue of fixed length and one goroutine.
// Recording never blocks, and what does not fit is counted and dropped. An Event is a hint in addition to the status, which is
// authoritative.
//
// It imports no other package of Moongate.
package event

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// queueLength is the maximum number of pending Events.
	queueLength = 1024
	// queueShare is the maximum number of these of one namespace, so that a tenant with many objects leaves room for others.
	queueShare = queueLength / 4
	// rate and burst limit the writes of all Events per second.
	rate, burst = 10, 100
	// objectBurst is how many Events one object may have at once, and objectInterval the time until it may have one more.
	objectBurst    = 25
	objectInterval = time.Minute
	// seriesInterval is the maximum time between two equal Events that are counted as a series.
	seriesInterval = 6 * time.Minute
	// maxKnown is the maximum number of objects and of series that are remembered.
	maxKnown = 4096
	// flush is how long pending Events are still written at the end.
	flush = 2 * time.Second
	// timeout limits one write.
	timeout = 10 * time.Second
	// Maximum lengths that the API server allows, in bytes.
	maxNote, maxWord = 1024, 128
)

// Reasons why an Event is not written.
const (
	reasonQueue  = "queue_full"
	reasonObject = "object_limit"
	reasonFailed = "failed"
)

// Event is an event about a namespaced object.
type Event struct {
	Regarding corev1.ObjectReference
	Warning   bool
	Reason    string // in one word
	Action    string // what the controller did, in one word
	Note      string // in text
}

// Options of a Recorder. Client, Controller and Instance are required.
type Options struct {
	Client client.EventsV1Interface
	// Controller is a qualified name, and Instance identifies the replica.
	Controller, Instance string
	Logger               *slog.Logger // nil discards
}

// Recorder writes Events. It is safe for concurrent use.
type Recorder struct {
	o     Options
	queue chan recorded

	// Used only by Run.
	limit   flowcontrol.RateLimiter
	objects map[object]*pace
	series  map[Event]*series
	failure string // the last logged reason of the API server
	lines   pace   // limits the lines in the log

	mu      sync.Mutex
	waiting map[string]int // number of queued Events by namespace
	written uint64
	dropped map[string]uint64
}

// recorded is an Event and the time at which it was recorded.
type recorded struct {
	Event
	at time.Time
}

// object identifies the object of an Event; a later object of the same name is another one.
type object struct {
	kind, namespace, name string
	uid                   types.UID
}

// series is an Event that was written, and how often it was recorded since.
type series struct {
	name  string
	count int32
	last  time.Time
}

// New returns a Recorder, which writes nothing until Run is called.
func New(o Options) *Recorder {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Recorder{
		o: o, queue: make(chan recorded, queueLength), limit: flowcontrol.NewTokenBucketRateLimiter(rate, burst),
		objects: map[object]*pace{}, series: map[Event]*series{}, waiting: map[string]int{}, dropped: map[string]uint64{},
	}
}

// Record queues an Event. It never blocks.
func (r *Recorder) Record(e Event) {
	// It is cut here, so that the rest is not kept in memory while the Event is queued or remembered: a condition's message may have
	// 32 KiB.
	e.Reason, e.Action, e.Note = cut(e.Reason, maxWord), cut(e.Action, maxWord), cut(e.Note, maxNote)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[e.Regarding.Namespace] < queueShare {
		select {
		case r.queue <- recorded{e, time.Now()}:
			r.waiting[e.Regarding.Namespace]++
			return
		default:
		}
	}
	r.dropped[reasonQueue]++
}

// taken records that an Event of a namespace was removed from the queue.
func (r *Recorder) taken(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[namespace]--; r.waiting[namespace] == 0 {
		delete(r.waiting, namespace)
	}
}

// Stats returns how many Events were written, repetitions included, and how many were dropped, by reason.
func (r *Recorder) Stats() (written uint64, dropped map[string]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written, maps.Clone(r.dropped)
}

func (r *Recorder) drop(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped[reason]++
}

// Run writes recorded Events until ctx ends, and for a short while afterwards those that are pending. The error is always nil.
func (r *Recorder) Run(ctx context.Context) error {
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(flush, stop) })
	for {
		select {
		case e := <-r.queue:
			r.write(writing, e)
			continue
		default:
		}
		select {
		case e := <-r.queue:
			r.write(writing, e)
		case <-ctx.Done():
			return nil
		}
	}
}

// write writes one Event, or increments its series if it was written a short while ago.
func (r *Recorder) write(ctx context.Context, e recorded) {
	r.taken(e.Regarding.Namespace)
	if ctx.Err() != nil {
		r.drop(reasonFailed)
		return
	}
	r.forget(e.at)
	key := e.Event
	key.Regarding.ResourceVersion = "" // the object may have changed in the meantime
	known := r.series[key]
	if known != nil {
		known.count++
		known.last = e.at
	}
	if !r.paceOf(e.Regarding).take(e.at) {
		r.drop(reasonObject)
		return
	}
	if r.limit.Wait(ctx) != nil { // ctx has ended
		r.drop(reasonFailed)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	if known != nil {
		err = r.repeat(ctx, e.Regarding.Namespace, known)
	}
	if known == nil || apierrors.IsNotFound(err) { // the API server has deleted it after its lifetime
		var name string
		if name, err = r.create(ctx, e); err == nil {
			r.series[key] = &series{name: name, count: 1, last: e.at}
		}
	}
	r.note(ctx, e, err)
}

func (r *Recorder) create(ctx context.Context, e recorded) (name string, err error) {
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Regarding.Namespace, GenerateName: "moongate-"},
		Regarding:  e.Regarding, Type: corev1.EventTypeNormal,
		Reason: e.Reason, Action: e.Action, Note: e.Note,
		EventTime: metav1.NewMicroTime(e.at), ReportingController: r.o.Controller, ReportingInstance: cut(r.o.Instance, maxWord),
	}
	if e.Warning {
		event.Type = corev1.EventTypeWarning
	}
	made, err := r.o.Client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Name, nil
}

func (r *Recorder) repeat(ctx context.Context, namespace string, s *series) error {
	patch, err := json.Marshal(map[string]any{"series": eventsv1.EventSeries{Count: s.count, LastObservedTime: metav1.NewMicroTime(s.last)}})
	if err != nil {
		return err
	}
	_, err = r.o.Client.Events(namespace).Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// note counts the result of a write, and logs a failure once until the reason changes. If failures and successes alternate, for
// example because one namespace has no quota for Events, the number of lines is limited to that of an object's Events.
func (r *Recorder) note(ctx context.Context, e recorded, err error) {
	if err == nil {
		r.failure = ""
		r.mu.Lock()
		r.written++
		r.mu.Unlock()
		return
	}
	r.drop(reasonFailed)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) { // it is deleted with its namespace, or that is gone
		return
	}
	failure := "reason " + string(apierrors.ReasonForError(err)) // never empty
	if r.failure == failure {
		return
	}
	r.failure = failure
	if !r.lines.take(e.at) {
		return
	}
	remedy := "none is needed if this passes: the status says the same"
	if apierrors.IsForbidden(err) {
		remedy = "let the controller's ServiceAccount create and patch events of group events.k8s.io"
	}
	r.o.Logger.Warn("an Event cannot be written", "object", e.Regarding.Kind+" "+e.Regarding.Namespace+"/"+e.Regarding.Name, "event", e.Reason, "error", err, "remedy", remedy)
}

// forget removes series that have ended, and remembered objects beyond the limit.
func (r *Recorder) forget(now time.Time) {
	maps.DeleteFunc(r.series, func(_ Event, s *series) bool { return now.Sub(s.last) > seriesInterval })
	if len(r.series) >= maxKnown {
		clear(r.series)
	}
	if len(r.objects) >= maxKnown {
		maps.DeleteFunc(r.objects, func(_ object, p *pace) bool { return !p.full.After(now) })
	}
	if len(r.objects) >= maxKnown {
		clear(r.objects)
	}
}

func (r *Recorder) paceOf(ref corev1.ObjectReference) *pace {
	o := object{ref.Kind, ref.Namespace, ref.Name, ref.UID}
	if r.objects[o] == nil {
		r.objects[o] = &pace{}
	}
	return r.objects[o]
}

// pace limits the Events of one object, and the lines in the log; the zero value has the whole burst.
type pace struct {
	full time.Time // when the whole burst is available again
}

// take uses one Event of the burst; it returns false if there is none left.
func (p *pace) take(now time.Time) bool {
	if p.full.Before(now) {
		p.full = now
	}
	if p.full.Sub(now) > (objectBurst-1)*objectInterval {
		return false
	}
	p.full = p.full.Add(objectInterval)
	return true
}

// cut returns a copy of the beginning of a text, so that the rest is not kept in memory; a character that would be split is removed.
func cut(text string, most int) string {
	if len(text) > most {
		text = strings.Clone(text[:most])
	}
	return strings.ToValidUTF8(text, "")
}
