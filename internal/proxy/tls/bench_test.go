package tls

import (
	"crypto"
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// BenchmarkChoice is what a handshake pays for finding its configuration among the names of four listeners,
// with an ECDSA and an RSA certificate for each hundred names.
func BenchmarkChoice(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			const listeners = 4
			byName := map[string]*Listener{}
			var names []string
			for l := range listeners {
				key := fmt.Sprintf("l%d", l)
				each := hosts(b, key, max(1, n/listeners))
				for i := range max(1, n/listeners) {
					names = append(names, hostName(key, i))
					byName[names[len(names)-1]] = each
				}
			}
			cfg := Server(func(_ net.Conn, name string) *Listener { return byName[name] })
			h := hello("")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				h.ServerName = names[i*7919%len(names)]
				if c, err := cfg.GetConfigForClient(h); c == nil || err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkListener is what making a listener costs whose certificates have been parsed, and what it then holds.
func BenchmarkListener(b *testing.B) {
	keys := [...]crypto.Signer{testkit.NewKey(b), rsaKey(b)}
	for _, n := range []int{10, 1_000, 10_000} {
		var certs []*Certificate
		for from := 0; from < n; from += 100 {
			var names []string
			for i := from; i < min(from+100, n); i++ {
				names = append(names, hostName("l", i))
			}
			for kind, k := range keys {
				certs = append(certs, parsed(b, resource(b, fmt.Sprint(from, kind), k, names...)))
			}
		}
		b.Run(fmt.Sprintf("%d names, %d certificates", n, len(certs)), func(b *testing.B) {
			var none *Listener
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			held := none.Update("l", certs, secrets(1, 2, 3), nil, nil, HTTP)
			runtime.GC()
			runtime.ReadMemStats(&after)
			for i := byte(0); b.Loop(); i++ {
				none.Update("l", certs, secrets(i, 2, 3), nil, nil, HTTP)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "B/name")
			runtime.KeepAlive(held)
		})
	}
}
