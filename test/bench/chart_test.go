//go:build linux

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// The chart is well-formed, has a bar for whoever takes part, and leaves out what nginx takes no part in.
func TestChart(t *testing.T) {
	svg := string(chart([]summaryRow{
		{"a < b", "µs", []*series{{label: "moongate", values: []float64{8}}, {label: "nginx", values: []float64{10}}, {label: "haproxy", values: []float64{40}}, {label: floor, values: []float64{7}}}},
		{"not of nginx", "µs", []*series{{label: "moongate", values: []float64{8}}}},
		{"two", "KiB", []*series{{label: "moongate", values: []float64{3}}, {label: "nginx", values: []float64{2}}}},
	}, []string{"moongate", "nginx", "haproxy", floor}, "a note & more"))
	bars := 0
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if start, is := token.(xml.StartElement); is && start.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 1+5 { // and the background
		t.Errorf("%d bars, want 5", bars-1)
	}
	for _, want := range []string{"Moongate 0.80 (8.00 µs)", "nginx 1.00 (10.0 µs)", "HAProxy 4.00 (40.0 µs)", "Moongate 1.50 (3.00 KiB)", "a &lt; b", "a note &amp; more", "Moongate, nginx and HAProxy</title>"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the chart lacks %q", want)
		}
	}
	if strings.Contains(svg, "not of nginx") {
		t.Error("the chart has a workload without nginx")
	}
}
