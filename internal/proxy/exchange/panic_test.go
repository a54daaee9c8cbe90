package exchange

import "testing"

// TestPanicInInterruptLeavesWatch has interrupting what is waited for panic: the watch can be used on.
func TestPanicInInterruptLeavesWatch(t *testing.T) {
	for name, begin := range map[string]func(*Watch){
		"attempt": func(w *Watch) { w.begin(&attempt{}) }, // without a transport: a defect
		"dial":    func(w *Watch) { w.begin(interrupterFunc(func() { panic("a defect") })) },
	} {
		t.Run(name, func(t *testing.T) {
			w := &Watch{}
			w.Leave()
			func() {
				defer func() { _ = recover() }()
				begin(w)
				t.Error("no panic")
			}()
			if !w.mu.TryLock() {
				t.Fatal("the watch is locked for ever")
			}
			w.mu.Unlock()
		})
	}
}
