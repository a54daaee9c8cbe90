//go:build !race

package upstream

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestUnusedBackendMemory states how much memory a backend with one endpoint takes until its first request, in addition to its
// configuration: a proxy may have thousands of them.
func TestUnusedBackendMemory(t *testing.T) {
	const n, most = 5000, 800
	resources := make([]*config.Resource, 0, 2*n)
	for i := range n {
		key := fmt.Sprintf("Service/default/app-%d/80", i)
		e := endpoint(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8080))
		e.Zone = fmt.Sprintf("zone-%d", i%3)
		resources = append(resources, backendResource(key), endpointsResource(key, e))
	}
	s := NewSet(Options{})
	defer s.Close()
	before := heapInUse()
	apply(t, s, resources...)
	each := (heapInUse() - before) / n
	t.Logf("%d bytes each", each)
	if each > most {
		t.Errorf("a backend with an endpoint takes %d bytes, want at most %d", each, most)
	}
	runtime.KeepAlive(resources)
}

// heapInUse returns the number of bytes of live objects.
func heapInUse() int64 {
	var m runtime.MemStats
	for range 2 { // the first collection may leave what has a finalizer
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
