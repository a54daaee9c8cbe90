package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

const (
	// skip is how long the start waits for a kind that cannot be listed, unless it is essential.
	skip = 30 * time.Second
	// secretsPoll is the interval in which the needed Secrets are read while they cannot be watched.
	secretsPoll = time.Minute
)

// Unread is a kind whose objects cannot be listed or watched.
type Unread struct {
	Group, Kind string
	Remedy      string // the same as long as the reason is
}

// UnreadKinds returns the kinds that could not be listed or watched for some time although the API server answers, sorted. It may be
// called at any time.
func (s *Source) UnreadKinds() []Unread {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unreadKinds()
}

// unreadKinds is UnreadKinds. The caller must hold s.mu.
func (s *Source) unreadKinds() (list []Unread) {
	for k, f := range s.feeds {
		if i := slices.IndexFunc(f.scopes, func(p *scope) bool { return p.failing }); i >= 0 {
			list = append(list, Unread{k.Group, k.Name, f.scopes[i].remedyText()})
		}
	}
	slices.SortFunc(list, func(a, b Unread) int { return strings.Compare(a.Group+"/"+a.Kind, b.Group+"/"+b.Kind) })
	return list
}

// Problems returns how many objects of each kind cannot be used: they or their statuses cannot be decoded, or they are needed
// Secrets that cannot be read. Kinds without any are absent. It may be called at any time.
func (s *Source) Problems() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for key, t := range s.catalog.tables {
		if n := len(t.undecoded) + len(t.statusless); n > 0 {
			counts[key.Kind] = n
		}
	}
	for _, w := range s.catalog.secrets.needed {
		if w.object == nil && w.unread != nil {
			counts[kind.Secret.Name]++
		}
	}
	return counts
}

// Away returns for how long the API server has not answered; 0 while it does. It may be called at any time.
func (s *Source) Away() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reach.text == "" {
		return 0
	}
	return max(time.Since(s.reach.since), time.Nanosecond)
}

// remedyText returns the remedy for what cannot be read. The caller must hold Source.mu.
func (p *scope) remedyText() string {
	if p.remedy == "" && !p.done { // no request has ended yet
		return fmt.Sprintf("the list of %s has not ended yet; if that lasts, %s", p.kind.resource(), lookAtAnswers)
	}
	return cmp.Or(p.remedy, "it is tried again")
}

// watchFeeds checks for kinds and namespaces that cannot be read until ctx ends.
func (s *Source) watchFeeds(ctx context.Context) {
	tick := time.NewTicker(max(s.skip/30, time.Millisecond))
	defer tick.Stop()
	polled := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.mu.Lock()
			s.check(now)
			if now.Sub(polled) >= s.secretsPoll {
				polled = now
				for n := range s.catalog.secrets.needed {
					if !s.feeds[secretMetadata].follows(n.Namespace) {
						s.reads.Add(n)
					}
				}
			}
			s.mu.Unlock()
		}
	}
}

// check checks what cannot be read, and whether the start still waits for it. The caller must hold s.mu.
func (s *Source) check(now time.Time) {
	var failed []*scope
	for _, f := range s.feeds {
		for _, p := range f.scopes {
			before := p.failing
			if p.check(now); p.failing && !before && !p.done { // otherwise note logs it
				failed = append(failed, p)
			}
		}
	}
	s.checkNamespaces(now)
	for _, f := range s.feeds {
		f.settle()
	}
	for _, p := range failed {
		switch {
		case s.catalog.withheld[p.namespace]:
		case p.kind.Essential && !p.listed && s.reported == nil:
			p.log().Warn("objects of a kind cannot be listed; the start waits for them, because what is served depends on them: " + p.remedyText())
		default:
			p.log().Warn("objects of a kind cannot be listed; continuing without them until they can: " + p.remedyText())
		}
	}
}

// checkNamespaces finds the namespaces in which no essential kind may be listed, and stops waiting for them: a namespace without a
// RoleBinding must not delay all others. It is added when all essential kinds in it have been listed. The caller must hold s.mu.
func (s *Source) checkNamespaces(now time.Time) {
	if !s.discovered {
		return
	}
	withheld := s.catalog.withheld
	var forbidden []string
	for _, namespace := range s.namespaces {
		listed, refused := true, true
		for _, f := range s.feeds {
			for _, p := range f.scopes {
				if f.kind.Essential && f.kind.Namespaced && p.namespace == namespace {
					listed, refused = listed && p.done, refused && p.forbidden(now)
				}
			}
		}
		switch {
		case withheld[namespace] && listed:
			delete(withheld, namespace)
			s.log.Info("a namespace can be read, and is served from now on", "namespace", namespace)
			s.installedChanged = true
			s.wake()
		case !withheld[namespace] && refused:
			forbidden = append(forbidden, namespace)
		}
	}
	if len(forbidden)+len(withheld) == len(s.namespaces) {
		return // a permission that is missing everywhere does not concern one namespace
	}
	for _, namespace := range forbidden {
		withheld[namespace], s.installedChanged = true, true
		s.log.Warn("a namespace may not be read; continuing without it until all of it can be: "+namespaceRemedy, "namespace", namespace)
		for _, what := range s.unreadParameters() {
			s.log.Warn("the start waits for a namespace that may not be read, because a class may deny addresses there: " + what)
		}
	}
}

const namespaceRemedy = "allow the controller's ServiceAccount to list and watch what is in it, by the RoleBinding of the Role of watchNamespaces"

// unreadParameters returns the parameters of GatewayClasses, of any controller, that are in withheld namespaces. The addresses that
// they deny would be allowed for the Gateways of all namespaces, so the start waits for these. The caller must hold s.mu.
func (s *Source) unreadParameters() (list []string) {
	for _, o := range s.catalog.table(classKind).objects {
		gc, ok := o.(*gwv1.GatewayClass)
		if !ok || gc.Spec.ParametersRef == nil || gc.Spec.ParametersRef.Namespace == nil ||
			kind.Find(string(gc.Spec.ParametersRef.Group), string(gc.Spec.ParametersRef.Kind)) != kind.GatewayParameters.Kind {
			continue
		}
		if namespace := string(*gc.Spec.ParametersRef.Namespace); s.unreadNamespace(namespace) {
			list = append(list, because("GatewayParameters "+namespace+"/"+gc.Spec.ParametersRef.Name+" of GatewayClass "+gc.Name,
				"nothing of the namespace may be read: "+namespaceRemedy))
		}
	}
	slices.Sort(list)
	return list
}

// unreadNamespace reports whether a namespace exists, as far as is known, and is withheld. If it does not exist, everything about it
// is known. The caller must hold s.mu.
func (s *Source) unreadNamespace(namespace string) bool {
	_, exists := s.catalog.table(namespaceKind).objects[name{Name: namespace}]
	f := s.feeds[namespaceKind]
	return s.catalog.withheld[namespace] && (exists || f == nil || !f.listed)
}

// check records that a scope cannot be read for too long. If the API server is unavailable, that does not count: what is known is
// kept. The caller must hold Source.mu.
func (p *scope) check(now time.Time) {
	s := p.source
	since := p.listing.since
	if w := p.watching.since; since.IsZero() || !w.IsZero() && w.Before(since) {
		since = w
	}
	if !p.done {
		if s.reach.text != "" {
			p.unlistedSince = time.Time{}
		} else if p.unlistedSince.IsZero() {
			p.unlistedSince = now
		}
		since = p.unlistedSince
	}
	if p.failing || s.reach.text != "" || since.IsZero() {
		return
	}
	// It may have begun when the API server became unavailable; the next attempt shows whether it continues.
	if since.Before(s.reachedSince) {
		since = s.reachedSince
	}
	if now.Sub(since) < s.skip {
		return
	}
	p.failing, s.installedChanged, p.reportedRemedy = true, true, p.remedyText()
	s.wake()
}
