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

// RemoteOptions are what a Remote needs.
type RemoteOptions struct {
	// Authenticate returns who the caller of a stream is. An error without a gRPC status is returned to it as UNAUTHENTICATED.
	Authenticate func(ctx context.Context) (Caller, error)
	// AnswerLimit is how long a proxy may owe the answer to a generation until it is overdue; default DefaultAnswerLimit.
	AnswerLimit time.Duration
	// SharedLimit is how long what merged Gateways have in common waits for objects that are not known yet, one after the other, once anything was sent: who edits
	// one of these Gateways again and again must not keep the others from being served. The same holds for Withheld.Shared. Their listeners keep the certificates that they have meanwhile. Default 2 s.
	SharedLimit time.Duration
	Logger      *slog.Logger // nil discards
}

// DefaultAnswerLimit is the default of RemoteOptions.AnswerLimit.
const DefaultAnswerLimit = 15 * time.Second

// sharedLimit is the default of RemoteOptions.SharedLimit.
const sharedLimit = 2 * time.Second

// Caller is the proxy at the other end of a stream.
type Caller struct {
	Gateway string // "<namespace>/<name>", the one that it may ask for
	Pod     string // its name
	// PodUID is served only while SetPods says that there is this pod; "" leaves that to Authenticate.
	PodUID string
}

// Remote delivers to proxies in other processes. It is safe for concurrent use.
type Remote struct {
	o RemoteOptions
	// news and answered are set by Notify, and are called without a lock.
	news     func()
	answered func(gateway string)

	refusals refusals
	// admission is that of the server's listener; nil where nobody bounds it.
	admission atomic.Pointer[admission]

	// mu guards all that follows. Nothing else is locked or called while it is held.
	mu       sync.Mutex
	complete bool   // there was a Change that is
	epoch    string // "" on standby
	parts    *partition.Partition
	gateways map[string]*gateway
	joins    joins
	// stale are the Gateways on whose proxies there is something that Reports has not returned.
	stale map[string]struct{}
}

// NewRemote makes a Remote on standby that has delivered nothing.
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

// Notify sets what is called when proxies answer: news where Reports has something to return, before the answer counts for
// Serves, and answered when more than before may be served for a Gateway. It is to be called before everything else.
func (r *Remote) Notify(news func(), answered func(gateway string)) {
	r.news, r.answered = news, answered
}

// Change is what one translation changes of what proxies are to serve. Gateways are named "<namespace>/<name>".
type Change struct {
	Config *config.Update
	// Gateways are those of which it changed whether proxies are to run for them.
	Gateways map[string]bool
	Withheld Withheld
	// Complete says that what there is was read as a whole: nothing is served before one that is.
	Complete bool
}

// Withheld are the Gateways whose proxies are to keep what they have for now.
type Withheld struct {
	// Unknown are those that want an object that is not known yet. What was translated without it is neither sent nor
	// published: their proxies keep the certificate that they have. Of merged Gateways, and of those in Shared, see RemoteOptions.SharedLimit.
	Unknown map[string]bool
	// Shared are Gateways that others than their owners can have want objects, again and again.
	Shared map[string]bool
	// Unread are those that want an object that could not be read. They are like Unknown as long as nothing was sent to a proxy of
	// them in this epoch.
	Unread map[string]bool
	// Undecided are those of which nobody knows whether a listener may use a Secret, because its namespace cannot be read.
	// Proxies that have a configuration keep it; others are sent what was translated without.
	Undecided map[string]bool
}

// Effect is what came of a Change.
type Effect struct {
	Generation uint64
	// Changed are the Gateways for which withholding began or ended.
	Changed []string
	// Unread are those of Withheld.Unread for which it is withheld.
	Unread []string
}

// Apply takes a Change and has proxies be sent what is new.
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
	effect.Changed, effect.Unread = r.withhold(&c.Withheld, now)
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

// withhold notes which Gateways' proxies keep what they have. It returns those for which that is new, or over, and those for which
// it is because of Unread. r.mu is held.
func (r *Remote) withhold(w *Withheld, now time.Time) (changed, unread []string) {
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
	for name := range w.Unread {
		if !r.gateway(name).sent {
			if waits == nil {
				waits = map[string]bool{}
			}
			waits[name] = true
			unread = append(unread, name)
		}
	}
	for name := range w.Undecided {
		if !r.gateway(name).undecided {
			r.o.Logger.Warn("A Gateway refers to a Secret in a namespace that cannot be read; proxies that have a configuration keep it until that can be, or the reference goes",
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
	return changed, unread
}

// SetReady sets which pods of a Gateway are ready in the eyes of the cluster. A pod that is gone is waited for no more.
func (r *Remote) SetReady(gateway string, pods []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateway(gateway)
	r.setReady(g, pods, time.Now())
	r.stale[g.name] = struct{}{}
	r.tidy(g.name)
}

// SetPods sets which pods there are of a Gateway: their UIDs, by name. The stream of one that is gone ends, and a token that
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

// SetZones sets which zones the pods of a Gateway are in, by the pods' names; those whose zone is not known are left out. Proxies are told as soon as
// they may be sent anything: in the Begin of what they are sent anyway, or by a generation without changes.
func (r *Remote) SetZones(namespace, name string, zones map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateway(namespace + "/" + name)
	g.zones = maps.Clone(zones)
	for pod, p := range g.pods {
		if p.stream != nil && g.zones[pod] != "" && p.stream.zone != g.zones[pod] {
			p.stream.wake()
		}
	}
	r.tidy(g.name)
}

// Lead begins to serve. The epoch must be another one each time, and never "".
func (r *Remote) Lead(epoch string, w *Withheld) (unread []string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = epoch
	_, unread = r.withhold(w, now)
	for name, g := range r.gateways {
		r.owe(g, now)
		r.tidy(name)
	}
	return unread
}

// Standby ends what Lead began: all streams end, and what the proxies have answered is forgotten.
func (r *Remote) Standby() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = ""
	for _, g := range r.gateways {
		r.forgetAnswers(g)
		r.stale[g.name] = struct{}{}
	}
}

// Generation returns the newest generation of what the proxies of a Gateway are to serve, and whether anything is to be served
// for it.
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

// Withholds reports whether the proxies of a Gateway are not sent what is newest until more is known, and whether proxies of it
// retain what they had before this epoch because it is undecided.
func (r *Remote) Withholds(gateway string) (awaits, retains bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateways[gateway]
	return g != nil && g.awaits, g != nil && g.retains()
}

// Expire gives up waiting for proxies that owe an answer for too long, and returns the Gateways that have such proxies since now.
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

// forgetAnswers makes everything that the proxies said be of an epoch that is over. r.mu is held.
func (r *Remote) forgetAnswers(g *gateway) {
	g.sent = false
	for name, p := range g.pods {
		if p.stream != nil {
			p.stream.end(errStandby)
			p.stream = nil
		}
		*p = pod{ready: p.ready, version: p.version}
		r.dropUnseen(g, name)
	}
}
