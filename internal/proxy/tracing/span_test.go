package tracing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moongate-dev/moongate/internal/observe"
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
			if s.Recorded() || s.ID() != nil {
				t.Errorf("%s, %q: it is recorded", name, value)
			}
		}
	}
}

// TestLongState: of a tracestate at most 512 bytes are recorded, since a span holds it until the collector has it. All of it is passed on.
func TestLongState(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	tracer := &Tracer{sampling: share{1, 1}, parents: share{1, 1}, tracer: provider.Tracer("")}
	for n, recorded := range map[int]bool{100: true, maxState: true, maxState + 1: false, 16 << 10: false} {
		members := "" // of 64 bytes, as values have up to 256
		for i := 0; len(members) < n; i++ {
			members += fmt.Sprintf("k%02d=%s,", i%32, strings.Repeat("x", 59))
		}
		value := members[:n-1] + "x"
		r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
		r.Header.Add(traceParent, []byte(known))
		r.Header.Add(traceState, []byte(value))
		var s Span
		seed := uint64(1)
		s.Begin(tracer, r, &seed, time.Time{}, 80)
		if got := s.span.SpanContext().TraceState().String(); got != value && recorded || got != "" && !recorded {
			t.Errorf("%d bytes: recorded %q", n, got)
		}
		if got, _ := r.Header.Get("tracestate"); string(got) != value {
			t.Errorf("%d bytes: %d are passed on", n, len(got))
		}
	}
}

// TestIDs: the IDs that backends see tell nothing of the exchange's random numbers.
func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
		seed := uint64(1)
		var s Span
		s.Begin(&Tracer{}, r, &seed, time.Time{}, 80)
		value, _ := r.Header.Get("traceparent")
		if seen[string(value)] || seed != 1 {
			t.Errorf("%s of the seed 1, which is %d now", value, seed)
		}
		seen[string(value)] = true
	}
}

// TestHeaderAttributes: what of a request's header does not stand among its lines is a field like the others.
func TestHeaderAttributes(t *testing.T) {
	tracer, recorder := recording(&Tracer{sampling: share{1, 1}, attributes: []extra{
		{key: "host", header: "host"}, {key: "length", header: "content-length"}, {key: "tenant", header: "x-tenant"}, {key: "none", header: "upgrade"},
	}})
	r := &message.Request{Method: []byte("POST"), Path: []byte("/"), Host: []byte("shop.example:80"), MatchHost: []byte("shop.example"), Consumed: &message.Consumed{Length: []byte("7")}}
	r.Header.Add([]byte("X-Tenant"), []byte("a"))
	var s Span
	seed := uint64(1)
	s.Begin(tracer, r, &seed, time.Time{}, 80)
	var response message.Fields
	response.Add([]byte("Content-Length"), []byte("9"))
	s.Responds(&response)
	s.End(&observe.Record{Status: 200})
	got := map[string]string{}
	for _, a := range recorder.Ended()[0].Attributes() {
		got[string(a.Key)] = a.Value.AsString()
	}
	if got["host"] != "shop.example:80" || got["length"] != "7" || got["tenant"] != "a" {
		t.Errorf("attributes %v", got)
	}
	if _, has := got["none"]; has {
		t.Errorf("attributes %v", got)
	}
}
