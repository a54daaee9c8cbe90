package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports hands out ports of 127.0.0.1 that nothing listens on, none twice. The system must not give those from Low up to High to outgoing connections (32768 to 60999 on
// Linux, as a rule), of which tests make thousands. Packages whose tests run at the same time need ranges of their own.
type Ports struct {
	Low, High int

	mu   sync.Mutex
	next int
}

// Free returns another one.
func (p *Ports) Free(t testing.TB) int {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == 0 {
		p.next = p.Low + rand.IntN((p.High-p.Low)/2) // two runs of the same tests may be under way
	}
	for p.next < p.High {
		port := p.next
		p.next++
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
