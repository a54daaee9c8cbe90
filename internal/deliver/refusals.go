package deliver

import (
	"context"
	"maps"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
)

const (
	// repeatRefusal is when a refusal that stays the same is worth another line.
	repeatRefusal = 10 * time.Minute
	// maxRefusals bounds what is remembered: everybody in the cluster can reach the port.
	maxRefusals = 4096
)

// refusals decides which streams that are refused are worth a line in the log: the first of each caller, since one
// asks again every few seconds for as long as it runs. The zero value is ready. It is safe for concurrent use.
type refusals struct {
	mu   sync.Mutex
	said map[refusal]time.Time
}

type refusal struct {
	caller string // its address, without the port
	code   codes.Code
}

// news notes a refusal and says whether to log it.
func (f *refusals) news(caller string, code codes.Code, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := func(_ refusal, at time.Time) bool { return now.Sub(at) >= repeatRefusal }
	key := refusal{caller, code}
	if at, known := f.said[key]; known && !old(key, at) {
		return false
	}
	if len(f.said) >= maxRefusals {
		if maps.DeleteFunc(f.said, old); len(f.said) >= maxRefusals {
			return false
		}
	}
	if f.said == nil {
		f.said = map[refusal]time.Time{}
	}
	f.said[key] = now
	return true
}

// forget is called when a caller is served: the address may be another one's by the next time.
func (f *refusals) forget(caller string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.said, func(k refusal, _ time.Time) bool { return k.caller == caller })
}

// callerOf is the address that a call comes from, without the port; "" where it is not known.
func callerOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}
