package tracing

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

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
