package upstream

import (
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// failUntilCompared has e answer gateway errors and the others good responses until the comparison is decided.
func failUntilCompared(b *Backend, e *Endpoint) {
	for range failingLimit {
		e.Responded(503)
	}
	for n := 0; n < comparedResponses; {
		for _, o := range b.Endpoints() {
			if o == e {
				o.Responded(503)
			} else {
				o.Responded(200)
				n++
			}
		}
	}
}

// ejectionOver has the time for which e is passed over be over.
func ejectionOver(e *Endpoint) { e.health.ejectedUntil.Store(time.Now().UnixNano() - 1) }

func picks(b *Backend, e *Endpoint) bool {
	for seed := range uint64(200) {
		if b.Pick(&seed, new(Tried)) == e {
			return true
		}
	}
	return false
}

func TestEndpointThatAnswersOnlyErrorsIsEjected(t *testing.T) {
	b := made(t, 4)
	e := b.Endpoints()[1]
	for range 100 {
		e.Responded(503)
	}
	if e.Health() != Healthy {
		t.Fatal("ejected before others were looked at")
	}
	failUntilCompared(b, e)
	if e.Health() != Ejected || picks(b, e) {
		t.Fatalf("%v after the comparison", e.Health())
	}
	if n := b.totals().ejections[EjectedByComparison].Load(); n != 1 {
		t.Errorf("%d ejections counted", n)
	}
	e.Responded(200) // to a request from before
	if e.Health() != Ejected {
		t.Error("a late response ended the ejection")
	}
}

func TestOneRequestTriesAnEjectedEndpoint(t *testing.T) {
	b := made(t, 4)
	e := b.Endpoints()[1]
	failUntilCompared(b, e)
	for range 3 {
		ejectionOver(e)
		if !e.fit() {
			t.Fatal("not fit when the ejection is over")
		}
		e.Begin()
		if e.fit() {
			t.Fatal("a second request may try it beside the first")
		}
		e.Responded(502)
		e.End()
		left := time.Duration(e.health.ejectedUntil.Load() - time.Now().UnixNano())
		if e.Health() != Ejected || e.fit() || left > furtherEjection {
			t.Fatalf("after a trial that failed: %v, %v left", e.Health(), left)
		}
	}
	ejectionOver(e)
	e.Begin()
	e.Responded(200)
	e.End()
	if e.Health() != Healthy || !e.fit() || b.health.unfit.Load() != 0 {
		t.Errorf("after a trial that succeeded: %v, %d unfit", e.Health(), b.health.unfit.Load())
	}
}

// TestTrialWithoutOutcome is that a request which brings nothing keeps others from the endpoint for a while only.
func TestTrialWithoutOutcome(t *testing.T) {
	b := made(t, 4)
	e := b.Endpoints()[1]
	failUntilCompared(b, e)
	ejectionOver(e)
	e.Begin()
	if e.fit() {
		t.Fatal("fit during the trial")
	}
	ejectionOver(e)
	if !e.fit() {
		t.Error("not fit when the time of the trial is over")
	}
}

func TestTrialsEndWhereOthersFailToo(t *testing.T) {
	b := made(t, 4)
	e := b.Endpoints()[0]
	failUntilCompared(b, e)
	for _, o := range b.Endpoints()[1:] {
		o.Responded(503)
	}
	ejectionOver(e)
	e.Begin()
	e.Responded(503)
	if e.Health() != Healthy {
		t.Errorf("%v though all fail", e.Health())
	}
}

func TestNobodyIsEjectedWhereAllFail(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		b := made(t, n)
		for range 1000 {
			for _, e := range b.Endpoints() {
				e.Responded(503)
				e.Broken(FailureReset)
			}
		}
		if unfit := b.health.unfit.Load(); unfit != 0 {
			t.Errorf("%d of %d endpoints are ejected", unfit, n)
		}
	}
}

// TestPathsThatAnswerErrors is that all endpoints answer a share of requests with 503 on purpose.
func TestPathsThatAnswerErrors(t *testing.T) {
	for _, share := range []float64{0.05, 0.3, 0.5, 0.8, 0.95} {
		b := made(t, 4)
		random := rand.New(rand.NewPCG(1, uint64(share*100)))
		for range 200_000 {
			e := b.Endpoints()[random.IntN(4)]
			if random.Float64() < share {
				e.Responded(503)
			} else {
				e.Responded(200)
			}
		}
		if n := b.totals().ejections[EjectedByComparison].Load(); n != 0 {
			t.Errorf("share %v: %d ejections", share, n)
		}
	}
}

func TestMostEndpointsStay(t *testing.T) {
	type of struct {
		n         int
		threshold uint32
	}
	for c, most := range map[of]int64{{1, 50}: 0, {2, 50}: 1, {3, 50}: 1, {4, 50}: 2, {9, 50}: 4, {4, 0}: 3, {1, 0}: 0, {4, 75}: 1, {4, 100}: 0} {
		b := made(t, c.n)
		apply(t, b.set, withHealth(&config.HealthCheck{PanicThresholdPercent: &c.threshold}))
		for _, e := range b.Endpoints() {
			for range failingLimit {
				e.Responded(503)
			}
			e.health.eject(e, time.Now().UnixNano())
		}
		if got := b.health.unfit.Load(); got != most {
			t.Errorf("%d of %d endpoints are ejected with a threshold of %d, want %d", got, c.n, c.threshold, most)
		}
	}
}

func TestEjectedEndpointGoes(t *testing.T) {
	s, b := newSet(t, Options{}, endpoint(address(0)), endpoint(address(1)), endpoint(address(2)), endpoint(address(3)))
	e := b.Endpoints()[1]
	failUntilCompared(b, e)
	if b.health.unfit.Load() != 1 {
		t.Fatal("not ejected")
	}
	apply(t, s, endpointsResource(key, endpoint(address(0)), endpoint(address(2))))
	if unfit, usable := b.health.unfit.Load(), b.health.usable.Load(); unfit != 0 || usable != 2 {
		t.Errorf("%d of %d unfit", unfit, usable)
	}
	e.Begin() // requests that have found it before
	e.Responded(503)
	e.Responded(200)
	e.End()
	apply(t, s, endpointsResource(key, endpoint(address(0)), endpoint(address(1)), endpoint(address(2))))
	if h := b.Endpoints()[1].Health(); h != Healthy || b.Endpoints()[1] == e {
		t.Errorf("one with its address comes: %v", h)
	}
}

func TestComparedEndpointGoes(t *testing.T) {
	s, b := newSet(t, Options{}, endpoint(address(0)), endpoint(address(1)), endpoint(address(2)))
	e := b.Endpoints()[1]
	for range failingLimit {
		e.Responded(503)
	}
	if b.health.comparison.Load() == nil {
		t.Fatal("no comparison")
	}
	apply(t, s, endpointsResource(key, endpoint(address(0)), endpoint(address(2))))
	b.Endpoints()[0].Responded(200)
	if b.health.comparison.Load() != nil || b.health.unfit.Load() != 0 {
		t.Error("the comparison goes on")
	}
}

func TestVariantsShareHealth(t *testing.T) {
	b := made(t, 3)
	v := &Backend{key: b.key, set: b.set, base: b}
	v.list.Store(&endpointList{})
	v.transport.Store(b.transport.Load())
	var list []parsedEndpoint
	for _, e := range b.Endpoints() {
		list = append(list, parsedEndpoint{address: e.address})
	}
	b.set.mu.Lock()
	v.replace(list)
	b.set.mu.Unlock()
	for i, e := range v.Endpoints() {
		if e.health != b.Endpoints()[i].health {
			t.Errorf("endpoint %d has a health of its own", i)
		}
	}
	if n := b.health.usable.Load(); n != 3 {
		t.Errorf("%d endpoints are counted", n)
	}
}

func withHealth(c *config.HealthCheck) *config.Resource {
	r := backendResource(key)
	r.GetBackend().Traffic = &config.BackendTraffic{HealthCheck: c}
	return r
}

func TestPanicThreshold(t *testing.T) {
	for _, c := range []struct {
		threshold *uint32
		unhealthy int // of 4
		ignored   bool
	}{
		{nil, 2, false}, {nil, 3, true}, {nil, 4, true},
		{proto.Uint32(0), 3, false}, {proto.Uint32(0), 4, false},
		{proto.Uint32(80), 1, true}, {proto.Uint32(100), 1, true}, {proto.Uint32(25), 3, false}, {proto.Uint32(26), 3, true},
	} {
		b := made(t, 4)
		apply(t, b.set, withHealth(&config.HealthCheck{PanicThresholdPercent: c.threshold}))
		for _, e := range b.Endpoints()[:c.unhealthy] {
			e.health.mu.Lock()
			e.health.mark(markUnhealthy, true)
			e.health.mu.Unlock()
		}
		if got := b.Endpoints()[0].fit(); got != c.ignored {
			t.Errorf("threshold %v, %d of 4 unhealthy: fit is %v", c.threshold, c.unhealthy, got)
		}
		var seed uint64
		never := c.unhealthy == 4 && c.threshold != nil && *c.threshold == 0
		if e := b.Pick(&seed, new(Tried)); (e == nil) != never {
			t.Errorf("threshold %v, %d of 4 unhealthy: %v is picked", c.threshold, c.unhealthy, e)
		}
	}
}

// TestBarred: with a threshold of 0 no endpoint that is unhealthy is picked, not the only one either, but one that was not checked yet is.
func TestBarred(t *testing.T) {
	for _, n := range []int{1, 3} {
		b := made(t, n)
		apply(t, b.set, withHealth(&config.HealthCheck{PanicThresholdPercent: proto.Uint32(0)}))
		mark := func(marks uint32, on bool) {
			for _, e := range b.Endpoints() {
				e.health.mu.Lock()
				e.health.mark(marks, on)
				e.health.mu.Unlock()
			}
		}
		var seed uint64
		mark(markUnhealthy|markUnknown, true)
		if b.Pick(&seed, new(Tried)) == nil {
			t.Errorf("%d endpoints that were not checked yet: none is picked", n)
		}
		if b.SessionEndpointAs(nil, b.Endpoints()[0].SessionID()) == nil {
			t.Errorf("%d endpoints that were not checked yet: a session does not go on", n)
		}
		mark(markUnknown, false)
		if e := b.Pick(&seed, new(Tried)); e != nil {
			t.Errorf("%d unhealthy endpoints: %v is picked", n, e.Address())
		}
		if e := b.SessionEndpointAs(nil, b.Endpoints()[0].SessionID()); e != nil {
			t.Errorf("%d unhealthy endpoints: a session goes on at %v", n, e.Address())
		}
		if b.HasOther(new(Tried)) || !b.AllBarred() {
			t.Errorf("%d unhealthy endpoints: there are such as can be picked", n)
		}
		mark(markUnhealthy, false)
		mark(markEjected, true) // not by a policy
		if b.Pick(&seed, new(Tried)) == nil {
			t.Errorf("%d endpoints ejected without a policy: none is picked", n)
		}
		if b.SessionEndpointAs(nil, b.Endpoints()[0].SessionID()) == nil || b.AllBarred() {
			t.Errorf("%d endpoints ejected without a policy: none is there", n)
		}
	}
}

// TestPanicIgnoresNoFailedConnects is that what is known not to be there is avoided however many endpoints that concerns.
func TestPanicIgnoresNoFailedConnects(t *testing.T) {
	b := made(t, 5)
	for _, e := range b.Endpoints()[:4] {
		e.suspectFor(time.Hour)
	}
	for seed := range uint64(100) {
		if b.Pick(&seed, new(Tried)) != b.Endpoints()[4] {
			t.Fatal("an endpoint was picked that could not be connected to")
		}
	}
}

func TestOneRequestTriesASuspect(t *testing.T) {
	b := made(t, 2)
	e := b.Endpoints()[0]
	e.suspectFor(time.Hour)
	e.avoidUntil.Store(1)
	if !e.fit() {
		t.Fatal("not fit when the time is over")
	}
	e.Begin()
	if e.fit() {
		t.Fatal("a second request may try it beside the first")
	}
	e.Responded(200) // on a connection that was there
	if !e.fit() || e.avoidUntil.Load() != 0 {
		t.Error("not fit after a response")
	}
}

// TestSuspectAnswersWithoutStatus: the head of a response shows that an endpoint can be reached, also while its status is to come.
func TestSuspectAnswersWithoutStatus(t *testing.T) {
	e := made(t, 2).Endpoints()[0]
	e.mistrust()
	e.Answered() // to a request from before
	if e.fit() {
		t.Fatal("fit though nobody has tried it")
	}
	e.avoidUntil.Store(1)
	e.Begin()
	e.Answered()
	if !e.fit() || e.avoidUntil.Load() != 0 {
		t.Error("not fit after the head of a response")
	}
}

func TestOutcomeAllocatesNothing(t *testing.T) {
	for name, c := range map[string]*config.HealthCheck{"none": nil, "passive": {Passive: passiveConfig()}} {
		b := made(t, 4)
		apply(t, b.set, withHealth(c))
		e := b.Endpoints()[0]
		if n := testing.AllocsPerRun(1000, func() {
			e.Begin()
			e.Responded(200)
			e.Responded(500)
			e.Responded(404)
			e.End()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkOutcome(b *testing.B) {
	for name, c := range map[string]*config.HealthCheck{"none": nil, "passive": {Passive: passiveConfig()}} {
		b.Run(name, func(b *testing.B) {
			backend := made(b, 4)
			apply(b, backend.set, withHealth(c))
			e := backend.Endpoints()[0]
			b.ReportAllocs()
			for b.Loop() {
				e.Responded(200)
			}
		})
	}
}

func TestHealthStats(t *testing.T) {
	b := made(t, 4)
	if s := b.HealthStats(); s.Unhealthy() != nil || s.EjectionsByReason() != nil {
		t.Errorf("%v, %v before anything has happened", s.Unhealthy(), s.EjectionsByReason())
	}
	failUntilCompared(b, b.Endpoints()[0])
	b.Endpoints()[1].suspectFor(time.Hour)
	s := b.HealthStats()
	want := map[string]int{"avoided": 1, "ejected": 1, "unhealthy": 0, "unknown": 0}
	if got := s.Unhealthy(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := s.EjectionsByReason(); len(got) != 1 || got["gateway_errors_compared"] != 1 {
		t.Errorf("%v", got)
	}
	ejectionOver(b.Endpoints()[0])
	b.Endpoints()[0].Responded(200)
	b.Endpoints()[1].reached()
	if s = b.HealthStats(); s.Unhealthy()["ejected"] != 0 || s.Endpoints[Healthy] != 4 {
		t.Errorf("%+v when all is well again", s)
	}
}

// TestHealthWhileAllChanges has requests end in every way while policies and endpoints come and go: nothing is counted that is not there in the end.
func TestHealthWhileAllChanges(t *testing.T) {
	server := listen(t)
	s, b := newSet(t, Options{}, endpoint(address(0)))
	var requests sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		requests.Go(func() {
			seed := uint64(i)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				e := b.Pick(&seed, new(Tried))
				if e == nil { // all are barred
					continue
				}
				e.Begin()
				switch r := Random(&seed); {
				case e.Address().Port()%2 == 1 && r%4 > 0:
					e.Responded(503)
				case r%16 == 0:
					e.Broken(FailureTimeout)
				case r%64 == 1:
					e.suspectFor(time.Millisecond)
				default:
					e.Responded(200)
				}
				e.End()
			}
		})
	}
	at := server.addrPort()
	lists := [][]*config.Endpoint{
		{endpoint(at), endpoint(address(1)), endpoint(address(2)), endpoint(address(3))},
		{endpoint(address(1)), terminating(at), endpoint(address(2))},
		{endpoint(at)},
	}
	tcp := checkConfig(func(a *config.ActiveHealthCheck) {
		a.TimeoutNanos = int64(10 * time.Millisecond)
		a.Check = &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Send: []byte("x"), Receive: []byte("x")}}
	})
	both := proto.CloneOf(tcp)
	both.Passive = passiveConfig()
	both.Passive.IntervalNanos, both.Passive.BaseEjectionTimeNanos = int64(leastInterval), int64(time.Millisecond)
	policies := []*config.HealthCheck{nil, {Passive: both.Passive}, tcp, both, {PanicThresholdPercent: proto.Uint32(0)}}
	for i := range 100 {
		apply(t, s, endpointsResource(key, lists[i%len(lists)]...))
		apply(t, s, withHealth(policies[i%len(policies)]))
		if e := b.Endpoints()[0]; i%10 == 2 && policies[i%len(policies)] == tcp && e.Address() == at {
			testkit.Eventually(t, "it is checked", func() bool { return e.Health() != Unknown })
		}
		b.HealthStats()
	}
	close(stop)
	requests.Wait()
	apply(t, s, withHealth(&config.HealthCheck{Passive: passiveConfig()}))
	apply(t, s, withHealth(nil))
	g := &b.health
	if unfit, usable := g.unfit.Load(), g.usable.Load(); unfit != 0 || usable != int64(len(b.list.Load().usable)) || g.outliers != 0 {
		t.Errorf("%d of %d unfit, %d outliers, %d endpoints", unfit, usable, g.outliers, len(b.Endpoints()))
	}
	for _, e := range b.Endpoints() {
		if m := e.health.marks.Load(); m != 0 {
			t.Errorf("%v has the marks %b", e, m)
		}
	}
}
