package proxy

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const collectorKey = "Service/default/collector/4317/http2"

// collector takes spans by OTLP over gRPC.
type collector struct {
	mu       sync.Mutex
	spans    map[string]*tracepb.Span // by attribute url.path
	service  string
	metadata metadata.MD
	fails    atomic.Int64 // calls that fail before any succeeds
}

func serveCollector(t testing.TB) (c *collector, addr string) {
	t.Helper()
	c = &collector{spans: map[string]*tracepb.Span{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := &tracepb.TracesData{}
			if err := decode(m); err != nil {
				return nil, err
			}
			if c.fails.Add(-1) >= 0 {
				return nil, status.Error(codes.Unavailable, "not yet")
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.metadata, _ = metadata.FromIncomingContext(ctx)
			for _, r := range m.ResourceSpans {
				c.service = attributeOf(r.Resource.Attributes, "service.name")
				for _, scope := range r.ScopeSpans {
					for _, span := range scope.Spans {
						c.spans[attributeOf(span.Attributes, "url.path")] = span
					}
				}
			}
			return &emptypb.Empty{}, nil
		}}},
	}, struct{}{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return c, l.Addr().String()
}

// span waits for the span of a request by its path.
func (c *collector) span(t testing.TB, path string) (span *tracepb.Span) {
	t.Helper()
	testkit.Eventually(t, "the span of "+path, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		span = c.spans[path]
		return span != nil
	})
	return span
}

// paths are those of the requests whose spans have come.
func (c *collector) paths() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]bool{}
	for path := range c.spans {
		all[path] = true
	}
	return all
}

func attributeOf(list []*commonpb.KeyValue, key string) string {
	for _, kv := range list {
		if kv.Key == key {
			if n, is := kv.Value.Value.(*commonpb.AnyValue_IntValue); is {
				return fmt.Sprint(n.IntValue)
			}
			return kv.Value.GetStringValue()
		}
	}
	return ""
}

// traced has the gateway's listener send spans to the collector.
func (g *gateway) traced(addr string, c *config.Tracing) {
	g.t.Helper()
	c.Backend, c.Authority = collectorKey, "collector.default.svc:4317"
	if c.ServiceName == "" {
		c.ServiceName = "gw"
	}
	g.apply(append(backend(collectorKey, addr), h2c(collectorKey)))
	l := g.httpListener("http", "")
	l.GetListener().Tracing = c
	g.apply([]*config.Resource{l})
}

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

var parentFormat = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-0([0-3])$`)

// TestTracing: spans of requests by HTTP/1.1, HTTP/2 and gRPC have the client's as their parent, and are that of the backend's.
func TestTracing(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 1)
	behind := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		w.Header().Set("X-Answer", "from the response")
		if strings.HasSuffix(r.URL.Path, "/broken") {
			w.WriteHeader(502)
		}
		io.WriteString(w, "ok")
	})
	c, addr := serveCollector(t)
	g := startGateway(t, Timeouts{})
	g.serve(behind, func(r *config.Rule) { r.Matches[0].Path.Value = "/p" })
	g.traced(addr, &config.Tracing{
		ServiceName: "edge", Headers: []*config.HeaderField{{Name: "X-Key", Value: "secret"}},
		Attributes: []*config.TraceAttribute{
			{Name: "team", Value: &config.TraceAttribute_Literal{Literal: "a"}},
			{Name: "user", Value: &config.TraceAttribute_Header{Header: "x-user"}},
			{Name: "answer", Value: &config.TraceAttribute_Header{Header: "x-answer"}},
			{Name: "verb", Value: &config.TraceAttribute_Attribute{Attribute: "http.request.method"}},
		},
	})
	plain := &http.Client{}
	h2 := clientOfHTTP2()
	defer plain.CloseIdleConnections()
	defer h2.CloseIdleConnections()
	for name, tc := range map[string]struct {
		client *http.Client
		path   string
		header http.Header
		parent bool
		status string
	}{
		"HTTP/1.1":        {plain, "/p/1", http.Header{"Traceparent": {"00-" + clientTrace + "-" + clientSpan + "-01"}, "Tracestate": {"a=b"}}, true, "200"},
		"HTTP/2":          {h2, "/p/2", http.Header{"Traceparent": {"00-" + clientTrace + "-" + clientSpan + "-01"}}, true, "200"},
		"gRPC":            {h2, "/p/g", http.Header{"Traceparent": {"00-" + clientTrace + "-" + clientSpan + "-03"}, "Content-Type": {"application/grpc"}, "Te": {"trailers"}}, true, "200"},
		"no parent":       {plain, "/p/none", nil, false, "200"},
		"malformed":       {plain, "/p/bad", http.Header{"Traceparent": {"00-" + strings.ToUpper(clientTrace) + "-" + clientSpan + "-01"}, "Tracestate": {"a=b"}}, false, "200"},
		"backend's 5xx":   {plain, "/p/broken", nil, false, "502"},
		"two parents":     {plain, "/p/two", http.Header{"Traceparent": {"00-" + clientTrace + "-" + clientSpan + "-01", "00-" + clientTrace + "-" + clientSpan + "-01"}}, false, "200"},
		"another version": {plain, "/p/cc", http.Header{"Traceparent": {"cc-" + clientTrace + "-" + clientSpan + "-01-more"}}, true, "200"},
	} {
		t.Run(name, func(t *testing.T) {
			method := "GET"
			if name == "gRPC" {
				method = "POST"
			}
			r, err := http.NewRequest(method, "http://"+g.addr()+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = tc.header.Clone()
			if r.Header == nil {
				r.Header = http.Header{}
			}
			r.Header.Set("X-User", "alice")
			resp, err := tc.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			header := <-seen
			span := c.span(t, tc.path)
			told := parentFormat.FindStringSubmatch(header.Get("Traceparent"))
			if len(header["Traceparent"]) != 1 || told == nil || told[1] != hex.EncodeToString(span.TraceId) || told[2] != hex.EncodeToString(span.SpanId) || told[3] != "1" && told[3] != "3" {
				t.Errorf("the backend was told %q, the span is %x of %x", header["Traceparent"], span.SpanId, span.TraceId)
			}
			if tc.parent != (hex.EncodeToString(span.ParentSpanId) == clientSpan && hex.EncodeToString(span.TraceId) == clientTrace) {
				t.Errorf("parent %x of %x", span.ParentSpanId, span.TraceId)
			}
			if state := header.Get("Tracestate"); tc.header.Get("Tracestate") != "" && (state == "a=b") != tc.parent {
				t.Errorf("tracestate %q", state)
			}
			for key, want := range map[string]string{"http.request.method": method, "http.response.status_code": tc.status, "team": "a", "user": "alice", "answer": "from the response",
				"verb": method, "http.route": "/p", "url.scheme": "http", "client.address": "127.0.0.1"} {
				if got := attributeOf(span.Attributes, key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
			for _, kv := range span.Attributes {
				if !slices.Contains(config.TraceAttributes(), kv.Key) && !slices.Contains([]string{"team", "user", "answer", "verb"}, kv.Key) {
					t.Errorf("attribute %s is not documented", kv.Key)
				}
			}
			if span.Name != method+" /p" || span.Kind != tracepb.Span_SPAN_KIND_SERVER || span.EndTimeUnixNano <= span.StartTimeUnixNano ||
				(span.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR) != (tc.status == "502") {
				t.Errorf("%v", span)
			}
		})
	}
	if c.service != "edge" || c.metadata.Get("x-key")[0] != "secret" {
		t.Errorf("service %q, metadata %v", c.service, c.metadata)
	}
	if log := g.log.String(); strings.Count(log, `"trace_id":"`) != 8 || strings.Count(log, `","span_id":"`) != 8 || strings.Count(log, `"trace_id":"`+clientTrace) != 4 {
		t.Errorf("access log: %s", log)
	}
}

// TestTracingOfCalls: the span of a call by gRPC's own client, unary and by stream, has the client's as its parent, and is that of the server's.
func TestTracingOfCalls(t *testing.T) {
	t.Parallel()
	c, addr := serveCollector(t)
	g := startGateway(t, Timeouts{})
	cc := g.grpcPair()
	g.traced(addr, &config.Tracing{})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+clientTrace+"-"+clientSpan+"-01", "tracestate", "a=b")
	var told metadata.MD
	if err := cc.Invoke(ctx, "/test.Echo/Told", &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&told), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	s, err := cc.NewStream(ctx, &grpcEcho.Streams[0], "/test.Echo/Chat")
	if err != nil {
		t.Fatal(err)
	}
	var out wrapperspb.BytesValue
	if err := s.SendMsg(wrapperspb.Bytes([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&out); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&out); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for _, path := range []string{"/test.Echo/Told", "/test.Echo/Chat"} {
		span := c.span(t, path)
		if hex.EncodeToString(span.ParentSpanId) != clientSpan || hex.EncodeToString(span.TraceId) != clientTrace || span.TraceState != "a=b" {
			t.Errorf("%s: parent %x of %x, state %q", path, span.ParentSpanId, span.TraceId, span.TraceState)
		}
		if want := "00-" + clientTrace + "-" + hex.EncodeToString(span.SpanId) + "-01"; path == "/test.Echo/Told" && fmt.Sprint(told["traceparent"]) != "["+want+"]" {
			t.Errorf("the server was told %v, want %s", told, want)
		}
	}
}

// TestTracingSampling: which requests are recorded, and what backends are told of those that are not.
func TestTracingSampling(t *testing.T) {
	t.Parallel()
	c, addr := serveCollector(t)
	g := startGateway(t, Timeouts{})
	var told atomic.Pointer[string]
	g.serve(httpBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		s := strings.Join(r.Header["Traceparent"], ",")
		told.Store(&s)
	}), nil)
	const sampled, unsampled = "00-" + clientTrace + "-" + clientSpan + "-01", "00-" + clientTrace + "-" + clientSpan + "-00"
	none, all := &config.Share{Numerator: 0, Denominator: 100}, &config.Share{Numerator: 1, Denominator: 1}
	cases := []struct {
		c        *config.Tracing
		parent   string
		recorded bool
		told     string // a pattern
	}{
		{&config.Tracing{Sampling: none}, "", false, "^00-[0-9a-f]{32}-[0-9a-f]{16}-00$"},
		{&config.Tracing{Sampling: none}, sampled, true, "^00-" + clientTrace + "-[0-9a-f]{16}-01$"},
		{&config.Tracing{Sampling: all}, unsampled, false, "^" + unsampled + "$"},
		{&config.Tracing{Sampling: all, IgnoreParent: true}, unsampled, true, "^00-" + clientTrace + "-[0-9a-f]{16}-01$"},
		{&config.Tracing{Sampling: none, IgnoreParent: true}, sampled, false, "^" + unsampled + "$"},
		{&config.Tracing{SampledParents: none}, sampled, false, "^" + sampled + "$"},
		{&config.Tracing{SampledParents: none}, "", true, "^00-[0-9a-f]{32}-[0-9a-f]{16}-01$"},
	}
	for i, tc := range cases {
		g.traced(addr, tc.c)
		header := http.Header{}
		if tc.parent != "" {
			header.Set("Traceparent", tc.parent)
		}
		g.request(t, "GET", fmt.Sprintf("/%d", i), header, nil)
		if got := *told.Load(); !regexp.MustCompile(tc.told).MatchString(got) {
			t.Errorf("%d: the backend was told %q, want %s", i, got, tc.told)
		}
	}
	// Half of them, within six standard deviations.
	g.traced(addr, &config.Tracing{Sampling: &config.Share{Numerator: 1, Denominator: 2}})
	for i := range 400 {
		g.request(t, "GET", fmt.Sprintf("/half/%d", i), nil, nil)
	}
	if err := g.Shutdown(t.Context()); err != nil { // has what waits be sent
		t.Fatal(err)
	}
	sent := c.paths()
	for i, tc := range cases {
		if sent[fmt.Sprintf("/%d", i)] != tc.recorded {
			t.Errorf("%d: a span was sent: %v, want %v", i, !tc.recorded, tc.recorded)
		}
		delete(sent, fmt.Sprintf("/%d", i))
	}
	if n := len(sent); n < 140 || n > 260 {
		t.Errorf("%d spans of 400 requests, of which half are to be recorded", n)
	}
}

// TestTracingCollectorAway: a collector that is down, hangs or refuses costs spans, and no request.
func TestTracingCollectorAway(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	hanging := rawBackend(t, func(_ net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	for name, addr := range map[string]string{"down": refusedAddr(t), "hangs": hanging} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }), nil)
			g.traced(addr, &config.Tracing{})
			collector := g.upstreams.Get(collectorKey)
			client := &http.Client{}
			defer client.CloseIdleConnections()
			for range 200 {
				resp, err := client.Get("http://" + g.addr() + "/")
				if err != nil {
					t.Fatal(err)
				}
				if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "ok" {
					t.Fatal(resp.Status)
				}
				resp.Body.Close()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := g.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			testkit.Eventually(t, "all spans are counted as dropped", func() bool { return collector.Stats().SpansDropped == 200 })
		})
	}
}

// TestTracingTriesAgain: a collector that comes back in time gets the spans that it has refused.
func TestTracingTriesAgain(t *testing.T) {
	t.Parallel()
	c, addr := serveCollector(t)
	c.fails.Store(2)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) {}), nil)
	g.traced(addr, &config.Tracing{})
	g.request(t, "GET", "/again", nil, nil)
	c.span(t, "/again")
}

// TestTracingEdits: edits and the end of tracing have what waits be sent, and lose no request.
func TestTracingEdits(t *testing.T) {
	t.Parallel()
	c, addr := serveCollector(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) {}), nil)
	const edits = 20
	for i := range edits {
		g.traced(addr, &config.Tracing{SpanName: fmt.Sprintf("name %d", i)})
		if resp, _ := g.request(t, "GET", fmt.Sprintf("/edit/%d", i), nil, nil); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	g.apply([]*config.Resource{g.httpListener("http", "")})
	for i := range edits {
		if s := c.span(t, fmt.Sprintf("/edit/%d", i)); s.Name != fmt.Sprintf("name %d", i) {
			t.Errorf("%d: %s", i, s.Name)
		}
	}
	g.request(t, "GET", "/untraced", nil, nil)
	g.reasonsLogged(edits + 1)
	if log := g.log.String(); strings.Count(log, "trace_id") != edits {
		t.Error("requests are traced though nothing says so")
	}
}
