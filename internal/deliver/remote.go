package deliver

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/partition"
)

// RemoteOptions configure a Remote.
type RemoteOptions struct {
	// Authenticate returns the caller of a stream. An error without a gRPC status is returned to the caller as UNAUTHENTICATED.
	Authenticate func(ctx context.Context) (Caller, error)
	// AnswerLimit is how long a proxy may take to answer a generation until it is overdue; default DefaultAnswerLimit.
	AnswerLimit time.Duration
	// SharedLimit is how long the common configuration of merged Gateways waits for objects that are not known yet, one after the
	// other, once anything was sent: a user who edits one of these Gateways again and again must not keep the others from being
	// served. It also applies to Withheld.Shared. Their listeners keep their certificates in the meantime. Default 2 s.
	SharedLimit time.Duration
	Logger      *slog.Logger // nil discards
}

// DefaultAnswerLimit is the default of RemoteOptions.AnswerLimit.
const DefaultAnswerLimit = 15 * time.Second

// sharedLimit is the default of RemoteOptions.SharedLimit.
const sharedLimit = 2 * time.Second

// Caller is the proxy at the other end of a stream.
type Caller struct {
	Gateway string // "<namespace>/<name>", the one whose configuration it gets
	Pod     string // its name
	// PodUID must be the UID of a pod set by SetPods; "" leaves this check to Authenticate.
	PodUID string
}

// Remote delivers to proxies in other processes. It is safe for concurrent use.
type Remote struct {
	o RemoteOptions
	// news and answered are set by Notify, and are called without a lock.
	news     func()
	answered func(gateway string)

	refusals refusals
	// admission is that of the server's listener; nil if Admit was not called.
	admission atomic.Pointer[admission]

	// mu guards the fields below. Nothing else is locked or called while it is held.
	mu       sync.Mutex
	complete bool   // Apply was called with a complete Change
	epoch    string // "" on standby
	parts    *partition.Partition
	gateways map[string]*gateway
	joins    joins
	refusing refusing
	// stale are the Gateways with a new Report that Reports has not returned.
	stale map[string]struct{}
}

// NewRemote returns a Remote on standby that has delivered nothing.
func NewRemote(o RemoteOptions) *Remote {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.AnswerLimit <= 0 {
		o.AnswerLimit = DefaultAnswerLimit
	}
	if o.SharedLimit <= 0 {
		o.SharedLimit = sharedLimit
	}
	return &Remote{o: o, news: func() {}, answered: func(string) {},
		parts:    partition.New(),
		gateways: map[string]*gateway{},
		stale:    map[string]struct{}{},
	}
}

// Notify sets functions that are called when proxies answer: news if Reports has something to return, before the answer counts for
// Serves, and answered if more than before may be served for a Gateway. It must be called before all other methods.
func (r *Remote) Notify(news func(), answered func(gateway string)) {
	r.news, r.answered = news, answered
}

// Change is a change of what proxies serve, by one translation. Gateways are named "<namespace>/<name>".
type Change struct {
	Config *config.Update
	// Gateways are those for which it has changed whether proxies should run.
	Gateways map[string]bool
	Withheld Withheld
	// Complete is set if all objects were read: nothing is served before.
	Complete bool
}

// Withheld are the Gateways whose proxies must keep their configuration for now.
type Withheld struct {
	// Unknown are those that need an object that is not known yet. What was translated without it is neither sent nor published:
	// their proxies keep their certificate. For merged Gateways, and for those in Shared, see RemoteOptions.SharedLimit.
	Unknown map[string]bool
	// Shared are Gateways for which users other than their owners can request objects again and again.
	Shared map[string]bool
	// Undecided are those of which nobody knows whether a listener may use a Secret, because its namespace cannot be read.
	// Proxies that have a configuration keep it; others are sent what was translated without.
	Undecided map[string]bool
}

// Effect is the effect of a Change.
type Effect struct {
	Generation uint64
	// Changed are the Gateways for which withholding began or ended.
	Changed []string
}

// Apply applies a Change and notifies the streams of proxies.
func (r *Remote) Apply(c *Change) Effect {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = r.complete || c.Complete
	var touched []string
	if !c.Config.Empty() {
		touched = r.parts.Apply(c.Config)
	}
	for name, runs := range c.Gateways {
		r.gateway(name).runs = runs
		touched = append(touched, name)
	}
	var effect Effect
	effect.Changed = r.withhold(&c.Withheld, now)
	touched = append(touched, effect.Changed...)
	if r.epoch != "" {
		r.wake(touched, now)
	}
	for _, name := range touched {
		r.tidy(name)
	}
	effect.Generation = r.parts.Generation()
	return effect
}

// withhold notes which Gateways' proxies keep what they have. It returns those for which that is new, or over. r.mu is held.
func (r *Remote) withhold(w *Withheld, now time.Time) (changed []string) {
	waits := maps.Clone(w.Unknown)
	for name := range w.Unknown {
		g := r.gateway(name)
		if g.unknown.IsZero() {
			g.unknown = now
		}
		if g.sent && now.Sub(g.unknown) >= r.o.SharedLimit && (w.Shared[name] || merged(name)) {
			delete(waits, name)
		}
	}
	for name := range w.Undecided {
		if !r.gateway(name).undecided {
			r.o.Logger.Warn("a Gateway refers to a Secret in a namespace that cannot be read; proxies that have a configuration keep it until the namespace can be read or the reference is removed",
				"gateway", name)
		}
	}
	for name := range waits {
		r.gateway(name)
	}
	for name, g := range r.gateways {
		if !w.Unknown[name] {
			g.unknown = time.Time{}
		}
		if g.awaits == waits[name] && g.undecided == w.Undecided[name] {
			continue
		}
		g.awaits, g.undecided = waits[name], w.Undecided[name]
		changed = append(changed, name)
	}
	return changed
}

// SetReady sets which pods of a Gateway are ready according to the cluster. A pod that is gone is no longer waited for.
func (r *Remote) SetReady(gateway string, pods []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateway(gateway)
	r.setReady(g, pods, time.Now())
	r.stale[g.name] = struct{}{}
	r.tidy(g.name)
}

// SetPods sets which pods of a Gateway exist: their UIDs by name. The stream of a pod that is gone ends, and its token, which may be
// valid for another hour, is rejected.
func (r *Remote) SetPods(namespace, name string, uids map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateway(config.GatewayKey(namespace, name))
	g.uids = maps.Clone(uids)
	for name, p := range g.pods {
		if p.stream != nil && !g.exists(name, p.stream.uid) {
			p.stream.end(errNoPod(name))
		}
	}
	r.tidy(g.name)
}

// SetZones sets the zones of a Gateway's pods, by name; pods whose zone is not known are left out. Proxies get their zone in the
// Begin of the next generation, or by one without changes.
func (r *Remote) SetZones(namespace, name string, zones map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateway(config.GatewayKey(namespace, name))
	g.zones = maps.Clone(zones)
	for pod, p := range g.pods {
		if p.stream != nil && g.zones[pod] != "" && p.stream.zone != g.zones[pod] {
			p.stream.wake()
		}
	}
	r.tidy(g.name)
}

// Lead begins to serve. The epoch must be another one each time, and never "".
func (r *Remote) Lead(epoch string, w *Withheld) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch, r.refusing = epoch, refusing{}
	r.withhold(w, now)
	for name, g := range r.gateways {
		r.owe(g, now)
		r.tidy(name)
	}
}

// Standby ends what Lead has begun: all streams end, and the answers of the proxies are dropped.
func (r *Remote) Standby() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = ""
	for _, g := range r.gateways {
		r.forgetAnswers(g)
		r.stale[g.name] = struct{}{}
	}
}

// Generation returns the newest generation for the proxies of a Gateway, and whether there is anything to serve for it.
func (r *Remote) Generation(gateway string) (generation uint64, serving bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateways[gateway]
	if g == nil || !r.managed(g) {
		return 0, false
	}
	return r.parts.Part(gateway).Generation(), true
}

// Serves reports whether every proxy of a Gateway that counts has acknowledged a generation.
func (r *Remote) Serves(gateway string, generation uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateways[gateway]
	return g == nil || g.serves(generation)
}

// Withholds reports whether the newest configuration is not sent to the proxies of a Gateway until more is known, and whether its
// proxies retain a configuration from before this epoch because it is undecided.
func (r *Remote) Withholds(gateway string) (awaits, retains bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateways[gateway]
	return g != nil && g.awaits, g != nil && g.retains()
}

// Expire stops waiting for proxies that have not answered for too long, and returns the Gateways with new ones.
func (r *Remote) Expire(now time.Time) (late []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, g := range r.gateways {
		if r.markOverdue(g, now) {
			late = append(late, name)
			r.stale[name] = struct{}{}
		}
	}
	slices.Sort(late)
	return late
}

// forgetAnswers marks all answers of the proxies as belonging to an earlier epoch. The caller must hold r.mu.
func (r *Remote) forgetAnswers(g *gateway) {
	g.sent = false
	for name, p := range g.pods {
		if p.stream != nil {
			p.stream.end(errStandby)
			p.stream = nil
		}
		p.podAnswers = podAnswers{}
		r.dropUnseen(g, name)
	}
}
