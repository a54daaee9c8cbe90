package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metadatascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/moongate-dev/moongate/internal/resume"
)

// sink receives the objects of a feed. Its methods are called with Source.mu held.
type sink interface {
	// set records an object as it is kept, or a *statusless with one.
	set(o metav1.Object)
	remove(n name)
	// unreadable records that an object cannot be decoded.
	unreadable(u *unreadable)
	// replace sets all objects of a namespace, or of all for ""; for those in unreadable the last version is kept.
	replace(namespace string, all []metav1.Object, unreadable map[name]*unreadable)
}

// feed is the watch of one kind in one version.
type feed struct {
	source  *Source
	kind    *watchedKind
	version string
	to      sink
	cancel  context.CancelFunc
	// Guarded by Source.mu:
	stopped bool
	// listed is set once each of scopes was listed, or is skipped.
	listed bool
	scopes []*scope
	// absent is since when discovery does not list the kind; zero while it does.
	absent time.Time
}

// scope is the part of a feed that reads one namespace, or all for "".
type scope struct {
	*feed
	namespace string
	// Guarded by Source.mu:
	done bool // it has been listed
	// If lists are permitted and watches are not, each list succeeds: so both are recorded separately, otherwise the trouble would
	// never last.
	listing, watching trouble
	remedy            string // for the last trouble
	reportedRemedy    string // as of when installedChanged was last set because of it
	// unlistedSince is since when it is not listed although the API server answers; zero while that is not so.
	unlistedSince time.Time
	// failing is set once it could not be listed or watched for Source.skip.
	failing bool
}

// kept is a decoded object without what is not needed.
type kept struct{ metav1.Object }

// If a connection is closed without a response, client-go does not return an error, but a watch of this type that has ended already.
var (
	nothing   = reflect.TypeOf(watch.NewEmptyWatch())
	errClosed = errors.New("the connection was closed without an answer")
)

// patience returns how long a watch waits before it is tried again: at most a short time, so that what happened while the API server
// was unavailable is soon known.
func patience() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 10, Cap: 1500 * time.Millisecond}
}

// start watches a kind until ctx ends or the feed is stopped. The caller must hold Source.mu.
func (s *Source) start(ctx context.Context, k *watchedKind, version string, to sink) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{source: s, kind: k, version: version, to: to, cancel: cancel}
	s.feeds[k] = f
	namespaces := []string{metav1.NamespaceAll}
	if k.Namespaced {
		namespaces = s.namespaces
	}
	for _, namespace := range namespaces {
		p := &scope{feed: f, namespace: namespace}
		f.scopes = append(f.scopes, p)
		reflector := p.reflector()
		// note logs errors.
		quiet := klog.NewContext(ctx, klog.Logger{})
		s.running.Go(func() { reflector.RunWithContext(quiet) })
	}
	return f
}

// reflector returns the reflector that lists and watches.
func (p *scope) reflector() *cache.Reflector {
	s := p.source
	list, follow := s.requests(p.kind, p.version, p.namespace)
	failed := 0 // consecutive watches that did not begin
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			obj, err := list(ctx, o)
			s.note(ctx, p, &p.listing, err)
			return obj, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := follow(ctx, o)
			if err == nil && reflect.TypeOf(w) == nothing {
				w, err = nil, errClosed
			}
			s.note(ctx, p, &p.watching, err)
			switch {
			case o.SendInitialEvents != nil: // the reflector falls back to a list, or this is one
			case err == nil || !repeatable(err) || failed == watchTries:
				failed = 0
			default:
				failed++
				return nil, apierrors.NewTooManyRequestsError(err.Error()) // other errors make the reflector list everything
			}
			return w, err
		},
	}
	return cache.NewReflectorWithOptions(lw, nil, p, cache.ReflectorOptions{
		Name: "moongate", TypeDescription: p.kind.Name, Backoff: patience(),
	})
}

// watchTries is how often a watch that does not begin is tried again from the same version, before everything is listed: for about
// 10 s.
const watchTries = 10

// repeatable reports whether a watch that did not begin for this reason may begin a little later.
func repeatable(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError || apierrors.IsForbidden(err)
}

// stop ends the watch and drops its objects. The caller must hold Source.mu.
func (f *feed) stop() {
	f.stopped = true
	f.cancel()
	f.to.replace(metav1.NamespaceAll, nil, nil)
	delete(f.source.feeds, f.kind)
}

// requests returns how a kind is listed and watched in a namespace, or in all for "". The client does not retry: the reflector does,
// and needs the results.
func (s *Source) requests(k *watchedKind, version, namespace string) (
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error),
) {
	gv := schema.GroupVersion{Group: k.Group, Version: version}
	c := s.clients[clientKey{gv, k.partial}]
	get := func(o *metav1.ListOptions, partial string) *rest.Request {
		r := c.Get().MaxRetries(0).Namespace(namespace).Resource(k.Resource).SpecificallyVersionedParams(o, parameters, gv)
		if k.partial {
			as := ";as=" + partial + ";g=meta.k8s.io;v=v1"
			r.SetHeader("Accept", runtime.ContentTypeProtobuf+as+","+runtime.ContentTypeJSON+as)
		}
		return r
	}
	list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		resume.Newest(&o)
		return get(&o, "PartialObjectMetadataList").Do(ctx).Get()
	}
	follow = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if err := resume.Check(ctx, o, list); err != nil {
			return nil, err
		}
		o.Watch = true
		var timeout time.Duration
		if o.TimeoutSeconds != nil {
			timeout = time.Duration(*o.TimeoutSeconds) * time.Second
		}
		return get(&o, "PartialObjectMetadata").Timeout(timeout).Watch(ctx)
	}
	return list, follow
}

var parameters = runtime.NewParameterCodec(scheme)

// clientKey identifies a client: metadata is decoded differently from objects.
type clientKey struct {
	schema.GroupVersion
	partial bool
}

// connect creates the clients; they share their connections.
func (s *Source) connect(config *rest.Config) error {
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	for _, k := range append([]*watchedKind{definitionMetadata, secretMetadata, wholeSecret}, kinds...) {
		for _, version := range k.versions {
			key := clientKey{schema.GroupVersion{Group: k.Group, Version: version}, k.partial}
			if s.clients[key] != nil {
				continue
			}
			if s.clients[key], err = client(config, shared, key, k.Optional); err != nil {
				return err
			}
		}
	}
	return nil
}

func client(config *rest.Config, shared *http.Client, key clientKey, json bool) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &key.GroupVersion, "/apis", codecs
	if key.Group == "" {
		c.APIPath = "/api"
	}
	if key.partial {
		c.NegotiatedSerializer = metadatascheme.Codecs.WithoutConversion()
	}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if !json {
		c.ContentType = runtime.ContentTypeProtobuf
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return rest.RESTClientForConfigAndClient(c, shared)
}

// read returns the kept part of an object that was received, possibly in a statusless; ok is false for an unreadable one.
func (f *feed) read(obj any) (o metav1.Object, ok bool) {
	switch o := obj.(type) {
	case kept:
		return o.Object, true
	case *unreadable:
		effect := "An object cannot be read and is left as it was"
		if f.kind == grantKind {
			effect = "A ReferenceGrant cannot be read and permits nothing until it can be"
		}
		f.source.log.Warn(effect+": does the CustomResourceDefinition have another schema than this version expects?",
			"object", f.kind.key(nameOf(o)).String(), "error", o.err)
		return o, false
	case *statusless:
		return &statusless{f.kind.keep(o.object).(object), o.field, o.err}, true
	case runtime.Object:
		return f.kind.keep(o), true
	}
	return nil, false
}

// Transformer reduces objects of the first list while it is received.
func (f *feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if u, ok := obj.(*unreadable); ok {
			return u, nil
		}
		o, _ := f.read(obj)
		return kept{o}, nil
	}
}

// Add records an object that is new, or may be.
func (f *feed) Add(obj any) error {
	switch o, ok := f.read(obj); {
	case ok:
		f.do(func() { f.to.set(o) })
	case o != nil:
		f.do(func() { f.to.unreadable(obj.(*unreadable)) })
	}
	return nil
}

// Update records an object that was written.
func (f *feed) Update(obj any) error { return f.Add(obj) }

// Delete records that an object is gone.
func (f *feed) Delete(obj any) error {
	if o, ok := obj.(metav1.Object); ok {
		f.do(func() { f.to.remove(nameOf(o)) })
	}
	return nil
}

// Replace records all objects of the namespace.
func (p *scope) Replace(objects []any, _ string) error {
	all, bad := make([]metav1.Object, 0, len(objects)), map[name]*unreadable{}
	for _, obj := range objects {
		if o, ok := p.read(obj); ok {
			all = append(all, o)
		} else if o != nil {
			bad[nameOf(o)] = obj.(*unreadable)
		}
	}
	p.do(func() {
		if !p.done && p.failing && !p.source.catalog.withheld[p.namespace] {
			p.log().Info("objects of a kind can be read, and are served from now on")
		}
		p.done = true
		p.recovered()
		p.settle()
		p.to.replace(p.namespace, all, bad)
	})
	return nil
}

// trouble returns why the scope cannot be listed or watched, "" if nothing is known to be wrong. The caller must hold Source.mu.
func (p *scope) trouble() string { return cmp.Or(p.listing.text, p.watching.text) }

// recovered records that the scope can be read again. The caller must hold Source.mu.
func (p *scope) recovered() {
	if p.failing && p.done && p.trouble() == "" {
		p.failing, p.source.installedChanged = false, true
		p.source.wake()
	}
}

// settle marks the kind as listed once each scope was listed, or is skipped. The caller must hold Source.mu.
func (f *feed) settle() {
	if f.listed || !slices.ContainsFunc(f.scopes, func(p *scope) bool { return p.done }) ||
		slices.ContainsFunc(f.scopes, func(p *scope) bool { return !p.done && !p.dispensable() }) {
		return
	}
	f.listed, f.source.installedChanged = true, true
	f.source.wake()
}

// dispensable reports whether the start need not wait for a scope, as long as another scope of the kind is read. Essential kinds are
// skipped for a whole namespace or not at all: a Service must not be reached without the policies that protect it. A kind that is
// first served after the start does not wait for a namespace that is forbidden by then. The caller must hold Source.mu.
func (p *scope) dispensable() bool {
	s := p.source
	if p.kind.Essential && (s.reported == nil || p.namespace == "" || p.listing.class != string(metav1.StatusReasonForbidden)) {
		return s.catalog.withheld[p.namespace]
	}
	return p.failing
}

// forbidden reports whether the controller was not permitted to list the scope for long, in all attempts. The caller must hold
// Source.mu.
func (p *scope) forbidden(now time.Time) bool {
	s := p.source
	return !p.done && s.reach.text == "" && p.listing.class == string(metav1.StatusReasonForbidden) &&
		now.Sub(p.listing.since) >= s.skip && now.Sub(s.reachedSince) >= s.skip
}

// failing reports whether any part of the kind cannot be read. The caller must hold Source.mu.
func (f *feed) failing() bool {
	return slices.ContainsFunc(f.scopes, func(p *scope) bool { return p.failing })
}

// reads reports whether the objects of a namespace were listed. The caller must hold Source.mu.
func (f *feed) reads(namespace string) bool {
	for _, p := range f.scopes {
		if p.namespace == metav1.NamespaceAll || p.namespace == namespace {
			return p.done
		}
	}
	return f.listed
}

// follows reports whether the objects of a namespace were listed, and their changes are watched. The caller must hold Source.mu.
func (f *feed) follows(namespace string) bool {
	for _, p := range f.scopes {
		if p.namespace == metav1.NamespaceAll || p.namespace == namespace {
			return p.done && !p.failing
		}
	}
	return f.listed && !f.failing()
}

// problem returns why the kind is not read, "" if there is no known reason. The caller must hold Source.mu.
func (f *feed) problem() string {
	for _, p := range f.scopes {
		if text := p.trouble(); text != "" {
			return text
		}
	}
	return ""
}

// log returns a logger with attributes that identify what is read.
func (p *scope) log() *slog.Logger {
	log := p.source.log.With("kind", p.kind.Name)
	if p.namespace != metav1.NamespaceAll {
		log = log.With("namespace", p.namespace)
	}
	return log
}

// Resync does nothing, because no state needs to be emitted again.
func (f *feed) Resync() error { return nil }

// do calls change with Source.mu held, unless the feed was stopped in the meantime.
func (f *feed) do(change func()) {
	s := f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.stopped {
		change()
		s.wake()
	}
}

// trouble is why something cannot be read.
type trouble struct {
	text     string // of the last error, "" if none
	class    string // errors of one class are one trouble
	since    time.Time
	loggedAt time.Time // when it was logged; zero if it was not
}

const (
	// lasting is how old trouble must be to be logged: an API server that has just started refuses all requests for a moment.
	lasting = 3 * time.Second
	// again is the interval in which lasting trouble is logged.
	again = time.Minute
)

// next records the last result and reports whether it must be logged, or that trouble that was logged is over.
func (t *trouble) next(err error, now time.Time) (say, over bool) {
	if err == nil {
		over = !t.loggedAt.IsZero()
		*t = trouble{}
		return false, over
	}
	class := string(apierrors.ReasonForError(err))
	if t.text == "" || class != t.class {
		t.since, t.loggedAt = now, time.Time{}
	}
	t.text, t.class = err.Error(), class
	if now.Sub(t.since) < lasting || !t.loggedAt.IsZero() && now.Sub(t.loggedAt) < again {
		return false, false
	}
	t.loggedAt = now
	return true, false
}

// note records the result of a request of a feed; t is p.listing or p.watching.
func (s *Source) note(ctx context.Context, p *scope, t *trouble, err error) {
	if ctx.Err() != nil || expected(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.stopped {
		return
	}
	if apierrors.IsNotFound(err) {
		s.lookAgain() // the kind may be gone
	}
	s.noteReach(err)
	now := time.Now()
	say, over := t.next(err, now)
	if err == nil && t == &p.watching { // what is watched was listed, or the list is streamed
		_, listed := p.listing.next(nil, now)
		over = over || listed
	}
	over = over && p.trouble() == ""
	if t == &p.watching && p.listing.text != "" {
		say = false // logging one of the two is enough
	}
	concerns := err != nil && s.concernsKind(t, err)
	if concerns {
		p.remedy = remedyFor(p.kind, p.namespace, err)
	}
	p.recovered()
	if p.failing && p.remedy != p.reportedRemedy && now.Sub(t.since) >= lasting {
		p.reportedRemedy, s.installedChanged = p.remedy, true // otherwise statuses would keep the former reason
		s.wake()
	}
	switch {
	case over:
		p.log().Info("objects can be read again")
	case say && !concerns:
		t.loggedAt = time.Time{} // probe logs it, once for all kinds
	case say && t == &p.watching:
		p.log().Warn("objects cannot be watched; they are as of their last list, which is late and expensive: "+p.remedy, "error", err)
	case say:
		p.log().Warn("objects cannot be read; the known ones are kept: "+p.remedy, "error", err)
	}
}

// concernsKind reports whether an error is one of what was requested, and not of an API server that is unavailable: it was answered,
// or other requests have been since the trouble began. The caller must hold s.mu.
func (s *Source) concernsKind(t *trouble, err error) bool {
	return reached(err) || s.reach.text == "" && s.answeredAt.After(t.since)
}

// expected reports whether an error is normal for watches.
func expected(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		errors.Is(err, context.Canceled) ||
		apierrors.IsInvalid(err) // a streamed list, which an older API server does not support
}

func remedyFor(k *watchedKind, namespace string, err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("allow the controller's ServiceAccount to list and watch %s %s", k.resource(), where(namespace))
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the controller's credentials: renew them"
	}
	if !reached(err) {
		return noAnswerRemedy(k)
	}
	return "it is tried again"
}

// noAnswerRemedy is the remedy for requests that get no answer while others do.
func noAnswerRemedy(k *watchedKind) string {
	return fmt.Sprintf("the API server answers, but not requests for %s: %s; it is tried again", k.resource(), lookAtAnswers)
}

const lookAtAnswers = "look at its conversion webhook, if it has one, and at what limits the size or the duration of answers between the API server and this pod"

// where describes in which part of the cluster a permission is needed; namespace is "" for all.
func where(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "in the whole cluster"
	}
	return "in namespace " + namespace
}
