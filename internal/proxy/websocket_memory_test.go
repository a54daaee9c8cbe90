//go:build !race

package proxy

import (
	"runtime"
	"testing"
)

// memoryInUse is what the heap and the stacks take once garbage is gone.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestIdleTunnelMemory bounds what an idle tunnel costs: two goroutines and the state of its request.
func TestIdleTunnelMemory(t *testing.T) {
	addr, accepted := switching(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(addr, nil)
	const tunnels, most = 500, 40 << 10
	g.upgraded(accepted)
	before := memoryInUse()
	for range tunnels {
		g.upgraded(accepted)
	}
	after := memoryInUse()
	each := int64(after-before) / tunnels
	t.Logf("%d bytes for each tunnel, its client and backend in the test included", each)
	if each > most {
		t.Errorf("%d bytes for each tunnel, want %d at most", each, most)
	}
}
