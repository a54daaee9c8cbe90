package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// ClusterOptions configure a Cluster. Publish, Provision, Unlisted and Trouble must neither block nor call the Cluster.
type ClusterOptions struct {
	Translator *translate.Translator
	Delivery   *deliver.Remote
	// Publish is called with statuses once the configuration that they report is served. Calls do not overlap.
	Publish func([]translate.StatusChange)
	// Provision is called at once with ProxySpecs that have changed; on Lead with all of them, even if there are none. Calls do not
	// overlap.
	Provision func([]translate.ProxySpecChange)
	// Select is called with changes of the endpoints that XBackends select, also on standby; may be nil. It must neither block nor
	// call the Cluster.
	Select func([]translate.SelectorChange)
	// Fetch reads a Secret that is newly needed, and returns nothing if it does not exist; or it records that one is no longer
	// needed. It is called with one request at a time, concurrently for several Secrets, and with no lock held. Until it returns,
	// the proxies of the Gateways that need the Secret keep their configuration, so it must give up eventually. ctx ends when the
	// Secret is no longer needed, or the Cluster is closed.
	Fetch func(ctx context.Context, requests []translate.SecretRequest) []metav1.Object
	// Unlisted reports whether it is not completely known what runs in a namespace: then the statuses of its Gateways are not
	// published, because they would report that it is gone. nil means never.
	Unlisted func(namespace string) bool
	// Current returns a fetched object as it is known now, nil if it does not exist: between Fetch and its use an Update may have
	// set a newer one. If nil, the result of Fetch is used.
	Current func(kind.ObjectKey) metav1.Object
	// Trouble is called with what is wrong with the proxies of a Gateway whenever that changes, while leading: which do not serve
	// the current configuration, and what they cannot apply; "" once it is resolved, unless no proxies should run any longer. May be
	// nil.
	Trouble func(namespace, name, what string)
	// Translated is called with the cost of each translation; may be nil.
	Translated func(incremental.Stats, time.Duration)
	Logger     *slog.Logger // nil discards
	// HoldLimit is how long a status waits for a proxy that does not answer; default deliver.DefaultAnswerLimit. Delivery should
	// have the same AnswerLimit.
	HoldLimit time.Duration
	// CommitLimit is how long a Commit may take before Alive fails; default 2 minutes.
	CommitLimit time.Duration
}

// Cluster is the control loop of a controller whose proxies are other processes. It is safe for concurrent use.
type Cluster struct {
	o      ClusterOptions
	ctx    context.Context // of background work
	cancel context.CancelFunc

	watchdog watchdog
	fetches  fetches

	// translating is held while the translator is used; it is locked before mu.
	translating sync.Mutex

	// mu guards the fields below, and is held during Publish, Provision and Trouble. Delivery has its own lock, which is locked
	// after mu, and calls nothing while it holds that.
	mu       sync.Mutex
	leading  bool
	gateways map[string]*gateway
	gate     statusGate
	stopTick context.CancelFunc // while leading
	ticker   sync.WaitGroup
}

// gateway is the state of a Gateway in the control loop; guarded by Cluster.mu.
type gateway struct {
	spec           *translate.ProxySpec // nil if none
	infrastructure *translate.Infrastructure
	// What was last set in the translator from reports of the proxies.
	listenerFaults map[string]translate.ListenerFault // by config.Listener.key
	routeFaults    map[string]string                  // by config.Route.key
	trouble        string                             // the last argument of ClusterOptions.Trouble
}

// NewCluster returns a Cluster on standby that has delivered nothing.
func NewCluster(o ClusterOptions) *Cluster {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Translated == nil {
		o.Translated = func(incremental.Stats, time.Duration) {}
	}
	if o.HoldLimit <= 0 {
		o.HoldLimit = deliver.DefaultAnswerLimit
	}
	if o.CommitLimit <= 0 {
		o.CommitLimit = commitLimit
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Cluster{o: o, ctx: ctx, cancel: cancel, gateways: map[string]*gateway{}}
	c.gate = newStatusGate(o.Delivery, c.open, c.unlisted, o.HoldLimit)
	c.fetches.start(ctx, o.Fetch, c.fetched)
	o.Delivery.Notify(c.refresh, c.answered)
	return c
}

// Update calls edit to change the translator's objects, and delivers the result. The first call must add all objects: nothing is
// served before.
func (c *Cluster) Update(edit func(*translate.Translator)) Outcome {
	c.translating.Lock()
	defer c.translating.Unlock()
	edit(c.o.Translator)
	c.takeReports()
	result := c.translate()
	return c.apply(&result, true)
}

// View calls look to read the translator as of the last Commit.
func (c *Cluster) View(look func(*translate.Translator)) {
	c.translating.Lock()
	defer c.translating.Unlock()
	look(c.o.Translator)
}

// refresh passes changes of the proxies to the translator and delivers the result.
func (c *Cluster) refresh() {
	c.translating.Lock()
	defer c.translating.Unlock()
	c.settle()
}

// settle is refresh; the caller must hold translating.
func (c *Cluster) settle() {
	if c.takeReports() {
		c.commit()
	}
}

// commit translates and delivers the result; the caller must hold translating.
func (c *Cluster) commit() {
	result := c.translate()
	c.apply(&result, false)
}

// translate commits, and requests what is newly needed; the caller must hold translating.
func (c *Cluster) translate() translate.Result {
	start := time.Now()
	var result translate.Result
	c.watchdog.watch(func() { result = c.o.Translator.Commit() })
	c.o.Translated(result.Stats, time.Since(start))
	c.fetches.request(result.SecretRequests)
	logUnattachedPolicies(c.o.Logger, result.UnattachedPolicies)
	return result
}

// apply delivers the result of a translation; the caller must hold translating. complete is set if all objects were read.
func (c *Cluster) apply(result *translate.Result, complete bool) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	change := deliver.Change{Config: &result.Config, Gateways: map[string]bool{}, Withheld: c.withheld(), Complete: complete}
	for _, ch := range result.ProxySpecs {
		name := config.GatewayKey(ch.Namespace, ch.Name)
		c.gateway(name).spec = ch.Spec
		change.Gateways[name] = ch.Spec != nil
	}
	if len(result.Selectors) > 0 && c.o.Select != nil {
		c.o.Select(result.Selectors)
	}
	effect := c.o.Delivery.Apply(&change)
	for _, name := range effect.Changed {
		c.gate.restart(name, now) // the proxies could not have it until now
	}
	if c.leading {
		if len(result.ProxySpecs) > 0 {
			c.o.Provision(result.ProxySpecs)
		}
		for _, s := range result.Statuses {
			c.gate.add(s, now)
		}
		for _, name := range effect.Changed {
			c.gate.release(name)
		}
		c.publish()
	}
	for name := range change.Gateways {
		c.tidy(name)
	}
	return Outcome{Generation: effect.Generation, Runs: result.Stats.Runs, Applied: len(result.Config.Upserts) + len(result.Config.Removals)}
}

// publish publishes the statuses that no longer wait. The caller must hold c.mu.
func (c *Cluster) publish() {
	if changes := c.gate.take(); len(changes) > 0 && c.leading {
		c.o.Publish(changes)
	}
}

// answered is called after proxies of a Gateway have acknowledged a generation, or are gone.
func (c *Cluster) answered(gateway string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate.release(gateway)
	c.publish()
}

// SetInfrastructure sets what runs for a Gateway, nil if nothing does, and which of its pods are ready according to the cluster.
func (c *Cluster) SetInfrastructure(namespace, name string, i *translate.Infrastructure, readyPods []string) {
	gateway := config.GatewayKey(namespace, name)
	c.translating.Lock()
	defer c.translating.Unlock()
	c.mu.Lock()
	c.gateway(gateway).infrastructure = i
	c.o.Delivery.SetReady(gateway, readyPods)
	c.mu.Unlock()

	c.settle()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate.release(gateway) // the Gateway no longer waits for a pod that is gone
	c.publish()
	c.tidy(gateway)
}

// Lead begins to serve, to publish and to provision, first everything that is known. The epoch must be different each time, and
// never "".
func (c *Cluster) Lead(epoch string) {
	c.Standby()
	c.translating.Lock()
	defer c.translating.Unlock()
	c.settle() // statuses must report the present state, not that of proxies of another epoch
	statuses := c.o.Translator.Statuses()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil { // closed
		return
	}
	now := time.Now()
	c.leading = true
	var specs []translate.ProxySpecChange
	for _, g := range c.gateways {
		if g.spec != nil {
			specs = append(specs, translate.ProxySpecChange{Namespace: g.spec.Namespace, Name: g.spec.Name, Spec: g.spec})
		}
	}
	slices.SortFunc(specs, func(a, b translate.ProxySpecChange) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	c.o.Provision(specs) // even if there are none: then what runs must be removed
	// Streams are served after Provision, because only the ProxySpecs tell for which Gateway a proxy may ask.
	withheld := c.withheld()
	c.o.Delivery.Lead(epoch, &withheld)
	for _, s := range statuses {
		c.gate.add(s, now)
	}
	c.publish()
	ctx, stop := context.WithCancel(c.ctx)
	c.stopTick = stop
	c.ticker.Go(func() { c.watchDeadlines(ctx) })
}

// Standby ends what Lead has begun; translation continues. It does not wait for a translation, so that a replica that loses the
// Lease is silent before another one has it.
func (c *Cluster) Standby() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading = false
	if c.stopTick != nil {
		c.stopTick()
	}
	c.gate.clear()
	c.o.Delivery.Standby() // the next Update or Lead takes its reports
}

// Close ends all streams, timers and fetches. The Cluster must not be used afterwards.
func (c *Cluster) Close() {
	c.cancel()
	c.Standby()
	c.ticker.Wait()
	c.fetches.wait()
}

// watchDeadlines calls expire at intervals until ctx ends.
func (c *Cluster) watchDeadlines(ctx context.Context) {
	tick := time.NewTicker(max(c.o.HoldLimit/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.expire(now)
		}
	}
}

// expire gives up on proxies that did not answer in time, and publishes the statuses that waited for them.
func (c *Cluster) expire(now time.Time) {
	c.mu.Lock()
	late := c.o.Delivery.Expire(now)
	c.mu.Unlock()
	if len(late) > 0 { // first what is true now, so that no status says Programmed for a moment
		c.refresh()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range late {
		c.gate.release(name)
	}
	c.gate.releaseOld(now)
	c.publish()
}

// gateway returns the state of a Gateway, which it creates if there is none; tidy removes it again. The caller must hold c.mu.
func (c *Cluster) gateway(name string) *gateway {
	g := c.gateways[name]
	if g == nil {
		g = &gateway{}
		c.gateways[name] = g
	}
	return g
}

// tidy removes a Gateway with an empty state. The caller must hold c.mu.
func (c *Cluster) tidy(name string) {
	g := c.gateways[name]
	if g != nil && g.spec == nil && g.infrastructure == nil && len(g.listenerFaults)+len(g.routeFaults) == 0 && g.trouble == "" {
		delete(c.gateways, name)
	}
}

// Status is a snapshot of a Cluster, for the dashboard.
type Status struct {
	Leading    bool                    `json:"leading"`
	Epoch      string                  `json:"epoch,omitempty"`
	Generation uint64                  `json:"generation"`
	Held       int                     `json:"heldStatuses"` // that wait for proxies
	Gateways   []deliver.RemoteGateway `json:"gateways"`     // sorted by name
}

// Status returns the state of all proxies, and how many statuses wait for them.
func (c *Cluster) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.o.Delivery.Status()
	return Status{Leading: d.Leading, Epoch: d.Epoch, Generation: d.Generation, Held: c.gate.len(), Gateways: d.Gateways}
}
