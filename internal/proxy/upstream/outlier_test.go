package upstream

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// passiveConfig is one whose sweeps do not come by themselves during a test.
func passiveConfig() *config.PassiveHealthCheck {
	return &config.PassiveHealthCheck{IntervalNanos: int64(time.Hour), BaseEjectionTimeNanos: int64(30 * time.Second), MaxEjectionPercent: 100}
}

// watched is a backend of n endpoints with a PassiveHealthCheck.
func watched(t testing.TB, n int, change func(*config.PassiveHealthCheck)) *Backend {
	t.Helper()
	b := made(t, n)
	c := passiveConfig()
	if change != nil {
		change(c)
	}
	apply(t, b.set, withHealth(&config.HealthCheck{Passive: c}))
	return b
}

func TestOutliers(t *testing.T) {
	repeat := func(n, status int) func(*Endpoint) {
		return func(e *Endpoint) {
			for range n {
				e.Responded(status)
			}
		}
	}
	broken := func(n int, f Failure) func(*Endpoint) {
		return func(e *Endpoint) {
			for range n {
				e.Broken(f)
			}
		}
	}
	both := func(list ...func(*Endpoint)) func(*Endpoint) {
		return func(e *Endpoint) {
			for _, f := range list {
				f(e)
			}
		}
	}
	gateway := func(c *config.PassiveHealthCheck) {
		c.Consecutive_5XxErrors, c.ConsecutiveGatewayErrors = proto.Uint32(0), 3
	}
	split := func(c *config.PassiveHealthCheck) { c.SplitLocalOriginErrors = true }
	for _, c := range []struct {
		name    string
		change  func(*config.PassiveHealthCheck)
		do      func(*Endpoint)
		ejected bool
		why     Ejection
	}{
		{"5xx by default", nil, repeat(5, 500), true, EjectedBy5xx},
		{"too few", nil, repeat(4, 500), false, 0},
		{"a success between", nil, both(repeat(4, 500), repeat(1, 404), repeat(4, 503)), false, 0},
		{"of its own number", func(c *config.PassiveHealthCheck) { c.Consecutive_5XxErrors = proto.Uint32(2) }, repeat(2, 599), true, EjectedBy5xx},
		{"never", func(c *config.PassiveHealthCheck) { c.Consecutive_5XxErrors = proto.Uint32(0) }, repeat(100, 500), false, 0},
		{"gateway errors", gateway, both(repeat(1, 502), repeat(1, 503), repeat(1, 504)), true, EjectedByGatewayErrors},
		{"500 among gateway errors", gateway, both(repeat(2, 503), repeat(1, 500), repeat(2, 503)), false, 0},
		{"local failures as 5xx", nil, both(broken(2, FailureReset), broken(3, FailureTimeout)), true, EjectedBy5xx},
		{"local failures as gateway errors", gateway, broken(3, FailureReset), true, EjectedByGatewayErrors},
		{"local failures with a split", split, broken(5, FailureReset), true, EjectedByLocalOrigin},
		{"too few with a split", split, both(broken(4, FailureReset), repeat(1, 500), broken(4, FailureTimeout)), false, 0},
		{"responses with a split", split, both(broken(4, FailureReset), repeat(5, 500)), true, EjectedBy5xx},
		{"never with a split", func(c *config.PassiveHealthCheck) {
			c.SplitLocalOriginErrors, c.ConsecutiveLocalOriginFailures = true, proto.Uint32(0)
		}, broken(100, FailureReset), false, 0},
		{"failed connects", nil, func(e *Endpoint) {
			for range 5 {
				e.connectFailed(false)
			}
		}, true, EjectedBy5xx},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := watched(t, 3, c.change)
			e := b.Endpoints()[0]
			c.do(e)
			if got := e.Health() == Ejected; got != c.ejected {
				t.Fatalf("%v", e.Health())
			}
			if n := b.totals().ejections[c.why].Load(); (n == 1) != c.ejected {
				t.Errorf("%d ejections by %v", n, c.why)
			}
			if c.ejected && (e.fit() || picks(b, e)) {
				t.Error("it is still chosen")
			}
		})
	}
}

// TestTunnelsCount is that a connection of a tunnel is a success.
func TestTunnelsCount(t *testing.T) {
	server := listen(t)
	s, b := newSet(t, Options{}, endpoint(server.addrPort()))
	apply(t, s, withHealth(&config.HealthCheck{Passive: passiveConfig()}))
	e := b.Endpoints()[0]
	for range 2 {
		for range defaultConsecutive - 1 {
			e.connectFailed(true)
		}
		c, err := e.ConnectTunnel(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if e.Health() != Healthy {
		t.Errorf("%v", e.Health())
	}
}

func TestPolicyReplacesComparison(t *testing.T) {
	b := watched(t, 4, func(c *config.PassiveHealthCheck) { c.Consecutive_5XxErrors = proto.Uint32(0) })
	e := b.Endpoints()[0]
	failUntilCompared(b, e)
	if e.Health() != Healthy {
		t.Errorf("%v", e.Health())
	}
}

// TestEjectionTime is that it grows with each ejection up to 300 s, and falls again while the endpoint is healthy.
func TestEjectionTime(t *testing.T) {
	b := watched(t, 3, nil)
	p, e := b.health.passive, b.Endpoints()[0]
	o := e.health.outlier.Load()
	now := time.Now()
	eject := func(want time.Duration) {
		t.Helper()
		e.ejectOutlier(o, EjectedBy5xx, now)
		if got := o.until.Sub(now); got != want {
			t.Fatalf("ejected for %v, want %v", got, want)
		}
		b.sweepOutliers(p, now.Add(want-1))
		if e.Health() != Ejected {
			t.Fatal("back too early")
		}
		now = now.Add(want)
		b.sweepOutliers(p, now)
		if e.Health() != Healthy {
			t.Fatal("not back")
		}
	}
	for i := range 3 {
		eject(time.Duration(i+1) * 30 * time.Second)
	}
	b.sweepOutliers(p, now)
	b.sweepOutliers(p, now)
	eject(60 * time.Second)
	o.ejection = 1000
	eject(300 * time.Second)
}

func TestMaxEjectionPercent(t *testing.T) {
	for _, c := range []struct {
		percent uint32
		always  bool
		of      int
		want    int64
	}{{10, false, 5, 0}, {10, true, 5, 1}, {10, false, 10, 1}, {50, false, 4, 2}, {100, false, 3, 3}, {0, true, 3, 1}, {0, false, 3, 0}} {
		b := watched(t, c.of, func(p *config.PassiveHealthCheck) {
			p.MaxEjectionPercent, p.AlwaysEjectOneEndpoint = c.percent, c.always
		})
		for _, e := range b.Endpoints() {
			for range 5 {
				e.Responded(500)
			}
		}
		if got := b.health.unfit.Load(); got != c.want {
			t.Errorf("%+v: %d ejected", c, got)
		}
		var seed uint64
		if b.Pick(&seed, new(Tried)) == nil {
			t.Errorf("%+v: none is picked", c)
		}
	}
}

func TestFailurePercentage(t *testing.T) {
	for _, c := range []struct {
		name     string
		hosts    int
		requests int
		failed   int // of the first endpoint
		split    bool
		ejected  bool
	}{
		{"above", 5, 100, 90, false, true},
		{"at the threshold", 5, 100, 85, false, true},
		{"below", 5, 100, 84, false, false},
		{"few endpoints", 4, 100, 100, false, false},
		{"few requests", 5, 49, 49, false, false},
		{"local origin", 5, 100, 90, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := watched(t, c.hosts, func(p *config.PassiveHealthCheck) {
				p.FailurePercentageThreshold, p.SplitLocalOriginErrors = 85, c.split
				p.Consecutive_5XxErrors, p.ConsecutiveLocalOriginFailures = proto.Uint32(0), proto.Uint32(0)
			})
			for i, e := range b.Endpoints() {
				for n := range c.requests {
					switch {
					case i > 0 || n >= c.failed:
						e.Responded(200)
					case c.split:
						e.Broken(FailureTimeout)
					default:
						e.Responded(500)
					}
				}
			}
			b.sweepOutliers(b.health.passive, time.Now())
			if got := b.Endpoints()[0].Health() == Ejected; got != c.ejected || b.health.unfit.Load() > 1 {
				t.Errorf("ejected: %v, %d unfit", got, b.health.unfit.Load())
			}
			all, failed := b.Endpoints()[0].health.outlier.Load().responses.take()
			if all+failed != 0 {
				t.Error("the next interval begins with what was counted")
			}
		})
	}
}

// TestPassiveIsEdited is that a policy comes, changes and goes while endpoints are ejected, and endpoints come and go.
func TestPassiveIsEdited(t *testing.T) {
	b := made(t, 4)
	s, first := b.set, b.Endpoints()[0]
	failUntilCompared(b, first)
	c := passiveConfig()
	apply(t, s, withHealth(&config.HealthCheck{Passive: c}))
	if first.Health() != Healthy {
		t.Error("the ejection from before the policy goes on")
	}
	eject := func() {
		t.Helper()
		for range 5 {
			first.Responded(500)
		}
		if first.Health() != Ejected || b.health.outliers != 1 {
			t.Fatalf("%v, %d outliers", first.Health(), b.health.outliers)
		}
	}
	eject()
	apply(t, s, withHealth(&config.HealthCheck{Passive: proto.CloneOf(c)}))
	if first.Health() != Ejected {
		t.Error("the same policy ended the ejection")
	}
	changed := proto.CloneOf(c)
	changed.MaxEjectionPercent = 50
	apply(t, s, withHealth(&config.HealthCheck{Passive: changed}))
	if first.Health() != Healthy || b.health.outliers != 0 {
		t.Errorf("after a change: %v, %d outliers", first.Health(), b.health.outliers)
	}
	old := first.health.outlier.Load()
	eject()
	apply(t, s, withHealth(nil))
	if first.Health() != Healthy || b.health.outliers != 0 || b.health.unfit.Load() != 0 || first.health.marks.Load() != 0 {
		t.Errorf("without a policy: %v, %d outliers", first.Health(), b.health.outliers)
	}
	first.ejectOutlier(old, EjectedBy5xx, time.Now()) // a request that had found the policy
	if first.Health() != Healthy {
		t.Error("ejected by a policy that is gone")
	}
	if n := len(s.taskQueue.tasks); n != 0 {
		t.Errorf("%d sweeps go on", n)
	}
	apply(t, s, withHealth(&config.HealthCheck{Passive: c}))
	eject()
	apply(t, s, endpointsResource(key, endpoint(address(1)), endpoint(address(9))))
	if b.health.outliers != 0 || b.health.unfit.Load() != 0 {
		t.Errorf("the ejected endpoint has gone: %d outliers, %d unfit", b.health.outliers, b.health.unfit.Load())
	}
	if e := b.Endpoints()[1]; e.health.outlier.Load() == nil {
		t.Error("a new endpoint is not watched")
	}
	if err := s.Apply(nil, []config.ID{{Kind: config.KindBackend, Key: key}}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.taskQueue.tasks); n != 0 {
		t.Errorf("%d sweeps go on when the Backend is gone", n)
	}
}

func TestPassiveIsRefused(t *testing.T) {
	b := made(t, 1)
	if err := b.set.Apply([]*config.Resource{withHealth(&config.HealthCheck{Passive: &config.PassiveHealthCheck{}})}, nil); err == nil {
		t.Error("an interval of 0 is taken")
	}
}
