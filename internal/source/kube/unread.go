package kube

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

const (
	// skip is how long a kind that cannot be listed holds up the start, unless it is essential.
	skip = 30 * time.Second
	// secretsPoll is how often the wanted Secrets are read while their changes cannot be watched.
	secretsPoll = time.Minute
)

// Unread is a kind whose objects cannot be listed or watched.
type Unread struct {
	Group, Kind string
	Remedy      string // what helps, the same as long as the reason is
}

// UnreadKinds are the kinds that could not be listed or watched for some time though the API server answers, sorted. It may
// be called at any time.
func (s *Source) UnreadKinds() []Unread {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unreadKinds()
}

// unreadKinds is UnreadKinds. s.mu is held.
func (s *Source) unreadKinds() (list []Unread) {
	for k, f := range s.feeds {
		if i := slices.IndexFunc(f.scopes, func(p *scope) bool { return p.failing }); i >= 0 {
			list = append(list, Unread{k.group, k.name, cmp.Or(f.scopes[i].remedy, "it is tried again")})
		}
	}
	slices.SortFunc(list, func(a, b Unread) int { return strings.Compare(a.Group+"/"+a.Kind, b.Group+"/"+b.Kind) })
	return list
}

// watchFeeds looks for kinds that cannot be read until ctx ends.
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
			for _, f := range s.feeds {
				f.check(now)
			}
			if now.Sub(polled) >= s.secretsPoll {
				polled = now
				for n := range s.catalog.secrets.wanted {
					if !s.feeds[secretMetadata].follows(n.Namespace) {
						s.reads.Add(n)
					}
				}
			}
			s.mu.Unlock()
		}
	}
}

// check looks for parts of the kind that cannot be read, and says what becomes of the start. Source.mu is held.
func (f *feed) check(now time.Time) {
	var failed []*scope
	for _, p := range f.scopes {
		before := p.failing
		if p.check(now); p.failing && !before && !p.done { // otherwise note logs it
			failed = append(failed, p)
		}
	}
	f.settle()
	for _, p := range failed {
		if f.kind.essential && !f.listed {
			p.log().Warn("Objects of a kind cannot be listed; the start waits for them, because what is served depends on them: " + p.remedy)
		} else {
			p.log().Warn("Objects of a kind cannot be listed; going on without them until they can: " + p.remedy)
		}
	}
}

// check notes that a scope cannot be read for too long. An API server that is away is another matter: what is known stays,
// and nothing is known to be unreadable. Source.mu is held.
func (p *scope) check(now time.Time) {
	s := p.source
	since := p.trouble.since
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
	// Trouble may have begun as the API server went away; what is tried again now tells whether it goes on.
	if since.Before(s.reachedSince) {
		since = s.reachedSince
	}
	if now.Sub(since) < s.skip {
		return
	}
	p.failing, s.installedChanged = true, true
	s.wake()
}
