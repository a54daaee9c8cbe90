package exchange

import (
	"fmt"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// failing is an exchange whose attempts fail, at a backend with so many endpoints.
func failing(t *testing.T, endpoints int, policy *snapshot.Retry) *Exchange {
	t.Helper()
	return failingWith(t, endpoints, policy, nil)
}

// failingWith is failing with a health check.
func failingWith(t *testing.T, endpoints int, policy *snapshot.Retry, health *config.HealthCheck) *Exchange {
	t.Helper()
	e := &config.Endpoints{Key: "b"}
	for i := range endpoints {
		e.Endpoints = append(e.Endpoints, &config.Endpoint{Address: fmt.Sprintf("192.0.2.%d", i+1), Port: 80})
	}
	set := upstream.NewSet(upstream.Options{})
	t.Cleanup(set.Close)
	b := &config.Backend{Key: "b", Traffic: &config.BackendTraffic{HealthCheck: health}}
	if err := set.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: b}}, {Kind: &config.Resource_Endpoints{Endpoints: e}}}, nil); err != nil {
		t.Fatal(err)
	}
	x := New()
	x.Client = &Client{Engine: &Engine{}, Watch: &Watch{}}
	x.Method = []byte("GET")
	x.rule = &snapshot.Rule{Retry: policy, Filters: &snapshot.Filters{}, Traffic: &snapshot.Traffic{}}
	x.backend = set.Get("b")
	x.attempt.engine, x.attempt.watch = x.Client.Engine, x.Client.Watch
	return x
}

// fails lets an attempt after the other fail until nothing follows, and returns how many there were and the last retryDecision.
func (x *Exchange) fails(kinds ...failureKind) (attempts int, last retryDecision) {
	for {
		x.rec.Attempts++
		x.endpoint = x.backend.Pick(&x.fx.Seed, &x.retry.tried)
		last = x.decide(failure{kind: kinds[min(int(x.rec.Attempts), len(kinds))-1]})
		if !last.again || x.rec.Attempts == 1000 {
			return int(x.rec.Attempts), last
		}
	}
}

func TestJudge(t *testing.T) {
	three, none := &snapshot.Retry{Attempts: 3, Statuses: []uint16{503}}, &snapshot.Retry{Statuses: []uint16{503}}
	for _, c := range []struct {
		name   string
		policy *snapshot.Retry
		kinds  []failureKind
		change func(*Exchange)
		want   int
		reason observe.Reason
	}{
		{name: "no connection", kinds: []failureKind{failedToConnect}, want: maxConnects},
		{name: "endpoints leave", kinds: []failureKind{failedGone}, want: maxConnects + maxGone},
		{name: "connects take long", kinds: []failureKind{failedSlow}, want: maxConnects + maxMoves},
		{name: "one endpoint leaves", kinds: []failureKind{failedGone, failedToConnect}, want: maxConnects + 1},
		{name: "an idle connection is dead", kinds: []failureKind{failedStale, failedToConnect}, want: maxConnects + 1},
		{name: "new connections are dead", kinds: []failureKind{failedStale}, want: maxConnects + 1},
		{name: "not processed", kinds: []failureKind{failedUnprocessed}, want: 1 + maxReplays},
		{name: "not sent", kinds: []failureKind{failedUnsent}, want: 1 + maxReplays},
		{name: "closed while idle", kinds: []failureKind{failedOnIdle, failedByReset}, want: 2},
		{name: "reset", kinds: []failureKind{failedByReset}, want: 1},
		{name: "timeout", kinds: []failureKind{failedByTimeout}, want: 1},
		{name: "for good", kinds: []failureKind{failedFinally}, want: 1},

		{name: "rule, no connection", policy: three, kinds: []failureKind{failedToConnect}, want: 4},
		{name: "rule, status", policy: three, kinds: []failureKind{failedByStatus}, want: 4, reason: observe.ReasonRetriesExhausted},
		{name: "rule, reset", policy: three, kinds: []failureKind{failedByReset}, want: 4},
		{name: "rule, timeout", policy: three, kinds: []failureKind{failedByTimeout}, want: 4},
		{name: "rule, one of each", policy: three, kinds: []failureKind{failedByTimeout, failedToConnect, failedByStatus, failedByReset}, want: 4},
		{name: "rule, what was not sent does not count", policy: three, kinds: []failureKind{failedStale, failedUnsent, failedByStatus}, want: 6, reason: observe.ReasonRetriesExhausted},
		{name: "rule, an endpoint leaves and status", policy: three, kinds: []failureKind{failedGone, failedByStatus}, want: 5, reason: observe.ReasonRetriesExhausted},
		{name: "rule, connects take long", policy: three, kinds: []failureKind{failedSlow}, want: 1 + maxMoves + 3},
		{name: "rule, not sent", policy: three, kinds: []failureKind{failedUnsent}, want: 1 + maxReplays},
		{name: "rule, not processed", policy: three, kinds: []failureKind{failedUnprocessed}, want: 4},
		{name: "rule, POST and not processed", policy: three, kinds: []failureKind{failedUnprocessed}, change: func(x *Exchange) { x.Method = []byte("POST") }, want: 4},
		{name: "rule, not processed and status", policy: three, kinds: []failureKind{failedUnprocessed, failedUnprocessed, failedByStatus}, want: 4, reason: observe.ReasonRetriesExhausted},
		{name: "rule, not processed often", policy: &snapshot.Retry{Attempts: 7}, kinds: []failureKind{failedUnprocessed}, want: 8},
		{name: "rule, interim response and not processed", policy: three, kinds: []failureKind{failedUnprocessed}, change: func(x *Exchange) { x.retry.interim = true }, want: 1},
		{name: "rule, not processed, no time for the wait", policy: three, kinds: []failureKind{failedUnprocessed}, change: hurry, want: 1},
		{name: "rule, closed while idle", policy: three, kinds: []failureKind{failedOnIdle}, want: 4},
		{name: "rule, closed while idle and again each time", policy: three, kinds: []failureKind{failedOnIdle, failedByReset, failedOnIdle, failedByReset}, want: 4},
		{name: "rule, lost", policy: three, kinds: []failureKind{failedByLoss}, want: 4},
		{name: "rule, for good", policy: three, kinds: []failureKind{failedFinally}, want: 1},
		{name: "rule, POST and status", policy: three, kinds: []failureKind{failedByStatus}, change: func(x *Exchange) { x.Method = []byte("POST") }, want: 4, reason: observe.ReasonRetriesExhausted},
		{name: "rule, POST and reset", policy: three, kinds: []failureKind{failedByReset}, change: func(x *Exchange) { x.Method = []byte("POST") }, want: 1},
		{name: "rule, POST and timeout", policy: three, kinds: []failureKind{failedByTimeout}, change: func(x *Exchange) { x.Method = []byte("POST") }, want: 1},
		{name: "rule, body forgotten and status", policy: three, kinds: []failureKind{failedByStatus}, change: forgetBody, want: 1, reason: observe.ReasonRetryBodyTooLarge},
		{name: "rule, body forgotten and timeout", policy: three, kinds: []failureKind{failedByTimeout}, change: forgetBody, want: 1},
		{name: "rule, interim response and status", policy: three, kinds: []failureKind{failedByStatus}, change: func(x *Exchange) { x.retry.interim = true }, want: 1, reason: observe.ReasonOK},
		{name: "rule, interim response and timeout", policy: three, kinds: []failureKind{failedByTimeout}, change: func(x *Exchange) { x.retry.interim = true }, want: 1},
		{name: "rule, status, no time for the wait", policy: three, kinds: []failureKind{failedByStatus}, change: hurry, want: 1, reason: observe.ReasonRetriesExhausted},
		{name: "rule, reset, no time for the wait", policy: three, kinds: []failureKind{failedByReset}, change: hurry, want: 1},
		{name: "rule, reset, time for the waits", policy: three, kinds: []failureKind{failedByReset}, change: func(x *Exchange) { x.deadline = time.Now().Add(time.Hour) }, want: 4},
		{name: "rule, memory is scarce", policy: three, kinds: []failureKind{failedByStatus}, change: func(x *Exchange) { x.Client.Engine.Overloaded.Store(true) }, want: 1, reason: observe.ReasonRetriesExhausted},
		{name: "rule, client gone", policy: three, kinds: []failureKind{failedToConnect}, change: func(x *Exchange) { x.Client.Watch.Fail() }, want: 1},

		{name: "no attempts, no connection", policy: none, kinds: []failureKind{failedToConnect}, want: 1},
		{name: "no attempts, status", policy: none, kinds: []failureKind{failedByStatus}, want: 1, reason: observe.ReasonOK},
		{name: "no attempts, closed while idle", policy: none, kinds: []failureKind{failedOnIdle}, want: 1},
		{name: "no attempts, lost", policy: none, kinds: []failureKind{failedByLoss}, want: 1},
		{name: "no attempts, an endpoint leaves", policy: none, kinds: []failureKind{failedGone}, want: maxConnects + maxGone},
		{name: "no attempts, a connect takes long", policy: none, kinds: []failureKind{failedSlow}, want: 1},
		{name: "no attempts, not processed", policy: none, kinds: []failureKind{failedUnprocessed}, want: 1},
		{name: "no attempts, but nothing was sent", policy: none, kinds: []failureKind{failedStale, failedByReset}, want: 2},
		{name: "no attempts, but nothing was sent by HTTP/2", policy: none, kinds: []failureKind{failedUnsent, failedUnprocessed}, want: 2},

		{name: "triggers, no connection", policy: on(config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE), kinds: []failureKind{failedToConnect}, want: 4},
		{name: "triggers, connection not among them", policy: on(config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_4XX), kinds: []failureKind{failedToConnect}, want: 1},
		{name: "triggers, connect failure and reset", policy: on(config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE), kinds: []failureKind{failedByReset}, want: 1},
		{name: "triggers, connect failure and timeout", policy: on(config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE), kinds: []failureKind{failedByTimeout}, want: 1},
		{name: "triggers, reset", policy: on(config.RetryTrigger_RETRY_TRIGGER_RESET), kinds: []failureKind{failedByReset, failedByTimeout, failedMalformed, failedToConnect}, want: 4},
		{name: "triggers, 5xx", policy: on(config.RetryTrigger_RETRY_TRIGGER_5XX), kinds: []failureKind{failedByReset, failedByTimeout, failedMalformed, failedToConnect}, want: 4},
		{name: "triggers, gateway error", policy: on(config.RetryTrigger_RETRY_TRIGGER_GATEWAY_ERROR), kinds: []failureKind{failedByReset, failedByTimeout, failedMalformed, failedToConnect}, want: 4},
		{name: "triggers, before the request", policy: on(config.RetryTrigger_RETRY_TRIGGER_RESET_BEFORE_REQUEST), kinds: []failureKind{failedToConnect, failedByReset}, want: 2},
		{name: "triggers, POST and reset", policy: on(config.RetryTrigger_RETRY_TRIGGER_RESET), kinds: []failureKind{failedByReset}, change: func(x *Exchange) { x.Method = []byte("POST") }, want: 4},
		{name: "triggers, body forgotten and reset", policy: on(config.RetryTrigger_RETRY_TRIGGER_RESET), kinds: []failureKind{failedByReset}, change: forgetBody, want: 1},
		{name: "triggers, interim response and reset", policy: on(config.RetryTrigger_RETRY_TRIGGER_RESET), kinds: []failureKind{failedByReset}, change: func(x *Exchange) { x.retry.interim = true }, want: 1},
		{name: "triggers, refused stream", policy: on(config.RetryTrigger_RETRY_TRIGGER_REFUSED_STREAM), kinds: []failureKind{failedUnprocessed}, want: 4},
		{name: "triggers, refused stream not among them", policy: on(config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_4XX), kinds: []failureKind{failedUnprocessed}, want: 4},
		{name: "triggers, no attempts", policy: &snapshot.Retry{Triggers: snapshot.OnConnectFailure}, kinds: []failureKind{failedUnprocessed}, want: 1},
		{name: "triggers, for good", policy: on(config.RetryTrigger_RETRY_TRIGGER_RESET), kinds: []failureKind{failedFinally}, want: 1},
		{name: "no triggers, malformed", policy: three, kinds: []failureKind{failedMalformed}, want: 1},
	} {
		x := failing(t, 5, c.policy)
		if c.change != nil {
			c.change(x)
		}
		got, last := x.fails(c.kinds...)
		if got != c.want || c.reason != 0 && last.reason != c.reason {
			t.Errorf("%s: %d attempts and %v, want %d and %v", c.name, got, last.reason, c.want, c.reason)
		}
	}
}

// TestFailureOfHTTP2: a request that was not sent is no request that was refused, and neither is one of which the beginning was forgotten.
func TestFailureOfHTTP2(t *testing.T) {
	for err, want := range map[error]failureKind{
		http2.ErrUnsent: failedUnsent, http2.ErrUnavailable: failedUnsent, http2.ErrUnprocessed: failedUnprocessed,
		&http2.ResetError{Code: http2.RefusedStream, ByPeer: true}: failedUnprocessed, &http2.ResetError{Code: http2.Cancel, ByPeer: true}: failedByReset,
		http2.ErrClosed: failedByReset,
	} {
		x := failing(t, 1, nil)
		if f := x.failureOf(&x.attempt, err, false, false); f.kind != want || f.unsent != (want == failedUnsent) {
			t.Errorf("%v: %+v, want %v", err, f, want)
		}
		forgetBody(x)
		if f := x.failureOf(&x.attempt, err, false, false); f.kind != failedByReset {
			t.Errorf("%v, the body is forgotten: %+v", err, f)
		}
	}
}

// TestNoEndpointToRetry: a response that has the last endpoint ejected is relayed, with panicThreshold 0, and no retry is counted; of several endpoints the others are asked.
func TestNoEndpointToRetry(t *testing.T) {
	one := uint32(1)
	passive := &config.PassiveHealthCheck{IntervalNanos: int64(time.Hour), BaseEjectionTimeNanos: int64(time.Hour), MaxEjectionPercent: 100, Consecutive_5XxErrors: &one}
	for _, c := range []struct {
		endpoints int
		threshold uint32
		want      int // attempts
	}{{1, 0, 1}, {3, 0, 3}, {1, 50, 6}, {1, 1, 6}} {
		x := failingWith(t, c.endpoints, &snapshot.Retry{Attempts: 5, Statuses: []uint16{503}}, &config.HealthCheck{PanicThresholdPercent: &c.threshold, Passive: passive})
		for {
			x.rec.Attempts++
			if x.endpoint = x.backend.Pick(&x.fx.Seed, &x.retry.tried); x.endpoint == nil {
				t.Fatalf("%+v: no endpoint is left after %d attempts, and the response is gone", c, x.rec.Attempts-1)
			}
			x.endpoint.Responded(503)
			v := x.decide(failure{kind: failedByStatus})
			if !v.again {
				if v.reason != observe.ReasonRetriesExhausted || int(x.rec.Attempts) != c.want || x.retry.retries != c.want-1 {
					t.Errorf("%+v: %d attempts, %d retries, %v", c, x.rec.Attempts, x.retry.retries, v.reason)
				}
				break
			}
		}
	}
}

// on allows three retries by a trigger.
func on(trigger config.RetryTrigger) *snapshot.Retry {
	return &snapshot.Retry{Attempts: 3, Triggers: 1 << trigger}
}

// TestJitteredBackoff: with triggers a wait is anything from 0 to a bound that doubles up to the most.
func TestJitteredBackoff(t *testing.T) {
	const base = 100 * time.Millisecond
	for name, c := range map[string]struct {
		backoff, most, base, limit time.Duration
	}{
		"defaults":        {0, 0, defaultBackoff, maxBackoffs * defaultBackoff},
		"a base":          {base, 0, base, maxBackoffs * base},
		"a most":          {base, 3 * base, base, 3 * base},
		"a base for ages": {1 << 62, 0, 1 << 62, 1 << 62},
	} {
		p := &snapshot.Retry{Attempts: 100, Backoff: c.backoff, MaxBackoff: c.most}
		x := failing(t, 1, p)
		low, high := 0, 0
		for i := 1; i <= 100; i++ {
			x.retry.retries = i
			bound := min(c.base<<min(i-1, 10), c.limit)
			if bound < c.base {
				bound = c.limit
			}
			for range 10 {
				d := x.jitteredBackoff(p)
				if d < 0 || d >= bound {
					t.Fatalf("%s: retry %d waits %v, want less than %v", name, i, d, bound)
				}
				if d < bound/4 {
					low++
				} else if d > bound/4*3 {
					high++
				}
			}
		}
		if low < 100 || high < 100 {
			t.Errorf("%s: of 1000 waits %d are short and %d long", name, low, high)
		}
	}
}

// hurry leaves less time than the wait before a retry takes.
func hurry(x *Exchange) {
	x.deadline = time.Now().Add(time.Minute)
	x.rule.Retry = &snapshot.Retry{Attempts: x.rule.Retry.Attempts, Statuses: x.rule.Retry.Statuses, Backoff: time.Hour}
}

func forgetBody(x *Exchange) { x.Streamed, x.body.from = true, 1 }

// TestTimeoutBeforeSending: the method does not matter where nothing was sent.
func TestTimeoutBeforeSending(t *testing.T) {
	x := failing(t, 1, &snapshot.Retry{Attempts: 1})
	x.Method = []byte("POST")
	x.rec.Attempts, x.endpoint = 1, x.backend.Endpoints()[0]
	if f := x.timeoutFailure(true); f.kind != failedByTimeout || f.reason != observe.ReasonBackendTimeout || !x.decide(f).again {
		t.Errorf("%+v", f)
	}
	x.deadline, x.deadlineReason = time.Now().Add(-time.Second), observe.ReasonRequestTimeout
	if f := x.timeoutFailure(true); f.kind != failedFinally || f.reason != observe.ReasonRequestTimeout {
		t.Errorf("timeouts.request has run out: %+v", f)
	}
}

func TestBackoff(t *testing.T) {
	const base = 100 * time.Millisecond
	x := failing(t, 5, &snapshot.Retry{Attempts: 100, Backoff: base})
	seen := map[time.Duration]bool{}
	for i := 1; i <= 100; i++ {
		x.retry.retries = i
		least := min(base<<min(i-1, 10), maxBackoffs*base)
		d := x.backoff(base)
		if d < least || d > least+least/2 {
			t.Fatalf("retry %d waits %v, want %v to %v", i, d, least, least+least/2)
		}
		seen[d] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different waits of 100", len(seen))
	}
	if d := x.backoff(1 << 62); d != 1<<62 {
		t.Errorf("a base without end: %v", d)
	}
	// However many endpoints accept no connection, a request does not go on without a pause.
	x = failing(t, 100, &snapshot.Retry{Attempts: 100})
	for i := 1; i <= 2*maxWithoutPause; i++ {
		x.rec.Attempts++
		x.endpoint = x.backend.Pick(&x.fx.Seed, &x.retry.tried)
		if v := x.decide(failure{kind: failedToConnect}); !v.again || v.pause > 0 != (i > maxWithoutPause) {
			t.Errorf("retry %d of 100 endpoints: %+v", i, v)
		}
	}
	// Without a base another endpoint is asked at once, as long as there is one.
	x = failing(t, 2, &snapshot.Retry{Attempts: 3})
	for i, want := range []bool{false, true, true} {
		x.rec.Attempts++
		x.endpoint = x.backend.Pick(&x.fx.Seed, &x.retry.tried)
		if v := x.decide(failure{kind: failedToConnect}); !v.again || v.pause > 0 != want {
			t.Errorf("retry %d: %+v", i+1, v)
		}
	}
}

func TestPause(t *testing.T) {
	x := failing(t, 1, &snapshot.Retry{Attempts: 1})
	if !x.pause(time.Millisecond) {
		t.Error("nothing interrupts, and it says so")
	}
	go func() {
		for x.Client.Watch.Since() == 0 { // what the sweeper looks for
			time.Sleep(time.Millisecond)
		}
		x.Client.Watch.Interrupt(x.Client.Watch.Since())
	}()
	x.Client.Engine.Clock.Store(1)
	if x.pause(time.Hour) {
		t.Error("the client leaves, and the pause goes on")
	}
	if x.pause(time.Hour) {
		t.Error("an exchange whose client has left pauses")
	}
}

// TestClientHasLeft: for a request that its client has given up, neither filters nor backends do anything.
func TestClientHasLeft(t *testing.T) {
	x := failing(t, 1, &snapshot.Retry{Attempts: 3})
	x.listener = &snapshot.Listener{}
	x.Client.Watch.Leave()
	for name, phase := range map[string]func() (answered, read bool){
		"the rule": func() (answered, read bool) { return x.applyRule(&match.Rule[*snapshot.Rule]{Value: x.rule}) },
		"attempts": func() (answered, read bool) {
			return true, x.forward(&snapshot.BackendRef{Backend: x.backend, Filters: &snapshot.Filters{}})
		},
	} {
		x.rec.Reason = observe.ReasonOK
		if answered, read := phase(); !answered || read || x.rec.Reason != observe.ReasonClientClosed || x.rec.Attempts != 0 {
			t.Errorf("%s: answered %v, read %v, %v, %d attempts", name, answered, read, x.rec.Reason, x.rec.Attempts)
		}
	}
}
