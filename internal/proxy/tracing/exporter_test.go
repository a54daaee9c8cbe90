package tracing

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

func TestRejectedSpans(t *testing.T) {
	for content, want := range map[string]int64{
		"": 0, "\x0a\x02\x08\x07": 7, "\x12\x01a\x0a\x02\x08\x07": 7,
		"\x0a\x03\x12\x01a": 0, "\x0a\xff": 0, "\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": 0,
	} {
		if got := rejectedSpans([]byte(content)); got != want {
			t.Errorf("%q: %d, want %d", content, got, want)
		}
	}
}

// FuzzAnswer: no answer of a collector is too much.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x0a\x02\x08\x07"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if n := rejectedSpans(content); n < 0 {
			t.Error(n)
		}
	})
}

// TestHalves: spans that are too much for the collector in one message are sent by halves, each once; where one span is too much it is dropped alone.
func TestHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := upstream.NewSet(upstream.Options{})
		defer set.Close()
		const key = "Service/default/collector/4317"
		if err := set.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}}}, nil); err != nil {
			t.Fatal(err)
		}
		var taken []string
		most, calls := 0, 0
		e := &exporter{t: &Tracer{backend: set.Get(key), ctx: t.Context()}, send: func(ctx context.Context, _ *upstream.Identity, c *filter.Call) error {
			calls++
			var sent tracepb.TracesData
			if err := proto.Unmarshal(c.Body[5:], &sent); err != nil {
				t.Fatal(err)
			}
			c.Status = 200
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if count(sent.ResourceSpans) > most {
				c.Trailer.Add([]byte("grpc-status"), []byte("8"))
				return nil
			}
			for _, r := range sent.ResourceSpans {
				for _, s := range r.ScopeSpans {
					for _, span := range s.Spans {
						taken = append(taken, r.SchemaUrl+s.SchemaUrl+span.Name)
					}
				}
			}
			c.Trailer.Add([]byte("grpc-status"), []byte("0"))
			return nil
		}}
		scope := func(url string, names ...string) *tracepb.ScopeSpans {
			s := &tracepb.ScopeSpans{SchemaUrl: url}
			for _, n := range names {
				s.Spans = append(s.Spans, &tracepb.Span{Name: n})
			}
			return s
		}
		list := []*tracepb.ResourceSpans{
			{SchemaUrl: "a", ScopeSpans: []*tracepb.ScopeSpans{scope("x", "1", "2"), scope("y", "3")}},
			{SchemaUrl: "b", ScopeSpans: []*tracepb.ScopeSpans{scope("x", "4", "5", "6", "7")}},
		}
		for _, test := range []struct {
			most, calls int
			sent        int64
		}{{7, 1, 7}, {4, 3, 14}, {1, 13, 21}} {
			taken, most, calls = nil, test.most, 0
			if err := e.UploadTraces(t.Context(), list); err != nil {
				t.Errorf("at most %d: %v", most, err)
			}
			if got := strings.Join(taken, " "); got != "ax1 ax2 ay3 bx4 bx5 bx6 bx7" || calls != test.calls {
				t.Errorf("at most %d: %s by %d calls", most, got, calls)
			}
			if s := e.t.backend.Stats(); s.SpansSent != test.sent || s.SpansDropped != 0 {
				t.Errorf("at most %d: %d sent, %d dropped", most, s.SpansSent, s.SpansDropped)
			}
		}
		taken, most, calls = nil, 0, 0
		ctx, cancel := context.WithTimeout(t.Context(), sendTimeout)
		defer cancel()
		if err := e.UploadTraces(ctx, list); err == nil || calls > int(sendTimeout/sendPause)+8 {
			t.Errorf("never: %v, %d calls", err, calls)
		}
		if s := e.t.backend.Stats(); s.SpansSent != 21 || s.SpansDropped != 7 {
			t.Errorf("never: %d sent, %d dropped", s.SpansSent, s.SpansDropped)
		}
	})
}

// TestRetryInfo: the next attempt waits as long as the collector asks, also that of another batch. RESOURCE_EXHAUSTED without a delay is not for ever.
func TestRetryInfo(t *testing.T) {
	for _, tc := range []struct {
		status   string
		delay    time.Duration
		calls    int
		from, to time.Duration
	}{
		{"14", 3 * time.Second, 2, 3 * time.Second, 3300*time.Millisecond + 1},
		{"8", 3 * time.Second, 2, 3 * time.Second, 3300*time.Millisecond + 1},
		{"14", 0, 2, sendPause / 2, sendPause * 3 / 2},
		{"8", 0, 1, 0, 0},
		{"3", 3 * time.Second, 1, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			set := upstream.NewSet(upstream.Options{})
			defer set.Close()
			const key = "Service/default/collector/4317"
			if err := set.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}}}, nil); err != nil {
				t.Fatal(err)
			}
			begun, calls := time.Now(), 0
			e := &exporter{t: &Tracer{backend: set.Get(key), ctx: t.Context()}, send: func(_ context.Context, _ *upstream.Identity, c *filter.Call) error {
				c.Status = 200
				if calls++; calls > 1 {
					c.Trailer.Add([]byte("grpc-status"), []byte("0"))
					return nil
				}
				c.Trailer.Add([]byte("grpc-status"), []byte(tc.status))
				if tc.delay > 0 {
					c.Trailer.Add([]byte("grpc-status-details-bin"), []byte(details(t, tc.delay)))
				}
				return nil
			}}
			list := []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "1"}}}}}}
			err := e.UploadTraces(t.Context(), list)
			if took := time.Since(begun); calls != tc.calls || (err == nil) != (calls == 2) || took < tc.from || took > tc.to {
				t.Errorf("status %s, delay %v: %d calls in %v, %v", tc.status, tc.delay, calls, took, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a batch that is given up leaves the delay to the next
		e := &exporter{notBefore: time.Now().Add(time.Minute)}
		ctx, cancel := context.WithTimeout(t.Context(), sendTimeout)
		defer cancel()
		if err := e.wait(ctx); err == nil {
			t.Error("it does not wait")
		}
	})
}

func details(t *testing.T, delay time.Duration) string {
	t.Helper()
	s, err := status.New(codes.Unavailable, "").WithDetails(&errdetails.DebugInfo{}, &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(s.Proto())
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawStdEncoding.EncodeToString(encoded)
}

// TestRetryDelayOfNonsense: what a collector sends instead of details is none, and a delay is bounded.
func TestRetryDelayOfNonsense(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "!": 0, "AAAA": 0, details(t, -time.Second): 0, details(t, 24*time.Hour): maxRetryDelay, details(t, time.Second) + "=": time.Second,
	} {
		var c filter.Call
		c.Header.Add([]byte("grpc-status-details-bin"), []byte(value))
		if got := retryDelay(&c); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
