// Package cores numbers the cores that the program runs on, so that what all requests write to can be kept
// once for each core. It exists because a cache line that 64 cores write to is a queue, however short
// the writing, and because Go does not say which core a goroutine is on.
//
// It must never import anything of ours, nor reach into the runtime.
package cores

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Most bounds Count.
const Most = 64

// alone tells that there is one core only.
var alone = runtime.GOMAXPROCS(0) == 1

var next atomic.Uint32

// numbers hands each core the number that it gave back last: a sync.Pool keeps one thing for each of them.
var numbers = sync.Pool{New: func() any {
	n := next.Add(1) - 1
	return &n
}}

// Here is a number for the core at hand: nearly always the same on one core, and nearly always
// different on two. It is a hint where to write, not where to find something: the goroutine may move on
// at any time.
func Here() uint32 {
	if alone {
		return 0
	}
	n := numbers.Get().(*uint32)
	here := *n
	numbers.Put(n)
	return here
}

// Count is how many copies are worth while: a power of two, 1 on one core and at most Most.
func Count() int {
	n := 1
	for n < runtime.GOMAXPROCS(0) && n < Most {
		n *= 2
	}
	return n
}
