package deliver

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/deliver/partition"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate"
)

// RemoteOptions are the ends that a Remote connects. Publish and Provision must neither block nor call the Remote.
type RemoteOptions struct {
	Translator *translate.Translator
	// Publish takes statuses once what they say is served. Calls do not overlap.
	Publish func([]translate.StatusChange)
	// Provision takes what the Gateways need to run, at once; on Lead all of it, be it nothing. Calls do not overlap.
	Provision func([]translate.ProxySpecChange)
	// Fetch reads an object that is newly wanted, and returns nothing where it does not exist; or notes that one
	// is no longer wanted. It is called with one Want at a time, for several objects at the same time, and with no
	// lock held. Until it returns, the proxies of the Gateways that want the object keep what they have, so it must
	// give up in the end. ctx ends when the object is no longer wanted, or the Remote is closed.
	Fetch func(ctx context.Context, wants []translate.Want) []metav1.Object
	// Unlisted reports whether not everything is known of what runs in a namespace: the statuses of its Gateways are not published
	// meanwhile, since they would say that it has gone. It must neither block nor call the Remote; nil is never.
	Unlisted func(namespace string) bool
	// Current returns a fetched object as it is known now, nil for one that is absent: between Fetch and its use
	// an Update may have brought a newer one. nil takes what Fetch returned.
	Current func(translate.ObjectKey) metav1.Object
	// Authenticate says who the caller of a stream is. An error without a gRPC status is told as UNAUTHENTICATED.
	Authenticate func(ctx context.Context) (Caller, error)
	// Trouble is told what is wrong with the proxies of a Gateway whenever that changes, while leading: which do not
	// serve what is current, and what they cannot carry out; "" once it is over. It must neither block nor call the
	// Remote; nil tells nobody.
	Trouble func(namespace, name, what string)
	// Translated is told what each translation cost; nil tells nobody.
	Translated func(incremental.Stats, time.Duration)
	Logger     *slog.Logger // nil discards
	// HoldLimit is how long a status waits for a proxy that does not answer; default 15 s.
	HoldLimit time.Duration
	// SecretsLimit is how long after Lead a Gateway of which nothing was sent since waits for Secrets that cannot be read, also those
	// that may not: until then its proxies go on with what they have. Default 30 s.
	SecretsLimit time.Duration
	// CommitLimit is how long a Commit may take before Alive fails; default 2 minutes.
	CommitLimit time.Duration
}

// Caller is the proxy at the other end of a stream.
type Caller struct {
	Gateway string // "<namespace>/<name>", the one that it may ask for
	Pod     string // its name
	// PodUID is served only while SetPods says that there is this pod; "" leaves that to Authenticate.
	PodUID string
}

// Remote delivers to proxies in other processes. It is safe for concurrent use.
type Remote struct {
	o      RemoteOptions
	ctx    context.Context // of all that runs beside the callers
	cancel context.CancelFunc

	refusals refusals
	watchdog watchdog
	fetches  fetches
	// admission is that of the server's listener; nil where nobody bounds it.
	admission atomic.Pointer[admission]

	// translating is held while the translator is used; it is taken before mu.
	translating sync.Mutex

	// mu guards all that follows, and is held during Publish and Provision.
	mu      sync.Mutex
	started bool      // the first Update is done
	epoch   string    // "" on standby
	led     time.Time // when the epoch began
	parts   *partition.Partition
	// desired are the latest statuses, published or not, of the objects that are ours.
	desired  map[translate.ObjectKey]translate.StatusChange
	held     map[translate.ObjectKey]*heldStatus
	free     []translate.StatusChange // to be published before mu is released
	gateways map[string]*gateway
	joins    joins
	// stale are the Gateways of whose proxies the translator has not heard the latest.
	stale    map[string]struct{}
	stopTick context.CancelFunc // while leading
	ticker   sync.WaitGroup
}

// NewRemote makes a Remote on standby that has delivered nothing.
func NewRemote(o RemoteOptions) *Remote {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Translated == nil {
		o.Translated = func(incremental.Stats, time.Duration) {}
	}
	if o.HoldLimit <= 0 {
		o.HoldLimit = 15 * time.Second
	}
	if o.SecretsLimit <= 0 {
		o.SecretsLimit = secretsLimit
	}
	if o.CommitLimit <= 0 {
		o.CommitLimit = commitLimit
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Remote{o: o, ctx: ctx, cancel: cancel,
		parts:    partition.New(),
		desired:  map[translate.ObjectKey]translate.StatusChange{},
		held:     map[translate.ObjectKey]*heldStatus{},
		gateways: map[string]*gateway{},
		stale:    map[string]struct{}{},
	}
	r.fetches.start(ctx, o.Fetch, r.fetched)
	return r
}

// Update lets edit change the translator's objects and delivers what follows. The first one must
// hold everything there is: nothing is served before it.
func (r *Remote) Update(edit func(*translate.Translator)) Delivery {
	r.translating.Lock()
	defer r.translating.Unlock()
	edit(r.o.Translator)
	r.tell()
	result := r.translate()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = true
	return r.take(&result)
}

// View lets look read the translator as of the last Commit.
func (r *Remote) View(look func(*translate.Translator)) {
	r.translating.Lock()
	defer r.translating.Unlock()
	look(r.o.Translator)
}

// refresh tells the translator what is new of the proxies and delivers what follows.
func (r *Remote) refresh() {
	r.translating.Lock()
	defer r.translating.Unlock()
	r.settle()
}

// settle is refresh for who holds translating.
func (r *Remote) settle() {
	if !r.tell() {
		return
	}
	result := r.translate()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(&result)
}

// translate commits, and has what is newly wanted fetched; translating is held.
func (r *Remote) translate() translate.Result {
	start := time.Now()
	var result translate.Result
	r.watchdog.watch(func() { result = r.o.Translator.Commit() })
	r.o.Translated(result.Stats, time.Since(start))
	r.fetches.want(result.Wants)
	return result
}

// fetched takes in the objects that were read since the last time. It is called without a lock.
func (r *Remote) fetched() {
	r.translating.Lock()
	defer r.translating.Unlock()
	for _, f := range r.fetches.take() {
		o := f.object
		if r.o.Current != nil {
			o = r.o.Current(f.key)
		}
		r.o.Translator.Fetched(f.key, o)
	}
	r.tell()
	result := r.translate()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(&result)
}

// secretsLimit is the default of RemoteOptions.SecretsLimit.
const secretsLimit = 30 * time.Second

// UnreadSecrets is how many wanted Secrets were not read yet, or could not be but may be soon.
func (r *Remote) UnreadSecrets() (n int) {
	r.View(func(t *translate.Translator) { n = t.UnreadSecrets() + len(r.fetches.unknown()) })
	return n
}

// await notes which Gateways want what is not known yet, and returns those for which that is new, or over. mu and
// translating are held.
func (r *Remote) await(now time.Time) (changed []*gateway) {
	waits := map[string]bool{}
	for _, key := range r.fetches.unknown() {
		for _, name := range r.o.Translator.WantedBy(key) {
			waits[name] = true
		}
	}
	for _, g := range r.gateways {
		g.spared = false
	}
	if r.epoch != "" && now.Sub(r.led) < r.o.SecretsLimit {
		for _, key := range r.o.Translator.Unread() {
			for _, name := range r.o.Translator.WantedBy(key) {
				if g := r.gateway(name); !g.sent {
					waits[name], g.spared = true, true
				}
			}
		}
	}
	undecided := map[string]bool{}
	for _, name := range r.o.Translator.Undecided() {
		undecided[name] = true
		if g := r.gateway(name); !g.undecided {
			r.o.Logger.Warn("A Gateway refers to a Secret in a namespace that cannot be read; proxies that have a configuration keep it until that can be, or the reference goes",
				"gateway", name)
		}
	}
	for name := range waits {
		r.gateway(name)
	}
	for name, g := range r.gateways {
		if g.awaits == waits[name] && g.undecided == undecided[name] {
			continue
		}
		g.awaits, g.undecided = waits[name], undecided[name]
		for object := range g.holding {
			r.held[object].since = now // the proxies could not have it until now
		}
		changed = append(changed, g)
	}
	return changed
}

// take puts a translation in force; mu and translating are held.
func (r *Remote) take(result *translate.Result) Delivery {
	now := time.Now()
	var touched []string
	if !result.Config.Empty() {
		touched = r.parts.Apply(&result.Config)
	}
	for _, change := range result.ProxySpecs {
		g := r.gateway(change.Namespace + "/" + change.Name)
		g.spec = change.Spec
		touched = append(touched, g.name)
	}
	awaiting := r.await(now)
	for _, g := range awaiting {
		touched = append(touched, g.name)
	}
	for _, s := range result.Statuses {
		if s.Status == nil {
			delete(r.desired, s.Object)
		} else {
			r.desired[s.Object] = s
		}
	}
	if r.epoch != "" {
		if len(result.ProxySpecs) > 0 {
			r.o.Provision(result.ProxySpecs)
		}
		r.wake(touched, now)
		for _, s := range result.Statuses {
			r.hold(s, now)
		}
		for _, g := range awaiting {
			r.release(g)
		}
		r.publish()
	}
	for _, name := range touched {
		r.tidy(name)
	}
	return Delivery{Generation: r.parts.Generation(), Runs: result.Stats.Runs, Applied: len(result.Config.Upserts) + len(result.Config.Removals)}
}

// SetInfrastructure tells what runs for a Gateway, nil where nothing does, and which of its pods
// are ready in the eyes of the cluster.
func (r *Remote) SetInfrastructure(namespace, name string, i *translate.Infrastructure, readyPods []string) {
	r.translating.Lock()
	defer r.translating.Unlock()
	r.mu.Lock()
	g := r.gateway(namespace + "/" + name)
	g.infrastructure = i
	r.setReady(g, readyPods, time.Now())
	r.stale[g.name] = struct{}{}
	r.mu.Unlock()

	r.settle()

	r.mu.Lock()
	defer r.mu.Unlock()
	r.release(g) // a pod that is gone is waited for no more
	r.publish()
	r.tidy(g.name)
}

// SetPods tells which pods there are of a Gateway: their UIDs, by name. The stream of one that is gone ends, and a token that
// was issued to it, which may be valid for another hour, is refused.
func (r *Remote) SetPods(namespace, name string, uids map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateway(namespace + "/" + name)
	g.uids = maps.Clone(uids)
	for name, p := range g.pods {
		if p.stream != nil && !g.exists(name, p.stream.uid) {
			p.stream.end(errNoPod(name))
		}
	}
	r.tidy(g.name)
}

// Lead begins to serve, to publish and to provision: first everything that is known. The epoch must
// be another one each time, and never "".
func (r *Remote) Lead(epoch string) {
	r.Standby()
	r.translating.Lock()
	defer r.translating.Unlock()
	r.settle() // what is published is of what is true now, not of the proxies of another epoch
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil { // closed
		return
	}
	now := time.Now()
	r.epoch, r.led = epoch, now
	r.await(now)
	var specs []translate.ProxySpecChange
	for name, g := range r.gateways {
		r.owe(g, now)
		if g.spec != nil {
			specs = append(specs, translate.ProxySpecChange{Namespace: g.spec.Namespace, Name: g.spec.Name, Spec: g.spec})
		}
		r.tidy(name)
	}
	slices.SortFunc(specs, func(a, b translate.ProxySpecChange) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	r.o.Provision(specs) // be it none: then what runs is to go
	for _, s := range r.desired {
		r.hold(s, now)
	}
	r.publish()
	ctx, stop := context.WithCancel(r.ctx)
	r.stopTick = stop
	r.ticker.Go(func() { r.watchDeadlines(ctx) })
}

// Standby ends what Lead began; translation goes on. It waits for no translation, so that a replica that loses the Lease is
// silent before another one has it.
func (r *Remote) Standby() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = ""
	if r.stopTick != nil {
		r.stopTick()
	}
	for _, g := range r.gateways {
		clear(g.holding)
		r.forgetAnswers(g)
		r.stale[g.name] = struct{}{} // which the next Update or Lead tells the translator
	}
	clear(r.held)
}

// Close ends all streams and timers, and what is being fetched. The Remote is not to be used afterwards.
func (r *Remote) Close() {
	r.cancel()
	r.Standby()
	r.ticker.Wait()
	r.fetches.wait()
}

// watchDeadlines finds those who owe an answer for too long.
func (r *Remote) watchDeadlines(ctx context.Context) {
	tick := time.NewTicker(max(r.o.HoldLimit/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.expire(now)
		}
	}
}

// expire gives up on proxies that did not answer in time, and publishes what waited for them.
func (r *Remote) expire(now time.Time) {
	r.mu.Lock()
	var late []*gateway
	for _, g := range r.gateways {
		spared := g.spared && now.Sub(r.led) >= r.o.SecretsLimit
		if spared {
			r.o.Logger.Warn("Secrets of a Gateway cannot be read; its proxies are sent their configuration without them", "gateway", g.name)
		}
		if r.markOverdue(g, now) || spared {
			late = append(late, g)
			r.stale[g.name] = struct{}{}
		}
	}
	r.mu.Unlock()
	if len(late) > 0 {
		r.refresh() // first what is true now, so that no status says Programmed for a moment
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range late {
		r.release(g)
	}
	r.releaseOld(now)
	r.publish()
}
