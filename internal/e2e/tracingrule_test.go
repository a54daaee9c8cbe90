package e2e

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// otlpCollector takes spans by OTLP over gRPC.
type otlpCollector struct {
	port  int
	mu    sync.Mutex
	spans map[string]*tracepb.Span // by attribute url.path
}

func startCollector(t *testing.T) *otlpCollector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &otlpCollector{port: l.Addr().(*net.TCPAddr).Port, spans: map[string]*tracepb.Span{}}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := &tracepb.TracesData{} // an ExportTraceServiceRequest by another name
			if err := decode(m); err != nil {
				return nil, err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, r := range m.ResourceSpans {
				for _, scope := range r.ScopeSpans {
					for _, span := range scope.Spans {
						c.spans[attributesOf(span)["url.path"]] = span
					}
				}
			}
			return &emptypb.Empty{}, nil
		}}},
	}, struct{}{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return c
}

func attributesOf(s *tracepb.Span) map[string]string {
	all := map[string]string{}
	for _, kv := range s.Attributes {
		all[kv.Key] = kv.Value.GetStringValue()
	}
	return all
}

// span waits for the span of a request by its path.
func (c *otlpCollector) span(t *testing.T, path string) (span *tracepb.Span) {
	t.Helper()
	testkit.Eventually(t, "the span of "+path, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		span = c.spans[path]
		return span != nil
	})
	return span
}

// TestTaskTracingByRoute does what the page says. The collector gets the spans of the rule that has its requests recorded, with the tags and the name that its policy
// gives them, and none of the other rule.
func TestTaskTracingByRoute(t *testing.T) {
	t.Parallel()
	asExample(t, "tracing-by-route")
	app := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		if parent := r.Header.Get("Traceparent"); parent != "" {
			w.Header().Set("X-Sampled", parent[len(parent)-1:])
		}
		return false
	})
	c := startCollector(t)
	g := runTask(t, "tracing-by-route", map[int]*backend{3000: app, 4000: {name: "collector", port: c.port}})
	g.waitCondition("BackendTrafficPolicy", "orders", "Accepted=True/Accepted")
	url := "http://" + g.listening(t)
	for range 3 {
		for path, want := range map[string]string{"/users/2": "0", "/orders/1": "1"} {
			if got := (ask{url: url + path, header: map[string]string{"X-Tenant": "a"}}).do(t); got.StatusCode != 200 || got.Header.Get("X-Sampled") != want {
				t.Errorf("%s: %s, sampled %q, want %s", path, got.Status, got.Header.Get("X-Sampled"), want)
			}
		}
	}
	span := c.span(t, "/orders/1")
	got := attributesOf(span)
	if span.Name != "GET orders" || got["tenant"] != "a" || got["rule"] != "default/app/orders" || got["outcome"] != "200 ok" {
		t.Errorf("span %q with %v", span.Name, got)
	}
	c.mu.Lock()
	for _, path := range slices.Sorted(maps.Keys(c.spans)) {
		if !strings.HasPrefix(path, "/orders") {
			t.Errorf("a span of %s has come", path)
		}
	}
	c.mu.Unlock()
	stdout, stderr, code := moongate("explain", "-f", g.dir+"/tracing-by-route.yaml", "GET", url+"/orders")
	if want := "traced, 100 of 100 such requests: span of service moongate to Service default/collector port 4317"; code != 0 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, want %q in %s%s", code, want, stdout, stderr)
	}
}
