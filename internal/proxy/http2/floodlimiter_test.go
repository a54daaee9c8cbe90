package http2

import "testing"

// TestFloodLimiter checks that honest work earns what it needs, however long it goes on.
func TestFloodLimiter(t *testing.T) {
	b := newFloodLimiter(10, 2)
	for i := range int64(10) {
		if !b.spend(1, 1) {
			t.Fatalf("it ends after %d", i)
		}
	}
	if b.spend(1, 1) {
		t.Error("it does not end")
	}
	b.earn(1)
	if b.spend(499, 1) || !b.spend(2000, 1) {
		t.Error("time does not fill it as it should")
	}
	for range 1000 {
		b.earn(2)
		if !b.spend(2000, 2) {
			t.Fatal("what was earned cannot be spent")
		}
	}
}
