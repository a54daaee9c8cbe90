package observe

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// sample is one series of one scrape. It shares its label pairs with other samples of the scrape, because with 5,000 routes making
// them would be most of a scrape's cost.
type sample struct {
	desc      *prometheus.Desc
	labels    []*dto.LabelPair // sorted by name
	counter   *dto.Counter
	histogram *dto.Histogram
}

// Desc implements prometheus.Metric.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *sample) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Histogram = s.labels, s.counter, s.histogram
	return nil
}

// pairs contains one label pair for each name and value of a scrape.
type pairs map[[2]string]*dto.LabelPair

func (p pairs) get(name, value string) *dto.LabelPair {
	k := [2]string{name, value}
	l := p[k]
	if l == nil {
		l = &dto.LabelPair{Name: &k[0], Value: &k[1]}
		p[k] = l
	}
	return l
}

func counterSample(d *prometheus.Desc, v uint64, labels []*dto.LabelPair) prometheus.Metric {
	f := float64(v)
	return &sample{desc: d, labels: labels, counter: &dto.Counter{Value: &f}}
}

// bucketBounds are durationBounds in seconds; samples point into it.
var bucketBounds = func() (out [len(durationBounds)]float64) {
	for i, n := range durationBounds {
		out[i] = float64(n) / 1e9
	}
	return out
}()

// histogram returns the histogram of durations; its count is the sum of its buckets, so that both agree although requests end in the
// meantime.
func (t *totals) histogram() *dto.Histogram {
	var (
		memory [len(durationBounds)]dto.Bucket
		counts [len(durationBounds) + 1]uint64
		sum    = float64(t.durationNano) / 1e9
		total  uint64
	)
	h := &dto.Histogram{SampleSum: &sum, Bucket: make([]*dto.Bucket, len(memory))}
	for i := range t.buckets {
		total += t.buckets[i]
		counts[i] = total
		if i < len(memory) {
			memory[i].UpperBound, memory[i].CumulativeCount = &bucketBounds[i], &counts[i]
			h.Bucket[i] = &memory[i]
		}
	}
	h.SampleCount = &counts[len(counts)-1]
	return h
}
