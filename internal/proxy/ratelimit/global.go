package ratelimit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/match"
)

// maxGlobal is the largest number of global limits of a rule, and so of what one request may ask of Redis.
const maxGlobal = config.MaxGlobalRateLimits

// compileGlobal compiles the limits that count in Redis.
func (s *Store) compileGlobal(r *Rules, c *config.RateLimits, route string) (releases []func(), err error) {
	if len(c.Global) > maxGlobal {
		return nil, fmt.Errorf("%d global rate limits are more than %d", len(c.Global), maxGlobal)
	}
	keys := map[string]int{}
	for i, gc := range c.Global {
		l := &limit{config: gc}
		var done func()
		l.conditions, done, err = s.compile(gc)
		releases = append(releases, done)
		if err != nil {
			return releases, fmt.Errorf("global rate limit %d: %w", i, err)
		}
		l.over, done = s.over.Take(string(Global)+" "+gc.Name, func() *overLimit { return &overLimit{} })
		releases = append(releases, done)
		l.redisKey = redisKey(config.RateLimitPolicy(gc.Name), unique(keys, l.key(route)))
		if l.distinct() {
			l.values, done = s.values.Take(l.redisKey, func() *values { return s.newValues(gc.PeriodSeconds) })
			releases = append(releases, done)
		}
		l.args = [4]string{strconv.FormatUint(uint64(gc.Requests), 10), strconv.FormatUint(uint64(gc.RequestCost), 10), strconv.FormatUint(uint64(gc.PeriodSeconds), 10), decideOn}
		if gc.Shadow {
			l.args[3] = countOnly
		}
		r.global = append(r.global, l)
	}
	return releases, nil
}

// valueKey returns the end of the Redis key in which a request's values count: a digest, so that all proxies use the
// same key, and a client cannot choose a value with the key of another. If there are too many values, it is one of 256
// shared keys.
func (l *limit) valueKey(req *Request, gcra bool) string {
	var room [256]byte
	digest := sha256.Sum256(l.appendDistinct(room[:0], req))
	if !l.values.own(binary.LittleEndian.Uint64(digest[:]), time.Now().Unix(), gcra) {
		return ":other-" + hex.EncodeToString(digest[:1])
	}
	return ":" + hex.EncodeToString(digest[:16])
}

// checkGlobal asks Redis for all global limits that match. If redis is nil because the Gateway has none, the limits are
// undecided.
func (r *Rules) checkGlobal(req *Request, redis *Redis, steps *match.Steps, d *Decision) {
	var limits []*limit
	var keys, args []string
	for _, l := range r.global {
		_, holds := l.hold(req, steps)
		if steps.Exceeded() {
			*d = Decision{Exceeded: true}
			return
		}
		if !holds {
			continue
		}
		if redis == nil { // the proxy could not use the configured one
			d.Undecided, d.FailClosed = true, d.FailClosed || !l.config.Shadow
			continue
		}
		if len(limits) == config.MaxGlobalRateLimitsMet {
			*d = Decision{Exceeded: true}
			return
		}
		key := redis.keyPrefix + l.redisKey
		if l.distinct() {
			key += l.valueKey(req, redis.service.Gcra)
		}
		if limits == nil {
			args = append(args, "")
		}
		limits, keys, args = append(limits, l), append(keys, key), append(args, l.args[:]...)
	}
	if limits == nil {
		return
	}
	args[0] = redis.algorithm()
	verdicts := make([]verdict, len(limits))
	if err := redis.decide(wait{req.Until, req.Done}, keys, args, verdicts); err != nil {
		redis.undecided.Add(1)
		d.Undecided, d.FailClosed = true, redis.service.FailClosed && slices.ContainsFunc(limits, (*limit).enforced)
		return
	}
	for i, v := range verdicts {
		l := limits[i]
		switch {
		case v.over && l.config.Shadow:
			l.over.shadow.Add(1)
		case v.over:
			l.over.enforced.Add(1)
			if !d.Limited {
				d.Reported = false // the values of other limits do not matter any more
			}
			d.Limited = true
			fallthrough
		case l.config.Headers && !l.config.Shadow && (v.over || !d.Limited):
			if l.config.Headers {
				d.report(l.config, v.left, v.reset)
			}
		}
	}
	if d.Limited {
		return
	}
	for i, l := range limits {
		if l.config.ResponseCost > 0 {
			d.charges = append(d.charges, charge{keys[i], [4]string{l.args[0], strconv.FormatUint(uint64(l.config.ResponseCost), 10), l.args[2], takeAnyway}})
		}
	}
	if d.redis = redis; d.charges != nil {
		redis.owing.Add(1)
	}
}

// enforced reports whether requests above the limit are refused.
func (l *limit) enforced() bool { return !l.config.Shadow }

// Charge takes the cost of the response. It must be called once, when the response has ended. It does not wait.
func (d *Decision) Charge() {
	if d.charges == nil {
		return
	}
	for _, c := range d.charges {
		d.redis.charge(c)
	}
	d.charges = nil
	d.redis.owing.Add(-1)
}

// Redises are the servers in which Gateways count, each once. It is safe for concurrent use.
type Redises struct {
	Logger  *slog.Logger // never nil
	mu      sync.Mutex
	all     map[string]*Redis
	retired map[*Redis]*time.Timer // end soon
	missed  map[string]*missed     // for each address, of all servers

	retireAfter time.Duration // zero means the constant
}

// retireAfter is how long a server that is in no configuration any more is kept: requests that began before may still
// use it. As long as it is to receive the costs of responses in progress, it is kept for the same time again, unless
// there are more than maxRetired. The costs of responses that end after that are lost, and counted.
const (
	retireAfter = 10 * time.Second
	maxRetired  = 16
)

// Get returns the server, the same for the same settings, whichever Gateway they are of. An error is that the address is none; it tells nothing of it. Without
// an address the server is away.
func (s *Redises) Get(c *config.RateLimitService) (*Redis, error) {
	if _, err := RedisOptions(c.Address); err != nil && c.Address != "" {
		return nil, errors.New("the address is neither host:port nor a URL of Redis")
	}
	c = proto.CloneOf(c)
	c.Key = ""
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.all[string(key)]
	if r == nil {
		if s.all == nil {
			s.all, s.missed = map[string]*Redis{}, map[string]*missed{}
		}
		address := addressOf(c)
		if s.missed[address] == nil {
			s.missed[address] = &missed{}
		}
		r = newRedis(c, s.missed[address], s.Logger)
		s.all[string(key)] = r
	}
	return r, nil
}

// Keep ends all unused servers after a while.
func (s *Redises) Keep(used iter.Seq[*Redis]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return
	}
	keep := map[*Redis]bool{}
	for r := range used {
		keep[r] = true
	}
	for k, r := range s.all {
		if !keep[r] {
			delete(s.all, k)
			s.retire(r)
		}
	}
}

// retire ends a server after a while. mu must be held.
func (s *Redises) retire(r *Redis) {
	if s.retired == nil {
		s.retired = map[*Redis]*time.Timer{}
	}
	after := cmp.Or(s.retireAfter, retireAfter)
	owed := r.owing.Load() > 0
	s.retired[r] = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		end, still := s.retired[r]
		if !still {
			return
		}
		if owes := r.owing.Load() > 0; (owes || owed) && len(s.retired) <= maxRetired { // if the last response has just ended, its cost must still be sent
			owed = owes
			end.Reset(after)
			return
		}
		delete(s.retired, r)
		r.stop()
		s.forget(r.missed)
	})
}

// Close ends all servers, and waits for that.
func (s *Redises) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all {
		r.close()
	}
	for r, end := range s.retired {
		end.Stop()
		r.close()
	}
	s.all, s.retired = nil, nil
}

// forget removes the counters of an address that no server has any more. mu must be held.
func (s *Redises) forget(m *missed) {
	for _, r := range s.all {
		if r.missed == m {
			return
		}
	}
	for r := range s.retired {
		if r.missed == m {
			return
		}
	}
	maps.DeleteFunc(s.missed, func(_ string, other *missed) bool { return other == m })
}

// Report calls emit for each address, host:port: whether all configured servers there answer, for how many requests
// there was no answer, and how many response costs were lost. Servers that are in no configuration any more are
// included as long as they may be used.
func (s *Redises) Report(emit func(address string, up bool, undecided, uncharged uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, m := range s.missed {
		up := true
		for _, r := range s.all {
			up = up && (r.missed != m || r.client.Load() != nil)
		}
		emit(address, up, m.undecided.Load(), m.uncharged.Load())
	}
}

// addressOf returns the address of a server without the rest of a URL, such as a password.
func addressOf(c *config.RateLimitService) string {
	if o, err := RedisOptions(c.Address); err == nil && len(o.InitAddress) > 0 {
		return o.InitAddress[0]
	}
	return ""
}

// Tried returns a channel that is closed when it is first known whether the server is reachable: within the time that a
// connection may take, or somewhat later if it does not answer.
func (r *Redis) Tried() <-chan struct{} { return r.tried }

// Report returns whether the server answers, for how many requests it, or another server with its address, has given no
// answer, and how many response costs were lost.
func (r *Redis) Report() (up bool, undecided, uncharged uint64) {
	return r.client.Load() != nil, r.undecided.Load(), r.uncharged.Load()
}

// hostPort splits an address that is not a URL.
func hostPort(address string) (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", "", false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", false
	}
	return host, port, true
}
