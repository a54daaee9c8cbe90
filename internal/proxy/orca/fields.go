package orca

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

const (
	textField   = "endpoint-load-metrics"
	binaryField = textField + "-bin"
	// maxField is the largest size of a report in bytes.
	maxField = 16 << 10
)

// FromFields parses the load report in a response's header or trailer section. ok is false if there is none, or it is
// malformed. It is in the field endpoint-load-metrics-bin, or in endpoint-load-metrics as "TEXT name=value, ...", "JSON
// {...}" or "BIN " and base64.
func FromFields(h *message.Fields, m Metrics) (r Report, ok bool) {
	if value, found := h.Get(binaryField); found {
		return fromBase64(value, m)
	}
	value, found := h.Get(textField)
	if !found || len(value) > maxField {
		return r, false
	}
	format, rest, _ := bytes.Cut(value, []byte(" "))
	switch string(format) {
	case "TEXT":
		return fromText(rest, m)
	case "JSON":
		return fromJSON(rest, m)
	case "BIN":
		return fromBase64(rest, m)
	}
	return r, false
}

// RemoveFields removes load reports from a section.
func RemoveFields(h *message.Fields) { h.RemoveIf(isReport) }

func isReport(f *message.Field) bool {
	return message.EqualFold(f.Name, binaryField) || message.EqualFold(f.Name, textField)
}

// fromBase64 parses a binary report. gRPC peers may omit the padding.
func fromBase64(value []byte, m Metrics) (Report, bool) {
	value = bytes.TrimRight(value, "= \t")
	if len(value) > maxField {
		return Report{}, false
	}
	var space [512]byte // enough for most
	b, err := base64.RawStdEncoding.AppendDecode(space[:0], bytes.TrimLeft(value, " \t"))
	if err != nil {
		return Report{}, false
	}
	r, err := Unmarshal(b, m)
	return r, err == nil
}

func fromText(b []byte, m Metrics) (r Report, ok bool) {
	for range maxEntries {
		if len(b) == 0 {
			return r, true
		}
		var pair []byte
		pair, b, _ = bytes.Cut(b, []byte(","))
		name, number, found := bytes.Cut(pair, []byte("="))
		if !found {
			return Report{}, false
		}
		value, err := strconv.ParseFloat(view(bytes.TrimSpace(number)), 64)
		if err != nil {
			return Report{}, false
		}
		r.take(m, view(bytes.TrimSpace(name)), value)
	}
	return Report{}, false
}

// view returns b as a string, which must not outlive the call for which it is made.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// fromJSON parses an OrcaLoadReport in the JSON form of protocol buffers; the original field names are accepted too.
func fromJSON(b []byte, m Metrics) (r Report, ok bool) {
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) != nil || len(all) > maxEntries {
		return r, false
	}
	for name, raw := range all {
		if proper, ok := jsonNames[name]; ok {
			name = proper
		}
		switch name {
		case "request_cost", "utilization", "named_metrics":
			var entries map[string]json.Number
			if json.Unmarshal(raw, &entries) != nil || len(entries) > maxEntries {
				return Report{}, false
			}
			for key, number := range entries {
				if value, err := number.Float64(); err == nil {
					r.takeEntry(m, name, []byte(key), value)
				}
			}
		default:
			var number json.Number
			if json.Unmarshal(raw, &number) != nil {
				continue // unknown field
			}
			if value, err := number.Float64(); err == nil {
				r.take(m, name, value)
			}
		}
	}
	return r, true
}

// jsonNames are the JSON names of fields that differ from their original names.
var jsonNames = map[string]string{
	"applicationUtilization": "application_utilization", "cpuUtilization": "cpu_utilization", "memUtilization": "mem_utilization",
	"rpsFractional": "rps_fractional", "requestCost": "request_cost", "namedMetrics": "named_metrics",
}
