package client

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
)

// TestClientKey: which addresses count as one client.
func TestClientKey(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"0.0.0.5", "0:0:0:5::", false},
	} {
		if same := keyOf(netip.MustParseAddr(tc.a)) == keyOf(netip.MustParseAddr(tc.b)); same != tc.same {
			t.Errorf("%s and %s are the same client: %v", tc.a, tc.b, same)
		}
	}
}

// TestAdmissionIsExact: however many connections come and go at a time, no limit is exceeded, none is refused while
// there is room, and nothing stays counted.
func TestAdmissionIsExact(t *testing.T) {
	a := &connectionCounts{limits: ConnectionLimits{Total: 100, PerClient: 10}}
	key := func(i int) clientKey { return clientKey{uint64(i), true} }
	var all sync.WaitGroup
	var mu sync.Mutex
	in := map[clientKey]int{}
	for i := range 64 {
		all.Go(func() {
			k := key(i % 4)
			for range 1000 {
				mu.Lock()
				if limit, ok := a.enter(k, false); ok {
					if in[k]++; in[k] > 10 {
						t.Errorf("%d connections of one client", in[k])
					}
				} else if limit != observe.LimitPerClient || in[k] < 10 {
					t.Errorf("refused for %v with %d connections of the client", limit, in[k])
				}
				if in[k] > 5 {
					in[k]--
					a.leave(k)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for k, n := range in {
		for range n {
			a.leave(k)
		}
	}
	entered := 0
	var concurrent sync.WaitGroup
	for i := range 64 {
		concurrent.Go(func() {
			for j := range 100 {
				if _, ok := a.enter(key(100*i+j), false); ok {
					mu.Lock()
					entered++
					mu.Unlock()
				}
			}
		})
	}
	concurrent.Wait()
	if entered > 100 || a.open.Load() != int64(entered) {
		t.Errorf("%d connections entered, %d counted", entered, a.open.Load())
	}
	if limit, ok := a.enter(key(1<<20), false); ok != (entered < 100) || !ok && limit != observe.LimitTotal {
		t.Errorf("with %d connections the next has %v for %v", entered, ok, limit)
	}
}

// TestLevel: those that have most come down first, to what is just enough.
func TestLevel(t *testing.T) {
	for _, tc := range []struct {
		counts []int
		want   int
		level  int
	}{
		{[]int{10}, 3, 7},
		{[]int{10, 10, 1}, 1, 9},
		{[]int{10, 10, 1}, 4, 8},
		{[]int{10, 7, 1}, 3, 7},
		{[]int{10, 7, 1}, 4, 6},
		{[]int{1, 1, 1}, 2, 0},
		{[]int{2, 1}, 100, 0},
		{nil, 1, 0},
	} {
		if got := level(tc.counts, tc.want); got != tc.level {
			t.Errorf("%d less of %v: level %d, want %d", tc.want, tc.counts, got, tc.level)
		}
	}
}

func BenchmarkAdmission(b *testing.B) {
	a := &connectionCounts{limits: ConnectionLimits{Total: 1 << 20, PerClient: 1 << 19}}
	b.ReportAllocs()
	for i := range b.N {
		k := clientKey{uint64(i % 1000), true}
		a.enter(k, false)
		a.leave(k)
	}
}

// TestEvictionLosesRace: a request that comes just when its connection is given up for others is carried out with those that follow, or
// not at all, and connections are counted for what they are.
func TestEvictionLosesRace(t *testing.T) {
	set, addr := servedBy(t, false, nil, limited(1000))
	evictions, answered := 0, 0
	for i := range 300 {
		c, server := idleClient(t, set, addr)
		given := make(chan bool)
		go func() {
			time.Sleep(time.Duration(i) * time.Microsecond / 2)
			given <- server.endWithoutRequest(set.engine.Now() + 3000)
		}()
		ask := func() error {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			return err
		}
		err := ask()
		if err == nil {
			answered++
		}
		if <-given {
			evictions++
		} else {
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			if err := ask(); err != nil {
				t.Fatalf("connection %d, after the race: %v", i, err)
			}
			answered++
			if n := set.connections.open.Load(); n != 1 {
				t.Fatalf("connection %d goes on, and %d count", i, n)
			}
		}
		c.Close()
		for set.connections.open.Load() != 0 || set.connections.ending.Load() != 0 {
			time.Sleep(50 * time.Microsecond)
		}
	}
	if evictions == 0 {
		t.Error("no connection was given up")
	}
	families, err := set.engine.Observer.Metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	carriedOut := 0
	for _, f := range families {
		if f.GetName() == "moongate_requests_total" {
			for _, m := range f.Metric {
				carriedOut += int(m.GetCounter().GetValue())
			}
		}
	}
	if carriedOut != answered {
		t.Errorf("%d requests were carried out, and %d answered", carriedOut, answered)
	}
}

// TestEvictionsAreBounded: connections that were given up for others and have not ended yet are few, and a search that finds few is the
// last for a while.
func TestEvictionsAreBounded(t *testing.T) {
	set, addr := servedBy(t, false, nil, limited(256))
	a := &set.connections
	const batch = 256 / scarce / 2
	for range 2*batch + 1 {
		c, _ := idleClient(t, set, addr)
		defer c.Close()
	}
	set.engine.Clock.Add(2 * parkAfter.Milliseconds())
	a.ending.Store(batch) // as if so many did not end
	if set.makeRoom() {
		t.Error("more are given up though those before have not ended")
	}
	a.ending.Store(0)
	for _, want := range []int64{batch + 1, 1, 0} {
		if a.roomAt.Load() != 0 {
			t.Errorf("a search that found a batch holds up the next one")
		}
		if !set.makeRoom() || a.open.Load() != want {
			t.Errorf("%d connections count, want %d", a.open.Load(), want)
		}
		for a.ending.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if a.roomAt.Load() <= set.engine.Now() {
		t.Error("a search that found little does not hold up the next one")
	}
}

// TestRoomIsFoundAtOthers: a client that has most connections, with requests on nearly all, does not keep those of others from making room.
func TestRoomIsFoundAtOthers(t *testing.T) {
	set, addr := servedBy(t, false, nil, limited(256))
	const batch = 256 / scarce / 2
	for i := range 60 {
		c, server := idleClient(t, set, addr)
		defer c.Close()
		if i > 0 {
			server.wait.set(waitRead, 1<<40) // as in the body of a request
		}
	}
	for i := range 2 * batch {
		c, _ := idleClientFrom(t, set, addr, fmt.Sprintf("127.0.0.%d", 2+i))
		defer c.Close()
	}
	set.engine.Clock.Add(2 * parkAfter.Milliseconds())
	before := set.connections.open.Load()
	if !set.makeRoom() || before-set.connections.open.Load() < batch/2 {
		t.Errorf("%d of %d connections remain", set.connections.open.Load(), before)
	}
}

func limited(total int) func(*Set) {
	return func(s *Set) { s.Limit(ConnectionLimits{Total: total}, discard) }
}

// idleClient connects, and returns when the other end waits for a request.
func idleClient(t *testing.T, set *Set, addr string) (c net.Conn, server *Conn) {
	t.Helper()
	return idleClientFrom(t, set, addr, "127.0.0.1")
}

func idleClientFrom(t *testing.T, set *Set, addr, ip string) (c net.Conn, server *Conn) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	set.lend() // the test uses the Conn for as long as it likes
	for server == nil {
		set.Each(func(k *Conn) {
			if k.side.Peer == c.LocalAddr().(*net.TCPAddr).AddrPort() {
				server = k
			}
		})
	}
	for kind, _, _ := server.wait.get(); kind != waitIdle; kind, _, _ = server.wait.get() {
		time.Sleep(100 * time.Microsecond)
	}
	return c, server
}
