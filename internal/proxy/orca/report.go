package orca

import (
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Report is the part of a load report that a load balancer uses. 0 means that the endpoint has not reported the value.
type Report struct {
	Application float64 // application_utilization, which may exceed 1
	CPU         float64 // cpu_utilization, which may exceed 1
	// Named is the greatest of the requested metrics.
	Named             float64
	RequestsPerSecond float64 // rps_fractional
	ErrorsPerSecond   float64 // eps
}

// Utilization returns the utilization of the application; if that is not reported, the greatest of the requested
// metrics, and otherwise that of the CPU.
func (r *Report) Utilization() float64 {
	switch {
	case r.Application > 0:
		return r.Application
	case r.Named > 0:
		return r.Named
	}
	return r.CPU
}

// Metrics are the names of the metrics from which Report.Named is taken: "mem_utilization" and the like, or
// "<map>.<key>" for an entry of named_metrics, utilization or request_cost.
type Metrics []string

// take stores a metric of a report. It ignores values that are NaN, infinite or negative.
func (r *Report) take(m Metrics, name string, value float64) {
	if !(value >= 0) || math.IsInf(value, 1) {
		return
	}
	switch name {
	case "application_utilization":
		r.Application = value
	case "cpu_utilization":
		r.CPU = value
	case "rps_fractional":
		r.RequestsPerSecond = value
	case "eps":
		r.ErrorsPerSecond = value
	}
	for _, wanted := range m {
		if wanted == name {
			r.Named = max(r.Named, value)
		}
	}
}

// takeEntry is like take, for an entry of a map.
func (r *Report) takeEntry(m Metrics, of string, key []byte, value float64) {
	for _, wanted := range m {
		if n := len(of); len(wanted) == n+1+len(key) && wanted[:n] == of && wanted[n] == '.' && wanted[n+1:] == string(key) {
			r.take(m, wanted, value)
			return
		}
	}
}

// maxEntries is the largest number of metrics of a report that are read.
const maxEntries = 256

var errReport = errors.New("orca: the load report is malformed")

// The fields of OrcaLoadReport.
var (
	numbers = map[protowire.Number]string{1: "cpu_utilization", 2: "mem_utilization", 6: "rps_fractional", 7: "eps", 9: "application_utilization"}
	maps    = map[protowire.Number]string{4: "request_cost", 5: "utilization", 8: "named_metrics"}
)

// Unmarshal parses an OrcaLoadReport in the binary encoding of protocol buffers. Unknown fields are skipped.
func Unmarshal(b []byte, m Metrics) (r Report, err error) {
	for range maxEntries {
		if len(b) == 0 {
			return r, nil
		}
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return Report{}, errReport
		}
		b = b[n:]
		switch name, entries := numbers[number], maps[number]; {
		case name != "" && typ == protowire.Fixed64Type:
			bits, n := protowire.ConsumeFixed64(b)
			if n < 0 {
				return Report{}, errReport
			}
			r.take(m, name, math.Float64frombits(bits))
			b = b[n:]
		case entries != "" && typ == protowire.BytesType:
			entry, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return Report{}, errReport
			}
			key, value, err := unmarshalEntry(entry)
			if err != nil {
				return Report{}, err
			}
			r.takeEntry(m, entries, key, value)
			b = b[n:]
		default:
			n := protowire.ConsumeFieldValue(number, typ, b)
			if n < 0 {
				return Report{}, errReport
			}
			b = b[n:]
		}
	}
	return Report{}, errReport
}

// unmarshalEntry parses an entry of a map from string to double.
func unmarshalEntry(b []byte) (key []byte, value float64, err error) {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, 0, errReport
		}
		b = b[n:]
		switch {
		case number == 1 && typ == protowire.BytesType:
			key, n = protowire.ConsumeBytes(b)
		case number == 2 && typ == protowire.Fixed64Type:
			var bits uint64
			bits, n = protowire.ConsumeFixed64(b)
			value = math.Float64frombits(bits)
		default:
			n = protowire.ConsumeFieldValue(number, typ, b)
		}
		if n < 0 {
			return nil, 0, errReport
		}
		b = b[n:]
	}
	return key, value, nil
}

// AppendRequest appends an OrcaLoadReportRequest for reports at an interval in nanoseconds.
func AppendRequest(b []byte, interval int64) []byte {
	var d []byte // google.protobuf.Duration
	if seconds := interval / 1e9; seconds != 0 {
		d = protowire.AppendVarint(protowire.AppendTag(d, 1, protowire.VarintType), uint64(seconds))
	}
	if nanos := interval % 1e9; nanos != 0 {
		d = protowire.AppendVarint(protowire.AppendTag(d, 2, protowire.VarintType), uint64(nanos))
	}
	return protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), d)
}
