package orca

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func double(b []byte, number protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), math.Float64bits(v))
}

func entry(b []byte, number protowire.Number, key string, v float64) []byte {
	e := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), double(e, 2, v))
}

// encoded is a report with a field that is not known, and rps, which is deprecated.
func encoded() []byte {
	b := double(double(double(double(nil, 1, .25), 6, 100), 7, 5), 9, .5)
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), 7)
	b = protowire.AppendString(protowire.AppendTag(b, 99, protowire.BytesType), "x")
	return entry(entry(entry(b, 8, "queue", .75), 8, "other", 9), 5, "disk", .125)
}

var wanted = Metrics{"named_metrics.queue", "utilization.disk"}

func TestFromFields(t *testing.T) {
	whole := Report{Application: .5, CPU: .25, Named: .75, RequestsPerSecond: 100, ErrorsPerSecond: 5}
	b64 := base64.StdEncoding.EncodeToString(encoded())
	for name, tc := range map[string]struct {
		field, value string
		want         *Report
	}{
		"binary":             {"endpoint-load-metrics-bin", b64, &whole},
		"binary, unpadded":   {"Endpoint-Load-Metrics-Bin", strings.TrimRight(b64, "="), &whole},
		"binary, as a value": {"endpoint-load-metrics", "BIN " + b64, &whole},
		"text": {"endpoint-load-metrics", "TEXT application_utilization=0.5, cpu_utilization=0.25,rps_fractional=100, eps=5, named_metrics.queue=0.75,utilization.disk=.125, named_metrics.other=9",
			&whole},
		"json": {"endpoint-load-metrics", `JSON {"application_utilization":0.5,"cpuUtilization":"0.25","rpsFractional":100,"eps":5,"namedMetrics":{"queue":0.75,"other":9},"new":[1]}`,
			&whole},
		"empty":            {"endpoint-load-metrics-bin", "", &Report{}},
		"negative":         {"endpoint-load-metrics", "TEXT cpu_utilization=-1, rps_fractional=NaN, eps=Inf", &Report{}},
		"no format":        {"endpoint-load-metrics", "cpu_utilization=0.5", nil},
		"no number":        {"endpoint-load-metrics", "TEXT cpu_utilization=x", nil},
		"no pair":          {"endpoint-load-metrics", "TEXT cpu_utilization", nil},
		"no json":          {"endpoint-load-metrics", "JSON {", nil},
		"no base64":        {"endpoint-load-metrics-bin", "!!", nil},
		"no message":       {"endpoint-load-metrics-bin", base64.StdEncoding.EncodeToString(encoded()[:20]), nil},
		"too many":         {"endpoint-load-metrics", "TEXT " + strings.Repeat("a=1,", maxEntries+1) + "eps=1", nil},
		"too long":         {"endpoint-load-metrics", "TEXT eps=1" + strings.Repeat(" ", maxField), nil},
		"another field":    {"endpoint-load", "TEXT eps=1", nil},
		"too long, binary": {"endpoint-load-metrics-bin", strings.Repeat("A", maxField+1), nil},
	} {
		var h message.Fields
		h.Add([]byte(tc.field), []byte(tc.value))
		got, ok := FromFields(&h, wanted)
		if ok != (tc.want != nil) || ok && got != *tc.want {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
		if tc.want != nil {
			if RemoveFields(&h); h.Len() != 0 {
				t.Errorf("%s: it is left in the section", name)
			}
		}
	}
}

// TestTruncated: no report that breaks off is read beyond its end, and none with a byte that is wrong.
func TestTruncated(t *testing.T) {
	b := encoded()
	for n := range b {
		Unmarshal(b[:n], wanted)
		for flip := range 8 {
			b[n] ^= 1 << flip
			Unmarshal(b, wanted)
			b[n] ^= 1 << flip
		}
	}
	if _, err := Unmarshal(b[:len(b)-1], wanted); err == nil {
		t.Error("a report that breaks off is none")
	}
}

func TestUtilization(t *testing.T) {
	for _, tc := range []struct {
		r    Report
		want float64
	}{{Report{Application: .5, Named: .7, CPU: .9}, .5}, {Report{Named: .7, CPU: .9}, .7}, {Report{CPU: .9}, .9}, {Report{}, 0}} {
		if got := tc.r.Utilization(); got != tc.want {
			t.Errorf("%+v: %v, want %v", tc.r, got, tc.want)
		}
	}
}

func TestAppendRequest(t *testing.T) {
	for _, interval := range []int64{0, 1, 1e9, 10_500_000_000} {
		b := AppendRequest(nil, interval)
		_, _, n := protowire.ConsumeTag(b)
		inner, _ := protowire.ConsumeBytes(b[n:])
		var d durationpb.Duration
		if err := proto.Unmarshal(inner, &d); err != nil || d.AsDuration().Nanoseconds() != interval {
			t.Errorf("%d: %v, %v", interval, &d, err)
		}
	}
}

func FuzzFromFields(f *testing.F) {
	f.Add("endpoint-load-metrics", "TEXT eps=1")
	f.Add("endpoint-load-metrics-bin", base64.StdEncoding.EncodeToString(encoded()))
	f.Fuzz(func(t *testing.T, name, value string) {
		var h message.Fields
		h.Add([]byte(name), []byte(value))
		r, _ := FromFields(&h, wanted)
		for _, v := range []float64{r.Application, r.CPU, r.Named, r.RequestsPerSecond, r.ErrorsPerSecond} {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Errorf("%v was taken of %q", v, value)
			}
		}
	})
}

func BenchmarkFromFields(b *testing.B) {
	for name, field := range map[string][2]string{
		"binary": {"endpoint-load-metrics-bin", base64.StdEncoding.EncodeToString(encoded())},
		"text":   {"endpoint-load-metrics", "TEXT application_utilization=0.5, rps_fractional=100, eps=5"},
	} {
		b.Run(name, func(b *testing.B) {
			var h message.Fields
			h.Add([]byte(field[0]), []byte(field[1]))
			b.ReportAllocs()
			for b.Loop() {
				FromFields(&h, wanted)
			}
		})
	}
}
