package client

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
)

// TestTunnelExpires: when the sweeper ends a tunnel, by what has moved, in minutes since it began.
func TestTunnelExpires(t *testing.T) {
	type move struct {
		at      int
		to      tunnel.Side
		writing bool
	}
	for _, tc := range []struct {
		name  string
		moves []move
		ends  int
	}{
		{"nothing", nil, 60},
		{"one byte to the client", []move{{20, tunnel.Client, true}, {20, tunnel.Client, false}}, 80},
		{"one byte to the backend", []move{{20, tunnel.Backend, true}, {20, tunnel.Backend, false}}, 80},
		{"the client takes nothing", []move{{20, tunnel.Client, true}}, 30},
		{"the backend takes nothing", []move{{20, tunnel.Backend, true}}, 30},
		{"the backend takes nothing while the client does", []move{{20, tunnel.Backend, true}, {25, tunnel.Client, true}, {25, tunnel.Client, false}}, 30},
		{"the client takes what it is sent slowly", []move{{20, tunnel.Client, true}, {29, tunnel.Client, false}, {29, tunnel.Client, true}, {38, tunnel.Client, false}}, 98},
		{"both take what they are sent slowly", []move{{50, tunnel.Client, true}, {59, tunnel.Backend, true}, {59, tunnel.Client, false}, {68, tunnel.Backend, false}}, 128},
	} {
		c := &Conn{set: NewSet(&exchange.Engine{}, Timeouts{}, true)}
		clock := &c.set.engine.Clock
		c.tunnel().moved(tunnel.Client, false)
		c.tunnel().moved(tunnel.Backend, false)
		for now := 0; ; now++ {
			clock.Store(int64(now) * time.Minute.Milliseconds())
			if c.tunnel().expired(clock.Load()) {
				if now != tc.ends {
					t.Errorf("%s: ends after %d minutes, want %d", tc.name, now, tc.ends)
				}
				break
			}
			for _, m := range tc.moves {
				if m.at == now {
					c.tunnel().moved(m.to, m.writing)
				}
			}
		}
	}
}

// tunnels makes connections that are waited on as tunnels are, the first of them unused for longest: each for a minute more than the next,
// and the last not for a minute.
func tunnels(t *testing.T, set *Set, addr string, n int) (all []net.Conn) {
	t.Helper()
	begin := set.engine.Now()
	for i := range n {
		c, server := idleClient(t, set, addr)
		t.Cleanup(func() { c.Close() })
		set.engine.Clock.Store(begin + int64(i)*time.Minute.Milliseconds())
		server.tunnel().moved(tunnel.Client, i%2 == 0)
		set.engine.Clock.Store(begin)
		server.tunnel().moved(tunnel.Backend, false)
		all = append(all, c)
	}
	set.engine.Clock.Store(begin + int64(n-1)*time.Minute.Milliseconds())
	return all
}

// wantEnded fails the test unless the first n connections have ended by a reset, since their clients may not have got all that they were sent, and
// the others have not.
func wantEnded(t *testing.T, all []net.Conn, n int) {
	t.Helper()
	for i, c := range all {
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if i >= n {
			c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		}
		_, err := c.Read(make([]byte, 1))
		if want := map[bool]error{true: syscall.ECONNRESET, false: os.ErrDeadlineExceeded}[i < n]; !errors.Is(err, want) {
			t.Errorf("tunnel %d of %d, of which %d are to end: %v", i, len(all), n, err)
		}
	}
}

// TestTunnelsMakeRoom: where connections are scarce, and no other is without a request, tunnels end that were unused for a while.
func TestTunnelsMakeRoom(t *testing.T) {
	const batch = 256 / scarce / 2
	for _, n := range []int{batch + 3, 4} {
		set, addr := servedBy(t, false, nil, limited(256))
		all := tunnels(t, set, addr, n)
		if !set.makeRoom() {
			t.Errorf("no room among %d tunnels", n)
		}
		wantEnded(t, all, min(batch, n-1))
		set, addr = servedBy(t, false, nil, limited(256))
		all = tunnels(t, set, addr, n)
		for range batch {
			c, _ := idleClient(t, set, addr)
			defer c.Close()
		}
		set.engine.Clock.Add(2 * parkAfter.Milliseconds())
		if !set.makeRoom() {
			t.Error("no room among idle connections")
		}
		wantEnded(t, all, 0)
	}
}

// TestEndUnusedTunnels: tunnels that are ended for want of memory, though they hold little, are a part of those that are unused, and those that were so
// for longest.
func TestEndUnusedTunnels(t *testing.T) {
	for total, want := range map[int]int{4: 3, 20: tunnelsLeast, tunnelPart*tunnelsLeast + 5: tunnelsLeast + 1} {
		set, addr := served(t)
		all := tunnels(t, set, addr, total)
		if n := set.EndUnusedTunnels(); n != want {
			t.Errorf("%d of %d tunnels are ended, want %d", n, total, want)
		}
		wantEnded(t, all, want)
	}
}

// TestEndStuckTunnels: tunnels that hold what a side does not take are ended until they have held so much as is asked for, and no others.
func TestEndStuckTunnels(t *testing.T) {
	stuck := []struct {
		both  bool
		since time.Duration
	}{{true, 9 * time.Minute}, {false, 30 * time.Second}, {true, stuckFor}, {false, stuckFor / 2}}
	const unused = 30 * time.Minute
	for _, tc := range []struct{ bytes, ends, freed int }{
		{1, 1, 2 * buffer.Size}, {2 * buffer.Size, 1, 2 * buffer.Size}, {2*buffer.Size + 1, 2, 3 * buffer.Size}, {1 << 30, 3, 5 * buffer.Size},
	} {
		set, addr := served(t)
		begin := set.engine.Now()
		var all []net.Conn
		for _, s := range stuck {
			c, server := idleClient(t, set, addr)
			t.Cleanup(func() { c.Close() })
			set.engine.Clock.Store(begin - s.since.Milliseconds())
			server.tunnel().moved(tunnel.Client, s.both)
			server.tunnel().moved(tunnel.Backend, true)
			want := buffer.Size
			if s.both {
				want *= 2
			}
			if n := server.Held(); n != want {
				t.Errorf("%d bytes are held, want %d", n, want)
			}
			set.engine.Clock.Store(begin)
			all = append(all, c)
		}
		c, server := idleClient(t, set, addr)
		t.Cleanup(func() { c.Close() })
		set.engine.Clock.Store(begin - unused.Milliseconds())
		server.tunnel().moved(tunnel.Client, false)
		server.tunnel().moved(tunnel.Backend, false)
		set.engine.Clock.Store(begin)
		all = append(all, c)
		if n, freed := set.EndStuckTunnels(uint64(tc.bytes)); n != tc.ends || freed != uint64(tc.freed) {
			t.Errorf("%d tunnels of %d bytes are ended for %d bytes, want %d of %d", n, freed, tc.bytes, tc.ends, tc.freed)
		}
		wantEnded(t, all, tc.ends)
	}
}

// streamTunnelsOf makes a connection that carries tunnels of HTTP/2 through which nothing has moved for so long.
func streamTunnelsOf(t *testing.T, set *Set, addr string, unused ...time.Duration) (server *Conn, tunnels []*stream) {
	t.Helper()
	client, server := idleClient(t, set, addr)
	t.Cleanup(func() { client.Close() })
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	server.http2.Store(http2.New(ours, http2.Options{}, func(*http2.Stream) {}))
	now := set.engine.Now()
	for _, ago := range unused {
		set.engine.Clock.Store(now - ago.Milliseconds())
		d := &stream{c: server}
		if !d.takePlace() {
			t.Fatal("no room for a tunnel")
		}
		d.tunnel().begin()
		server.tunnels.add(d)
		tunnels = append(tunnels, d)
	}
	set.engine.Clock.Store(now)
	return server, tunnels
}

func isCut(d *stream) bool {
	reason, cut := d.watch.WasCut()
	return cut && reason == observe.ReasonOverloaded
}

// TestEndStreamTunnels: for want of memory tunnels that are streams are ended as connections are that are tunnels, and their connections go on.
func TestEndStreamTunnels(t *testing.T) {
	set, addr := served(t)
	server, all := streamTunnelsOf(t, set, addr, time.Hour/2, 30*time.Second)
	if n := set.EndUnusedTunnels(); n != 1 || !isCut(all[0]) || isCut(all[1]) {
		t.Errorf("%d tunnels are ended: %v %v, want the first", n, isCut(all[0]), isCut(all[1]))
	}
	if n := set.EndUnusedTunnels(); n != 0 {
		t.Errorf("%d tunnels are ended that end already", n)
	}
	server.tunnels.remove(all[0])
	all[1].tunnel().moved(tunnel.Client, true)
	if n := server.Held(); n != buffer.Size {
		t.Errorf("%d bytes are held", n)
	}
	set.engine.Clock.Add(stuckFor.Milliseconds())
	if n, _ := set.EndStuckTunnels(1); n != 1 || !isCut(all[1]) {
		t.Errorf("%d tunnels are ended that are stuck: %v", n, isCut(all[1]))
	}
	server.tunnels.remove(all[1])
	unused := set.EndUnusedTunnels()
	if stuck, _ := set.EndStuckTunnels(1); unused+stuck != 0 || server.Held() != 0 {
		t.Errorf("%d tunnels are ended that are none, %d bytes held", unused+stuck, server.Held())
	}
}

// TestStreamTunnelsMakeRoom: a tunnel that is a stream counts as a connection, and where these are scarce ends if it is unused.
func TestStreamTunnelsMakeRoom(t *testing.T) {
	for _, tc := range []struct {
		name   string
		unused []time.Duration
		ends   int // of them, the first
	}{
		{"unused", []time.Duration{time.Hour / 2, 2 * time.Minute}, 2},
		{"one is used", []time.Duration{time.Hour / 2, time.Second}, 1},
		{"none is unused", []time.Duration{time.Second}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, addr := servedBy(t, false, nil, limited(64))
			server, all := streamTunnelsOf(t, set, addr, tc.unused...)
			had := set.connections.open.Load()
			if want := int64(1 + len(tc.unused)); had != want {
				t.Errorf("%d connections count, want %d", had, want)
			}
			if room := set.makeRoom(); room != (tc.ends > 0) {
				t.Errorf("room: %v", room)
			}
			for i, d := range all {
				if got, want := isCut(d), i < tc.ends; got != want {
					t.Errorf("tunnel %d is ended: %v, want %v", i, got, want)
				}
			}
			if open, ending := set.connections.open.Load(), set.connections.ending.Load(); open != had-int64(tc.ends) || ending != int64(tc.ends) {
				t.Errorf("of %d connections %d count, and %d that end", had, open, ending)
			}
			for _, d := range all {
				server.tunnels.remove(d)
				d.leavePlace()
				d.leavePlace() // as after a panic
			}
			if open, ending := set.connections.open.Load(), set.connections.ending.Load(); open != 1 || ending != 0 || server.state.Load() != countedOpen {
				t.Errorf("%d connections count, and %d that end, when the tunnels have ended", open, ending)
			}
		})
	}
}
