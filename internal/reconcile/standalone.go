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

// StandaloneOptions are the ends that a Standalone connects.
type StandaloneOptions struct {
	Translator *translate.Translator
	Delivery   *deliver.Local
	// Publish takes statuses once what they say is served. Calls do not overlap.
	Publish func([]translate.StatusChange)
	// Bound is called when other listeners of the proxy may serve than before, and Publish after it; nil is not called.
	Bound func()
	// Translated is called with what each translation cost; nil is not called.
	Translated func(incremental.Stats, time.Duration)
	Logger     *slog.Logger // nil discards
}

// Standalone is the control loop of a gateway whose proxy is in the same process. It is safe for concurrent use.
type Standalone struct {
	o StandaloneOptions

	mu sync.Mutex
	// pending are the newest statuses that await the proxy's answer.
	pending map[kind.ObjectKey]translate.StatusChange
	faults  faults
	last    Outcome
}

// Outcome is what one Update took.
type Outcome struct {
	Generation uint64
	Runs       int // translate functions that ran
	Applied    int // Resources that were changed or removed
}

// NewStandalone makes a Standalone that has delivered nothing.
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

// Update lets edit change the translator's objects and delivers what follows.
func (s *Standalone) Update(edit func(*translate.Translator)) Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s.o.Translator)
	s.settle()
	return s.last
}

// Retry tries to bind again what could not be bound, and asks what the proxy does not reach. It is to be called every few seconds.
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

// settle translates, applies, and translates again where the proxy had news. s.mu is held.
func (s *Standalone) settle() {
	s.last = Outcome{Generation: s.o.Delivery.Generation()}
	for {
		start := time.Now()
		translated := s.o.Translator.Commit()
		s.o.Translated(translated.Stats, time.Since(start))
		s.last.Runs += translated.Stats.Runs
		logUntold(s.o.Logger, translated.Untold)
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

// apply gives a generation to the proxy and returns which listeners do not serve.
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
	s.pending = map[kind.ObjectKey]translate.StatusChange{} // a cleared one would keep the size of the first, of all objects
	s.o.Publish(changes)
}
