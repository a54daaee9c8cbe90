package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// ClusterOptions are the ends that a Cluster connects. Publish, Provision, Unlisted and Trouble must neither block nor call the
// Cluster.
type ClusterOptions struct {
	Translator *translate.Translator
	Delivery   *deliver.Remote
	// Publish takes statuses once what they say is served. Calls do not overlap.
	Publish func([]translate.StatusChange)
	// Provision takes what the Gateways need to run, at once; on Lead all of it, be it nothing. Calls do not overlap.
	Provision func([]translate.ProxySpecChange)
	// Select takes what has changed of the endpoints that XBackends select, also on standby; nil is not called. It must neither block nor call the Cluster.
	Select func([]translate.SelectorChange)
	// Fetch reads a Secret that is newly needed, and returns nothing where it does not exist; or notes that one
	// is no longer needed. It is called with one request at a time, for several Secrets at the same time, and with no
	// lock held. Until it returns, the proxies of the Gateways that need the Secret keep what they have, so it must
	// give up in the end. ctx ends when the Secret is no longer needed, or the Cluster is closed.
	Fetch func(ctx context.Context, requests []translate.SecretRequest) []metav1.Object
	// Unlisted reports whether not everything is known of what runs in a namespace: the statuses of its Gateways are not published
	// meanwhile, since they would say that it has gone. nil is never.
	Unlisted func(namespace string) bool
	// Current returns a fetched object as it is known now, nil for one that is absent: between Fetch and its use
	// an Update may have brought a newer one. nil takes what Fetch returned.
	Current func(kind.ObjectKey) metav1.Object
	// Trouble is called with what is wrong with the proxies of a Gateway whenever that changes, while leading: which do not
	// serve what is current, and what they cannot carry out; "" once it is over, unless none are to run any more. nil is not called.
	Trouble func(namespace, name, what string)
	// Translated is called with what each translation cost; nil is not called.
	Translated func(incremental.Stats, time.Duration)
	Logger     *slog.Logger // nil discards
	// HoldLimit is how long a status waits for a proxy that does not answer; default deliver.DefaultAnswerLimit. Delivery should
	// have the same AnswerLimit.
	HoldLimit time.Duration
	// SecretsLimit is how long after Lead a Gateway of which nothing was sent since waits for Secrets that cannot be read, also those
	// that may not: until then its proxies go on with what they have. Default 30 s.
	SecretsLimit time.Duration
	// CommitLimit is how long a Commit may take before Alive fails; default 2 minutes.
	CommitLimit time.Duration
}

// Cluster is the control loop of a controller whose proxies are other processes. It is safe for concurrent use.
type Cluster struct {
	o      ClusterOptions
	ctx    context.Context // of all that runs beside the callers
	cancel context.CancelFunc

	watchdog watchdog
	fetches  fetches

	// translating is held while the translator is used; it is taken before mu.
	translating sync.Mutex

	// mu guards all that follows, and is held during Publish, Provision and Trouble. Delivery has a lock of its own, which is taken
	// after mu, and calls nothing while it holds that.
	mu       sync.Mutex
	leading  bool
	led      time.Time // when that began
	gateways map[string]*gateway
	gate     statusGate
	// unread are the Gateways that wait for Secrets that could not be read, until SecretsLimit.
	unread   []string
	stopTick context.CancelFunc // while leading
	ticker   sync.WaitGroup
}

// gateway is what the control loop knows of a Gateway; guarded by Cluster.mu.
type gateway struct {
	spec           *translate.ProxySpec // nil: none
	infrastructure *translate.Infrastructure
	// What the translator was given last of what its proxies report.
	listenerFaults map[string]translate.ListenerFault // by config.Listener.key
	routeFaults    map[string]string                  // by config.Route.key
	trouble        string                             // that ClusterOptions.Trouble was called with
}

// NewCluster makes a Cluster on standby that has delivered nothing.
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
	if o.SecretsLimit <= 0 {
		o.SecretsLimit = secretsLimit
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

// Update lets edit change the translator's objects and delivers what follows. The first one must
// hold everything there is: nothing is served before it.
func (c *Cluster) Update(edit func(*translate.Translator)) Outcome {
	c.translating.Lock()
	defer c.translating.Unlock()
	edit(c.o.Translator)
	c.takeReports()
	result := c.translate()
	return c.apply(&result, true)
}

// View lets look read the translator as of the last Commit.
func (c *Cluster) View(look func(*translate.Translator)) {
	c.translating.Lock()
	defer c.translating.Unlock()
	look(c.o.Translator)
}

// refresh gives the translator what is new of the proxies and delivers what follows.
func (c *Cluster) refresh() {
	c.translating.Lock()
	defer c.translating.Unlock()
	c.settle()
}

// settle is refresh; translating must be held.
func (c *Cluster) settle() {
	if c.takeReports() {
		c.commit()
	}
}

// commit translates and delivers what follows; translating must be held.
func (c *Cluster) commit() {
	result := c.translate()
	c.apply(&result, false)
}

// translate commits, and has what is newly needed fetched; translating must be held.
func (c *Cluster) translate() translate.Result {
	start := time.Now()
	var result translate.Result
	c.watchdog.watch(func() { result = c.o.Translator.Commit() })
	c.o.Translated(result.Stats, time.Since(start))
	c.fetches.request(result.SecretRequests)
	logUntold(c.o.Logger, result.Untold)
	return result
}

// apply puts a translation in force; translating must be held. complete says that everything there is was read.
func (c *Cluster) apply(result *translate.Result, complete bool) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	change := deliver.Change{Config: &result.Config, Gateways: map[string]bool{}, Withheld: c.withheld(now), Complete: complete}
	for _, ch := range result.ProxySpecs {
		name := ch.Namespace + "/" + ch.Name
		c.gateway(name).spec = ch.Spec
		change.Gateways[name] = ch.Spec != nil
	}
	if len(result.Selectors) > 0 && c.o.Select != nil {
		c.o.Select(result.Selectors)
	}
	effect := c.o.Delivery.Apply(&change)
	c.unread = effect.Unread
	for _, name := range effect.Changed {
		c.gate.restart(name, now) // the proxies could not have it until now
	}
	for _, s := range result.Statuses {
		c.gate.record(s)
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

// publish hands over the statuses that wait for nothing any more. c.mu is held.
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

// SetInfrastructure takes what runs for a Gateway, nil where nothing does, and which of its pods
// are ready in the eyes of the cluster.
func (c *Cluster) SetInfrastructure(namespace, name string, i *translate.Infrastructure, readyPods []string) {
	gateway := namespace + "/" + name
	c.translating.Lock()
	defer c.translating.Unlock()
	c.mu.Lock()
	c.gateway(gateway).infrastructure = i
	c.o.Delivery.SetReady(gateway, readyPods)
	c.mu.Unlock()

	c.settle()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate.release(gateway) // a pod that is gone is waited for no more
	c.publish()
	c.tidy(gateway)
}

// Lead begins to serve, to publish and to provision: first everything that is known. The epoch must
// be another one each time, and never "".
func (c *Cluster) Lead(epoch string) {
	c.Standby()
	c.translating.Lock()
	defer c.translating.Unlock()
	c.settle() // what is published is of what is true now, not of the proxies of another epoch
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil { // closed
		return
	}
	now := time.Now()
	c.leading, c.led = true, now
	withheld := c.withheld(now)
	c.unread = c.o.Delivery.Lead(epoch, &withheld)
	var specs []translate.ProxySpecChange
	for _, g := range c.gateways {
		if g.spec != nil {
			specs = append(specs, translate.ProxySpecChange{Namespace: g.spec.Namespace, Name: g.spec.Name, Spec: g.spec})
		}
	}
	slices.SortFunc(specs, func(a, b translate.ProxySpecChange) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	c.o.Provision(specs) // be it none: then what runs is to go
	c.gate.addAll(now, c.o.Translator.Serving)
	c.publish()
	ctx, stop := context.WithCancel(c.ctx)
	c.stopTick = stop
	c.ticker.Go(func() { c.watchDeadlines(ctx) })
}

// Standby ends what Lead began; translation goes on. It waits for no translation, so that a replica that loses the Lease is
// silent before another one has it.
func (c *Cluster) Standby() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading = false
	if c.stopTick != nil {
		c.stopTick()
	}
	c.gate.clear()
	c.o.Delivery.Standby() // of which the next Update or Lead takes the reports
}

// Close ends all streams and timers, and what is being fetched. The Cluster is not to be used afterwards.
func (c *Cluster) Close() {
	c.cancel()
	c.Standby()
	c.ticker.Wait()
	c.fetches.wait()
}

// watchDeadlines finds those who owe an answer for too long.
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

// expire gives up on proxies that did not answer in time, and publishes what waited for them.
func (c *Cluster) expire(now time.Time) {
	c.mu.Lock()
	late := c.o.Delivery.Expire(now)
	withheld := c.unread
	if now.Sub(c.led) < c.o.SecretsLimit {
		withheld = nil
	}
	for _, name := range withheld {
		c.o.Logger.Warn("Secrets of a Gateway cannot be read; its proxies are sent their configuration without them", "gateway", name)
	}
	c.mu.Unlock()
	switch { // first what is true now, so that no status says Programmed for a moment
	case len(withheld) > 0:
		c.translating.Lock()
		c.takeReports()
		c.commit() // whatever the reports are: it is to be sent now
		c.translating.Unlock()
	case len(late) > 0:
		c.refresh()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Concat(late, withheld) {
		c.gate.release(name)
	}
	c.gate.releaseOld(now)
	c.publish()
}

// gateway finds or makes what is known of a Gateway; tidy drops it again. c.mu is held.
func (c *Cluster) gateway(name string) *gateway {
	g := c.gateways[name]
	if g == nil {
		g = &gateway{}
		c.gateways[name] = g
	}
	return g
}

// tidy forgets a Gateway of which there is nothing any more. c.mu is held.
func (c *Cluster) tidy(name string) {
	g := c.gateways[name]
	if g != nil && g.spec == nil && g.infrastructure == nil && len(g.listenerFaults)+len(g.routeFaults) == 0 && g.trouble == "" {
		delete(c.gateways, name)
	}
}

// Status is a Cluster at one moment, for the dashboard.
type Status struct {
	Leading    bool                    `json:"leading"`
	Epoch      string                  `json:"epoch,omitempty"`
	Generation uint64                  `json:"generation"`
	Held       int                     `json:"heldStatuses"` // that wait for proxies
	Gateways   []deliver.RemoteGateway `json:"gateways"`     // sorted by name
}

// Status returns what is known of all proxies, and how many statuses wait for them.
func (c *Cluster) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.o.Delivery.Status()
	return Status{Leading: d.Leading, Epoch: d.Epoch, Generation: d.Generation, Held: c.gate.len(), Gateways: d.Gateways}
}
