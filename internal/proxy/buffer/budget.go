package buffer

import "sync/atomic"

// Budget is how much may be allocated until the memory in use is measured again. An exact measurement takes a garbage
// collection, so it is made a few times a second; thousands of requests may arrive in between. What is allocated for
// them is spent here, each time that the pools have nothing left.
//
// The zero value has no bound. It is safe for concurrent use.
type Budget struct {
	// Exhaust is called, if it is set, by the call that spends the last of it. It must not block.
	Exhaust func()

	spent   atomic.Int64 // bytes, in total
	bound   atomic.Int64 // of spent; 0 means none
	reserve atomic.Int64 // see Short
}

// Set bounds the budget to left bytes from now on, of which the last reserve bytes are a reserve.
func (b *Budget) Set(left, reserve int64) {
	b.reserve.Store(reserve)
	b.bound.Store(max(b.spent.Load()+left, 1))
}

// Spend takes n bytes out of the budget.
func (b *Budget) Spend(n int64) {
	spent := b.spent.Add(n)
	if bound := b.bound.Load(); bound > 0 && spent >= bound && spent-n < bound && b.Exhaust != nil {
		b.Exhaust()
	}
}

// Exhausted reports whether nothing is left.
func (b *Budget) Exhausted() bool { return b.within(0) }

// Short reports whether no more than the reserve is left.
func (b *Budget) Short() bool { return b.within(b.reserve.Load()) }

func (b *Budget) within(rest int64) bool {
	bound := b.bound.Load()
	return bound > 0 && b.spent.Load()+rest >= bound
}

// Spent returns how many bytes were spent in total.
func (b *Budget) Spent() int64 { return b.spent.Load() }
