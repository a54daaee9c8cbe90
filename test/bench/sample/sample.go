// Package sample holds the statistics of the benchmark: a summary of repeated
// measurements and a latency histogram. It exists apart so that the arithmetic
// can be tested without measuring anything, and imports the standard library only.
package sample

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// Summary describes repeated measurements of one thing.
type Summary struct {
	N                int
	Min, Median, Max float64
	// Q1 and Q3 are the quartiles; half of the measurements lie between them.
	Q1, Q3 float64
}

// Summarize orders a copy of values; no values give the zero Summary.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(values))
	return Summary{
		N: len(s), Min: s[0], Max: s[len(s)-1],
		Q1: quantile(s, 0.25), Median: quantile(s, 0.5), Q3: quantile(s, 0.75),
	}
}

// quantile interpolates linearly between the two nearest ranks of sorted.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Ratio is a's median over b's; NaN where there is nothing to compare.
func Ratio(a, b Summary) float64 {
	if a.N == 0 || b.N == 0 || b.Median == 0 {
		return math.NaN()
	}
	return a.Median / b.Median
}

// subBits gives 32 buckets per power of two: an error of at most 1/32, about 3 %.
const subBits = 5

// Histogram counts durations in logarithmic buckets. Its zero value is empty;
// Add allocates nothing.
type Histogram struct {
	counts [64 << subBits]uint64
	total  uint64
	max    time.Duration
}

// Add counts one duration; a negative one counts as zero.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d))]++
	h.total++
	h.max = max(h.max, d)
}

// Reset empties the histogram.
func (h *Histogram) Reset() { *h = Histogram{} }

// Max is the largest duration counted, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile is the lower edge of the bucket in which the share q of all durations is
// reached, 0 for an empty histogram.
func (h *Histogram) Quantile(q float64) time.Duration {
	want := uint64(math.Ceil(q * float64(h.total)))
	var seen uint64
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= want {
			return time.Duration(edge(i))
		}
	}
	return h.max
}

func bucket(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// edge is the smallest value of bucket i.
func edge(i int) uint64 {
	if i < 2<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return uint64(i-shift<<subBits) << shift
}
