package kube

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
)

const (
	// readers is how many Secrets are read concurrently.
	readers = 8
	// readTimeout limits one request for a Secret.
	readTimeout = 5 * time.Second
	// A Secret that cannot be read is tried again after minRetry, twice that, and so on up to maxRetry; of all Secrets one is tried
	// again every retryInterval at most. Thousands may be forbidden, or refused by an API server that is overloaded.
	minRetry, maxRetry = 100 * time.Millisecond, 2 * time.Second
	retryInterval      = 10 * time.Millisecond
)

// readRetries determines when a Secret that cannot be read is tried again. It is safe for concurrent use.
type readRetries struct {
	workqueue.TypedRateLimiter[name] // for one Secret

	mu   sync.Mutex
	next time.Time // when the next retry of any Secret may be
}

func newReadRetries() *readRetries {
	return &readRetries{TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[name](minRetry, maxRetry)}
}

// When returns how long to wait.
func (r *readRetries) When(n name) time.Duration {
	wait := r.TypedRateLimiter.When(n)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.next.Before(now) {
		r.next = now
	}
	wait = max(wait, r.next.Sub(now))
	r.next = r.next.Add(retryInterval)
	return wait
}

var secretClient = clientKey{schema.GroupVersion{Version: "v1"}, wholeSecret.partial}

// secrets are the needed ones. Source.mu guards them.
type secrets struct {
	needed map[name]*secret
	// retired are the contents of Secrets that are no longer needed since the last Change was taken: if one is needed again in the
	// meantime, it is known without being read.
	retired map[name]*corev1.Secret
	ticket  uint64 // of the last read that began
}

// secret is the state of a needed Secret.
type secret struct {
	object  *corev1.Secret // nil while it does not exist, or has not been read
	unread  error          // why it is not known whether it exists; nil once it was read
	version string         // of object, "" if there is none
	ticket  uint64         // of the read that found it
	reading int            // active reads: they may have begun before the last event of the watch
	watched presence       // according to the watch
}

// presence is whether an object exists.
type presence int8

const (
	unreported presence = iota
	present
	deleted
)

// unknown reports whether a Secret is needed and has not been read since.
func (s *secrets) unknown(n name) bool {
	w := s.needed[n]
	return w != nil && w.ticket == 0
}

// secretSink receives the metadata of Secrets from the watch, and makes the needed ones be read again.
type secretSink struct{ source *Source }

func (t secretSink) set(o metav1.Object) {
	w := t.source.catalog.secrets.needed[nameOf(o)]
	if w == nil {
		return
	}
	w.watched = present
	if w.version != o.GetResourceVersion() || w.reading > 0 {
		t.source.reads.Add(nameOf(o))
	}
}

// unreadable does nothing: the metadata of a Secret can always be decoded.
func (t secretSink) unreadable(*unreadable) {}

// remove makes it be read: it may exist again.
func (t secretSink) remove(n name) {
	if w := t.source.catalog.secrets.needed[n]; w != nil {
		w.watched = deleted
		t.source.reads.Add(n)
	}
}

func (t secretSink) replace(namespace string, all []metav1.Object, _ map[name]*unreadable) {
	there := map[name]bool{}
	for _, o := range all {
		there[nameOf(o)] = true
		t.set(o)
	}
	for n, w := range t.source.catalog.secrets.needed {
		if there[n] || namespace != "" && n.Namespace != namespace {
			continue
		}
		w.watched = deleted
		if w.object != nil || w.unread != nil || w.reading > 0 {
			t.source.reads.Add(n)
		}
	}
}

// Fetch records which Secrets are needed and which no longer are, and returns the contents of those needed, as *corev1.Secret
// without resourceVersion; nothing for one that does not exist. One that cannot be read now is in unread, is read again and again,
// and is included in a later Change, possibly as deleted; one that is no longer needed is included as deleted. It may be called at
// any time, also within emit. The results are shared and must not be modified.
func (s *Source) Fetch(ctx context.Context, requests []SecretRequest) (all []metav1.Object, unread []UnreadSecret) {
	names := s.request(requests)
	found := make([]metav1.Object, len(names))
	slots := make(chan struct{}, readers)
	var reads sync.WaitGroup
	for i, n := range names {
		slots <- struct{}{}
		reads.Go(func() {
			defer func() { <-slots }()
			if err := s.read(ctx, n, false); err != nil {
				s.reads.AddRateLimited(n)
			}
			found[i] = s.fetched(n)
		})
	}
	reads.Wait()
	for _, n := range names {
		if u, ok := s.UnreadSecret(n.Namespace, n.Name); ok {
			unread = append(unread, u)
		}
	}
	return slices.DeleteFunc(found, func(o metav1.Object) bool { return o == nil }), unread
}

// UnreadSecret reports whether it is not known at present whether a needed Secret exists. It may be called at any time.
func (s *Source) UnreadSecret(namespace, secret string) (u UnreadSecret, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.catalog.secrets.needed[name{Namespace: namespace, Name: secret}]
	if w == nil || w.object != nil || w.unread == nil {
		return UnreadSecret{}, false
	}
	return UnreadSecret{namespace, secret, apierrors.IsForbidden(w.unread)}, true
}

// fetched returns the result of Fetch for a Secret; nil if there is none.
func (s *Source) fetched(n name) metav1.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.catalog.telling[n] {
		// The Change that is being emitted is older than the result, and may be applied after it: so the Secret is included in the
		// next one too.
		s.catalog.mark(secretMetadata.key(n), true)
		s.wake()
	}
	o, _, ok := s.catalog.get(secretMetadata.key(n))
	if !ok {
		return nil
	}
	return o
}

// request records which Secrets are needed, and returns their names; sorted.
func (s *Source) request(requests []SecretRequest) (names []name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.catalog
	for _, r := range requests {
		n := name{Namespace: r.Namespace, Name: r.Name}
		switch {
		case r.Needed && !s.watches(n.Namespace):
			// This controller may not read it, so it counts as absent, and no request is made that would be refused.
		case r.Needed:
			if c.secrets.needed[n] == nil {
				c.secrets.needed[n] = &secret{object: c.secrets.retired[n]}
			}
			names = append(names, n)
		case c.secrets.needed[n] != nil:
			if o := c.secrets.needed[n].object; o != nil {
				c.secrets.retired[n] = o
			}
			delete(c.secrets.needed, n)
			c.mark(secretMetadata.key(n), true)
			s.wake()
		}
	}
	slices.SortFunc(names, func(a, b name) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return names
}

// read reads a needed Secret. The result is included in a Change if it differs from the present state, or if always is set. It
// returns an error if it is not known whether the Secret exists.
func (s *Source) read(ctx context.Context, n name, always bool) error {
	s.mu.Lock()
	w := s.catalog.secrets.needed[n]
	if w == nil {
		s.mu.Unlock()
		return nil
	}
	s.catalog.secrets.ticket++
	ticket := s.catalog.secrets.ticket
	w.reading++
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var o corev1.Secret
	err := s.clients[secretClient].Get().MaxRetries(0).Namespace(n.Namespace).Resource("secrets").Name(n.Name).Do(ctx).Into(&o)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.reading--
	forbidden := apierrors.IsForbidden(err)
	unknown := err
	if apierrors.IsNotFound(err) || forbidden && w.watched == deleted { // then only the watch knows
		unknown = nil
	}
	if !forbidden || unknown != nil { // otherwise other Secrets still cannot be read, so the trouble is not over
		if say, _ := s.secretTrouble.next(unknown, time.Now()); say && s.concernsKind(&s.secretTrouble, err) {
			namespace := metav1.NamespaceAll
			if s.namespaces[0] != metav1.NamespaceAll {
				namespace = n.Namespace
			}
			s.log.Warn("a Secret cannot be read; its known content is kept: allow the controller's ServiceAccount to get secrets "+where(namespace)+", if this was refused",
				"secret", n.String(), "error", err)
		} else if say {
			s.secretTrouble.loggedAt = time.Time{} // as in note
		}
	}
	if unknown != nil {
		switch {
		case w.ticket == 0:
			w.unread = unknown
		case forbidden && w.object == nil && w.unread == nil && w.watched == present:
			// It was known not to exist, and was created since.
			w.unread = unknown
			s.catalog.mark(secretMetadata.key(n), true)
			s.wake()
		}
		return unknown
	}
	if s.catalog.secrets.needed[n] != w || ticket < w.ticket {
		return nil // no longer needed, or a later read has read it
	}
	had, unread := w.object, w.unread != nil
	w.object, w.version, w.ticket, w.unread = nil, "", ticket, nil
	if err == nil {
		w.object, w.version = wholeSecret.keep(&o).(*corev1.Secret), o.ResourceVersion
	}
	if unread && w.object == nil {
		s.catalog.mark(secretMetadata.key(n), true) // the Change reports that it does not exist
		s.wake()
	}
	if (always || had != nil) && !equality.Semantic.DeepEqual(had, w.object) {
		s.catalog.mark(secretMetadata.key(n), true)
		s.wake()
	}
	return nil
}

// readSecrets reads Secrets that have changed, until the queue ends.
func (s *Source) readSecrets(ctx context.Context) {
	for {
		n, ended := s.reads.Get()
		if ended {
			return
		}
		if s.read(ctx, n, true) != nil {
			s.reads.AddRateLimited(n)
		} else {
			s.reads.Forget(n)
		}
		s.reads.Done(n)
	}
}
