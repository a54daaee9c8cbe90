// Package writer writes statuses into the objects of a cluster. It exists because
// what translation wants and what an object has come together only here: other
// controllers write beside us, our own writes come back late, and an API server
// refuses, is away, or has a newer object than we have seen.
//
// For each object it knows what is wanted last and merges that into the object as
// it was seen last; nothing is written where nothing differs. A write names the
// version that it was made for, so that what others wrote meanwhile is never lost.
//
// It imports neither translate, proxy nor source.
package writer

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/status"
)

// Objects are the objects as they were last seen, with status and
// resourceVersion. What it returns is never modified.
type Objects interface {
	Get(key status.Key) (metav1.Object, bool)
}

// Change is what one object's status should be as far as it is ours.
type Change struct {
	Key status.Key
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
	// Version is the version of a kind to write to; nil or "": v1, and v1alpha1 of our own kinds.
	Version func(group, kind string) string
	// Workers is how many objects are written at a time; 0: 8.
	Workers int
	// Logger gets what cannot be written; nil: nobody does.
	Logger *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Writer writes statuses. It is safe for concurrent use.
type Writer struct{ options Options }

// New makes a Writer that does nothing before Run. It fails if Config is of no use.
func New(options Options) (*Writer, error) { return &Writer{options: options}, nil }

// Publish takes what is wanted now; of several for one object the last counts. It never blocks.
func (w *Writer) Publish(changes []Change) {}

// Observed says that an object is another one than before in the cluster, in
// whatever part, or is gone. It never blocks.
func (w *Writer) Observed(key status.Key) {}

// Gateway says which class a Gateway names; "" when the Gateway is gone. A class
// of ours has a finalizer while a Gateway names it.
func (w *Writer) Gateway(namespace, name, class string) {}

// Sweep is called once, when all objects have been seen and translated for the
// first time: unwanted are the routes and policies that translation wants no
// status of, and that lose what entries of ours they still have from before. Those
// whose status is held back for the time being are not among them. Before Sweep no
// finalizer is removed.
func (w *Writer) Sweep(unwanted []status.Key) {}

// Run writes until ctx ends; only the leader calls it, as often as it becomes
// leader, and never twice at a time. It begins by looking at all objects whose
// status it knows.
func (w *Writer) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Idle says that nothing is left to be written or to be tried again.
func (w *Writer) Idle() bool { return true }
