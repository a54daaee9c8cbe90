package translate_test

import (
	"fmt"
	"runtime"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

// BenchmarkMemory5000Routes reports what translation keeps for a route with one rule and a hostname of its own, in front of one of 100 Services,
// and how many functions it ran and what these read.
func BenchmarkMemory5000Routes(b *testing.B) {
	const n, services = 5000, 100
	for b.Loop() {
		w := newWorld()
		gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
		gc.Name = "moongate"
		w.Upsert(gc)
		w.Upsert(crowdGateway(1))
		for i := range services {
			w.Upsert(crowdService(i))
			w.Upsert(crowdSlice(i, "10.0.0.1"))
		}
		routes := make([]*gwv1.HTTPRoute, n)
		for i := range routes {
			routes[i] = crowdRoute(i, "/")
			routes[i].Spec.Hostnames = []gwv1.Hostname{gwv1.Hostname(fmt.Sprintf("host-%d.example.com", i))}
			routes[i].Spec.Rules[0].BackendRefs[0].Name = gwv1.ObjectName(fmt.Sprintf("s%d", i%services))
		}
		before := heapInUse()
		for _, r := range routes {
			w.Upsert(r)
		}
		r := w.Commit()
		b.ReportMetric(float64(heapInUse()-before)/n, "B/route")
		b.ReportMetric(float64(r.Stats.Runs)/n, "runs/route")
		b.ReportMetric(float64(r.Stats.Reads)/n, "reads/route")
		b.Logf("runs %v, reads %v", r.Stats.RunsByName, r.Stats.ReadsByName)
		r = translate.Result{}
		runtime.KeepAlive(w)
		runtime.KeepAlive(routes)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
