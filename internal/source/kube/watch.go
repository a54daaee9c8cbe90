package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// sink takes what a feed brings. Source.mu is held.
type sink interface {
	set(o metav1.Object)
	remove(n name)
	// replace takes all that there is; of those in unreadable the last version stays.
	replace(all []metav1.Object, unreadable map[name]bool)
}

// feed is the watch of one kind in one version.
type feed struct {
	source  *Source
	kind    *kind
	version string
	to      sink
	cancel  context.CancelFunc
	// Guarded by Source.mu:
	stopped, listed bool
	trouble         trouble
	// absent is since when discovery does not find the kind; zero while it does.
	absent time.Time
}

// kept is a decoded object without what is not needed.
type kept struct{ metav1.Object }

// patience is how long, at most, a watch waits before it asks again: short, so that what
// happened while the API server was away is soon known.
func patience() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 10, Cap: 1500 * time.Millisecond}
}

// start watches a kind until ctx ends or the feed is stopped. Source.mu is held.
func (s *Source) start(ctx context.Context, k *kind, version string, to sink) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{source: s, kind: k, version: version, to: to, cancel: cancel}
	s.feeds[k] = f
	list, follow := s.requests(k, version)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			obj, err := list(ctx, o)
			s.note(ctx, f, err)
			return obj, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := follow(ctx, o)
			s.note(ctx, f, err)
			return w, err
		},
	}
	reflector := cache.NewReflectorWithOptions(lw, nil, f, cache.ReflectorOptions{
		Name: "moongate", TypeDescription: k.name, Backoff: patience(),
	})
	// What goes wrong is said by note.
	quiet := klog.NewContext(ctx, klog.Logger{})
	s.running.Go(func() { reflector.RunWithContext(quiet) })
	return f
}

// stop ends the watch and what is known by it. Source.mu is held.
func (f *feed) stop() {
	f.stopped = true
	f.cancel()
	f.to.replace(nil, nil)
	delete(f.source.feeds, f.kind)
}

// requests are how a kind is listed and watched.
func (s *Source) requests(k *kind, version string) (
	func(context.Context, metav1.ListOptions) (runtime.Object, error),
	func(context.Context, metav1.ListOptions) (watch.Interface, error),
) {
	if k.partial {
		r := s.metadata.Resource(schema.GroupVersionResource{Group: k.group, Version: version, Resource: k.resource})
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, o) },
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return r.Watch(ctx, o) }
	}
	gv := schema.GroupVersion{Group: k.group, Version: version}
	c := s.clients[gv]
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Get().Resource(k.resource).SpecificallyVersionedParams(&o, parameters, gv).Do(ctx).Get()
	}
	follow := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.Watch = true
		var timeout time.Duration
		if o.TimeoutSeconds != nil {
			timeout = time.Duration(*o.TimeoutSeconds) * time.Second
		}
		return c.Get().Resource(k.resource).SpecificallyVersionedParams(&o, parameters, gv).Timeout(timeout).Watch(ctx)
	}
	return list, follow
}

var parameters = runtime.NewParameterCodec(scheme)

// connect makes a client for each group and version; they share their connections.
func (s *Source) connect(config *rest.Config) error {
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	if s.metadata, err = metadata.NewForConfigAndClient(config, shared); err != nil {
		return err
	}
	for _, k := range kinds {
		for _, version := range k.versions {
			gv := schema.GroupVersion{Group: k.group, Version: version}
			if s.clients[gv] != nil {
				continue
			}
			if s.clients[gv], err = client(config, shared, gv, k.optional); err != nil {
				return err
			}
		}
	}
	return nil
}

func client(config *rest.Config, shared *http.Client, gv schema.GroupVersion, json bool) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, "/apis", codecs
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if !json {
		c.ContentType = runtime.ContentTypeProtobuf
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return rest.RESTClientForConfigAndClient(c, shared)
}

// read takes what is needed of an object as it came; ok is false for an unreadable one.
func (f *feed) read(obj any) (o metav1.Object, ok bool) {
	switch o := obj.(type) {
	case kept:
		return o.Object, true
	case *unreadable:
		f.source.log.Warn("An object cannot be read and is left as it was: does the CustomResourceDefinition have another schema than this version expects?",
			"object", f.kind.id(nameOf(o)).String(), "error", o.err)
		return o, false
	case runtime.Object:
		if f.kind.keep == nil {
			return keepMetadata(o), true
		}
		return f.kind.keep(o), true
	}
	return nil, false
}

// Transformer makes the first list small while it arrives.
func (f *feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if u, ok := obj.(*unreadable); ok {
			return u, nil
		}
		o, _ := f.read(obj)
		return kept{o}, nil
	}
}

// Add takes an object that is new, or may be.
func (f *feed) Add(obj any) error {
	if o, ok := f.read(obj); ok {
		f.do(func() { f.to.set(o) })
	}
	return nil
}

// Update takes an object that was written.
func (f *feed) Update(obj any) error { return f.Add(obj) }

// Delete takes that an object is gone.
func (f *feed) Delete(obj any) error {
	if o, ok := obj.(metav1.Object); ok {
		f.do(func() { f.to.remove(nameOf(o)) })
	}
	return nil
}

// Replace takes everything that there is.
func (f *feed) Replace(objects []any, _ string) error {
	all, bad := make([]metav1.Object, 0, len(objects)), map[name]bool{}
	for _, obj := range objects {
		if o, ok := f.read(obj); ok {
			all = append(all, o)
		} else if o != nil {
			bad[nameOf(o)] = true
		}
	}
	f.do(func() {
		if !f.listed {
			f.listed = true
			f.source.installedChanged = true
		}
		f.to.replace(all, bad)
	})
	return nil
}

// Resync does nothing: there is nobody who would need to be told again.
func (f *feed) Resync() error { return nil }

// do changes what is known, unless the feed was stopped meanwhile.
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
	text string
	said time.Time
}

// again is how often lasting trouble is logged.
const again = time.Minute

// next takes the newest error and says whether it is to be logged, or that it is over.
func (t *trouble) next(text string, now time.Time) (say, over bool) {
	switch {
	case text == "":
		over = t.text != ""
		*t = trouble{}
		return false, over
	case text != t.text || now.Sub(t.said) >= again:
		*t = trouble{text, now}
		return true, false
	}
	return false, false
}

// note takes in how a request of a feed went.
func (s *Source) note(ctx context.Context, f *feed, err error) {
	if ctx.Err() != nil || expected(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.stopped {
		return
	}
	if apierrors.IsNotFound(err) {
		s.lookAgain() // the kind may be gone
	}
	s.noteReach(err)
	text, remedy := "", ""
	if err != nil {
		text, remedy = err.Error(), remedyFor(f.kind, err)
	}
	say, over := f.trouble.next(text, time.Now())
	switch {
	case over:
		s.log.Info("Objects are read again", "kind", f.kind.name)
	case say && reached(err):
		s.log.Warn("Objects cannot be read; what is known of them stays: "+remedy, "kind", f.kind.name, "error", err)
	}
}

// noteReach logs once, not for each kind, that the API server is away. s.mu is held.
func (s *Source) noteReach(err error) {
	text := ""
	if !reached(err) {
		text = "away"
	}
	say, over := s.reach.next(text, time.Now())
	switch {
	case over:
		s.log.Info("The API server answers again")
	case say:
		s.log.Warn("The API server does not answer; what is known stays, and it is asked again", "error", err)
	}
}

// reached says that an API server answered, if only with an error.
func reached(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}

// expected are errors that belong to watching.
func expected(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) ||
		apierrors.IsInvalid(err) // streaming a list, which an older API server cannot
}

func remedyFor(k *kind, err error) string {
	switch {
	case apierrors.IsForbidden(err):
		resource := k.resource
		if k.group != "" {
			resource += "." + k.group
		}
		return fmt.Sprintf("allow the controller's ServiceAccount to list and watch %s in the whole cluster", resource)
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the controller's credentials: renew them"
	}
	return "it is tried again"
}
