// Package deliver carries configuration from the translator to a proxy and brings
// back what only the proxy can know: that a generation is served, that a port is
// taken. It exists so that a status says Programmed only of what is served. Local delivers to a proxy in this
// process, Remote to proxies in others: two ways of one design.
//
// It must not import source or cli.
package deliver

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/dump"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/translate"
)

// LocalOptions are the ends that a Local connects.
type LocalOptions struct {
	Translator *translate.Translator
	Proxy      *proxy.Proxy
	// Publish takes statuses once what they say is served. Calls do not overlap.
	Publish func([]translate.StatusChange)
	// Translated is told what each translation cost; nil tells nobody.
	Translated func(incremental.Stats, time.Duration)
	Logger     *slog.Logger // nil discards
}

// Local delivers to a proxy in the same process. It is safe for concurrent use.
type Local struct {
	o LocalOptions

	mu         sync.Mutex
	generation uint64
	// served is the configuration that the proxy has.
	served map[config.ID]*config.Resource
	// held are the newest statuses that await the proxy's word.
	held   map[translate.ObjectKey]translate.StatusChange
	faults faults
	last   Delivery
}

// Delivery is what one Update took.
type Delivery struct {
	Generation uint64
	Runs       int // translate functions that ran
	Applied    int // Resources that were changed or removed in the proxy
}

// NewLocal makes a Local that has delivered nothing.
func NewLocal(o LocalOptions) *Local {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Translated == nil {
		o.Translated = func(incremental.Stats, time.Duration) {}
	}
	return &Local{
		o:      o,
		served: map[config.ID]*config.Resource{},
		held:   map[translate.ObjectKey]translate.StatusChange{},
		faults: newFaults(o.Logger),
	}
}

// Update lets edit change the translator's objects and delivers what follows.
func (l *Local) Update(edit func(*translate.Translator)) Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit(l.o.Translator)
	l.settle()
	return l.last
}

// Retry tries to bind again what could not be bound. It is to be called every few seconds.
func (l *Local) Retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.faults.any() && l.faults.report(l.o.Translator, l.served, l.o.Proxy.Rebind().Listeners) {
		l.settle()
	}
}

// settle translates, applies, and translates again where the proxy had news.
func (l *Local) settle() {
	l.last = Delivery{Generation: l.generation}
	for {
		start := time.Now()
		translated := l.o.Translator.Commit()
		l.o.Translated(translated.Stats, time.Since(start))
		l.last.Runs += translated.Stats.Runs
		for _, s := range translated.Statuses {
			l.held[s.Object] = s
		}
		if translated.Config.Empty() {
			break
		}
		if !l.faults.report(l.o.Translator, l.served, l.apply(&translated.Config)) {
			break
		}
	}
	l.publish()
}

// apply gives a generation to the proxy and answers which listeners do not serve.
func (l *Local) apply(u *config.Update) map[string]error {
	result := l.o.Proxy.Apply(u)
	l.generation = u.Generation
	l.last.Generation = u.Generation
	l.last.Applied += len(u.Upserts) + len(u.Removals)
	for _, r := range u.Upserts {
		l.served[r.ID()] = r
	}
	for _, id := range u.Removals {
		delete(l.served, id)
	}
	if len(result.Listeners) > 0 {
		// A port may have been in the way that this very generation gave up: by now it is free.
		result = l.o.Proxy.Rebind()
	}
	return result.Listeners
}

func (l *Local) publish() {
	if len(l.held) == 0 {
		return
	}
	changes := slices.SortedFunc(maps.Values(l.held), func(a, b translate.StatusChange) int {
		return a.Object.Compare(b.Object)
	})
	clear(l.held)
	l.o.Publish(changes)
}

// Config is what the proxy serves, without private keys.
func (l *Local) Config() (dump.Dump, error) {
	l.mu.Lock()
	generation, resources := l.generation, slices.Collect(maps.Values(l.served))
	l.mu.Unlock() // Resources are immutable
	return dump.Of(generation, resources)
}
