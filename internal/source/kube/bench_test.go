package kube

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// BenchmarkMemory5000 reports what 5,000 HTTPRoutes, Services and EndpointSlices occupy
// when all have been told, how long the first Change takes, and what one status write costs.
func BenchmarkMemory5000(b *testing.B) {
	const n = 5000
	s := newAPIServer(b, true)
	s.install(nil)
	for i := range n {
		s.putLarge(i)
	}
	s.compact()
	for b.Loop() {
		start := heapInUse()
		source, err := New(Options{Config: s.config()})
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		told := make(chan int)
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error)
		go func() {
			done <- source.Run(ctx, func(c Change) { told <- len(c.Upserts) })
		}()
		if got := <-told; got != 3*n {
			b.Fatalf("%d objects", got)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/first")
		b.ReportMetric(float64(heapInUse()-start)/(3*n), "B/object")
		for _, k := range []string{"HTTPRoute", "Service", "EndpointSlice"} {
			held := heapInUse()
			source.mu.Lock()
			clear(source.catalog.table(kindNamed(k)).objects)
			source.mu.Unlock()
			b.ReportMetric(float64(held-heapInUse())/n, "B/"+k)
		}
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

func (s *apiServer) putLarge(i int) {
	service := fmt.Sprintf("service-%d", i)
	s.put(gatewayGroup+"/httproutes", "HTTPRoute", "team", fmt.Sprintf("route-%d", i), fields{
		"metadata": fields{"uid": fmt.Sprintf("0d8d5b1c-0000-4000-8000-%012d", i), "creationTimestamp": "2026-01-01T00:00:00Z",
			"annotations": fields{"kubectl.kubernetes.io/last-applied-configuration": fmt.Sprintf("%01000d", i)}},
		"spec": fields{
			"parentRefs": []any{fields{"name": "gateway", "namespace": "infra"}}, "hostnames": []any{fmt.Sprintf("host-%d.example.com", i)},
			"rules": []any{fields{
				"matches":     []any{fields{"path": fields{"type": "PathPrefix", "value": "/api"}, "headers": []any{fields{"name": "x-version", "value": "2"}}}},
				"backendRefs": []any{fields{"name": service, "port": int64(8080), "weight": int64(9)}, fields{"name": service + "-canary", "port": int64(8080), "weight": int64(1)}},
			}},
		},
		"status": fields{"parents": []any{fields{
			"controllerName": "moongate.dev/gateway-controller", "parentRef": fields{"name": "gateway", "namespace": "infra"},
			"conditions": []any{
				fields{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
				fields{"type": "ResolvedRefs", "status": "True", "reason": "ResolvedRefs", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
			},
		}}},
	})
	s.putService(service, 8080)
	endpoint := func(address string) fields {
		return fields{"addresses": []any{address}, "nodeName": "node-1", "zone": "a", "targetRef": fields{"kind": "Pod", "name": service + "-x", "namespace": "team", "uid": "u"},
			"conditions": fields{"ready": true, "serving": true, "terminating": false}}
	}
	s.put("discovery.k8s.io/endpointslices", "EndpointSlice", "team", service+"-abcde", fields{
		"metadata":    fields{"labels": fields{"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
		"addressType": "IPv4", "ports": []any{fields{"name": "http", "port": int64(8080), "protocol": "TCP"}},
		"endpoints": []any{endpoint(fmt.Sprintf("10.244.%d.%d", i/250, i%250)), endpoint(fmt.Sprintf("10.245.%d.%d", i/250, i%250))},
	})
}

// BenchmarkStatusWrite is what a write costs that translation does not read, without decoding.
func BenchmarkStatusWrite(b *testing.B) {
	s := newAPIServer(b, true)
	s.install(nil)
	s.putLarge(1)
	c := &consumer{t: b}
	c.Source, _ = New(Options{Config: s.config()})
	told := make(chan Change)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx, func(change Change) { told <- change }) }()
	<-told
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	written, _ := c.Get(kind.ObjectKey{Group: gatewayGroup, Kind: "HTTPRoute", Namespace: "team", Name: "route-1"})
	routes := c.catalog.table(kindNamed("HTTPRoute"))
	version := 0
	for b.Loop() {
		version++
		o := written.(*gwv1.HTTPRoute).DeepCopy()
		o.ResourceVersion = strconv.Itoa(version)
		routes.set(o)
		if change := c.catalog.take(); change.ConcernsTranslation() || len(change.Observed) != 1 {
			b.Fatalf("%+v", change)
		}
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
