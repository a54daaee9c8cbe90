package deliver

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate"
)

// RemoteOptions are the ends that a Remote connects. Publish and Plan must neither block nor call the Remote.
type RemoteOptions struct {
	Translator *translate.Translator
	// Publish takes statuses once what they say is served. Calls do not overlap.
	Publish func([]translate.StatusChange)
	// Plan takes what the Gateways need to run, at once. Calls do not overlap.
	Plan func([]translate.PlanChange)
	// Fetch answers the newly wanted objects, without those that do not exist, and is told what is no
	// longer wanted. It retries what fails until ctx ends: an object that is left out is absent.
	Fetch func(ctx context.Context, wants []translate.Want) []metav1.Object
	// Authenticate says for whom the caller of a stream may ask: the Gateway as "<namespace>/<name>",
	// and its pod.
	Authenticate func(ctx context.Context) (gateway, pod string, err error)
	// Translated is told what each translation cost; nil tells nobody.
	Translated func(incremental.Stats, time.Duration)
	Logger     *slog.Logger // nil discards
	// HoldLimit is how long a status waits for a proxy that does not answer; default 15 s.
	HoldLimit time.Duration
}

// Remote delivers to proxies in other processes. It is safe for concurrent use.
type Remote struct {
	o RemoteOptions
}

// NewRemote makes a Remote on standby that has delivered nothing.
func NewRemote(o RemoteOptions) *Remote { return &Remote{o: o} }

// Update lets edit change the translator's objects and delivers what follows. The first one must
// hold everything there is: nothing is served before it.
func (r *Remote) Update(edit func(*translate.Translator)) Delivery { return Delivery{} }

// SetInfrastructure tells what runs for a Gateway, nil where nothing does, and which of its pods
// are ready in the eyes of the cluster.
func (r *Remote) SetInfrastructure(namespace, name string, i *translate.Infrastructure, readyPods []string) {
}

// Lead begins to serve, to publish and to plan: first everything that is known. The epoch must
// be another one each time.
func (r *Remote) Lead(epoch string) {}

// Standby ends what Lead began; translation goes on.
func (r *Remote) Standby() {}

// Close ends all streams and timers, and a Fetch under way.
func (r *Remote) Close() {}

// Serve registers the delivery's service. The server must have been made with ServerOptions.
func (r *Remote) Serve(s grpc.ServiceRegistrar) {}

// ServerOptions are what a server for proxies needs beside its credentials: a proxy that is gone is noticed in time.
func ServerOptions() []grpc.ServerOption { return nil }

// RemoteStatus is a Remote at one moment, for people.
type RemoteStatus struct {
	Leading    bool            `json:"leading"`
	Epoch      string          `json:"epoch,omitempty"`
	Generation uint64          `json:"generation"`
	Held       int             `json:"heldStatuses"` // that wait for proxies
	Gateways   []RemoteGateway `json:"gateways"`     // sorted by name
}

// RemoteGateway is a Gateway and its proxies.
type RemoteGateway struct {
	Gateway    string        `json:"gateway"`    // "<namespace>/<name>"
	Generation uint64        `json:"generation"` // of its last change
	Resources  int           `json:"resources"`
	Proxies    []RemoteProxy `json:"proxies"` // sorted by pod
}

// RemoteProxy is a proxy that is connected, or ready in the eyes of the cluster.
type RemoteProxy struct {
	Pod       string            `json:"pod"`
	Version   string            `json:"version,omitempty"`
	Ready     bool              `json:"ready"`
	Connected bool              `json:"connected"`
	Acked     uint64            `json:"acked"` // generation; 0 for none in this epoch
	Overdue   bool              `json:"overdue,omitempty"`
	Error     string            `json:"error,omitempty"`     // of the last refused generation
	Listeners map[string]string `json:"listeners,omitempty"` // that it cannot serve, and why
	Rejected  map[string]string `json:"rejected,omitempty"`  // resources, and why
}

// Status is for the admin page.
func (r *Remote) Status() RemoteStatus { return RemoteStatus{} }
