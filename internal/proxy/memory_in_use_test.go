//go:build !race

package proxy

import "runtime"

// memoryInUse is what the heap and the stacks take once garbage is gone.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
