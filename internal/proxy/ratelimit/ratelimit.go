package ratelimit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/refcount"
)

// Store has what the limits of a proxy count. The zero value is ready for use; it is safe for concurrent use.
type Store struct {
	buckets refcount.Set[buckets]
	over    refcount.Set[overLimit]
	values  refcount.Set[values]
	slots   atomic.Int64 // of all tables
	tables  atomic.Int64 // how many there are
	kept    atomic.Int64 // of all values
	keeping atomic.Int64 // limits that have values
	swept   atomic.Int64 // when all were looked at last, since epoch

	conditions refcount.Set[compiledConditions] // by what they ask for
}

// buckets are those of one limit: one, or one for each value.
type buckets struct {
	bucket bucket
	table  *table // nil where the limit has one bucket
}

// overLimit counts requests of a limit, all routes together.
type overLimit struct {
	enforced, shadow atomic.Uint64 // that were over it
}

// Scope says where a limit counts.
type Scope string

// The scopes.
const (
	Local  Scope = "local"
	Global Scope = "global"
)

// OverLimit is how many requests were over a limit.
type OverLimit struct {
	Rule             string // as config.RateLimit.name
	Scope            Scope
	Enforced, Shadow uint64 // that were refused, and that passed because of shadowMode
}

// Report calls emit for each limit in force. It may be called at any time.
func (s *Store) Report(emit func(OverLimit)) {
	s.over.Each(func(key string, o *overLimit) {
		scope, rule, _ := strings.Cut(key, " ")
		emit(OverLimit{Rule: rule, Scope: Scope(scope), Enforced: o.enforced.Load(), Shadow: o.shadow.Load()})
	})
}

// Rules are the compiled limits of a rule, immutable but for what they count.
type Rules struct {
	local    []*limit // the strictest first
	fallback *limit   // that without conditions, nil for none
	global   []*limit
}

// limit is a compiled config.RateLimit.
type limit struct {
	*conditions
	rate
	config  *config.RateLimit
	over    *overLimit
	buckets *buckets // of a local one
	// Of a global one: its key in Redis, without the prefix of all keys and the digest of values, the arguments of the script, and which values have keys of
	// their own, nil where they are not told apart.
	redisKey string
	args     [4]string
	values   *values
}

// maxLocal bounds the local limits of a rule, as the CRD does.
const maxLocal = 16

// Compile compiles the limits of a rule of a route, of which the key is config.WholeRouteKey. release gives back what they count in. It is never nil, also with an error.
func (s *Store) Compile(c *config.RateLimits, route string) (_ *Rules, release func(), err error) {
	var releases []func()
	release = func() {
		for _, r := range releases {
			r()
		}
	}
	if len(c.Local) > maxLocal {
		return nil, release, fmt.Errorf("%d local rate limits are more than %d", len(c.Local), maxLocal)
	}
	r := &Rules{}
	keys := map[string]int{}
	for i, lc := range c.Local {
		l := &limit{config: lc, rate: newRate(lc.Requests, time.Duration(lc.PeriodSeconds)*time.Second)}
		var done func()
		l.conditions, done, err = s.compile(lc)
		releases = append(releases, done)
		if err != nil {
			return nil, release, fmt.Errorf("local rate limit %d: %w", i, err)
		}
		key := unique(keys, l.key(route))
		l.buckets, done = s.buckets.Take(key, func() *buckets { return s.newBuckets(l.rate, l.distinct()) })
		releases = append(releases, done)
		l.over, done = s.over.Take(string(Local)+" "+lc.Name, func() *overLimit { return &overLimit{} })
		releases = append(releases, done)
		if l.conditions.none() {
			r.fallback = l
			continue
		}
		r.local = append(r.local, l)
	}
	done, err := s.compileGlobal(r, c, route)
	releases = append(releases, done...)
	if err != nil {
		return nil, release, err
	}
	slices.SortStableFunc(r.local, func(a, b *limit) int {
		switch x, y := a.perYear(), b.perYear(); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return r, release, nil
}

// perYear is how strict a limit is.
func (l *limit) perYear() float64 { return float64(l.requests) / l.period.Seconds() }

// Request is what limits look at.
type Request struct {
	*message.Request            // with the header that the backend is to get
	Path, Query      []byte     // by which the rule was found
	Client           netip.Addr // never the zero Addr
	// Until and Done end the wait for Redis, beside its own timeout: a deadline, zero for none, and a channel that is closed when nobody waits for the response any
	// more, nil for never.
	Until time.Time
	Done  <-chan struct{}
}

// client is the client's address as ranges have it.
func (r *Request) client() netip.Addr { return r.Client.Unmap().WithZone("") }

// Decision is what limits make of a request. The zero value is that it passes, and nothing is told.
type Decision struct {
	Limited bool // it is over a limit
	// Exceeded: the regular expressions of the limits would have cost more than one request may, so that nothing was decided.
	Exceeded bool
	// Undecided: Redis has not said whether the request is over a global limit, and FailClosed that it is to be refused then.
	Undecided, FailClosed bool
	// Told: the response says by Limit, Window, Left and Reset which limit is nearest: the requests of it and the seconds of its period, how many are left, and in
	// how many seconds all are.
	Told                       bool
	Limit, Window, Left, Reset uint32

	redis   *Redis
	charges []charge // of the response
}

// taken is what a request has taken from a limit.
type taken struct {
	limit *limit
	hash  uint64
	at    time.Duration // when
}

// Check counts a request, and decides whether it passes. d is set anew. One that does not pass takes nothing from any enforced limit, but for what has come back to it
// while it waited. redis is where global limits count, nil for nowhere; where one matches, Check waits for an answer as long as redis and the request may take.
func (r *Rules) Check(req *Request, redis *Redis, d *Decision) {
	*d = Decision{}
	steps := match.NewSteps()
	var kept [maxLocal + 1]taken
	n, now, enforced := 0, sinceEpoch(), false
	for _, l := range r.local {
		hash, holds := l.hold(req, &steps)
		if steps.Exceeded() {
			giveBack(kept[:n])
			*d = Decision{Exceeded: true}
			return
		}
		if !holds {
			continue
		}
		enforced = enforced || !l.config.Shadow
		if !l.count(hash, now, d) {
			giveBack(kept[:n])
			return
		}
		if !l.config.Shadow {
			kept[n] = taken{l, hash, now}
			n++
		}
	}
	if l := r.fallback; l != nil && !enforced {
		if !l.count(0, now, d) {
			return
		}
		if !l.config.Shadow {
			kept[n] = taken{l, 0, now}
			n++
		}
	}
	if r.global == nil {
		return
	}
	if r.checkGlobal(req, redis, &steps, d); d.Limited || d.Exceeded || d.FailClosed {
		giveBack(kept[:n])
	}
}

// count takes a request from the limit. false is that it does not pass.
func (l *limit) count(hash uint64, now time.Duration, d *Decision) (passes bool) {
	at := l.at(now)
	var word int64
	if t := l.buckets.table; t != nil {
		word, passes = t.take(hash, at, l.config.RequestCost)
	} else {
		word, passes = l.buckets.bucket.take(&l.rate, at, l.config.RequestCost)
	}
	if !passes && l.config.Shadow {
		l.over.shadow.Add(1)
		return true
	}
	if !passes {
		l.over.enforced.Add(1)
		d.Limited = true
	}
	if l.config.Headers && !l.config.Shadow {
		left, reset := l.left(word, at)
		d.tell(l.config, left, reset)
	}
	return passes
}

// tell has the response say of a limit how much is left, if that is less than of others, or the limit has just refused the request.
func (d *Decision) tell(c *config.RateLimit, left, reset uint32) {
	if !d.Told || d.Limited || left < d.Left {
		d.Told, d.Limit, d.Window, d.Left, d.Reset = true, c.Requests, c.PeriodSeconds, left, reset
	}
}

// Waits reports whether Check may wait for Redis.
func (r *Rules) Waits() bool { return r.global != nil }

// giveBack puts back what was taken for a request that another limit refuses.
func giveBack(all []taken) {
	if len(all) == 0 {
		return
	}
	now := sinceEpoch()
	for _, t := range all {
		l := t.limit
		back := l.back(l.config.RequestCost, l.at(t.at), l.at(now))
		if l.buckets.table != nil {
			l.buckets.table.give(t.hash, back)
		} else {
			l.buckets.bucket.give(back)
		}
	}
}
