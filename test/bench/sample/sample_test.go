package sample

import (
	"math"
	"testing"
	"time"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   Summary
	}{
		{"none", nil, Summary{}},
		{"one", []float64{7}, Summary{N: 1, Min: 7, Q1: 7, Median: 7, Q3: 7, Max: 7}},
		{"even", []float64{4, 1, 3, 2}, Summary{N: 4, Min: 1, Q1: 1.75, Median: 2.5, Q3: 3.25, Max: 4}},
		{"odd", []float64{5, 1, 4, 2, 3}, Summary{N: 5, Min: 1, Q1: 2, Median: 3, Q3: 4, Max: 5}},
		{"outlier", []float64{1, 1, 1, 1, 100}, Summary{N: 5, Min: 1, Q1: 1, Median: 1, Q3: 1, Max: 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Summarize(c.values); got != c.want {
				t.Errorf("Summarize(%v) = %+v, want %+v", c.values, got, c.want)
			}
		})
	}
}

func TestSummarizeKeepsItsArgument(t *testing.T) {
	values := []float64{3, 1, 2}
	Summarize(values)
	if values[0] != 3 || values[1] != 1 || values[2] != 2 {
		t.Errorf("the argument was reordered: %v", values)
	}
}

func TestRatio(t *testing.T) {
	a, b := Summarize([]float64{3, 2, 4}), Summarize([]float64{6})
	if got := Ratio(a, b); got != 0.5 {
		t.Errorf("Ratio = %v, want 0.5", got)
	}
	if got := Ratio(a, Summary{}); !math.IsNaN(got) {
		t.Errorf("Ratio to nothing = %v, want NaN", got)
	}
}

// Every value lies in its bucket: at or above the edge, below the next, and the
// edge is never more than 1/32 below the value.
func TestBucketsAreContiguousAndFine(t *testing.T) {
	for shift := range 63 {
		for _, offset := range []uint64{0, 1, 3, 12345} {
			v := uint64(1)<<shift + offset%(1<<shift)
			i := bucket(v)
			if edge(i) > v || edge(i+1) <= v {
				t.Fatalf("value %d: bucket %d covers [%d, %d)", v, i, edge(i), edge(i+1))
			}
			if v-edge(i) > v/32 {
				t.Fatalf("value %d: edge %d is more than 1/32 away", v, edge(i))
			}
		}
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("median of nothing = %v", got)
	}
	for i := range 1000 {
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{
		0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: 1000 * time.Microsecond,
	} {
		got := h.Quantile(q)
		if got > want || float64(got) < float64(want)*31/32 {
			t.Errorf("Quantile(%v) = %v, want %v less at most 1/32", q, got, want)
		}
	}
	if h.Max() != 1000*time.Microsecond {
		t.Errorf("Max = %v", h.Max())
	}
	h.Reset()
	if h.Max() != 0 || h.Quantile(1) != 0 {
		t.Error("Reset left something behind")
	}
}

func TestHistogramAddAllocatesNothing(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Add(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations per Add, want 0", n)
	}
}
