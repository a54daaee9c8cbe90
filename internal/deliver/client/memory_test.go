package client

import (
	"cmp"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/proxy"
)

// manyRoutes is a full generation of n routes, each with a hostname, a Backend and an endpoint of its own, as it is sent.
func manyRoutes(tb testing.TB, n int) [][]byte {
	tb.Helper()
	const key = "default/gateway/http"
	resources := []*config.Resource{{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: key, Gateway: "default/gateway", Name: "http",
		Port: 8080, Protocol: config.Protocol_PROTOCOL_HTTP}}}} // not bound, because the address does not exist
	for i := range n {
		namespace, name := fmt.Sprintf("load-%d", i%50), fmt.Sprintf("app-%d", i/50)
		backend, hostname := config.ServiceBackendKey(namespace, name, 8080), fmt.Sprintf("%s.%s.example.com", name, namespace)
		resources = append(resources,
			&config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: backend, Namespace: namespace, Name: name, Port: 8080}}},
			&config.Resource{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: backend, Endpoints: []*config.Endpoint{
				{Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), Port: 8080, Identity: uint64(i+1) << 40}}}}},
			&config.Resource{Kind: &config.Resource_Route{Route: &config.Route{Key: config.RouteKey("HTTPRoute", namespace, name), Namespace: namespace, Name: name,
				CreatedUnixNano: 1_800_000_000_000_000_000 + int64(i), Attachments: []*config.Attachment{
					{Listener: key, Hostnames: []*config.Hostname{{Effective: hostname, Original: hostname}}}},
				Rules: []*config.Rule{{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
					BackendRefs: []*config.BackendRef{{Backend: backend, Weight: 1}}}}}}})
	}
	slices.SortFunc(resources, func(a, b *config.Resource) int { return config.CompareID(a.ID(), b.ID()) })
	messages := []*wire.ToProxy{begin("e", 1, true)}
	for some := range slices.Chunk(resources, resourcesInChunk) {
		messages = append(messages, chunk(some...))
	}
	return marshalled(tb, append(messages, commit(1))...)
}

func marshalled(tb testing.TB, messages ...*wire.ToProxy) (sent [][]byte) {
	tb.Helper()
	for _, m := range messages {
		data, err := proto.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		sent = append(sent, data)
	}
	return sent
}

// decoded returns the generation of the messages.
func decoded(tb testing.TB, sent [][]byte) *generation {
	tb.Helper()
	var parts assembler
	for _, data := range sent {
		m := &wire.ToProxy{}
		if err := proto.Unmarshal(data, m); err != nil {
			tb.Fatal(err)
		}
		g, err := parts.take(m)
		if err != nil {
			tb.Fatal(err)
		}
		if g != nil {
			return g
		}
	}
	tb.Fatal("there is no Commit")
	return nil
}

// accept has the Client apply the messages.
func accept(tb testing.TB, c *Client, sent [][]byte) {
	tb.Helper()
	if err := c.accept(decoded(tb, sent)); err != nil {
		tb.Fatal(err)
	}
}

// received returns a Client that has applied the messages.
func received(tb testing.TB, sent [][]byte, o Options) *Client {
	tb.Helper()
	c := New(o)
	accept(tb, c, sent)
	return c
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what pools hold is freed by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemory bounds what is kept of a route with its Backend and Endpoints, without what the proxy makes of them: it was 1,008 bytes.
func TestMemory(t *testing.T) {
	const n = 5000
	sent := manyRoutes(t, n)
	before := heapInUse()
	c := received(t, sent, Options{Apply: func(*config.Update) proxy.Result { return proxy.Result{} }})
	if kept := (heapInUse() - before) / n; kept > 1150 {
		t.Errorf("%d bytes are kept of a route", kept)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(sent)
}

// BenchmarkMemory5000Routes reports the time to receive 5,000 routes, and what is kept of each: by the Client alone, and by the proxy too.
func BenchmarkMemory5000Routes(b *testing.B) {
	const n = 5000
	sent := manyRoutes(b, n)
	size := 0
	for _, data := range sent {
		size += len(data)
	}
	for name, start := range map[string]func() (o Options, end func()){
		"client": func() (Options, func()) {
			return Options{Apply: func(*config.Update) proxy.Result { return proxy.Result{} }}, func() {}
		},
		"proxy": func() (Options, func()) {
			p := proxy.New(proxy.Options{Bind: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
			return Options{Apply: p.Apply, Rebind: p.Rebind}, func() { p.Shutdown(b.Context()) } //nolint:errcheck // nothing is open
		},
	} {
		b.Run(name, func(b *testing.B) {
			kept := int64(0)
			for b.Loop() {
				b.StopTimer()
				o, end := start()
				before := heapInUse()
				b.StartTimer()
				c := received(b, sent, o)
				b.StopTimer()
				kept = cmp.Or(kept, heapInUse()-before) // of the first time, before pools are filled
				if c.held.resources.len() != 3*n+1 || len(c.held.rejected) > 0 {
					b.Fatalf("%d resources are held, %v rejected", c.held.resources.len(), c.held.rejected)
				}
				end()
				b.StartTimer()
			}
			b.ReportMetric(float64(kept)/n, "B/route")
			b.ReportMetric(float64(size)/n, "sent-B/route")
		})
	}
}

// BenchmarkEdit receives and applies an edit of one of 5,000 routes.
func BenchmarkEdit(b *testing.B) {
	p := proxy.New(proxy.Options{Bind: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	defer p.Shutdown(b.Context()) //nolint:errcheck // nothing is open
	sent := manyRoutes(b, 5000)
	c := received(b, sent, Options{Apply: p.Apply, Rebind: p.Rebind})
	edited := &wire.ToProxy{}
	if err := proto.Unmarshal(sent[len(sent)-2], edited); err != nil { // the last Chunk
		b.Fatal(err)
	}
	r := edited.GetChunk().GetUpserts()[0]
	edited.GetChunk().Upserts = []*config.Resource{r}
	for n := uint64(2); b.Loop(); n++ {
		r.GetRoute().Rules[0].RequestTimeoutNanos = int64(n)
		accept(b, c, marshalled(b, begin("e", n, false), edited, commit(n)))
	}
	b.ReportAllocs()
}
