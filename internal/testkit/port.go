package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports provides ports of 127.0.0.1 on which nothing listens, each once. The system must not use those from Low up to High for
// outgoing connections (usually 32768 to 60999 on Linux), of which tests open thousands. Packages whose tests run at the same time
// need separate ranges.
type Ports struct {
	Low, High int

	mu   sync.Mutex
	next int
}

// Free returns another port.
func (p *Ports) Free(t testing.TB) int {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == 0 {
		p.next = p.Low + rand.IntN((p.High-p.Low)/2) // random, because the same tests may run twice at the same time
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
