//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/test/bench/load"
	"github.com/moongate-dev/moongate/test/bench/sample"
)

// The report is Markdown, so that it can be recorded as it is printed.

// summaryRow is one workload in the table at the end.
type summaryRow struct {
	title, unit string
	all         []*series
}

// of is what a contender showed, nil if it took no part.
func (r *summaryRow) of(label string) *series {
	if i := slices.IndexFunc(r.all, func(s *series) bool { return s.label == label }); i >= 0 {
		return r.all[i]
	}
	return nil
}

// summarize keeps a workload for the table at the end.
func (b *bench) summarize(title, unit string, all []*series) {
	b.summary = append(b.summary, summaryRow{title, unit, all})
}

func (b *bench) hasMoongate() bool { return slices.Contains(b.contenders, "moongate") }

// row prints one line of a table.
func (b *bench) row(cells ...string) {
	fmt.Fprintf(b.out, "| %s |\n", strings.Join(cells, " | "))
}

func (b *bench) tableHead(cells ...string) {
	b.row(cells...)
	b.row(slices.Repeat([]string{"---"}, len(cells))...)
}

func (b *bench) printTraffic(t *traffic, all []*series, alone float64) {
	unit := "request"
	if t.perRequest {
		unit = "connection"
	}
	if t.exchange == load.Datagrams {
		unit = "datagram"
	}
	cost, rate := "CPU µs per "+unit, unit+"s/s"
	if t.bytes > 0 {
		cost, rate = "CPU ms per GiB", "MiB/s"
	}
	fmt.Fprintf(b.out, "\n### %s\n\n", t.title)
	if alone > 0 {
		fmt.Fprintf(b.out, "Without a proxy, generator and origin alone reach %.0f %s on their CPU.\n\n", alone, rate)
	}
	b.tableHead("contender", cost, "quartiles", "min-max", "to nginx", "to HAProxy",
		rate, "p50 ms", "p99 ms", "proxy CPU", "load CPU", "others")
	for _, s := range all {
		sum := s.summary()
		b.row(s.label, number(sum.Median), spread(sum.Q1, sum.Q3), spread(sum.Min, sum.Max),
			ratioTo(s, all, "nginx"), ratioTo(s, all, "haproxy"),
			fmt.Sprintf("%.0f", median(s.rate)), fmt.Sprintf("%.2f", median(s.p50)), fmt.Sprintf("%.2f", median(s.p99)),
			percent(s.proxyBusy), percent(s.loadBusy), percent(s.others))
	}
	b.printDoubts(all)
}

// printDoubts says what a reader must know before believing the table above.
func (b *bench) printDoubts(all []*series) {
	for _, s := range all {
		if s.errors > 0 {
			fmt.Fprintf(b.out, "\n**%s: %d failed requests**, first: %s\n", s.label, s.errors, s.firstError)
		}
		full := 0.85
		if s.contended {
			full /= 2
		}
		if median(s.loadBusy) > 0.97 && median(s.proxyBusy) < full {
			fmt.Fprintf(b.out, "\n%s waited for the load side (its CPU is full, the proxy's is not): "+
				"a proxy that waits gets smaller batches and looks a little dearer than under full load.\n", s.label)
		}
		if median(s.others) > 0.05 && !s.contended {
			fmt.Fprintf(b.out, "\n%s: others used %s of the proxy's CPU; measure again on a quiet machine.\n",
				s.label, percent(s.others))
		}
	}
}

func (b *bench) printIdle(h *held, all []*series) {
	fmt.Fprintf(b.out, "\n### Memory: %s\n\n", h.title)
	fmt.Fprintf(b.out, "Anonymous resident memory that %d add, each after one answer, %d on a connection; fresh process each time.\n\n", h.count, h.per)
	b.tableHead("contender", "KiB per "+h.unit, "min-max", "to nginx", "to HAProxy")
	for _, s := range all {
		sum := s.summary()
		b.row(s.label, number(sum.Median), spread(sum.Min, sum.Max), ratioTo(s, all, "nginx"), ratioTo(s, all, "haproxy"))
	}
}

// printRatios compares what Moongate does with the first of it.
func (b *bench) printRatios(title, what string, all []*series) {
	fmt.Fprintf(b.out, "\n### %s\n\n", title)
	b.tableHead(what, "CPU µs per request", "quartiles", "min-max", "ratio", "by round", "requests/s", "proxy CPU", "load CPU", "others")
	for _, s := range all {
		sum := s.summary()
		b.row(s.label, number(sum.Median), spread(sum.Q1, sum.Q3), spread(sum.Min, sum.Max),
			fmt.Sprintf("%.2f", sample.Ratio(sum, all[0].summary())), byRound(s, all, all[0].label),
			fmt.Sprintf("%.0f", median(s.rate)), percent(s.proxyBusy), percent(s.loadBusy), percent(s.others))
	}
	b.printDoubts(all)
}

// printEdits reports sorted latencies.
func (b *bench) printEdits(took []time.Duration, wrong int, resident int64) {
	var sum time.Duration
	values := make([]float64, len(took))
	for i, d := range took {
		sum += d
		values[i] = milliseconds(d)
	}
	s := sample.Summarize(values)
	fmt.Fprintf(b.out, "\n### Route edits: from the changed file to the first 200, Moongate only\n\n")
	fmt.Fprintf(b.out, "%d HTTPRoutes in a folder, one file each; new and changed routes in turns; asked every %v on one connection.\n\n",
		b.routes+2, poll)
	b.tableHead("edits", "mean ms", "p50 ms", "max ms", "wrong answers", "resident MiB afterwards")
	b.row(fmt.Sprint(len(took)), fmt.Sprintf("%.1f", milliseconds(sum)/float64(len(took))),
		fmt.Sprintf("%.1f", s.Median), fmt.Sprintf("%.1f", s.Max), fmt.Sprint(wrong), fmt.Sprintf("%.0f", float64(resident)/(1<<20)))
}

// printSummary repeats every comparison in one table.
func (b *bench) printSummary() {
	if len(b.summary) == 0 {
		return
	}
	fmt.Fprint(b.out, "\n### Summary: medians\n\n")
	head := append([]string{"workload", "unit"}, b.contenders...)
	if b.hasMoongate() {
		head = append(head, "moongate to nginx", "moongate to HAProxy", "to nginx by round", "to HAProxy by round")
		if slices.Contains(b.contenders, "caddy") {
			head = append(head, "to Caddy", "to Caddy by round")
		}
		if slices.Contains(b.contenders, floor) {
			head = append(head, "floor to nginx by round", "floor to HAProxy by round")
		}
		if b.baseline != "" {
			head = append(head, "to baseline", "to baseline by round")
		}
	}
	b.tableHead(head...)
	for _, r := range b.summary {
		cells := []string{r.title, r.unit}
		for _, name := range b.contenders {
			cell := "-" // who cannot do it
			if s := r.of(name); s != nil {
				cell = number(s.summary().Median)
			}
			cells = append(cells, cell)
		}
		if s := r.of("moongate"); s != nil {
			cells = append(cells, ratioTo(s, r.all, "nginx"), ratioTo(s, r.all, "haproxy"),
				byRound(s, r.all, "nginx"), byRound(s, r.all, "haproxy"))
			if slices.Contains(b.contenders, "caddy") {
				cells = append(cells, ratioTo(s, r.all, "caddy"), byRound(s, r.all, "caddy"))
			}
			if slices.Contains(b.contenders, floor) {
				nginx, haproxy := "-", "-"
				if f := r.of(floor); f != nil {
					nginx, haproxy = byRound(f, r.all, "nginx"), byRound(f, r.all, "haproxy")
				}
				cells = append(cells, nginx, haproxy)
			}
			if b.baseline != "" {
				cells = append(cells, ratioTo(s, r.all, baseline), byRound(s, r.all, baseline))
			}
		}
		b.row(cells...)
	}
}

// ratioTo compares s with a contender of the same workload.
func ratioTo(s *series, all []*series, label string) string {
	for _, other := range all {
		if r := sample.Ratio(s.summary(), other.summary()); other.label == label && !math.IsNaN(r) {
			return fmt.Sprintf("%.2f", r)
		}
	}
	return "-"
}

// byRound is ratioTo within each round: its median and quartiles. The windows of a round lie seconds apart, so a machine that
// becomes slower or faster from minute to minute does so for both.
func byRound(s *series, all []*series, label string) string {
	for _, other := range all {
		if other.label != label || len(other.values) != len(s.values) {
			continue
		}
		ratios := make([]float64, len(s.values))
		for i, v := range s.values {
			ratios[i] = v / other.values[i]
		}
		sum := sample.Summarize(ratios)
		return fmt.Sprintf("%.2f (%.2f-%.2f)", sum.Median, sum.Q1, sum.Q3)
	}
	return "-"
}

func median(values []float64) float64 { return sample.Summarize(values).Median }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func percent(values []float64) string { return fmt.Sprintf("%.0f %%", 100*median(values)) }

func spread(from, to float64) string { return number(from) + "-" + number(to) }

// number shows three digits or more.
func number(v float64) string {
	if math.Abs(v) < 10 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
