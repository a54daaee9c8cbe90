package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit/resp"
)

// Limits of the use of Redis.
const (
	defaultTimeout = 20 * time.Millisecond // for a decision
	probeTimeout   = time.Second           // for a connection, and for the first answer on it
	probePause     = 100 * time.Millisecond
	// maxProbePause is the pause if Redis fails again within that time.
	maxProbePause = time.Second
	// idleProbe is how often an unused server is probed, so that it is known whether it is reachable before a request
	// needs it.
	idleProbe = 2 * time.Second
	// answerPause is the shortest time between log lines about errors that Redis answers with.
	answerPause = time.Minute
	// maxTimeouts is how many consecutive decisions may be late before Redis counts as unreachable. Then requests do
	// not wait for it until it answers a probe.
	maxTimeouts = 4
	// maxAsked is the largest number of concurrent decisions. The client queues 1,024 commands and blocks further ones
	// whatever their context, so that there must always be room.
	maxAsked = 512
	// maxCharges is the largest number of response costs that wait to be sent, and chargeBatch the number that are sent
	// at once.
	maxCharges  = 8192
	chargeBatch = 128
)

// Redis is the server in which the global limits of Gateways count. Concurrent decisions share a write: the client
// sends the commands of all goroutines on one connection, and one of its goroutines writes what waits. It is safe for
// concurrent use.
type Redis struct {
	service      *config.RateLimitService
	keyPrefix    string // of all keys
	timeout      time.Duration
	logger       *slog.Logger
	client       atomic.Pointer[rueidis.Client] // nil while Redis is unreachable
	late         atomic.Int32                   // consecutive timeouts
	availability availability
	logged       time.Time     // when an error that Redis has answered with was last logged; belongs to run
	asked        chan struct{} // holds one value for each decision in progress

	away     chan error    // notifies run that the client does not work, and why
	answered chan error    // notifies run of an error that Redis has answered with
	tried    chan struct{} // closed when it is first known whether Redis is reachable
	charges  chan charge
	owing    atomic.Int64 // requests that have passed and whose response has a cost
	idle     atomic.Bool  // no decision was answered since the last check
	ended    atomic.Bool  // no more charges are sent
	stop     context.CancelFunc
	stopped  sync.WaitGroup

	*missed
}

// missed counts requests for which a Redis gave no answer, and response costs that were lost. Servers with the same
// address share it.
type missed struct{ undecided, uncharged atomic.Uint64 }

// charge is a response cost.
type charge struct {
	key  string
	args [4]string
}

var (
	errAway = errors.New("Redis is unreachable")                            // at the time when it would have been asked
	errLate = errors.New("Redis has not answered in time")                  // --rate-limit-timeout has expired
	errGone = errors.New("the request has ended before Redis has answered") // the request has not waited for the whole timeout
)

// errNoAddress is why the Redis of a RateLimitService without an address is away.
var errNoAddress = errors.New("its address is not known, because the controller cannot read the Secret that has it")

// newRedis begins to connect to a server. close ends it.
func newRedis(c *config.RateLimitService, m *missed, logger *slog.Logger) *Redis {
	r := &Redis{service: c, missed: m, timeout: time.Duration(c.TimeoutNanos), logger: logger, asked: make(chan struct{}, maxAsked),
		away: make(chan error, 1), answered: make(chan error, 1), tried: make(chan struct{}), charges: make(chan charge, maxCharges)}
	// The content of a key depends on the algorithm.
	if r.keyPrefix = c.KeyPrefix + "moongate:w:"; c.Gcra {
		r.keyPrefix = c.KeyPrefix + "moongate:g:"
	}
	if r.timeout <= 0 {
		r.timeout = defaultTimeout
	}
	r.availability.set(false, nil, time.Now())
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = func() {
		r.ended.Store(true)
		cancel()
	}
	r.stopped.Go(func() { r.run(ctx) })
	r.stopped.Go(func() { r.sendCharges(ctx) })
	return r
}

func (r *Redis) close() {
	r.stop()
	r.stopped.Wait()
}

// options returns the options of the client.
func (r *Redis) options() (rueidis.ClientOption, error) {
	o, err := RedisOptions(r.service.Address)
	if r.service.Address == "" {
		err = errNoAddress
	}
	if err != nil {
		return o, err
	}
	o.Dialer.Timeout = probeTimeout
	o.ConnWriteTimeout = 2 * probeTimeout
	o.DisableCache, o.DisableRetry, o.ForceSingleClient, o.AlwaysPipelining = true, true, true, true
	o.PipelineMultiplex = -1 // one connection
	o.ClientName = "moongate"
	o.DialCtxFn = resp.Dialer(o.DialCtxFn)
	o.ClientSetInfo = rueidis.DisableClientSetInfo // a Redis user would need another permission for it
	return o, nil
}

// RedisOptions parses an address: "host:port", or a URL such as "redis://user:password@host:port/0", with rediss for
// TLS.
func RedisOptions(address string) (rueidis.ClientOption, error) {
	if host, port, ok := hostPort(address); ok {
		return rueidis.ClientOption{InitAddress: []string{net.JoinHostPort(host, port)}}, nil
	}
	return rueidis.ParseURL(address)
}

// run keeps a working client.
func (r *Redis) run(ctx context.Context) {
	var client rueidis.Client
	defer func() {
		r.client.Store(nil)
		if client != nil {
			client.Close()
		}
	}()
	tried := sync.OnceFunc(func() { close(r.tried) })
	defer tried()
	said, pause := false, probePause // whether it was logged that Redis is unreachable
	for ctx.Err() == nil {
		err := r.probe(ctx, &client)
		if err == nil {
			if said {
				said = false
				r.logger.Info("Redis for global rate limits is reachable again")
			}
			since := time.Now()
			err = r.serve(ctx, &client, tried)
			if pause *= 2; time.Since(since) > maxProbePause {
				pause = probePause
			}
			pause = min(pause, maxProbePause)
		}
		r.availability.set(false, err, time.Now())
		if err != nil && !said && ctx.Err() == nil {
			said = true
			r.logger.Warn("Redis for global rate limits is unreachable", "failure-mode", r.failureMode(), "error", clean(err.Error()))
		}
		tried()
		sleep(ctx, pause)
	}
}

// serve lets requests use the client until it does not work any more, and returns why.
func (r *Redis) serve(ctx context.Context, client *rueidis.Client, tried func()) (err error) {
	r.late.Store(0)
	select { // discard an earlier notification
	case <-r.away:
	default:
	}
	serving := *client // requests still have it when a probe has created another one
	r.client.Store(&serving)
	r.availability.set(true, nil, time.Now())
	defer r.client.Store(nil)
	tried()
	idle := time.NewTicker(idleProbe)
	defer idle.Stop()
	for {
		select {
		case <-idle.C:
			if r.idle.Swap(true) {
				if err := r.ask(ctx, *client, max(probeTimeout, r.timeout)); err != nil {
					r.failed(err)
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		case err := <-r.away:
			return err
		case answer := <-r.answered:
			// It answers, so it is reachable, unless the probe fails in the same way, as when it is out of memory or
			// has become a replica.
			if now := time.Now(); r.logged.IsZero() || now.Sub(r.logged) > answerPause {
				r.logged = now
				r.logger.Warn("Redis has answered a global rate limit with an error", "failure-mode", r.failureMode(), "error", clean(answer.Error()))
			}
			if err := r.probe(ctx, client); err != nil {
				return err
			}
			sleep(ctx, probePause)
		}
	}
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (r *Redis) failureMode() string {
	if r.service.FailClosed {
		return "Closed"
	}
	return "Open"
}

// probe creates a client if there is none, and makes it decide on a limit of its own: another command might succeed
// although the script fails. The first run may have to load the script; the second one must be as fast as those of
// requests.
func (r *Redis) probe(ctx context.Context, client *rueidis.Client) error {
	if *client == nil {
		o, err := r.options()
		if err != nil {
			return err
		}
		made, err := rueidis.NewClient(o)
		if err != nil {
			return err
		}
		*client = made
	}
	for _, within := range []time.Duration{max(probeTimeout, r.timeout), r.timeout} {
		err := r.ask(ctx, *client, within)
		if _, answered := rueidis.IsRedisErr(err); answered {
			// The address may now lead to another server.
			r.client.Store(nil)
			(*client).Close()
			*client = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask makes the server decide on the limit of probe.
func (r *Redis) ask(ctx context.Context, client rueidis.Client, within time.Duration) error {
	probing, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := script.Exec(probing, client, []string{r.keyPrefix + "probe"}, []string{r.algorithm(), "4294967295", "1", "1", takeAnyway}).Error()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("it has not answered within %v", within)
	}
	return err
}

// failed handles a missing answer or an error.
func (r *Redis) failed(err error) {
	tell := r.away
	if _, answered := rueidis.IsRedisErr(err); answered {
		tell = r.answered
	} else if errors.Is(err, errLate) && r.late.Add(1) < maxTimeouts {
		return
	}
	select {
	case tell <- err:
	default:
	}
}

// What the script does with a limit.
const (
	decideOn   = "0"
	countOnly  = "1" // and lets the request pass: shadow mode
	takeAnyway = "2" // takes the cost, whatever is left
)

// The script decides on all limits of a request at once, by Redis' clock, so that either all are charged or none. Each
// key has four arguments: limit, cost, period in seconds, and what to do. ARGV[1] is the algorithm. The answer has
// three numbers for each key: whether it is over the limit, what is left, and in how many seconds all is available. A
// request over a limit that decides takes nothing.
//
// A fixed window begins at each multiple of the period since 1970; the key's value is its number and count, and the
// count of another window is ignored. With GCRA the value is how many tokens are missing and when that was so, in
// microseconds; they return steadily. A time in the future, because the clock was set back, is treated as now and
// stored so, so that tokens also return then.
//
// Counts are at most 2^52, below which numbers of Lua are exact, and keys live at most ten years, which Redis can add
// to the time.
const decideScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local gcra = ARGV[1] == 'gcra'
local pass, used, over, rewrite = true, {}, {}, {}
local values = redis.call('MGET', unpack(KEYS))
for i = 1, #KEYS do
  local at = i * 4 - 2
  local limit, cost, period, what = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local first, second = string.match(values[i] or '', '^(%S+) (%S+)$')
  first, second = tonumber(first or 0) or 0, tonumber(second or 0) or 0
  if gcra then
    rewrite[i] = second > now
    used[i] = math.max(0, first - math.max(0, now - second) * limit / (period * 1000000))
  elseif first == math.floor(t[1] / period) then
    used[i] = second
  else
    used[i] = 0
  end
  over[i] = what ~= '2' and used[i] + math.max(cost, 1) > limit + 0.000001
  if over[i] and what == '0' then
    pass = false
  end
end
local out = {}
for i, key in ipairs(KEYS) do
  local at = i * 4 - 2
  local limit, cost, period, what = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  if cost > 0 and not over[i] and (pass or what == '1') then
    used[i] = math.min(used[i] + cost, 4503599627370496)
    rewrite[i] = true
  end
  local window = math.floor(t[1] / period)
  if rewrite[i] then
    local value, ms
    if gcra then
      value, ms = string.format('%.17g %.0f', used[i], now), math.ceil(used[i] / math.max(limit, 1) * period * 1000)
    else
      value, ms = string.format('%.0f %.0f', window, used[i]), (window + 1) * period * 1000 - math.floor(now / 1000)
    end
    redis.call('SET', key, value, 'PX', string.format('%.0f', math.max(1, math.min(ms, 315360000000))))
  end
  local reset = period - t[1] % period
  if gcra then
    reset = math.min(math.ceil(used[i] / math.max(limit, 1) * period), 4294967295)
  end
  out[i * 3 - 2] = over[i] and 1 or 0
  out[i * 3 - 1] = math.max(0, math.floor(limit - used[i]))
  out[i * 3] = reset
end
return out
`

var script = rueidis.NewLuaScript(decideScript)

func (r *Redis) algorithm() string {
	if r.service.Gcra {
		return "gcra"
	}
	return "window"
}

// verdict is what Redis has decided on a limit.
type verdict struct {
	over        bool
	left, reset uint32
}

// wait bounds how long a request waits for Redis.
type wait struct {
	until time.Time       // zero means no deadline
	done  <-chan struct{} // closed when the client has left; nil means never
}

// decide asks for all limits of a request. args are the arguments of the script after the algorithm. It returns when
// Redis has answered, its timeout has expired, or the request waits no longer.
func (r *Redis) decide(w wait, keys, args []string, out []verdict) error {
	timeout, late := r.timeout, errLate
	if !w.until.IsZero() {
		if left := time.Until(w.until); left < timeout {
			timeout, late = left, errGone
		}
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	p := r.client.Load()
	if p == nil { // at the start the first requests wait for the connection
		select {
		case <-r.tried:
		case <-timer.C:
			return errAway
		case <-w.done:
			return errGone
		}
		if p = r.client.Load(); p == nil {
			return errAway
		}
	}
	select {
	case r.asked <- struct{}{}:
	case <-timer.C:
		return r.timedOut(late)
	case <-w.done:
		return errGone
	}
	answer := make(chan rueidis.RedisResult, 1)
	go func() {
		answer <- script.Exec(context.Background(), *p, keys, args) // the client closes a connection on which nothing arrives
		<-r.asked
	}()
	var result rueidis.RedisResult
	select {
	case result = <-answer:
	case <-timer.C:
		return r.timedOut(late)
	case <-w.done:
		return errGone
	}
	all, err := result.ToArray()
	if err != nil {
		r.failed(err)
		return err
	}
	r.late.Store(0)
	if r.idle.Load() {
		r.idle.Store(false)
	}
	if len(all) != 3*len(keys) {
		return errors.New("Redis has returned an unexpected answer")
	}
	for i := range out {
		var n [3]int64
		for j := range n {
			if n[j], err = all[3*i+j].AsInt64(); err != nil {
				return err
			}
		}
		out[i] = verdict{n[0] == 1, uint32(min(max(n[1], 0), math.MaxUint32)), uint32(min(max(n[2], 0), math.MaxUint32))}
	}
	return nil
}

// timedOut returns late, the error for a request whose wait has ended. It counts against Redis only if Redis had its
// whole timeout.
func (r *Redis) timedOut(late error) error {
	if late == errLate {
		r.failed(late)
	}
	return late
}

// charge takes a response cost from a limit, without waiting.
func (r *Redis) charge(c charge) {
	if r.ended.Load() {
		r.uncharged.Add(1)
		return
	}
	select {
	case r.charges <- c:
	default:
		r.uncharged.Add(1)
	}
}

// sendCharges sends the waiting costs, many at once.
func (r *Redis) sendCharges(ctx context.Context) {
	for {
		var batch []charge
		select {
		case <-ctx.Done():
			r.uncharged.Add(uint64(len(r.charges)))
			return
		case c := <-r.charges:
			batch = append(batch, c)
		}
	more:
		for len(batch) < chargeBatch {
			select {
			case c := <-r.charges:
				batch = append(batch, c)
			default:
				break more
			}
		}
		batch = addUp(batch)
		err := r.send(ctx, batch)
		if _, answered := rueidis.IsRedisErr(err); answered && len(batch) > 1 {
			// One of them may have caused the error; the others must not be lost because of it.
			for _, c := range batch {
				if r.send(ctx, []charge{c}) != nil {
					r.uncharged.Add(1)
				}
			}
		} else if err != nil {
			r.uncharged.Add(uint64(len(batch)))
		}
	}
}

// addUp merges charges of the same key: the script would read the key twice before it writes it.
func addUp(all []charge) (once []charge) {
	at := map[string]int{}
	for _, c := range all {
		i, twice := at[c.key]
		if !twice {
			at[c.key] = len(once)
			once = append(once, c)
			continue
		}
		sum, _ := strconv.ParseUint(once[i].args[1], 10, 64)
		more, _ := strconv.ParseUint(c.args[1], 10, 64)
		once[i].args[1] = strconv.FormatUint(sum+more, 10)
	}
	return once
}

// send sends charges of different keys.
func (r *Redis) send(ctx context.Context, batch []charge) error {
	p := r.client.Load()
	if p == nil {
		return errAway
	}
	keys, args := make([]string, 0, len(batch)), append(make([]string, 0, 1+4*len(batch)), r.algorithm())
	for i := range batch {
		keys, args = append(keys, batch[i].key), append(args, batch[i].args[:]...)
	}
	sending, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := script.Exec(sending, *p, keys, args).Error()
	if err != nil && ctx.Err() == nil {
		if errors.Is(err, context.DeadlineExceeded) {
			r.failed(errLate)
		} else {
			r.failed(err)
		}
	}
	return err
}
