package provision

import (
	"context"
	"log/slog"

	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/translate"
)

// Options are what a Provisioner works with. All fields but Logger are required.
type Options struct {
	Config *rest.Config
	// ControllerName is the controllerName of our GatewayClasses. Objects made under another one are
	// left alone, so that two installations can share a cluster.
	ControllerName string
	// Image of the proxies, unless GatewayParameters name another.
	Image string
	// ControllerAddress is the host:port of the stream that proxies connect to.
	ControllerAddress string
	// CAPEM is what proxies trust; after a change call Refresh.
	CAPEM func() []byte
	// Report takes what runs for a Gateway whenever it changed: nil for nothing. readyPods are names,
	// sorted. Calls do not overlap; the first comes after everything was listed.
	Report func(namespace, name string, i *translate.Infrastructure, readyPods []string)
	Logger *slog.Logger // nil discards
}

// Provisioner applies plans and reports what becomes of them. It is safe for concurrent use.
type Provisioner struct{ o Options }

// New makes a Provisioner that knows no plan. The error is one of Options.Config.
func New(o Options) (*Provisioner, error) { return &Provisioner{o: o}, nil }

// Plan takes plans that changed; the newest of a Gateway wins. It never blocks. The first call
// of a leader carries all plans there are, be it none: objects of Gateways without a plan are removed, after a grace.
func (p *Provisioner) Plan(changes []translate.PlanChange) {}

// Refresh applies every plan anew as far as it differs, as after a change of Options.CAPEM. It never blocks.
func (p *Provisioner) Refresh() {}

// Watch follows what runs, and reports it, until ctx ends. Every replica does it.
func (p *Provisioner) Watch(ctx context.Context) error { <-ctx.Done(); return nil }

// Run applies plans until ctx ends, and forgets them then. The leader does it, while Watch runs.
func (p *Provisioner) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Gateway is the Gateway whose proxies run under a ServiceAccount; false for one of no plan.
func (p *Provisioner) Gateway(namespace, serviceAccount string) (name string, ok bool) {
	return "", false
}
