// Package resolve queries DNS for the addresses of hosts, and queries again when an answer may have changed (RFC 1035
// section 3.2.1, TTL). It exists because Go's own resolver does not return how long an answer is valid. Each host is
// queried once for a namespace, however many backends it has there: hosts of one namespace, whose owner may have
// configured thousands that do not answer, do not delay those of another.
//
// It imports nothing of this module.
package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// How long answers are used, whatever their TTL, and when hosts without an answer are queried again.
const (
	defaultMinTTL = 5 * time.Second // so that names with a TTL of 0 cause their servers little load
	maxTTL        = time.Hour
	minAbsent     = 5 * time.Second // for a name that does not exist (RFC 2308 section 5)
	maxAbsent     = time.Minute
	firstWait     = time.Second // after the first failure; it doubles
	maxWait       = 30 * time.Second
	// maxSilent replaces maxWait for a host without addresses for which no server answers at all: each query holds a
	// place for seconds.
	maxSilent = 2 * time.Minute
)

// The largest number of log lines about a host in that time, since its DNS server may change its answer each time.
const (
	maxLines  = 8
	linesTime = 10 * time.Minute
)

// minRefresh is the shortest time between queries for hosts whose TTL is ignored.
const minRefresh = time.Second

// maxAddresses is how many addresses of a host are used.
const maxAddresses = 256

// Options configures a Resolver. The zero value is ready for use.
type Options struct {
	// Servers are queried in their order; none means those of /etc/resolv.conf, as it is at the time of the query.
	Servers []netip.AddrPort
	// MinTTL is the shortest time for which an answer is used; 0 means 5 s.
	MinTTL time.Duration
	Logger *slog.Logger // nil means that nothing is logged
	// Panicked is called by the deferred function that has recovered a panic; may be nil.
	Panicked func(where string, v any)
}

// Lookup is how a host is queried. The zero value uses its TTL.
type Lookup struct {
	Family Family
	// Refresh is how often the host is queried, whatever the TTL of its addresses, at most once a second; 0 means by
	// the TTL.
	Refresh time.Duration
}

// Family is which families of a host's addresses are used.
type Family uint8

// The families.
const (
	PreferIPv4 Family = iota // IPv4 if there are any, otherwise IPv6
	PreferIPv6               // IPv6 if there are any, otherwise IPv4
	OnlyIPv4
	OnlyIPv6
	BothFamilies
)

// Answer is the result of the queries for a host.
type Answer struct {
	// Addresses are sorted and distinct, of the requested Family. There are none if DNS answers that the host does not
	// exist or has none; after a failure they are the previous ones.
	Addresses []netip.Addr
	// Err is why the last query returned no addresses; nil if it returned some.
	Err error
}

// Resolver keeps Answers up to date. Its methods may be called concurrently.
type Resolver struct {
	options Options
	find    func(ctx context.Context, host string, family Family) (found, error)
	asking  places

	mu     sync.Mutex
	hosts  map[hostKey]*host
	closed bool
	wg     sync.WaitGroup
}

// hostKey is a host with the namespace that uses it, and how it is queried.
type hostKey struct {
	namespace, name string
	Lookup
}

// host is a watched host.
type host struct {
	hostKey
	cancel context.CancelFunc

	// The fields below are guarded by Resolver.mu.
	answer   Answer
	answered bool
	watchers map[*watcher]struct{}
	fresh    chan struct{} // has an element if a watcher has not been called yet
	lines    int           // log lines since logged
	logged   time.Time
}

type watcher struct {
	answered bool
	answer   func(Answer)
}

// New returns a Resolver, which does not query anything yet.
func New(o Options) *Resolver {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.MinTTL = cmp.Or(o.MinTTL, defaultMinTTL)
	if o.Panicked == nil {
		o.Panicked = func(string, any) {}
	}
	r := &Resolver{options: o, hosts: map[hostKey]*host{}}
	r.find = (&client{servers: o.Servers, panicked: o.Panicked}).find
	return r
}

// Watch is WatchBy with the zero value of Lookup.
func (r *Resolver) Watch(namespace, name string, answer func(Answer)) (stop func()) {
	return r.WatchBy(namespace, name, Lookup{}, answer)
}

// WatchBy calls answer with the Answer for a host once there is one, and whenever it has changed, from goroutines of
// the Resolver but one at a time. answer may be called once more while stop runs. namespace is that of the resource
// that names the host.
func (r *Resolver) WatchBy(namespace, name string, by Lookup, answer func(Answer)) (stop func()) {
	key := hostKey{namespace, name, by}
	w := &watcher{answer: answer}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[key]
	if h == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h = &host{hostKey: key, cancel: cancel, watchers: map[*watcher]struct{}{}, fresh: make(chan struct{}, 1)}
		if r.closed {
			cancel()
			return func() {}
		}
		r.hosts[key] = h
		r.wg.Go(func() { r.run(ctx, h) })
	}
	h.watchers[w] = struct{}{}
	if h.answered {
		h.wake()
	}
	return func() { r.stop(h, w) }
}

func (r *Resolver) stop(h *host, w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(h.watchers, w)
	if len(h.watchers) == 0 {
		h.cancel()
		if r.hosts[h.hostKey] == h {
			delete(r.hosts, h.hostKey)
		}
	}
}

// Close ends all queries, and returns when no answer will be delivered any more. It must not be called from an answer
// function.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.closed = true
	for _, h := range r.hosts {
		h.cancel()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (h *host) wake() {
	select {
	case h.fresh <- struct{}{}:
	default:
	}
}

// run queries a host until it is not watched any more. New watchers get the present answer, even while a query is
// running.
func (r *Resolver) run(ctx context.Context, h *host) {
	failures := 0
	for {
		asked := make(chan time.Duration, 1)
		r.wg.Go(func() { asked <- r.askOnce(ctx, h, &failures) })
		timer := time.NewTimer(math.MaxInt64) // until there is an answer
		for waiting := true; waiting; {
			r.notify(h)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-h.fresh:
			case next := <-asked:
				timer.Reset(next)
			case <-timer.C:
				waiting = false
			}
		}
	}
}

var errPanic = errors.New("internal error, see the log")

// question makes a query once there is a place for it. A panic is returned as an error.
func (r *Resolver) question(ctx context.Context, h *host) (got found, err error) {
	if !r.asking.enter(ctx, h.namespace) {
		return found{}, ctx.Err()
	}
	defer r.asking.leave(h.namespace)
	defer func() {
		if v := recover(); v != nil {
			r.options.Panicked("resolve", v)
			got, err = found{}, errPanic
		}
	}()
	return r.find(ctx, h.name, h.Family)
}

// askOnce makes a query, records the answer, and returns when to query again.
func (r *Resolver) askOnce(ctx context.Context, h *host, failures *int) time.Duration {
	got, err := r.question(ctx, h)
	if ctx.Err() != nil {
		return 0
	}
	r.mu.Lock()
	before := h.answer.Addresses
	r.mu.Unlock()
	var absent *absentError
	switch {
	case err == nil:
		r.note(h, Answer{Addresses: got.with(before), Err: got.why})
		next := min(max(got.ttl, r.options.MinTTL), maxTTL)
		if h.Refresh > 0 {
			next = max(h.Refresh, min(minRefresh, r.options.MinTTL))
		}
		if got.missing != 0 {
			*failures++
			return jittered(min(firstWait<<min(*failures-1, 8), maxSilent, next))
		}
		*failures = 0
		return jittered(next)
	case errors.As(err, &absent):
		*failures = 0
		r.note(h, Answer{Err: err})
		return jittered(min(max(absent.ttl, minAbsent), maxAbsent))
	}
	r.note(h, Answer{Addresses: before, Err: err})
	*failures++
	most := maxWait
	if len(before) == 0 && isTimeout(err) {
		most = maxSilent
	}
	return jittered(min(firstWait<<min(*failures-1, 8), most))
}

// jittered prevents many hosts from being queried at the same moment.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/8+1) }

// note stores an answer, and has it delivered to the watchers that do not have it.
func (r *Resolver) note(h *host, a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := !h.answered || !slices.Equal(h.answer.Addresses, a.Addresses)
	if why := class(a.Err); !h.answered || why != class(h.answer.Err) {
		switch {
		case a.Err == nil && !h.answered, !h.mayLog():
		case a.Err == nil:
			r.options.Logger.Info("a host resolves again", "host", h.name, "namespace", h.namespace)
		default:
			r.options.Logger.Warn("a host does not resolve", "host", h.name, "namespace", h.namespace, "error", a.Err, "addresses in use", len(a.Addresses))
		}
		changed = true
	}
	h.answer, h.answered = a, true
	if changed {
		for w := range h.watchers {
			w.answered = false
		}
	}
}

// mayLog reports whether another line may be logged about a host, and counts it. Resolver.mu must be held.
func (h *host) mayLog() bool {
	if now := time.Now(); now.Sub(h.logged) >= linesTime {
		h.lines, h.logged = 0, now
	}
	h.lines++
	return h.lines <= maxLines
}

// class returns a common text for errors with one cause: their own texts differ by local ports and by the server that
// was queried last.
func class(err error) string {
	switch {
	case err == nil:
		return ""
	case isTimeout(err):
		return "timeout"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// notify delivers the answer to the watchers that do not have it. One that panics is not called again for it.
func (r *Resolver) notify(h *host) {
	defer func() {
		if v := recover(); v != nil {
			r.options.Panicked("resolve", v)
			h.wake() // for the other watchers
		}
	}()
	r.mu.Lock()
	var waiting []*watcher
	if h.answered {
		for w := range h.watchers {
			if !w.answered {
				waiting = append(waiting, w)
			}
		}
	}
	a := h.answer
	r.mu.Unlock()
	for _, w := range waiting {
		r.mu.Lock()
		w.answered = true
		r.mu.Unlock()
		w.answer(a)
	}
}

// found is what DNS has for a host.
type found struct {
	addresses []netip.Addr
	ttl       time.Duration
	// missing is the family for which there was no answer, if addresses are those of the other one although both are
	// used; otherwise 0.
	missing missingFamily
	why     error // the error of the missing family
}

type missingFamily uint8

const (
	missing4 missingFamily = iota + 1
	missing6
)

// with returns the addresses that were found, and the previous ones of a family without an answer.
func (f *found) with(before []netip.Addr) []netip.Addr {
	if f.missing == 0 {
		return f.addresses
	}
	all := slices.Clone(f.addresses)
	for _, a := range before {
		if a.Is4() == (f.missing == missing4) {
			all = append(all, a)
		}
	}
	return found{addresses: all}.sorted().addresses
}

// absentError means that DNS has no address of a host, which is a valid answer too.
type absentError struct {
	host string
	name bool // the name itself does not exist
	ttl  time.Duration
}

func (e *absentError) Error() string {
	if e.name {
		return fmt.Sprintf("DNS has no name %s (NXDOMAIN)", e.host)
	}
	return fmt.Sprintf("DNS has no address of %s", e.host)
}

// chosen combines two answers for a host by a family, whose answer has precedence.
func (f Family) chosen(v4, v6 found, err4, err6 error) (found, error) {
	switch f {
	case OnlyIPv4:
		return v4.sorted(), err4
	case OnlyIPv6:
		return v6.sorted(), err6
	case PreferIPv6:
		return together(v6, v4, err6, err4)
	case BothFamilies:
		switch {
		case err4 == nil && err6 != nil && !isAbsent(err6):
			v4.missing, v4.why = missing6, fmt.Errorf("no answer about IPv6 addresses: %w", err6)
			return v4.sorted(), nil
		case err6 == nil && err4 != nil && !isAbsent(err4):
			v6.missing, v6.why = missing4, fmt.Errorf("no answer about IPv4 addresses: %w", err4)
			return v6.sorted(), nil
		case err4 != nil || err6 != nil:
			return together(v4, v6, err4, err6)
		}
		return found{addresses: slices.Concat(v4.addresses, v6.addresses), ttl: min(v4.ttl, v6.ttl)}.sorted(), nil
	}
	return together(v4, v6, err4, err6)
}

// together combines the answers for IPv4 and IPv6. With addresses of both families, each request sent to a family
// without connectivity would fail. A family without an answer is treated as absent only if the other one is present.
func together(v4, v6 found, err4, err6 error) (found, error) {
	switch {
	case err4 == nil:
		return v4.sorted(), nil
	case err6 == nil && isAbsent(err4):
		return v6.sorted(), nil
	case isAbsent(err4) && !isAbsent(err6):
		return found{}, err6
	}
	return found{}, err4 // if IPv4 is in use, it stays in use
}

func isAbsent(err error) bool {
	var absent *absentError
	return errors.As(err, &absent)
}

func (f found) sorted() found {
	slices.SortFunc(f.addresses, netip.Addr.Compare)
	f.addresses = slices.Compact(f.addresses)
	f.addresses = f.addresses[:min(len(f.addresses), maxAddresses)]
	return f
}
