package upstream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

func TestBackendAndEndpointsComeInAnyOrder(t *testing.T) {
	var seed uint64
	s := NewSet(Options{})
	defer s.Close()
	if s.Get(key) != nil {
		t.Fatal("an empty Set has a backend")
	}
	apply(t, s, endpointsResource(key, endpoint(address(1))))
	b := s.Get(key)
	if b == nil || b.Config() != nil || b.Pick(&seed, new(Tried)) == nil {
		t.Fatalf("endpoints alone: %+v", b)
	}
	apply(t, s, backendResource(key))
	if s.Get(key) != b || b.Config().GetName() != "app" || b.Key() != key {
		t.Error("the Backend did not join its Endpoints")
	}

	const other = "Service/default/other/80"
	apply(t, s, backendResource(other))
	o := s.Get(other)
	if o.Pick(&seed, new(Tried)) != nil {
		t.Error("a Backend without Endpoints has an endpoint")
	}
	apply(t, s, endpointsResource(other, endpoint(address(2))))
	if e := o.Pick(&seed, new(Tried)); e == nil || e.Address() != address(2) || e.Backend() != o {
		t.Errorf("the old pointer does not follow: %v", e)
	}
	if all := s.Backends(); len(all) != 2 || all[0] != b || all[1] != o {
		t.Errorf("Backends: %v", all)
	}
}

func TestEndpointsKeepTheirState(t *testing.T) {
	_, b := newSet(t, Options{}, endpoint(address(1)), endpoint(address(2)))
	old := b.Endpoints()
	old[0].Begin()
	apply(t, b.set, endpointsResource(key, terminating(address(1)), endpoint(address(1)), endpoint(address(3))))
	list := b.Endpoints()
	if len(list) != 2 || list[0] != old[0] || list[0].Stats().InFlight != 1 || list[1].String() != "192.0.2.3:8080" {
		t.Errorf("after the update: %v", list)
	}
	if b.Stats().InFlight != 1 {
		t.Errorf("backend: %+v", b.Stats())
	}
}

// TestAddressOfAnother: where somebody else is behind an address there is another endpoint, and the lists that requests may hold stay sorted by their IDs.
func TestAddressOfAnother(t *testing.T) {
	identified := func(n int, identity uint64) *config.Endpoint {
		e := endpoint(address(n))
		e.Identity = identity
		return e
	}
	_, b := newSet(t, Options{}, identified(1, 7), identified(2, 8))
	before := b.list.Load()
	old := slices.Clone(before.all)
	apply(t, b.set, endpointsResource(key, identified(1, 9), identified(2, 8)))
	all := b.Endpoints()
	if len(all) != 2 || all[0] == old[0] || all[1] != old[1] || all[0].Address() != address(1) || !old[0].Gone() || old[1].Gone() {
		t.Errorf("endpoints %v, before %v", all, old)
	}
	for _, e := range old {
		if e.SessionID() == 0 || !slices.Contains(before.bySession, e) {
			t.Errorf("%s has the ID %d", e, e.SessionID())
		}
	}
	if !slices.IsSortedFunc(before.bySession, func(a, b *Endpoint) int { return cmp.Compare(a.SessionID(), b.SessionID()) }) || b.SessionEndpointAs(nil, all[0].SessionID()) != all[0] ||
		b.SessionEndpointAs(nil, old[0].SessionID()) != nil {
		t.Error("sessions do not find their endpoints")
	}
}

func TestRemovals(t *testing.T) {
	var seed uint64
	s, b := newSet(t, Options{}, endpoint(address(1)))
	remove := func(ids ...config.ID) {
		if err := s.Apply(nil, ids); err != nil {
			t.Fatal(err)
		}
	}
	remove(config.ID{Kind: config.KindRoute, Key: key}, config.ID{Kind: config.KindBackend, Key: "Service/default/none/1"})
	if s.Get(key) != b || b.Config() == nil {
		t.Fatal("a foreign removal took the backend")
	}
	remove(config.ID{Kind: config.KindBackend, Key: key})
	if s.Get(key) != b || b.Config() != nil || b.Pick(&seed, new(Tried)) == nil {
		t.Fatal("the Endpoints went with the Backend")
	}
	remove(config.ID{Kind: config.KindEndpoints, Key: key})
	if s.Get(key) != nil {
		t.Fatal("the backend is still there")
	}
}

// TestRemovedBackendServesWhoHasIt: a request that found a backend before the configuration changed gets an endpoint of it, though it asks
// for one later; what idles is closed at once, and after a while nothing is left.
func TestRemovedBackendServesWhoHasIt(t *testing.T) {
	var seed uint64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, b := newSet(t, Options{}, endpoint(l.Addr().(*net.TCPAddr).AddrPort()))
	begin := time.Now()
	s.Sweep(begin)
	dial(t, b.Pick(&seed, new(Tried))).Release()
	if err := s.Apply(nil, []config.ID{{Kind: config.KindBackend, Key: key}, {Kind: config.KindEndpoints, Key: key}}); err != nil {
		t.Fatal(err)
	}
	if s.Get(key) != nil {
		t.Error("the backend can be found still")
	}
	s.Sweep(begin.Add(removedLifetime / 2))
	late := b.Pick(&seed, new(Tried))
	if late == nil {
		t.Fatal("a request that had found the backend finds no endpoint")
	}
	if late.Idle() != nil {
		t.Error("an idle connection was kept")
	}
	c := dial(t, late)
	c.Release()
	if late.Idle() != nil {
		t.Error("a connection to it is kept after its use")
	}
	s.Sweep(begin.Add(2 * removedLifetime))
	if b.Pick(&seed, new(Tried)) != nil || len(s.removed) != 0 {
		t.Errorf("%d backends are kept, with endpoints %v", len(s.removed), b.Endpoints())
	}
	if c, err := late.Dial(t.Context(), time.Time{}); err == nil {
		c.Close()
		t.Error("an endpoint that has gone was dialled")
	}
}

func TestApplyChecksBeforeItChanges(t *testing.T) {
	for name, bad := range map[string]*config.Endpoint{
		`"backend.example" is not an IP address`: {Address: "backend.example", Port: 80},
		"endpoints[0].port 0 is not a port":      {Address: "192.0.2.1"},
		"port 65536":                             {Address: "192.0.2.1", Port: 65536},
	} {
		s := NewSet(Options{})
		err := s.Apply([]*config.Resource{backendResource(key), endpointsResource("Service/default/bad/1", bad)}, nil)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
		if len(s.Backends()) != 0 {
			t.Errorf("%s: something was applied", name)
		}
		s.Close()
	}
}

func TestCloseEndsEverything(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	idle, used := dial(t, e), dial(t, e)
	idle.Release()
	s.Close()
	for _, c := range []*Conn{idle, used} {
		if _, err := c.Write([]byte{'x'}); err == nil {
			t.Error("a connection is still open")
		}
	}
	used.Release()
	var seed uint64
	apply(t, s, endpointsResource(key, endpoint(srv.addrPort())))
	if b.Pick(&seed, new(Tried)) != nil || e.Idle() != nil {
		t.Error("a closed Set has endpoints")
	}
	var dialError *DialError
	if _, err := e.Dial(context.Background(), time.Time{}); !errors.As(err, &dialError) || dialError.Reason != ReasonClosed || dialError.Retryable {
		t.Errorf("Dial after Close: %v", err)
	}
	if got := b.Stats(); got != (Stats{Dialled: 2}) {
		t.Errorf("after Close: %+v", got)
	}
}

// TestLeavingIsBounded: however fast Backends come and go, few endpoints of removed ones are kept, and of those the newest.
func TestLeavingIsBounded(t *testing.T) {
	var seed uint64
	const each = maxRemoved/4 - 1
	var list []*config.Endpoint
	for i := range each {
		list = append(list, endpoint(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)))
	}
	s, _ := newSet(t, Options{})
	s.Sweep(time.Now())
	var all []*Backend
	for range 10 {
		apply(t, s, backendResource(key), endpointsResource(key, list...))
		all = append(all, s.Get(key))
		if err := s.Apply(nil, []config.ID{{Kind: config.KindBackend, Key: key}, {Kind: config.KindEndpoints, Key: key}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range all {
		if left := b.Pick(&seed, new(Tried)) != nil; left != (i >= 6) {
			t.Errorf("Backend %d of 10: kept %v", i, left)
		}
	}
}

// TestNothingLeaves: of a removed Backend without endpoints nothing is kept, since maxRemoved bounds only endpoints.
func TestNothingLeaves(t *testing.T) {
	s, _ := newSet(t, Options{})
	for range 3 {
		apply(t, s, backendResource(key), endpointsResource(key))
		if err := s.Apply(nil, []config.ID{{Kind: config.KindBackend, Key: key}, {Kind: config.KindEndpoints, Key: key}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.removed); n > 0 {
		t.Errorf("%d Backends without endpoints are kept", n)
	}
}
