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
		if f.failing {
			list = append(list, Unread{k.group, k.name, cmp.Or(f.remedy, "it is tried again")})
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
			if !s.feeds[secretMetadata].listed && now.Sub(polled) >= s.secretsPoll {
				polled = now
				for n := range s.catalog.secrets.wanted {
					s.reads.Add(n)
				}
			}
			s.mu.Unlock()
		}
	}
}

// check notes that the kind cannot be read for too long. An API server that is away is another matter: what is known stays,
// and nothing is known to be unreadable. Source.mu is held.
func (f *feed) check(now time.Time) {
	s := f.source
	since := f.trouble.since
	if !f.listed {
		if s.reach.text != "" {
			f.unlistedSince = time.Time{}
		} else if f.unlistedSince.IsZero() {
			f.unlistedSince = now
		}
		since = f.unlistedSince
	}
	if f.failing || s.reach.text != "" || since.IsZero() {
		return
	}
	// Trouble may have begun as the API server went away; what is tried again now tells whether it goes on.
	if since.Before(s.reachedSince) {
		since = s.reachedSince
	}
	if now.Sub(since) < s.skip {
		return
	}
	f.failing, s.installedChanged = true, true
	switch {
	case f.listed: // note logs it
	case f.kind.essential:
		s.log.Warn("Objects of a kind cannot be listed; the start waits for them, because what is served depends on them: "+f.remedy, "kind", f.kind.name)
	default:
		s.log.Warn("Objects of a kind cannot be listed; going on without them until they can: "+f.remedy, "kind", f.kind.name)
	}
	s.wake()
}
