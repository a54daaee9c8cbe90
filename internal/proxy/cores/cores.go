// Package cores numbers the cores that the program runs on, so that data which all requests write to can be kept
// separately for each core. It exists because writes of 64 cores to one cache line are serialized, however short they
// are, and because Go does not reveal the core of a goroutine.
//
// It must never import anything of Moongate, nor reach into the runtime.
package cores

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Most bounds Count.
const Most = 64

// alone means that there is only one core.
var alone = runtime.GOMAXPROCS(0) == 1

var next atomic.Uint32

// numbers returns to each core the number that it put back last: a sync.Pool keeps one element for each of them.
var numbers = sync.Pool{New: func() any {
	n := next.Add(1) - 1
	return &n
}}

// Here returns a number for the current core: almost always the same on one core, and almost always different on two.
// It is a hint where to write, not where to find something: the goroutine may move to another core at any time.
func Here() uint32 {
	if alone {
		return 0
	}
	n := numbers.Get().(*uint32)
	here := *n
	numbers.Put(n)
	return here
}

// Count returns how many copies are worthwhile: a power of two, 1 on one core and at most Most.
func Count() int {
	n := 1
	for n < runtime.GOMAXPROCS(0) && n < Most {
		n *= 2
	}
	return n
}
