package kube

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// settling are the times after a change of a CRD at which to ask what is served: the API server serves a kind a little later than
// the CRD's status reports.
var settling = []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second}

const (
	// routinely is the interval of discovery without a reason.
	routinely = time.Minute
	// retry is the time until discovery is tried again after an error.
	retry = time.Second
	// unlisted is how long a kind with a CRD, or one that needs none, may be absent from discovery before it counts as not served,
	// and how long the start waits for an essential one: an API server that has just started does not list everything at once.
	unlisted = 30 * time.Second
)

// discover determines which kinds are served, repeatedly until ctx ends.
func (s *Source) discover(ctx context.Context) {
	step, wait := len(settling), time.Duration(0)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.look:
			timer.Stop()
			// More changes usually follow at once: they are handled together.
			step, wait = 1, settling[0]
			if !sleep(ctx, wait) {
				return
			}
			drain(s.look)
		case <-timer.C:
			step++
		}
		wait = s.ask(ctx)
		switch {
		case wait > 0:
		case step < len(settling):
			wait = settling[step]
		default:
			wait = routinely
		}
	}
}

// ask runs discovery once and returns when to do it again because of its result; 0 if there is no reason.
func (s *Source) ask(ctx context.Context) time.Duration {
	found, err := s.served(ctx)
	if ctx.Err() != nil {
		return retry
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteReach(err)
	if say, _ := s.discovery.next(err, time.Now()); say && s.concernsKind(&s.discovery, err) {
		s.log.Warn("the API server does not report which kinds it serves; trying again", "error", err)
	} else if say {
		s.discovery.loggedAt = time.Time{} // as in note
	}
	if err != nil {
		return retry
	}
	defer s.wake()
	s.discovered = true
	return s.follow(ctx, found)
}

// served returns the version in which each optional kind is read.
func (s *Source) served(ctx context.Context) (map[*watchedKind]string, error) {
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	found := map[*watchedKind]string{}
	for _, k := range kinds {
		if !k.Optional {
			continue
		}
		for _, version := range k.versions {
			gv := schema.GroupVersion{Group: k.Group, Version: version}
			list := lists[gv]
			if list == nil {
				list = &metav1.APIResourceList{}
				limited, cancel := context.WithTimeout(ctx, 10*time.Second)
				err := s.clients[clientKey{gv, k.partial}].Get().MaxRetries(0).AbsPath("/apis", gv.Group, gv.Version).Do(limited).Into(list)
				cancel()
				if err != nil && !apierrors.IsNotFound(err) {
					return nil, err
				}
				lists[gv] = list
			}
			if found[k] == "" && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
				return r.Name == k.Resource && r.Kind == k.Name
			}) {
				found[k] = version
			}
		}
	}
	return found, nil
}

// follow starts and stops watches according to what was found. It returns when to ask again, 0 if there is no reason. The caller
// must hold s.mu.
func (s *Source) follow(ctx context.Context, found map[*watchedKind]string) (again time.Duration) {
	now := time.Now()
	for _, k := range kinds {
		f, version := s.feeds[k], found[k]
		if f != nil || version != "" || !s.hasDefinition(k) {
			delete(s.unnamed, k)
		} else if s.unnamed[k].IsZero() {
			s.unnamed[k] = now
		}
		switch {
		case !k.Optional:
		case f == nil && version == "":
			if s.hasDefinition(k) && now.Sub(s.unnamed[k]) < s.grace {
				again = retry
			}
		case f == nil:
			s.start(ctx, k, version, s.catalog.table(k))
		case f.version == version:
			f.absent = time.Time{}
		case version != "":
			// The objects are the same: differences become visible when they are listed.
			f.stopped = true
			f.cancel()
			next := s.start(ctx, k, version, f.to)
			next.listed = f.listed
			for i, p := range f.scopes {
				next.scopes[i].done = p.done
			}
			s.installedChanged = true
		case s.defined(k) && f.absent.IsZero():
			f.absent = now
			again = retry
		case s.defined(k) && now.Sub(f.absent) < s.grace:
			again = retry
		default:
			s.log.Info("the API server no longer serves this kind", "kind", k.Name, "group", k.Group)
			f.stop()
			s.installedChanged = true
		}
	}
	return again
}

// defined reports whether a kind has a CRD, or needs none: API servers that are upgraded one after the other serve different
// versions of the latter. The caller must hold s.mu.
func (s *Source) defined(k *watchedKind) bool {
	return !k.Custom || s.hasDefinition(k) || !s.feeds[definitionMetadata].listed
}

// hasDefinition reports whether a kind has a CRD. The caller must hold s.mu.
func (s *Source) hasDefinition(k *watchedKind) bool {
	_, ok := s.catalog.definitions[k.Resource+"."+k.Group]
	return ok
}

// awaitsDiscovery reports whether a kind has a CRD and discovery does not list it, but may do so soon. The caller must hold s.mu.
func (s *Source) awaitsDiscovery(k *watchedKind) bool {
	if !k.Custom || s.feeds[k] != nil || !s.hasDefinition(k) {
		return false
	}
	since := s.unnamed[k]
	return since.IsZero() || time.Since(since) < s.grace
}

// lookAgain makes discover ask soon.
func (s *Source) lookAgain() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// installed returns what the cluster has. The caller must hold s.mu.
func (s *Source) installed() *Installed {
	i := &Installed{CRDs: s.catalog.crds(), Unread: s.unreadKinds(), UnreadNamespaces: slices.Sorted(maps.Keys(s.catalog.withheld))}
	for k, f := range s.feeds {
		if k.Optional && f.listed {
			i.Kinds = append(i.Kinds, Served{k.Group, k.Name, f.version, k.Resource})
		}
	}
	slices.SortFunc(i.Kinds, func(a, b Served) int { return strings.Compare(a.Group+"/"+a.Kind, b.Group+"/"+b.Kind) })
	return i
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func drain(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
