package reconcile

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/translate"
)

// StandaloneOptions configure a Standalone.
type StandaloneOptions struct {
	Translator *translate.Translator
	Delivery   *deliver.Local
	// Publish is called with statuses once the configuration that they report is served. Calls do not overlap.
	Publish func([]translate.StatusChange)
	// Bound is called when the listeners that the proxy serves may have changed, before Publish; may be nil.
	Bound func()
	// Translated is called with the cost of each translation; may be nil.
	Translated func(incremental.Stats, time.Duration)
	Logger     *slog.Logger // nil discards
}

// Standalone is the control loop of a gateway whose proxy is in the same process. It is safe for concurrent use.
type Standalone struct {
	o StandaloneOptions

	mu sync.Mutex
	// pending are the newest statuses that wait for the proxy's answer.
	pending map[kind.ObjectKey]translate.StatusChange
	faults  faults
	last    Outcome
}

// Outcome is the result and the cost of one Update.
type Outcome struct {
	Generation uint64
	Runs       int // number of calls of translate functions
	Applied    int // number of Resources that were changed or removed
}

// NewStandalone returns a Standalone that has delivered nothing.
func NewStandalone(o StandaloneOptions) *Standalone {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Translated == nil {
		o.Translated = func(incremental.Stats, time.Duration) {}
	}
	if o.Bound == nil {
		o.Bound = func() {}
	}
	return &Standalone{
		o:       o,
		pending: map[kind.ObjectKey]translate.StatusChange{},
		faults:  newFaults(o.Logger),
	}
}

// Update calls edit to change the translator's objects, and delivers the result.
func (s *Standalone) Update(edit func(*translate.Translator)) Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s.o.Translator)
	s.settle()
	return s.last
}

// Retry retries to bind what could not be bound, and checks what the proxy cannot reach. It must be called every few seconds.
func (s *Standalone) Retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := false
	if s.faults.any() {
		unbound := s.o.Delivery.Rebind()
		s.o.Bound()
		news = s.faults.report(s.o.Translator, s.o.Delivery.Listener, unbound)
	}
	if s.faults.reportUnavailable(s.o.Translator, s.o.Delivery.Unavailable()) || news {
		s.settle()
	}
}

// settle translates, applies, and translates again if the proxy has reported changes. The caller must hold s.mu.
func (s *Standalone) settle() {
	s.last = Outcome{Generation: s.o.Delivery.Generation()}
	for {
		start := time.Now()
		translated := s.o.Translator.Commit()
		s.o.Translated(translated.Stats, time.Since(start))
		s.last.Runs += translated.Stats.Runs
		logUnattachedPolicies(s.o.Logger, translated.UnattachedPolicies)
		for _, c := range translated.Statuses {
			s.pending[c.Object] = c
		}
		if translated.Config.Empty() {
			break
		}
		if !s.faults.report(s.o.Translator, s.o.Delivery.Listener, s.apply(&translated.Config)) {
			break
		}
	}
	s.publish()
}

// apply applies a generation in the proxy, and returns which listeners are not served.
func (s *Standalone) apply(u *config.Update) map[string]*proxy.ListenerError {
	s.last.Generation = u.Generation
	s.last.Applied += len(u.Upserts) + len(u.Removals)
	unbound := s.o.Delivery.Apply(u)
	if u.OfListeners() || s.faults.any() { // it may also have bound what could not be bound before
		s.o.Bound()
	}
	return unbound
}

func (s *Standalone) publish() {
	if len(s.pending) == 0 {
		return
	}
	changes := slices.SortedFunc(maps.Values(s.pending), func(a, b translate.StatusChange) int {
		return a.Object.Compare(b.Object)
	})
	s.pending = map[kind.ObjectKey]translate.StatusChange{} // a new map, because a cleared one would keep the size for all objects at the start
	s.o.Publish(changes)
}
