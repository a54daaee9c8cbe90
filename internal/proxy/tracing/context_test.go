package tracing

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

const known = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParseParent(t *testing.T) {
	for value, want := range map[string]bool{
		known: true, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff": true, "cc" + known[2:] + "-what": true, "cc" + known[2:]: true,
		"": false, known[:54]: false, known + "-": false, known + "0": false, "cc" + known[2:] + "x": false, "ff" + known[2:]: false, "0g" + known[2:]: false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": false, "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": false,
	} {
		if _, ok := parseParent([]byte(value)); ok != want {
			t.Errorf("%q: %v", value, ok)
		}
	}
}

// FuzzParent: what is taken for a parent is the same when it is written again, but for the version and what follows in another one.
func FuzzParent(f *testing.F) {
	f.Add([]byte(known))
	f.Add([]byte("cc" + known[2:] + "-more"))
	f.Fuzz(func(t *testing.T, value []byte) {
		p, ok := parseParent(value)
		if !ok {
			return
		}
		if got := appendParent(nil, p.trace, p.span, p.flags); string(got[2:]) != string(value[2:parentSize]) {
			t.Errorf("%q is read as %q", value, got)
		}
	})
}

// TestAllocations: a request that is not recorded allocates nothing, nor does one without a tracer.
func TestAllocations(t *testing.T) {
	r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
	seed := uint64(1)
	for name, tracer := range map[string]*Tracer{"off": nil, "not sampled": {parents: share{1, 1}}, "own decision": {ignoreParent: true}} {
		for _, value := range []string{"", known, known[:54] + "0"} {
			if name == "not sampled" && value == known {
				continue
			}
			var s Span
			header := []byte(value)
			run := func() {
				r.Header.Reset()
				if value != "" {
					r.Header.Add(traceParent, header)
				}
				s.Begin(tracer, r, &seed, time.Time{}, 80)
				s.Responds(&r.Header)
				s.End(nil)
			}
			run()
			if n := testing.AllocsPerRun(100, run); n != 0 {
				t.Errorf("%s, %q: %v allocations", name, value, n)
			}
			if s.Recorded() || s.TraceID() != nil {
				t.Errorf("%s, %q: it is recorded", name, value)
			}
		}
	}
}

func TestRejectedSpans(t *testing.T) {
	for content, want := range map[string]int64{
		"": 0, "\x00\x00\x00\x00\x00": 0, "\x00\x00\x00\x00\x04\x0a\x02\x08\x07": 7, "\x00\x00\x00\x00\x07\x12\x01a\x0a\x02\x08\x07": 7,
		"\x00\x00\x00\x00\x05\x0a\x03\x12\x01a": 0, "\x00\x00\x00\x00\x02\x0a\xff": 0, "\x00\x00\x00\x00\x0d\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": 0,
	} {
		if got := rejectedSpans([]byte(content)); got != want {
			t.Errorf("%q: %d, want %d", content, got, want)
		}
	}
}

// FuzzAnswer: no answer of a collector is too much.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x04\x0a\x02\x08\x07"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if n := rejectedSpans(content); n < 0 {
			t.Error(n)
		}
	})
}
