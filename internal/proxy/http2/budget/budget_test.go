package budget

import "testing"

// TestBudget checks that honest work earns what it needs, however long it goes on.
func TestBudget(t *testing.T) {
	b := New(10, 2)
	for i := range int64(10) {
		if !b.Spend(1, 1) {
			t.Fatalf("the budget ends after %d", i)
		}
	}
	if b.Spend(1, 1) {
		t.Error("the budget does not end")
	}
	b.Earn(1)
	if b.Spend(499, 1) || !b.Spend(2000, 1) {
		t.Error("time does not fill it as it should")
	}
	for range 1000 {
		b.Earn(2)
		if !b.Spend(2000, 2) {
			t.Fatal("what was earned cannot be spent")
		}
	}
}
