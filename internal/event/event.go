// Package event writes Events of the API group events.k8s.io, which say of an object what a person should look at. It exists because the recorders of client-go
// have no bound on what waits: here there is one queue of a fixed length and one goroutine, whoever records never waits, and what does not fit is counted and
// dropped. An Event is a hint beside the status, which has the truth.
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
	// queueLength is how many Events may wait.
	queueLength = 1024
	// queueShare is how many of these may be of one namespace, so that a tenant with many objects leaves room for others.
	queueShare = queueLength / 4
	// rate and burst bound the writes of all Events a second.
	rate, burst = 10, 100
	// objectBurst is how many Events one object may have at once, and objectInterval how long it is until it may have one more.
	objectBurst    = 25
	objectInterval = time.Minute
	// seriesInterval is how long after the last of its kind an Event goes on as a series.
	seriesInterval = 6 * time.Minute
	// maxKnown bounds the objects and the series that are remembered.
	maxKnown = 4096
	// flush is how long what waits is still written at the end.
	flush = 2 * time.Second
	// timeout bounds one write.
	timeout = 10 * time.Second
	// What the API server allows, in bytes.
	maxNote, maxWord = 1024, 128
)

// Reasons why an Event is not written.
const (
	reasonQueue  = "queue_full"
	reasonObject = "object_limit"
	reasonFailed = "failed"
)

// Event is what has become of an object of a namespace.
type Event struct {
	Regarding corev1.ObjectReference
	Warning   bool
	Reason    string // why, as a word
	Action    string // what the controller did, as a word
	Note      string // for people
}

// Options of a Recorder. Client, Controller and Instance are required.
type Options struct {
	Client client.EventsV1Interface
	// Controller is a qualified name, and Instance tells replicas apart.
	Controller, Instance string
	Logger               *slog.Logger // nil discards
}

// Recorder writes Events. It is safe for concurrent use.
type Recorder struct {
	o     Options
	queue chan recorded

	// Of Run alone.
	limit   flowcontrol.RateLimiter
	objects map[object]*pace
	series  map[Event]*series
	failure string // the API server's reason that was logged
	lines   pace   // of the log

	mu      sync.Mutex
	waiting map[string]int // Events in the queue, by namespace
	written uint64
	dropped map[string]uint64
}

// recorded is an Event, and when it was recorded.
type recorded struct {
	Event
	at time.Time
}

// object is what an Event regards, one of the name that comes later not included.
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

// New makes a Recorder that writes nothing before Run.
func New(o Options) *Recorder {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Recorder{
		o: o, queue: make(chan recorded, queueLength), limit: flowcontrol.NewTokenBucketRateLimiter(rate, burst),
		objects: map[object]*pace{}, series: map[Event]*series{}, waiting: map[string]int{}, dropped: map[string]uint64{},
	}
}

// Record has an Event written. It never blocks.
func (r *Recorder) Record(e Event) {
	// Here, so that what is cut off is not kept while the Event waits and is remembered: a condition's message may have 32 KiB.
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

// taken notes that an Event of a namespace has left the queue.
func (r *Recorder) taken(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[namespace]--; r.waiting[namespace] == 0 {
		delete(r.waiting, namespace)
	}
}

// Stats returns how many Events were written, repetitions included, and how many were not, by the reason.
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

// Run writes what is recorded until ctx ends, and then for a short while what waits: nobody else would. The error is always nil.
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

// write writes one Event, as one more of a series where it was written a short while ago.
func (r *Recorder) write(ctx context.Context, e recorded) {
	r.taken(e.Regarding.Namespace)
	if ctx.Err() != nil {
		r.drop(reasonFailed)
		return
	}
	r.forget(e.at)
	key := e.Event
	key.Regarding.ResourceVersion = "" // the object may have changed meanwhile
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
	if known == nil || apierrors.IsNotFound(err) { // it has outlived its time
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

// note counts what came of a write, and logs a failure once for each reason that follows another. What fails by turns with what does not, as where one namespace has
// no quota for Events, has as many lines as an object may have Events.
func (r *Recorder) note(ctx context.Context, e recorded, err error) {
	if err == nil {
		r.failure = ""
		r.mu.Lock()
		r.written++
		r.mu.Unlock()
		return
	}
	r.drop(reasonFailed)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) { // it ends with its namespace, or that is gone
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

// forget ends series that are over, and what is remembered of objects beyond the bound.
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

// pace bounds the Events of one object, and the lines of the log; the zero value has the whole burst.
type pace struct {
	full time.Time // when the whole burst is there again
}

// take spends one Event, and reports false where there is none.
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

// cut returns what fits of a text, without the rest in memory; it may split a character, which goes then.
func cut(text string, most int) string {
	if len(text) > most {
		text = strings.Clone(text[:most])
	}
	return strings.ToValidUTF8(text, "")
}
