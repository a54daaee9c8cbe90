//go:build linux

package client

import (
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// dormantCount is how many dormant connections the set has.
func dormantCount(set *Set) (n int) {
	l := &set.dormants
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.lists() {
		for d := of.first; d != nil; d = d.after {
			n++
		}
	}
	return n
}

// rest lets the sweeper find n connections that are parked when they are to become dormant.
func rest(t *testing.T, set *Set, n int) {
	t.Helper()
	later(set, dormantAfter-parkAfter)
	if got := dormantCount(set); got != n {
		t.Fatalf("%d connections are dormant, want %d", got, n)
	}
}

// later has the sweeper look after d.
func later(set *Set, d time.Duration) {
	now := set.engine.Now() + d.Milliseconds()
	set.engine.Clock.Store(now)
	set.Sweep(now)
}

// openFiles is how many descriptors the process has.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestDormant: dormant connections have no Conn, keep their idle time, and serve on, again and again.
func TestDormant(t *testing.T) {
	if size := unsafe.Sizeof(dormant{}); size > 112 {
		t.Errorf("a dormant connection takes %d bytes, and 112 is what it is for", size)
	}
	set, addr := served(t)
	const n = 20
	var all []*asker
	for range n {
		all = append(all, askerOf(t, addr))
	}
	files := 0
	for round := range 3 {
		for _, a := range all {
			a.ask()
		}
		park(t, set, n)
		later(set, dormantAfter-parkAfter-time.Millisecond)
		if got := dormantCount(set); got != 0 {
			t.Fatalf("%d connections are dormant too soon", got)
		}
		later(set, time.Millisecond)
		if got := dormantCount(set); got != n {
			t.Fatalf("%d connections are dormant, want all", got)
		}
		set.Each(func(*Conn) { t.Error("a dormant connection has a Conn") })
		if set.connections.open.Load() != n {
			t.Errorf("%d connections count, want %d", set.connections.open.Load(), n)
		}
		if round == 0 {
			files = openFiles(t)
		} else if got := openFiles(t); got != files {
			t.Errorf("%d descriptors are open, %d were the first time", got, files)
		}
	}
	later(set, set.timeouts.Idle-dormantAfter-time.Millisecond)
	if got := dormantCount(set); got != n {
		t.Fatalf("%d connections are left before their idle time is over", got)
	}
	later(set, time.Millisecond)
	for _, a := range all {
		a.ended()
	}
	<-set.Empty()
}

// TestDormantDestination: the destination that a PROXY header has named is known while and after the connection is dormant, and goes with it.
func TestDormantDestination(t *testing.T) {
	set, addr := served(t)
	kept := func() int {
		set.dormants.mu.Lock()
		defer set.dormants.mu.Unlock()
		return len(set.dormants.destinations)
	}
	with, without := askerOf(t, addr), askerOf(t, addr)
	destination := netip.MustParseAddrPort("10.0.0.1:443")
	each := func(f func(c *Conn)) {
		with.ask()
		without.ask()
		park(t, set, 2)
		set.Each(func(c *Conn) {
			if c.side.Peer == with.LocalAddr().(*net.TCPAddr).AddrPort() {
				f(c)
			}
		})
	}
	each(func(c *Conn) { c.destination = &destination })
	for range 2 {
		rest(t, set, 2)
		if kept() != 1 {
			t.Fatalf("%d destinations are kept, want that of one connection", kept())
		}
		each(func(c *Conn) {
			if c.reached() != destination || c.local() == destination {
				t.Errorf("the destination is %v, and the gateway's address %v", c.reached(), c.local())
			}
		})
		if kept() != 0 {
			t.Fatal("the destination is kept after the connection was woken")
		}
	}
	rest(t, set, 2)
	with.Close()
	testkit.Eventually(t, "the destination is gone", func() bool { return kept() == 0 })
}

// TestDormantEndsForBackends: what is kept for a client goes with its dormant connection.
func TestDormantEndsForBackends(t *testing.T) {
	upstreams := upstream.NewSet(upstream.Options{})
	t.Cleanup(upstreams.Close)
	if err := upstreams.Apply([]*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b", Traffic: &config.BackendTraffic{
			Connections: &config.BackendConnections{ProxyHeader: config.ProxyHeader_PROXY_HEADER_V1}}}}},
		{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: "b", Endpoints: []*config.Endpoint{{Address: "192.0.2.1", Port: 80}}}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	set, addr := servedBy(t, false, nil, func(set *Set) { set.engine.Upstreams = upstreams })
	a := askerOf(t, addr)
	a.ask()
	park(t, set, 1)
	rest(t, set, 1)
	who := upstream.For{Client: a.LocalAddr().(*net.TCPAddr).AddrPort()}
	e := upstreams.Get("b").Endpoints()[0]
	kept := e.At(who)
	if e.At(who) != kept {
		t.Fatal("nothing is kept for the client")
	}
	a.Close()
	testkit.Eventually(t, "what was kept is gone", func() bool { return e.At(who) != kept })
}

// TestDormantEnds: whatever ends a dormant connection, the client sees a regular end and nothing is left.
func TestDormantEnds(t *testing.T) {
	for name, end := range endsOfIdle(map[string]func(*Set, *asker){
		"drain": func(set *Set, a *asker) { set.engine.Draining.Store(true); later(set, 0); a.ended() },
		"a request, and half-close": func(set *Set, a *asker) {
			a.send()
			a.CloseWrite()
			if err := a.receive(); err != nil {
				a.t.Fatal(err)
			}
			testkit.Eventually(a.t, "ended", func() bool {
				later(set, parkAfter) // the end may be noticed then only
				return set.connections.open.Load() == 0
			})
			a.ended()
		},
		"memory is scarce": func(set *Set, a *asker) { set.CloseIdle(); a.ended() },
		"room for others": func(set *Set, a *asker) {
			if !set.makeRoom() {
				a.t.Error("no room was made")
			}
			a.ended()
		},
	}) {
		t.Run(name, func(t *testing.T) {
			for _, own := range []bool{false, true} {
				set, addr := servedBy(t, false, nil, func(s *Set) { s.Limit(ConnectionLimits{Total: scarce}, discard) })
				a := askerOf(t, addr)
				a.ask()
				testkit.Eventually(t, "idle", func() bool { return count(set, waitIdle) == 1 })
				if own {
					set.Each(func(c *Conn) { timeouts := *c.timeouts; c.timeouts = &timeouts })
				}
				park(t, set, 1)
				rest(t, set, 1)
				end(set, a)
				<-set.Empty()
				if set.connections.open.Load() != 0 || set.connections.ending.Load() != 0 {
					t.Error("it still counts")
				}
			}
		})
	}
}

// TestDormantHTTP2: a connection that became dormant before it said anything can still begin with the preface of HTTP/2, and one that has asked by HTTP/1 cannot.
func TestDormantHTTP2(t *testing.T) {
	for _, asked := range []bool{false, true} {
		set, addr := served(t)
		a := askerOf(t, addr)
		if asked {
			a.ask()
		}
		park(t, set, 1)
		rest(t, set, 1)
		io.WriteString(a, http2.Preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		var got [9]byte
		if _, err := io.ReadFull(a.r, got[:]); err != nil {
			t.Fatal(err)
		}
		if settings := got[3] == 4; settings == asked {
			t.Errorf("asked before: %v, answered by HTTP/2: %v (%q)", asked, settings, got)
		}
		a.Close()
		<-set.Empty()
	}
}

// TestDormantWithoutDescriptors: where there are none left, connections do not become dormant, and those that are can be asked.
func TestDormantWithoutDescriptors(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	a.ask()
	park(t, set, 1)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	defer restore()
	none := func() {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
	}
	none()
	later(set, dormantAfter-parkAfter)
	if n := dormantCount(set); n != 0 || count(set, waitParked) != 1 {
		t.Fatalf("%d dormant and %d parked, want one that is parked", n, count(set, waitParked))
	}
	a.ask() // with the descriptor that it has
	restore()
	park(t, set, 1)
	later(set, dormantAfter)
	if n := dormantCount(set); n != 1 {
		t.Fatalf("%d dormant, want one again", n)
	}

	none()
	a.ask()
	restore()
	a.Close()
	<-set.Empty()
}

// TestDormantRaces: requests, the sweeper, ends of idle times, scarce memory, and ends by the client meet connections at any moment of becoming dormant and of being
// woken. A request is answered, or the connection ends; nothing is left.
func TestDormantRaces(t *testing.T) {
	set, addr := served(t)
	files := openFiles(t)
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for now := set.engine.Now(); ; now += 2500 { // all that idles is parked at once, dormant then, and soon at its end
			select {
			case <-stop:
				return
			default:
			}
			set.engine.Clock.Store(now)
			set.Sweep(now)
			if rand.IntN(200) == 0 {
				set.CloseIdle()
			}
			runtime.Gosched()
		}
	})
	var mu sync.Mutex
	answered, woken := 0, 0
	var clients sync.WaitGroup
	for k := range 8 {
		clients.Go(func() {
			for i := range 60 {
				a := askerOf(t, addr)
				for n := range 8 {
					if a.tryAsk() != nil { // its idle time was over
						break
					}
					mu.Lock()
					answered++
					woken += min(n, 1)
					mu.Unlock()
					time.Sleep(time.Duration((i+n)%7) * 50 * time.Microsecond)
				}
				switch (k + i) % 3 {
				case 0:
					a.SetLinger(0)
				case 1:
					a.CloseWrite()
					io.Copy(io.Discard, a)
				}
				a.Close()
			}
		})
	}
	clients.Wait()
	close(stop)
	sweeper.Wait()
	<-set.Empty()
	if answered < 480 || woken == 0 {
		t.Errorf("%d requests were answered, %d not the first of their connection, want 480 at least and some", answered, woken)
	}
	if n := set.connections.open.Load(); n != 0 {
		t.Errorf("%d connections still count", n)
	}
	if got := openFiles(t); got > files+4 { // the two sets of epoll, with a wake each
		t.Errorf("%d descriptors are open, %d were before", got, files)
	}
}

// TestDormantAskedAtItsEnd: a connection that is to be ended, because its idle time is over or to make room, goes on if a request has come meanwhile, and counts again.
func TestDormantAskedAtItsEnd(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	a.ask()
	l := &set.dormants
	for _, asks := range []bool{true, true, false} {
		park(t, set, 1)
		rest(t, set, 1)
		l.mu.Lock()
		d := l.ordered.first
		d.claimed = true
		l.mu.Unlock()
		set.evict(&d.counted)
		if asks {
			a.send()
			testkit.Eventually(t, "arrived", func() bool { return d.look() == asked })
		}
		l.endUnlessAsked(set, []*dormant{d})
		if !asks {
			a.ended()
			break
		}
		if err := a.receive(); err != nil {
			t.Fatal(err)
		}
		if n := set.connections.open.Load(); n != 1 {
			t.Errorf("%d connections count, want 1", n)
		}
	}
	<-set.Empty()
	if set.connections.open.Load() != 0 || set.connections.ending.Load() != 0 {
		t.Error("it still counts")
	}
}

// TestDormantDisturbed: an event that says nothing of a connection leaves it as it is.
func TestDormantDisturbed(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	a.ask()
	park(t, set, 1)
	rest(t, set, 1)
	l := &set.dormants
	l.mu.Lock()
	fd := l.ordered.first.fd
	l.mu.Unlock()
	l.happened(set, fd)
	l.happened(set, fd+100)
	testkit.Eventually(t, "at rest", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.ordered.first != nil && !l.ordered.first.claimed
	})
	a.ask()
	a.Close()
	<-set.Empty()
}

// TestDormantAfterLongWait: a connection of which a hang-up was watched for becomes dormant as any other, and its entry is gone.
func TestDormantAfterLongWait(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	for range 2 {
		a.ask()
		testkit.Eventually(t, "idle", func() bool { return count(set, waitIdle) == 1 })
		set.Each(func(c *Conn) {
			c.hangUpWatched.Store(true)
			set.openHangUps().watchHangUp(c)
		})
		park(t, set, 1)
		rest(t, set, 1)
		hangUps := set.hangUps.Load()
		hangUps.mu.Lock()
		for _, c := range hangUps.byFD {
			if c != nil {
				t.Error("its hang-up is still watched for")
			}
		}
		hangUps.mu.Unlock()
	}
	a.Close()
	<-set.Empty()
}

// TestDormantUnwatched: where the system has no room for another entry, connections go on as they were, and are let be for a while.
func TestDormantUnwatched(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	a.ask()
	park(t, set, 1)
	rest(t, set, 1) // which makes the set of epoll
	a.ask()
	l := &set.dormants
	fd, err := unix.FcntlInt(uintptr(l.watch.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), l.watch.FD, unix.O_CLOEXEC); err != nil { // it can watch nothing any more
		t.Fatal(err)
	}
	park(t, set, 1)
	later(set, dormantAfter-parkAfter)
	testkit.Eventually(t, "woken", func() bool { return dormantCount(set) == 0 && count(set, waitIdle) == 1 })
	a.ask()
	park(t, set, 1)
	later(set, dormantAfter-parkAfter-time.Millisecond)
	if dormantCount(set) != 0 {
		t.Error("it was tried again at once")
	}
	a.ask()
	if err := unix.Dup3(fd, l.watch.FD, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	a.Close()
	<-set.Empty()
}

// TestDormantOutOfOrder: where connections become dormant behind others that have idled for less, their idle times end when they should.
func TestDormantOutOfOrder(t *testing.T) {
	const n = 8 // in shards of which some come before and some behind those of the others
	set, addr := served(t)
	set.dormants.notBefore.Store(set.engine.Now() + (40 * time.Second).Milliseconds())
	var first, second []*asker
	for range n {
		first = append(first, askerOf(t, addr))
		first[len(first)-1].ask()
	}
	park(t, set, n)
	later(set, 30*time.Second)
	for range n {
		second = append(second, askerOf(t, addr))
		second[len(second)-1].ask()
	}
	idle(t, set, n, parkAfter)
	testkit.Eventually(t, "parked", func() bool { return count(set, waitParked) == 2*n })
	later(set, 10*time.Second)
	if got := dormantCount(set); got != 2*n {
		t.Fatalf("%d connections are dormant, want all", got)
	}
	later(set, set.timeouts.Idle-parkAfter-41*time.Second)
	for _, a := range first {
		a.ended()
	}
	for _, a := range second {
		a.ask()
		a.Close()
	}
	<-set.Empty()
}

// TestDormantPanics: a panic about one connection ends that alone.
func TestDormantPanics(t *testing.T) {
	set, addr := served(t)
	a, b := askerOf(t, addr), askerOf(t, addr)
	a.ask()
	b.ask()
	park(t, set, 2)
	rest(t, set, 2)
	l := &set.dormants
	all := l.shut()
	l.mu.Lock()
	l.closed = false // they are only to be claimed
	l.mu.Unlock()
	first := all[0]
	l.each(set, all, func(s *Set, d *dormant) {
		if d == first {
			panic("test")
		}
		if !l.restAgain(s, d) {
			t.Error("does not rest again")
		}
	})
	testkit.Eventually(t, "one ended", func() bool { return dormantCount(set) == 1 })
	failed := 0
	for _, c := range []*asker{a, b} {
		if c.tryAsk() != nil {
			failed++
		}
		c.Close()
	}
	if failed != 1 {
		t.Errorf("%d connections have ended, want 1", failed)
	}
	<-set.Empty()
}

// TestDormantCutRaces: a cut, or the client, ends connections around the moment at which they become dormant or are woken, and the Set is closed behind them.
func TestDormantCutRaces(t *testing.T) {
	for i := range 200 {
		t.Run("", func(t *testing.T) {
			set, addr := served(t)
			a := askerOf(t, addr)
			a.ask()
			park(t, set, 1)
			wakes := i%2 == 0
			if wakes {
				rest(t, set, 1)
			}
			var both sync.WaitGroup
			both.Go(func() {
				switch {
				case i%4 == 0:
					a.Close()
				case wakes:
					a.send()
				default:
					later(set, dormantAfter-parkAfter)
				}
			})
			both.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				if i%4 != 0 {
					set.Cut()
				}
			})
			<-set.Empty()
			both.Wait()
			a.Close()
		})
	}
}
