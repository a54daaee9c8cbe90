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

// Store holds the counters of a proxy's limits. The zero value is ready for use. It is safe for concurrent use.
type Store struct {
	buckets refcount.Set[buckets]
	over    refcount.Set[overLimit]
	values  refcount.Set[values]
	slots   atomic.Int64 // of all tables
	tables  atomic.Int64 // number of tables
	kept    atomic.Int64 // of all values
	keeping atomic.Int64 // number of limits with values
	swept   atomic.Int64 // time of the last sweep of all limits, since epoch

	conditions refcount.Set[compiledConditions] // by their serialized configuration
}

// buckets are the buckets of one limit: one, or one for each value.
type buckets struct {
	bucket bucket
	table  *table // nil if the limit has one bucket
}

// overLimit counts the requests over a limit, for all routes together.
type overLimit struct {
	enforced, shadow atomic.Uint64 // requests over the limit
}

// Scope is where a limit counts.
type Scope string

// The scopes.
const (
	Local  Scope = "local"
	Global Scope = "global"
)

// OverLimit is the number of requests over a limit.
type OverLimit struct {
	Rule             string // see config.RateLimit.name
	Scope            Scope
	Enforced, Shadow uint64 // requests that were refused, and that passed because of shadowMode
}

// Report calls emit for each limit in force. It may be called at any time.
func (s *Store) Report(emit func(OverLimit)) {
	s.over.Each(func(key string, o *overLimit) {
		scope, rule, _ := strings.Cut(key, " ")
		emit(OverLimit{Rule: rule, Scope: Scope(scope), Enforced: o.enforced.Load(), Shadow: o.shadow.Load()})
	})
}

// Rules are the compiled limits of a rule. They are immutable except for their counters.
type Rules struct {
	local    []*limit // the strictest first
	fallback *limit   // the limit without conditions, nil if there is none
	global   []*limit
}

// limit is a compiled config.RateLimit.
type limit struct {
	*conditions
	rate
	config  *config.RateLimit
	over    *overLimit
	buckets *buckets // of a local limit
	// The fields below are for a global limit: its key in Redis, without the common prefix and the digest of values,
	// the arguments of the script, and which values have their own keys, nil if they are not distinguished.
	redisKey string
	args     [4]string
	values   *values
}

// maxLocal is the largest number of local limits of a rule, as in the CRD.
const maxLocal = 16

// Compile compiles the limits of a rule of a route, whose key is config.WholeRouteKey. release releases their counters.
// It is never nil, even with an error.
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

// perYear returns how strict a limit is.
func (l *limit) perYear() float64 { return float64(l.requests) / l.period.Seconds() }

// Request is what limits examine.
type Request struct {
	*message.Request            // with the header that the backend is to get
	Path, Query      []byte     // by which the rule was matched
	Client           netip.Addr // never the zero Addr
	// Until and Done end the wait for Redis, in addition to its own timeout: a deadline, zero if there is none, and a
	// channel that is closed when the response is not needed any more, or nil.
	Until time.Time
	Done  <-chan struct{}
}

// client returns the client's address in the form used by ranges.
func (r *Request) client() netip.Addr { return r.Client.Unmap().WithZone("") }

// Decision is the result of Check. The zero value means that the request passes, and that the response has no rate
// limit fields.
type Decision struct {
	Limited bool // the request is over a limit
	// Exceeded means that the regular expressions of the limits would have cost more than one request may, so that
	// nothing was decided.
	Exceeded bool
	// Undecided means that Redis has not answered whether the request is over a global limit, and FailClosed that it is
	// to be refused then.
	Undecided, FailClosed bool
	// Reported means that the response reports the nearest limit by Limit, Window, Left and Reset: its requests and the
	// seconds of its period, how many requests are left, and in how many seconds all are available.
	Reported                   bool
	Limit, Window, Left, Reset uint32

	redis   *Redis
	charges []charge // for the response
}

// taken is what a request has taken from a limit.
type taken struct {
	limit *limit
	hash  uint64
	at    time.Duration // when
}

// Check counts a request, and decides whether it passes. It overwrites d. A request that does not pass takes nothing
// from any enforced limit, except for what the limit has regained while the request waited. redis is where global
// limits count, nil if there is none. If one matches, Check waits for an answer as long as redis and the request allow.
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

// count counts a request in the limit. It returns false if the request does not pass.
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
		d.Limited, d.Reported = true, false // the values of other limits do not matter any more
	}
	if l.config.Headers && !l.config.Shadow {
		left, reset := l.left(word, at)
		d.report(l.config, left, reset)
	}
	return passes
}

// report makes the response report what is left of a limit, if that is less than of others or the limit has just refused
// the request.
func (d *Decision) report(c *config.RateLimit, left, reset uint32) {
	if !d.Reported || d.Limited || left < d.Left {
		d.Reported, d.Limit, d.Window, d.Left, d.Reset = true, c.Requests, c.PeriodSeconds, left, reset
	}
}

// Waits reports whether Check may wait for Redis.
func (r *Rules) Waits() bool { return r.global != nil }

// giveBack returns what was taken for a request that another limit refuses.
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
