package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Options configure a Source.
type Options struct {
	// Config is the connection to the API server; required. It is not modified.
	Config *rest.Config
	// Namespaces are those whose objects are read; empty means all. GatewayClasses, Namespaces and CustomResourceDefinitions are
	// cluster-scoped and always read.
	Namespaces []string
	// Version of the program, for the user agent "moongate/<version>"; "" means "dev".
	Version string
	// Logger logs what cannot be read; nil means slog.Default.
	Logger *slog.Logger
}

// Source reads from an API server.
type Source struct {
	log     *slog.Logger
	clients map[clientKey]rest.Interface
	grace   time.Duration // see unlisted
	skip    time.Duration // see the constant
	// namespaces are those that are watched, sorted; "" alone means all.
	namespaces []string

	secretsPoll time.Duration // see the constant

	awake   chan struct{} // has an element if there may be something to emit
	look    chan struct{} // has an element if discovery must run
	doubt   chan struct{} // has an element if the API server may be unavailable, see probe
	reads   workqueue.TypedRateLimitingInterface[name]
	running sync.WaitGroup

	mu      sync.Mutex
	catalog *catalog
	feeds   map[*watchedKind]*feed
	// discovered is set once discovery has succeeded.
	discovered bool
	// unnamed is since when discovery does not list a kind that has a CRD and is not read.
	unnamed map[*watchedKind]time.Time
	// installedChanged is set if the result of installed may differ from reported.
	installedChanged                bool
	reported                        *Installed
	reach, discovery, secretTrouble trouble
	// answeredAt is when the API server last answered any request, reachedSince when it answered again after it was unavailable.
	answeredAt, reachedSince time.Time
}

// New returns a Source; it returns an error if the configuration is invalid. Nothing is read before Run.
func New(options Options) (*Source, error) {
	if options.Config == nil {
		return nil, errors.New("no configuration of the API server: give a kubeconfig, or run in a pod")
	}
	if options.Version == "" {
		options.Version = "dev"
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	config := rest.CopyConfig(options.Config)
	config.UserAgent = "moongate/" + options.Version
	// The API server's own fairness limits it, not a limit for programs that may loop.
	config.QPS = -1
	s := &Source{
		log: options.Logger, clients: map[clientKey]rest.Interface{}, grace: unlisted, skip: skip, secretsPoll: secretsPoll,
		namespaces: namespacesOf(options.Namespaces),
		awake:      make(chan struct{}, 1), look: make(chan struct{}, 1), doubt: make(chan struct{}, 1),
		reads:   workqueue.NewTypedRateLimitingQueue[name](newReadRetries()),
		catalog: newCatalog(options.Logger), feeds: map[*watchedKind]*feed{}, unnamed: map[*watchedKind]time.Time{},
	}
	if err := s.connect(config); err != nil {
		return nil, fmt.Errorf("the configuration of the API server: %w", err)
	}
	return s, nil
}

// namespacesOf returns the namespaces to watch, without duplicates; "" alone means all.
func namespacesOf(list []string) []string {
	if len(list) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// watches reports whether the objects of a namespace are read.
func (s *Source) watches(namespace string) bool {
	return s.namespaces[0] == metav1.NamespaceAll || slices.Contains(s.namespaces, namespace)
}

// Run passes everything to emit as soon as all watches have listed, or could not for long and are not essential, and then each
// change until ctx ends. emit is called by one goroutine at a time; what happens during a call is in the next Change, without delay.
// The error is nil if ctx has ended. Run may be called once.
func (s *Source) Run(ctx context.Context, emit func(Change)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	defer s.reads.ShutDown()
	s.begin(ctx)
	full := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.awake:
		}
		change, ok := s.next(!full)
		if !ok || ctx.Err() != nil {
			continue
		}
		full = true
		emit(change)
	}
}

// begin starts all watches.
func (s *Source) begin(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start(ctx, definitionMetadata, "v1", definitions{s.catalog, func() {
		s.installedChanged = true
		s.lookAgain()
	}})
	s.start(ctx, secretMetadata, "v1", secretSink{s})
	for _, k := range kinds {
		if !k.Optional {
			s.start(ctx, k, k.versions[0], s.catalog.table(k))
		}
	}
	s.running.Go(func() { s.discover(ctx) })
	s.running.Go(func() { s.watchFeeds(ctx) })
	s.running.Go(func() { s.probe(ctx) })
	for range readers {
		s.running.Go(func() { s.readSecrets(ctx) })
	}
}

// next returns the next Change; ok is false if there is nothing to emit. The first waits for all watches.
func (s *Source) next(first bool) (Change, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first && len(s.waiting()) > 0 {
		return Change{}, false
	}
	change := s.catalog.take()
	change.Full = first
	if s.installedChanged || first {
		s.installedChanged = false
		if now := s.installed(); !reflect.DeepEqual(now, s.reported) {
			change.Installed, s.reported = now, now
		}
	}
	return change, change.ConcernsTranslation() || len(change.Observed) > 0
}

// wake makes Run check whether there is something to emit.
func (s *Source) wake() {
	select {
	case s.awake <- struct{}{}:
	default:
	}
}

// Get returns an object as it was last seen: with status and resourceVersion if its kind has a status. It may be newer than the last
// Change. Secrets are found only while needed. The object is shared and must not be modified. It may be called at any time.
func (s *Source) Get(id kind.ObjectKey) (metav1.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, _, ok := s.catalog.get(id)
	return o, ok
}

// Unread reports whether the state of an object is not known: its kind is not listed in its namespace, the start did not wait for
// its namespace, or the object exists and cannot be decoded. It may be called at any time.
func (s *Source) Unread(id kind.ObjectKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.catalog.tables[kind.ObjectKey{Group: id.Group, Kind: id.Kind}]
	if t == nil {
		return true
	}
	f := s.feeds[t.watchedKind]
	n := name{Namespace: id.Namespace, Name: id.Name}
	if s.catalog.withheld[id.Namespace] && !s.unreadNamespace(id.Namespace) {
		return false // the namespace does not exist
	}
	return f == nil || !f.reads(id.Namespace) || s.catalog.withheld[id.Namespace] || t.undecoded[n] && (t.objects[n] == nil || partial(t.objects[n]))
}

// Unwritable reports whether the status of an object must not be written, because the existing one cannot be decoded: entries of
// other controllers would be lost. It may be called at any time.
func (s *Source) Unwritable(id kind.ObjectKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.catalog.tables[kind.ObjectKey{Group: id.Group, Kind: id.Kind}]
	n := name{Namespace: id.Namespace, Name: id.Name}
	return t != nil && (t.statusless[n] || t.undecoded[n])
}

// Waiting returns what the first Change waits for, and why; empty once everything essential has been listed. It may be called at any
// time.
func (s *Source) Waiting() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting()
}

func (s *Source) waiting() (list []string) {
	if !s.discovered {
		list = append(list, because("which kinds are served", s.discovery.text))
	}
	for k, f := range s.feeds {
		if !f.listed && (!f.failing() || k.Essential) {
			list = append(list, because(k.Name, f.problem()))
		}
	}
	for _, k := range kinds {
		if k.Essential && s.awaitsDiscovery(k) {
			list = append(list, because(k.Name, "has a CustomResourceDefinition and is not served yet"))
		}
	}
	if s.reported == nil {
		list = append(list, s.unreadParameters()...)
	}
	slices.Sort(list)
	return list
}

func because(what, why string) string {
	if why == "" {
		why = "not listed yet"
	}
	return what + ": " + why
}
