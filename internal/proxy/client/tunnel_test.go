package client

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
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
		c.tunnelMoved(tunnel.Client, false)
		c.tunnelMoved(tunnel.Backend, false)
		for now := 0; ; now++ {
			clock.Store(int64(now) * time.Minute.Milliseconds())
			if c.tunnelExpired(clock.Load()) {
				if now != tc.ends {
					t.Errorf("%s: ends after %d minutes, want %d", tc.name, now, tc.ends)
				}
				break
			}
			for _, m := range tc.moves {
				if m.at == now {
					c.tunnelMoved(m.to, m.writing)
				}
			}
		}
	}
}
