//go:build linux

package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"runtime"
	"slices"
	"time"
)

// The chart has one group of bars for each workload, and in it one bar for each contender: its median, as a share of nginx'.

// Sizes of the chart, in its own units.
const (
	chartWidth = 760
	chartLabel = 210 // the column with workloads
	chartBar   = 16
	chartGap   = 14
	chartHead  = 54
	chartText  = 135 // room for a name and figures behind the longest bar
	chartFull  = 1.6 // the ratio at the right end
)

// chartNames are how contenders are called there, with the colors of their bars, which also differ where colors are not seen: in lightness.
var chartNames = map[string][2]string{
	"moongate": {"Moongate", "#1f4e9c"}, "nginx": {"nginx", "#7fb58a"}, "haproxy": {"HAProxy", "#c9c9c9"}, "caddy": {"Caddy", "#e8e4d4"}, baseline: {"baseline", "#e0b050"},
}

// writeChart writes the chart to a file.
func (b *bench) writeChart(path string) error {
	return os.WriteFile(path, chart(b.summary, b.contenders, fmt.Sprintf("Medians of %d rounds of %v, %s; %s, %d CPUs, Linux %s.",
		b.rounds, b.window, time.Now().UTC().Format(time.DateOnly), cpuModel(), runtime.NumCPU(), kernel())), 0o644)
}

// chart draws workloads that nginx takes part in.
func chart(rows []summaryRow, contenders []string, note string) []byte {
	contenders = slices.DeleteFunc(slices.Clone(contenders), func(name string) bool { return name == floor }) // it is no proxy that one could choose
	var body bytes.Buffer
	scale := float64(chartWidth-chartLabel-chartText) / chartFull
	y := chartHead
	text := func(x, y int, attributes, format string, args ...any) {
		fmt.Fprintf(&body, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, attributes, html.EscapeString(fmt.Sprintf(format, args...)))
	}
	text(10, 22, ` font-size="16" font-weight="bold"`, "CPU per request, beside nginx")
	text(10, 40, ` font-size="11" fill="#555"`, "shorter is better; the line is nginx")
	top := y - 6
	for _, r := range rows {
		reference := r.of("nginx")
		if reference == nil || reference.summary().Median <= 0 {
			continue
		}
		first := y
		for _, name := range contenders {
			s := r.of(name)
			if s == nil {
				continue
			}
			median := s.summary().Median
			ratio := median / reference.summary().Median
			width := int(min(ratio, chartFull) * scale)
			fmt.Fprintf(&body, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", chartLabel, y, width, chartBar-2, chartNames[name][1])
			if ratio > chartFull { // the bar is broken, since it would be longer
				x := chartLabel + width - 24
				fmt.Fprintf(&body, "<path d=\"M%d %d l8 -%d h6 l-8 %d z\" fill=\"#fff\"/>\n", x, y+chartBar, chartBar, chartBar)
			}
			text(chartLabel+width+5, y+11, ` font-size="11"`, "%s %.2f (%s %s)", chartNames[name][0], ratio, number(median), r.unit)
			y += chartBar
		}
		text(10, first+(y-first)/2+4, ` font-size="12"`, "%s", r.title)
		y += chartGap
	}
	at := chartLabel + int(scale)
	fmt.Fprintf(&body, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#444\" stroke-dasharray=\"3 3\"/>\n", at, top, at, y-chartGap+4)
	text(10, y+6, ` font-size="10" fill="#555"`, "%s", note)
	var out bytes.Buffer
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"sans-serif\">\n<title>CPU per request of %s</title>\n", chartWidth, y+18, html.EscapeString(listOf(contenders)))
	fmt.Fprintf(&out, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", chartWidth, y+18)
	out.Write(body.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// listOf are the names of contenders in a sentence.
func listOf(contenders []string) (s string) {
	for i, name := range contenders {
		switch {
		case i > 0 && i == len(contenders)-1:
			s += " and "
		case i > 0:
			s += ", "
		}
		s += chartNames[name][0]
	}
	return s
}
