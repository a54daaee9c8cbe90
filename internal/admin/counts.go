package admin

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// counts are sums since the start of the process; the present rate is the difference between two responses.
type counts struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"` // with a status of 500 and above
	// Durations are the numbers of requests by duration: for each bound, of those that took at most as long and longer than the
	// bound before, and last of those beyond all bounds. Empty if nothing was measured.
	Durations []uint64 `json:"durations,omitempty"`
}

func (c *counts) add(requests uint64, code string) {
	c.Requests += requests
	if status, _ := strconv.Atoi(code); status >= 500 {
		c.Errors += requests
	}
}

// addDurations adds a histogram.
func (c *counts) addDurations(h *dto.Histogram) {
	buckets := h.GetBucket()
	if len(c.Durations) != len(buckets)+1 {
		c.Durations = make([]uint64, len(buckets)+1)
	}
	var before uint64
	for i, b := range buckets {
		c.Durations[i] += b.GetCumulativeCount() - before
		before = b.GetCumulativeCount()
	}
	c.Durations[len(buckets)] += h.GetSampleCount() - before
}

// requestCounts are sums of moongate_requests_total, with moongate_request_duration_seconds.
type requestCounts struct {
	total      counts
	byListener map[string]*counts // "<gateway>/<listener>"
	byRoute    map[string]*counts
	byOutcome  map[[2]string]uint64 // reason, code
	bounds     []float64            // of durations, in seconds
}

func countRequests(g prometheus.Gatherer) *requestCounts {
	c := &requestCounts{byListener: map[string]*counts{}, byRoute: map[string]*counts{}, byOutcome: map[[2]string]uint64{}}
	if g == nil {
		return c
	}
	families, _ := g.Gather() // what could be gathered is shown; /metrics reports errors
	for _, f := range families {
		switch f.GetName() {
		case "moongate_requests_total":
			for _, m := range f.GetMetric() {
				label := labelsOf(m)
				n, code := uint64(m.GetCounter().GetValue()), label["code"]
				c.each(label, func(sum *counts) { sum.add(n, code) })
				c.byOutcome[[2]string{label["reason"], code}] += n
			}
		case "moongate_request_duration_seconds":
			for _, m := range f.GetMetric() {
				if c.bounds == nil {
					for _, b := range m.GetHistogram().GetBucket() {
						c.bounds = append(c.bounds, b.GetUpperBound())
					}
				}
				c.each(labelsOf(m), func(sum *counts) { sum.addDurations(m.GetHistogram()) })
			}
		}
	}
	return c
}

func labelsOf(m *dto.Metric) map[string]string {
	label := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		label[l.GetName()] = l.GetValue()
	}
	return label
}

// each calls add for all sums that a series belongs to.
func (c *requestCounts) each(label map[string]string, add func(*counts)) {
	add(&c.total)
	add(sumOf(c.byListener, label["gateway"]+"/"+label["listener"]))
	add(sumOf(c.byRoute, label["route"]))
}

func sumOf(sums map[string]*counts, key string) *counts {
	sum := sums[key]
	if sum == nil {
		sum = &counts{}
		sums[key] = sum
	}
	return sum
}

// of returns the sum with a key, zero if there is none.
func of(sums map[string]*counts, key string) counts {
	if sum := sums[key]; sum != nil {
		return *sum
	}
	return counts{}
}

// outcomes returns how requests ended, the most frequent first.
func (c *requestCounts) outcomes() []outcomeRow {
	out := make([]outcomeRow, 0, len(c.byOutcome))
	for k, n := range c.byOutcome {
		out = append(out, outcomeRow{k[0], k[1], n})
	}
	slices.SortFunc(out, func(a, b outcomeRow) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Code, b.Code))
	})
	return out[:min(len(out), maxRows)]
}
