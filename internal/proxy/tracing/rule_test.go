package tracing

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

var (
	noShare  = &config.Share{Numerator: 0, Denominator: 100}
	allShare = &config.Share{Numerator: 1, Denominator: 1}
)

// recording makes a tracer that keeps what has ended.
func recording(t *Tracer) (*Tracer, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	t.tracer = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithRawSpanLimits(limits), sdktrace.WithSpanProcessor(recorder)).Tracer("")
	return t, recorder
}

// TestRuleSampling: the decision of a rule takes the place of the listener's, whichever that was, and the request says so.
func TestRuleSampling(t *testing.T) {
	sampled, unsampled := known, known[:54]+"0"
	all, none := share{1, 1}, share{0, 1}
	for name, c := range map[string]struct {
		tracer *Tracer
		rule   *config.RuleTracing
		parent string
		asks   bool // x-client-trace-id
		want   bool
		told   string // prefix and suffix, around what is random
	}{
		"none of all":                    {&Tracer{sampling: all}, &config.RuleTracing{Sampling: noShare}, "", false, false, "00- -00"},
		"all of none":                    {&Tracer{sampling: none}, &config.RuleTracing{Sampling: allShare}, "", false, true, "00- -01"},
		"overall none":                   {&Tracer{sampling: all}, &config.RuleTracing{OverallSampling: noShare}, "", false, false, "00- -00"},
		"overall all of none":            {&Tracer{sampling: none}, &config.RuleTracing{OverallSampling: allShare}, "", false, false, "00- -00"},
		"only tags":                      {&Tracer{sampling: all}, &config.RuleTracing{Tags: []*config.TraceTag{{Name: "a"}}}, "", false, true, "00- -01"},
		"a parent that is sampled":       {&Tracer{parents: all}, &config.RuleTracing{Sampling: noShare}, sampled, false, true, known[:36] + " -01"},
		"a parent that is not":           {&Tracer{parents: all}, &config.RuleTracing{Sampling: allShare, ClientSampling: allShare}, unsampled, false, false, unsampled},
		"no parents of all":              {&Tracer{parents: all}, &config.RuleTracing{ClientSampling: noShare}, sampled, false, false, sampled},
		"parents of none":                {&Tracer{parents: none}, &config.RuleTracing{ClientSampling: allShare}, sampled, false, true, known[:36] + " -01"},
		"overall none of parents":        {&Tracer{parents: all}, &config.RuleTracing{OverallSampling: noShare}, sampled, false, false, sampled},
		"another version":                {&Tracer{parents: all}, &config.RuleTracing{ClientSampling: noShare}, "cc" + sampled[2:] + "-more", false, false, "cc" + sampled[2:] + "-more"},
		"a parent that is ignored":       {&Tracer{ignoreParent: true, sampling: all}, &config.RuleTracing{Sampling: noShare, ClientSampling: allShare}, sampled, false, false, unsampled},
		"one that is, and all":           {&Tracer{ignoreParent: true, sampling: none}, &config.RuleTracing{Sampling: allShare}, unsampled, false, true, known[:36] + " -01"},
		"a client that asks":             {&Tracer{sampling: none}, &config.RuleTracing{ClientSampling: allShare}, "", true, true, "00- -01"},
		"one that asks in vain":          {&Tracer{sampling: none}, &config.RuleTracing{ClientSampling: noShare}, "", true, false, "00- -00"},
		"one that asks where nobody may": {&Tracer{sampling: none}, &config.RuleTracing{Sampling: noShare}, "", true, false, "00- -00"},
		"one that does not ask":          {&Tracer{sampling: none}, &config.RuleTracing{ClientSampling: allShare}, "", false, false, "00- -00"},
	} {
		tracer, recorder := recording(c.tracer)
		r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
		if c.parent != "" {
			r.Header.Add(traceParent, []byte(c.parent))
		}
		if c.asks {
			r.Header.Add([]byte("X-Client-Trace-Id"), []byte("1"))
		}
		var s Span
		seed := uint64(1)
		s.Begin(tracer, r, &seed, time.Time{}, 80)
		s.Match(NewRule(c.rule), r, &seed)
		value, _ := r.Header.Get("traceparent")
		begin, end, _ := strings.Cut(c.told, " ")
		if s.Recorded() != c.want || len(value) < parentSize || !strings.HasPrefix(string(value), begin) || !strings.HasSuffix(string(value), end) {
			t.Errorf("%s: recorded %v, want %v; told %q, want %q", name, s.Recorded(), c.want, value, c.told)
		}
		if id := s.ID(); c.want && string(value[3:52]) != string(id.Trace[:])+"-"+string(id.Span[:]) {
			t.Errorf("%s: told %q of span %s", name, value, id)
		}
		s.End(&observe.Record{Status: 200})
		if n := len(recorder.Ended()); tracer.open.Load() != 0 || n != map[bool]int{true: 1}[c.want] {
			t.Errorf("%s: %d spans are sent, and %d open", name, n, tracer.open.Load())
		}
	}
}

// TestRuleReplacesDraw: a rule's share is drawn anew, and not of what the listener's has left.
func TestRuleReplacesDraw(t *testing.T) {
	tracer, _ := recording(&Tracer{sampling: share{1, 2}})
	rule := NewRule(&config.RuleTracing{Sampling: &config.Share{Numerator: 1, Denominator: 2}})
	seed, n := uint64(1), 0
	const requests = 2000
	for range requests {
		r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
		var s Span
		s.Begin(tracer, r, &seed, time.Time{}, 80)
		if s.Match(rule, r, &seed); s.Recorded() {
			n++
		}
		s.End(&observe.Record{})
	}
	if n < requests*2/5 || n > requests*3/5 { // beyond nine standard deviations
		t.Errorf("%d of %d are recorded, want half", n, requests)
	}
}

// TestRuleOfRetiredTracer: a span that is dropped is the last that a retired tracer waits for, as one that ends is.
func TestRuleOfRetiredTracer(t *testing.T) {
	tracer, _ := recording(&Tracer{sampling: share{1, 1}})
	r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
	var s Span
	seed := uint64(1)
	s.Begin(tracer, r, &seed, time.Time{}, 80)
	shut := make(chan struct{})
	tracer.retire(func() { close(shut) })
	select {
	case <-shut:
		t.Error("it is shut down before its span is dropped")
	default:
	}
	s.Match(NewRule(&config.RuleTracing{Sampling: noShare}), r, &seed)
	<-shut
}

// TestDetach: a span that outlives the head of its request keeps nothing of it, and ends as others do.
func TestDetach(t *testing.T) {
	tracer, recorder := recording(&Tracer{sampling: share{1, 1}})
	rule := NewRule(&config.RuleTracing{Tags: []*config.TraceTag{{Name: "path", Value: []*config.TraceText{{Part: &config.TraceText_RequestHeader{RequestHeader: ":path"}}}}}})
	head := []byte("GET/pathhost")
	r := &message.Request{Method: head[:3], Path: head[3:8], Host: head[8:], MatchHost: head[8:]}
	var s Span
	seed := uint64(1)
	s.Begin(tracer, r, &seed, time.Time{}, 80)
	s.Match(rule, r, &seed)
	s.Detach()
	if b := s.began; b.method != nil || b.path != nil || b.authority != nil || b.host != nil || b.came != nil || b.told != nil {
		t.Errorf("it keeps %+v", b)
	}
	copy(head, "xxxxxxxxxxxx")
	s.End(&observe.Record{Method: []byte("GET")})
	ended := recorder.Ended()
	if len(ended) != 1 || !hasAttribute(ended[0], attribute.String("path", "/path")) || !hasAttribute(ended[0], attribute.String("url.path", "/path")) || !hasAttribute(ended[0], attribute.String("server.address", "host")) {
		t.Errorf("ended are %v", ended)
	}
}

// TestFilterOfTraceParent: what a filter of the listener says of the trace is left alone.
func TestFilterOfTraceParent(t *testing.T) {
	const other = "00-11111111111111111111111111111111-2222222222222222-01"
	for _, parent := range []string{"", known} {
		for first, rule := range map[share]*config.Share{{1, 1}: noShare, {0, 1}: allShare} {
			tracer, _ := recording(&Tracer{sampling: first, parents: first})
			r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
			if parent != "" {
				r.Header.Add(traceParent, []byte(parent))
			}
			var s Span
			seed := uint64(1)
			s.Begin(tracer, r, &seed, time.Time{}, 80)
			r.Header.Set(traceParent, []byte(other))
			s.Match(NewRule(&config.RuleTracing{Sampling: rule, ClientSampling: rule}), r, &seed)
			if got, _ := r.Header.Get("traceparent"); string(got) != other || s.Recorded() != (rule == allShare) {
				t.Errorf("parent %q: told %q, recorded %v", parent, got, s.Recorded())
			}
			s.End(&observe.Record{})
		}
	}
}

// TestRuleTexts: what tags and names are made of, before any filter and from what became of the request.
func TestRuleTexts(t *testing.T) {
	t.Setenv("MOONGATE_TEST_TRACING", "from the environment \xff")
	text := func(s string) []*config.TraceText {
		parts, err := config.ParseTraceText(s)
		if err != nil {
			t.Fatal(err)
		}
		return parts
	}
	variable := func(name string) []*config.TraceText {
		return []*config.TraceText{{Part: &config.TraceText_Environment{Environment: name}, DefaultValue: "default"}}
	}
	want := map[string]string{
		"request": "%REQ(:METHOD)% %REQ(:PATH)% of %REQ(:AUTHORITY)% %REQ(X-User)%|GET /a?b=1 of Example:80 alice",
		"other":   "%REQ(X-None?X-User):3%|ali", "none": "%REQ(X-None)%%RESP(X-None)%|", "literal": "100%% %20|100% %20", "empty": "|",
		"response": "%RESP(X-Answer)%|later", "code": "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %PROTOCOL%|503 no_endpoints HTTP/2", "time": "%DURATION%|1500",
		"bytes": "%BYTES_RECEIVED%/%BYTES_SENT%|3/5", "client": "%DOWNSTREAM_REMOTE_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%|192.0.2.1:9 192.0.2.1",
		"upstream": "%UPSTREAM_HOST%|", "url.path": "replaced|replaced", "listener": "of the rule|of the rule", "long": "%REQ(X-Long)%!|" + strings.Repeat("x", maxValue),
	}
	c := &config.RuleTracing{SpanName: text("%REQ(:METHOD)% %RESPONSE_CODE%"), Tags: []*config.TraceTag{
		{Name: "set", Value: variable("MOONGATE_TEST_TRACING")}, {Name: "unset", Value: variable("MOONGATE_TEST_UNSET")},
		{Name: "defaulted", Value: []*config.TraceText{{Part: &config.TraceText_RequestHeader{RequestHeader: "x-none"}, DefaultValue: "default"}}},
	}}
	for name, is := range want {
		pattern, value, _ := strings.Cut(is, "|")
		want[name] = value
		c.Tags = append(c.Tags, &config.TraceTag{Name: name, Value: text(pattern)})
	}
	want["set"], want["unset"], want["defaulted"] = "from the environment \uFFFD", "default", "default"
	literal := "of the listener"
	tracer, recorder := recording(&Tracer{sampling: share{1, 1}, parents: share{1, 1}, spanName: "of the listener", attributes: []extra{{key: "listener", literal: &literal}}})
	r := &message.Request{Method: []byte("GET"), Path: []byte("/a"), Query: []byte("b=1"), HasQuery: true, Host: []byte("Example:80"), MatchHost: []byte("example")}
	r.Header.Add([]byte("X-User"), []byte("alice"))
	r.Header.Add([]byte("X-Long"), []byte(strings.Repeat("x", 2*maxValue)))
	var s Span
	seed := uint64(1)
	s.Begin(tracer, r, &seed, time.Time{}, 80)
	s.Match(NewRule(c), r, &seed)
	r.Path, r.HasQuery = []byte("/rewritten"), false
	r.Header.Set([]byte("X-User"), []byte("mallory"))
	var h message.Fields
	for _, answer := range []string{"earlier", "later"} {
		h.Reset()
		h.Add([]byte("X-Answer"), []byte(answer))
		s.Responds(&h)
	}
	s.End(&observe.Record{Method: r.Method, Status: 503, Reason: observe.ReasonNoEndpoints, Protocol: "HTTP/2.0", DurationNano: 1500e6, BytesReceived: 3, BytesSent: 5,
		ClientAddr: netip.MustParseAddrPort("192.0.2.1:9")})
	ended := recorder.Ended()
	if len(ended) != 1 || ended[0].Name() != "GET 503" {
		t.Fatalf("%v", ended)
	}
	got := map[string]string{}
	for _, kv := range ended[0].Attributes() {
		if _, twice := got[string(kv.Key)]; twice {
			t.Errorf("%s is there twice", kv.Key)
		}
		got[string(kv.Key)] = kv.Value.AsString()
	}
	for name, value := range want {
		if _, there := got[name]; there != (value != "") || got[name] != value {
			t.Errorf("%s is %q, %v; want %q", name, got[name], there, value)
		}
	}
	if s.rule != nil || len(s.fields) != 0 || s.began.path != nil {
		t.Error("it holds what has ended")
	}
	s.Begin(tracer, r, &seed, time.Time{}, 80) // the next request has no such rule
	s.End(&observe.Record{Method: r.Method})
	if next := recorder.Ended()[1]; next.Name() != "of the listener" || !hasAttribute(next, attribute.String("listener", "of the listener")) || hasAttribute(next, attribute.String("url.path", "replaced")) {
		t.Errorf("%s: %v", next.Name(), next.Attributes())
	}
}

func hasAttribute(s sdktrace.ReadOnlySpan, want attribute.KeyValue) bool {
	for _, kv := range s.Attributes() {
		if kv == want {
			return true
		}
	}
	return false
}

// TestMostAttributes: all that policies may ask for is kept beside what spans have anyway.
func TestMostAttributes(t *testing.T) {
	tracer, recorder := recording(&Tracer{sampling: share{1, 1}})
	literal := "x"
	for i := range 96 {
		tracer.attributes = append(tracer.attributes, extra{key: attribute.Key(fmt.Sprint("a", i)), literal: &literal})
	}
	rule := &config.RuleTracing{}
	for i := range 32 {
		rule.Tags = append(rule.Tags, &config.TraceTag{Name: fmt.Sprint("t", i), Value: []*config.TraceText{config.TraceLiteral("x")}})
	}
	r := &message.Request{Method: []byte("ODD"), Path: []byte("/")}
	var s Span
	seed := uint64(1)
	s.Begin(tracer, r, &seed, time.Time{}, 80)
	s.Match(NewRule(rule), r, &seed)
	s.Matched("/")
	address := netip.MustParseAddrPort("192.0.2.1:9")
	s.End(&observe.Record{Method: r.Method, Status: 503, Protocol: "HTTP/1.1", UserAgent: []byte("x"), ClientAddr: address, Upstream: address, Attempts: 2})
	if ended := recorder.Ended(); len(ended) != 1 || ended[0].DroppedAttributes() != 0 || len(ended[0].Attributes()) != 96+32+len(config.TraceAttributes()) {
		t.Errorf("%d attributes, %d dropped; want %d", len(ended[0].Attributes()), ended[0].DroppedAttributes(), 96+32+len(config.TraceAttributes()))
	}
}

// TestRuleAllocations: a request that is not recorded allocates nothing for its rule either.
func TestRuleAllocations(t *testing.T) {
	rule := NewRule(&config.RuleTracing{Sampling: noShare, ClientSampling: noShare, Tags: []*config.TraceTag{{Name: "a", Value: []*config.TraceText{{Part: &config.TraceText_RequestHeader{RequestHeader: "a"}}}}}})
	tracer := &Tracer{sampling: share{0, 1}, parents: share{0, 1}}
	r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
	seed := uint64(1)
	var s Span
	for _, value := range []string{"", known, known[:54] + "0"} {
		header := []byte(value)
		run := func() {
			r.Header.Reset()
			if value != "" {
				r.Header.Add(traceParent, header)
			}
			s.Begin(tracer, r, &seed, time.Time{}, 80)
			s.Match(rule, r, &seed)
			s.Responds(&r.Header)
			s.End(nil)
		}
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 || s.Recorded() {
			t.Errorf("%q: %v allocations, recorded %v", value, n, s.Recorded())
		}
	}
}

// TestLongLiterals: literals that are joined are cut between characters, so that spans can be sent.
func TestLongLiterals(t *testing.T) {
	r := NewRule(&config.RuleTracing{SpanName: []*config.TraceText{config.TraceLiteral(strings.Repeat("a", maxValue-1)), config.TraceLiteral("éé")}})
	if got := r.text(r.name, nil, &observe.Record{}); !utf8.ValidString(got) || len(got) > maxValue+2 || len(got) < maxValue-1 {
		t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
}
