package buffer

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestBudget: what is left decides, first that no large buffers are made, then that nothing is to begin, and who spends the last of it says so once.
func TestBudget(t *testing.T) {
	var b Budget
	exhausted := 0
	b.Exhaust = func() { exhausted++ }
	check := func(what string, short, none bool, told int) {
		t.Helper()
		if b.Short() != short || b.Exhausted() != none || exhausted != told {
			t.Errorf("%s: short %v, exhausted %v, told %d times", what, b.Short(), b.Exhausted(), exhausted)
		}
	}
	b.Spend(1 << 40)
	check("without a bound", false, false, 0)
	b.Set(100, 20)
	check("at first", false, false, 0)
	b.Spend(79)
	check("before the reserve", false, false, 0)
	b.Spend(1)
	check("in the reserve", true, false, 0)
	b.Spend(20)
	check("at the end", true, true, 1)
	b.Spend(20)
	check("behind it", true, true, 1)
	b.Set(100, 20)
	check("anew", false, false, 1)
	b.Set(-5, 20)
	check("with less than nothing", true, true, 1)
	if b.Spent() != 1<<40+120 {
		t.Errorf("%d spent", b.Spent())
	}
}

// TestBudgetConcurrently: of many that spend one says that nothing is left.
func TestBudgetConcurrently(t *testing.T) {
	var b Budget
	var exhausted atomic.Int64
	b.Exhaust = func() { exhausted.Add(1) }
	b.Set(4000, 0)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				b.Spend(1)
			}
		})
	}
	all.Wait()
	if exhausted.Load() != 1 || !b.Exhausted() {
		t.Errorf("told %d times", exhausted.Load())
	}
}

// TestTakeWithin: while the budget is short a large buffer is lent if there is one, and none is made.
func TestTakeWithin(t *testing.T) {
	var b Budget
	large := TakeWithin(&b)
	if large.IsLittle() || len(large.Bytes()) != Size || large.End() != Size-Tailroom {
		t.Errorf("%d bytes with no bound", len(large.Bytes()))
	}
	b.Set(1, 1)
	for range 1000 { // as many as others have given back
		l := TakeWithin(&b)
		defer Give(l)
		if !l.IsLittle() || b.Spent() == 0 {
			continue
		}
		if len(l.Bytes()) != LittleSize || l.End() != LittleSize-Tailroom || b.Spent() < LittleSize {
			t.Errorf("%d bytes, %d spent", len(l.Bytes()), b.Spent())
		}
		if again := Take(); again.IsLittle() {
			t.Error("Take lends a little buffer")
		}
		return
	}
	t.Error("no little buffer was made")
}

// TestAccount: what Take makes is spent too.
func TestAccount(t *testing.T) {
	var b Budget
	Account(&b)
	defer Account(nil)
	for range 1000 { // as many as others have given back
		defer Give(Take())
		if b.Spent() >= Size {
			return
		}
	}
	t.Error("nothing is spent")
}
