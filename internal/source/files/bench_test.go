package files

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// manyRoutes is what the benchmarks and the acceptance of a large set speak of: n
// HTTPRoutes of two rules, as people write them.
func manyRoutes(n int, edit func(i int) string) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: route-%d
  namespace: team-%d
spec:
  parentRefs:
  - name: gateway
    namespace: infra
  hostnames:
  - host-%d.example.com
  rules:
  - matches:
    - path: {type: PathPrefix, value: /api%s}
      headers:
      - {name: x-version, value: "2"}
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier:
        set: [{name: x-route, value: route-%d}]
    backendRefs:
    - {name: service-%d, port: 8080, weight: 9}
    - {name: service-%d-canary, port: 8080, weight: 1}
    timeouts: {request: 10s}
  - backendRefs:
    - {name: service-%d, port: 8080}
`, i, i%50, i, edit(i), i, i, i, i)
	}
	return b.Bytes()
}

func unedited(int) string { return "" }

func BenchmarkLoad5000Routes(b *testing.B) {
	const n = 5000
	oneFile, manyFiles := b.TempDir(), b.TempDir()
	write(b, filepath.Join(oneFile, "routes.yaml"), string(manyRoutes(n, unedited)))
	for i, text := range bytes.Split(manyRoutes(n, unedited), []byte("---\n"))[1:] {
		write(b, filepath.Join(manyFiles, fmt.Sprintf("route-%d.yaml", i)), string(text))
	}
	for name, dir := range map[string]string{"one file": oneFile, "a file each": manyFiles} {
		b.Run(name, func(b *testing.B) {
			s := source(b, dir)
			s.Load() // compiles the schema
			b.ReportAllocs()
			began := cpuTime(b)
			for b.Loop() {
				if got := len(s.Load().Objects); got != n+50 {
					b.Fatalf("%d objects", got)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N)/n, "CPU-µs/route")
		})
	}
}

// cpuTime is what the process has used of all processors.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMemory5000Routes reports what 5,000 loaded routes occupy, and what the
// compiled schema does.
func BenchmarkMemory5000Routes(b *testing.B) {
	const n = 5000
	dir := b.TempDir()
	path := filepath.Join(dir, "routes.yaml")
	for b.Loop() {
		write(b, path, string(manyRoutes(1, unedited)))
		start := heapInUse()
		began := time.Now()
		source(b, dir).Load()
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/first-route")
		compiled := heapInUse()
		b.ReportMetric(float64(compiled-start)/1024, "KiB/schema")
		write(b, path, string(manyRoutes(n, unedited)))
		c := newCatalog(source(b, dir))
		c.begin()
		c.rescan(nil, nil, time.Now())
		c.commit()
		c.begin()
		b.ReportMetric(float64(heapInUse()-compiled)/n, "B/route")
		runtime.KeepAlive(c)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkEditOneOf5000 is the time from a rename to the change that it makes, among
// 5,000 files and in one file of 5,000 documents (3.5 MB); the 1 ms of settle is in it.
func BenchmarkEditOneOf5000(b *testing.B) {
	const n = 5000
	for _, name := range []string{"one file", "a file each"} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			path := filepath.Join(dir, "routes.yaml")
			text := func(v int) string {
				return string(manyRoutes(n, func(i int) string {
					if i == n/2 {
						return fmt.Sprintf("/v%d", v)
					}
					return ""
				}))
			}
			if name == "a file each" {
				for i, t := range bytes.Split(manyRoutes(n, unedited), []byte("---\n"))[1:] {
					write(b, filepath.Join(dir, fmt.Sprintf("route-%d.yaml", i)), string(t))
				}
				path = filepath.Join(dir, fmt.Sprintf("route-%d.yaml", n/2))
				text = func(v int) string {
					return string(bytes.Split(manyRoutes(n/2+1, func(int) string { return fmt.Sprintf("/v%d", v) }), []byte("---\n"))[n/2+1])
				}
			} else {
				write(b, path, text(0))
			}
			changes := make(chan Change, 16)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error)
			go func() { done <- source(b, dir).Run(ctx, func(c Change) { changes <- c }) }()
			<-changes
			v := 0
			for b.Loop() {
				v++
				b.StopTimer()
				edited := []byte(text(v))
				if err := os.WriteFile(path+".new", edited, 0o644); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := os.Rename(path+".new", path); err != nil {
					b.Fatal(err)
				}
				if c := <-changes; len(c.Upserts) != 1 || len(c.Deletes) != 0 {
					b.Fatalf("%d upserts, %d deletes", len(c.Upserts), len(c.Deletes))
				}
			}
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
