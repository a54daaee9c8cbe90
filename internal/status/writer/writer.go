// Package writer writes statuses to the objects of a cluster. It exists because only here the desired status and the existing object
// meet: other controllers write too, the results of own writes are seen late, and an API server may reject a write, be unavailable,
// or have a newer object.
//
// For each object it keeps the last desired status and merges it into the object as last seen; nothing is written if nothing
// differs. A write names the version that it was made for, so that what other writers wrote in the meantime is never lost.
//
// Its ServiceAccount needs the verb get on the kinds of package kind that have a status, patch on the subresource status of each,
// and patch on gatewayclasses for the finalizer.
//
// It imports neither translate, proxy nor source.
package writer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Objects are the objects as they were last seen, with status and resourceVersion. They must not be modified.
type Objects interface {
	Get(key kind.ObjectKey) (metav1.Object, bool)
}

// Change is a change of the part of one object's status that this controller writes.
type Change struct {
	Key kind.ObjectKey
	// Desired is as accepted by status.Merger; nil if the object is no longer managed.
	Desired any
	// Generation is the metadata.generation for which Desired was computed. Desired is not written to an object of another
	// generation. 0 if Desired is nil.
	Generation int64
	// UID is that of the object for which Desired was computed. Desired is not written to another object with the same name. "" if
	// Desired is nil, or if the UID is not known.
	UID types.UID
}

// Options of a Writer. Config, ControllerName and Objects are required.
type Options struct {
	// Config is the connection to the API server.
	Config *rest.Config
	// ControllerName identifies the entries and the GatewayClasses of this controller.
	ControllerName gwv1.GatewayController
	// Objects are the objects as last seen.
	Objects Objects
	// Unknown reports whether it is not known what the Gateway or ListenerSet is to which an object of a namespace refers: then
	// entries for it are kept, also in the status of the Gateway or ListenerSet itself. It may block; nil means never.
	Unknown func(namespace string, ref gwv1.ParentReference) bool
	// Watched reports whether the objects of a namespace are among Objects; nil means that all are.
	Watched func(namespace string) bool
	// GatewaysUnread reports whether there may be Gateways whose class was not passed to Gateway: then no finalizer is removed. Nil
	// means never.
	GatewaysUnread func() bool
	// Unwritable reports whether the status of an object could not be decoded, and may be missing in Objects: then nothing is
	// written to it, because entries of others would be lost. When this ends, Observed must be called for the object. Nil means
	// never.
	Unwritable func(kind.ObjectKey) bool
	// Version returns the version in which a kind is written; nil or "" means v1, and v1alpha1 for kinds of moongate.dev.
	Version func(group, kind string) string
	// Written is called with an object before and after its status was written, which must not be modified; may be nil. It must not
	// block.
	Written func(before, after metav1.Object)
	// Omitted is called when a status has no room for entries of this controller, with the message of status.Omitted, again when the
	// message changes, and with "" when there is room; may be nil. It must not block.
	Omitted func(object metav1.Object, message string)
	// Workers is the number of concurrent writes; 0 means 8.
	Workers int
	// Logger logs what cannot be written; nil discards.
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Writer writes statuses. It is safe for concurrent use.
type Writer struct {
	options Options
	client  *client
	running sync.Mutex // held by Run

	mu        sync.Mutex
	entries   map[kind.ObjectKey]*entry
	unsettled int // number of entries that are not settled
	// queue contains the objects to check; nil unless Run is running.
	queue workqueue.TypedDelayingInterface[kind.ObjectKey]
	// classes are those that Gateways name; users counts them by class.
	classes map[kind.ObjectKey]string
	users   map[string]int
	swept   bool
	// awaySince is since when the API server does not answer; zero while it does.
	awaySince time.Time
	writes    map[string]uint64 // by kind
	failures  map[Failure]uint64
}

// entry is the state of one object.
type entry struct {
	// Guarded by Writer.mu:
	latest   latest
	revision uint64 // of latest
	asked    uint64 // incremented for each reason to check the object
	swept    bool   // latest comes from Sweep
	settled  bool   // nothing more must be done

	// Used only by the worker that handles the object; there is one at a time.
	attempt
}

// latest is the last Change of an object, without its key.
type latest struct {
	desired    any
	generation int64
	uid        types.UID
}

func (l *latest) of(key kind.ObjectKey) Change {
	return Change{Key: key, Desired: l.desired, Generation: l.generation, UID: l.uid}
}

// New returns a Writer, which does nothing until Run is called. It fails if Config is invalid.
func New(options Options) (*Writer, error) {
	if options.Workers == 0 {
		options.Workers = 8
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	c, err := newClient(options.Config, options.Version)
	if err != nil {
		return nil, fmt.Errorf("status writer: %w", err)
	}
	return &Writer{
		options: options, client: c,
		entries: map[kind.ObjectKey]*entry{}, classes: map[kind.ObjectKey]string{}, users: map[string]int{},
		writes: map[string]uint64{}, failures: map[Failure]uint64{},
	}, nil
}

// Publish sets desired statuses; the last one for an object counts. It must be called while Run runs, or shortly before. It never
// blocks.
func (w *Writer) Publish(changes []Change) {
	for _, c := range changes {
		if c.Desired == nil {
			// Objects is called without the lock, because it may have its own.
			if _, ok := w.options.Objects.Get(c.Key); !ok {
				w.forget(c.Key)
				continue
			}
		}
		w.want(c)
	}
}

func (w *Writer) want(c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[c.Key]
	if e == nil {
		e = &entry{settled: true}
		w.entries[c.Key] = e
	}
	e.latest, e.swept = latest{c.Desired, c.Generation, c.UID}, false
	e.revision++
	w.ask(c.Key, e)
}

// forget drops an object that is gone.
func (w *Writer) forget(key kind.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[key]; e != nil {
		w.settle(e)
		delete(w.entries, key)
	}
}

// ask queues the object. The caller must hold mu.
func (w *Writer) ask(key kind.ObjectKey, e *entry) {
	e.asked++
	if e.settled {
		e.settled = false
		w.unsettled++
	}
	if w.queue != nil {
		w.queue.Add(key)
	}
}

// settle records that nothing more must be done about an object. The caller must hold mu.
func (w *Writer) settle(e *entry) {
	if !e.settled {
		e.settled = true
		w.unsettled--
	}
}

// Observed must be called if an object of the cluster has changed in any part, or is gone. It never blocks.
func (w *Writer) Observed(key kind.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[key]; e != nil {
		w.ask(key, e)
	}
}

// Gateway sets which class a Gateway names; "" if the Gateway is gone. A managed class has a finalizer while a Gateway names it. It
// never blocks.
func (w *Writer) Gateway(namespace, name, class string) {
	key := kind.ObjectKey{Group: gwv1.GroupName, Kind: "Gateway", Namespace: namespace, Name: name}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.classes[key]
	if before == class {
		return
	}
	if before != "" {
		if w.users[before]--; w.users[before] == 0 {
			delete(w.users, before)
		}
	}
	delete(w.classes, key)
	if class != "" {
		w.classes[key] = class
		w.users[class]++
	}
	for _, c := range []string{before, class} {
		if e := w.entries[classKey(c)]; e != nil {
			w.ask(classKey(c), e)
		}
	}
}

// Sweep must be called once before each Run, when all objects have been read and translated: unwanted are the routes, policies and
// ListenerSets that should have no status. Remaining entries of this controller are removed from routes and policies; the status of
// a ListenerSet, which does not name its controller, is reset to the one without a controller if the Gateway is known not to exist.
// Objects whose status is held back must not be among them. Before Sweep, and while GatewaysUnread, no finalizer is removed.
func (w *Writer) Sweep(unwanted []kind.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.swept = true
	for _, key := range unwanted {
		if w.entries[key] == nil {
			e := &entry{swept: true, settled: true}
			w.entries[key] = e
			w.ask(key, e)
		}
	}
	for key, e := range w.entries {
		if key.Kind == "GatewayClass" {
			w.ask(key, e)
		}
	}
}

// Idle reports whether nothing is left to be written or to be tried again.
func (w *Writer) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unsettled == 0
}

// Run writes until ctx ends; only the leader calls it, each time it becomes leader, after a first Publish of all desired statuses
// and a Sweep. At the end it forgets the desired statuses: another leader may write others until the next Run. The error is always
// nil.
func (w *Writer) Run(ctx context.Context) error {
	w.running.Lock()
	defer w.running.Unlock()
	queue := workqueue.NewTypedDelayingQueue[kind.ObjectKey]()
	w.mu.Lock()
	w.queue = queue
	for key, e := range w.entries {
		w.ask(key, e)
	}
	w.mu.Unlock()
	var workers sync.WaitGroup
	for range w.options.Workers {
		workers.Go(func() { w.work(ctx, queue) })
	}
	<-ctx.Done()
	w.mu.Lock()
	w.queue = nil
	w.mu.Unlock()
	queue.ShutDown()
	workers.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.entries)
	w.unsettled, w.swept, w.awaySince = 0, false, time.Time{}
	return nil
}

func (w *Writer) work(ctx context.Context, queue workqueue.TypedDelayingInterface[kind.ObjectKey]) {
	for {
		key, ended := queue.Get()
		if ended {
			return
		}
		if ctx.Err() == nil {
			if wait := w.look(ctx, key); wait > 0 {
				queue.AddAfter(key, wait)
			}
		}
		queue.Done(key)
	}
}

// look updates one object, or returns when to check again.
func (w *Writer) look(ctx context.Context, key kind.ObjectKey) time.Duration {
	w.mu.Lock()
	e := w.entries[key]
	if e == nil {
		w.mu.Unlock()
		return 0
	}
	change, swept, revision, asked := e.latest.of(key), e.swept, e.revision, e.asked
	w.mu.Unlock()
	wait := w.update(ctx, &e.attempt, change, swept, revision)
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait == 0 && e.asked == asked && ctx.Err() == nil && w.entries[key] == e {
		w.settle(e)
		if change.Desired == nil {
			delete(w.entries, key)
		}
	}
	return wait
}
