// Package writer writes statuses into the objects of a cluster. It exists because
// what translation wants and what an object has come together only here: other
// controllers write beside us, our own writes come back late, and an API server
// refuses, is away, or has a newer object than we have seen.
//
// For each object it knows what is wanted last and merges that into the object as
// it was seen last; nothing is written where nothing differs. A write names the
// version that it was made for, so that what others wrote meanwhile is never lost.
//
// Its ServiceAccount needs the verb get on the kinds of package kind that have a status, patch on the
// subresource status of each, and patch on gatewayclasses for the finalizer.
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Objects are the objects as they were last seen, with status and
// resourceVersion. What it returns is never modified.
type Objects interface {
	Get(key kind.ObjectKey) (metav1.Object, bool)
}

// Change is what one object's status should be as far as it is ours.
type Change struct {
	Key kind.ObjectKey
	// Desired is what status.Merger takes; nil where the object is no longer ours.
	Desired any
	// Generation is the metadata.generation that Desired was computed for. Desired is
	// not written into an object of any other generation. 0 with nil.
	Generation int64
}

// Options of a Writer. Config, ControllerName and Objects are needed.
type Options struct {
	// Config says how the API server is reached.
	Config *rest.Config
	// ControllerName marks our entries and our GatewayClasses.
	ControllerName gwv1.GatewayController
	// Objects are the objects as last seen.
	Objects Objects
	// Unknown reports whether it is not known what the Gateway or ListenerSet is that an object of a namespace refers to: what we said of
	// the object there stays, also in the status of the Gateway or ListenerSet itself. It may block; nil is never.
	Unknown func(namespace string, ref gwv1.ParentReference) bool
	// Watched reports whether the objects of a namespace are among Objects; nil is that all are.
	Watched func(namespace string) bool
	// GatewaysUnread reports whether there may be Gateways of which Gateway was not told the class that they name: no finalizer is
	// removed meanwhile. Nil is never.
	GatewaysUnread func() bool
	// Unwritable reports whether the status that an object has could not be decoded, and may be missing in Objects: nothing is written there
	// meanwhile, or the entries of others would be lost. When it is over, the object is Observed. Nil is never.
	Unwritable func(kind.ObjectKey) bool
	// Version is the version of a kind to write to; nil or "": v1, and v1alpha1 of our own kinds.
	Version func(group, kind string) string
	// Written is called with an object as it was and as it is after its status was written, of which nothing may be modified; nil is not
	// called. It must not block.
	Written func(before, after metav1.Object)
	// Workers is how many objects are written at a time; 0: 8.
	Workers int
	// Logger gets what cannot be written; nil: nobody does.
	Logger *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Writer writes statuses. It is safe for concurrent use.
type Writer struct {
	options Options
	client  *client
	running sync.Mutex // held by Run

	mu        sync.Mutex
	entries   map[kind.ObjectKey]*entry
	unsettled int // entries that are not settled
	// queue has the objects to look at; nil while nobody runs.
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

// entry is what is known of one object.
type entry struct {
	// Under Writer.mu.
	change   Change
	swept    bool   // change is of Sweep
	revision uint64 // of change
	asked    uint64 // grows with each reason to look at the object
	settled  bool   // everything that was asked for is done

	// Only of the worker that has the object, of which there is one at a time.
	attempt
}

// New makes a Writer that does nothing before Run. It fails if Config is of no use.
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

// Publish takes what is wanted now; of several for one object the last counts. It is called while Run runs, or shortly
// before. It never blocks.
func (w *Writer) Publish(changes []Change) {
	for _, c := range changes {
		if c.Desired == nil {
			// Objects are asked without the lock: they may have one of their own.
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
	e.change, e.swept = c, false
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

// ask has the object looked at. Called with mu held.
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

// settle says that nothing more is to be done about an object. Called with mu held.
func (w *Writer) settle(e *entry) {
	if !e.settled {
		e.settled = true
		w.unsettled--
	}
}

// Observed says that an object is another one than before in the cluster, in
// whatever part, or is gone. It never blocks.
func (w *Writer) Observed(key kind.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[key]; e != nil {
		w.ask(key, e)
	}
}

// Gateway says which class a Gateway names; "" when the Gateway is gone. A class
// of ours has a finalizer while a Gateway names it. It never blocks.
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

// Sweep is called once before each Run, when all objects have been seen and translated: unwanted are the routes, policies and ListenerSets that
// translation wants no status of. Routes and policies lose what entries of ours they still have from before; the status of a ListenerSet, which
// does not say whose it is, becomes the one without a controller where the Gateway is known not to exist. Those whose status is held back for the time
// being are not among them. Before Sweep, and while GatewaysUnread, no finalizer is removed.
func (w *Writer) Sweep(unwanted []kind.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.swept = true
	for _, key := range unwanted {
		if w.entries[key] == nil {
			e := &entry{change: Change{Key: key}, swept: true, settled: true}
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

// Idle says that nothing is left to be written or to be tried again.
func (w *Writer) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unsettled == 0
}

// Run writes until ctx ends; only the leader calls it, as often as it becomes
// leader, after a first Publish of everything that is wanted and a Sweep. At its end it forgets what is wanted: another
// leader may want, and write, something else until the next Run. The error is always nil.
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

// look brings one object up to date, or says when to look again.
func (w *Writer) look(ctx context.Context, key kind.ObjectKey) time.Duration {
	w.mu.Lock()
	e := w.entries[key]
	if e == nil {
		w.mu.Unlock()
		return 0
	}
	change, swept, revision, asked := e.change, e.swept, e.revision, e.asked
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
