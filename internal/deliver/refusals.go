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
	// repeatRefusal is after how long a refusal that stays the same is logged again.
	repeatRefusal = 10 * time.Minute
	// maxRefusals limits the callers that are remembered: every pod of the cluster can connect.
	maxRefusals = 4096
)

// refusals decides which refused streams are logged: the first of each caller, which tries again every few seconds for as long as it
// runs. The zero value is ready. It is safe for concurrent use.
type refusals struct {
	mu       sync.Mutex
	loggedAt map[refusal]time.Time
}

type refusal struct {
	caller string // its address, without the port
	code   codes.Code
}

// news records a refusal and reports whether it should be logged.
func (f *refusals) news(caller string, code codes.Code, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := func(_ refusal, at time.Time) bool { return now.Sub(at) >= repeatRefusal }
	key := refusal{caller, code}
	if at, known := f.loggedAt[key]; known && !old(key, at) {
		return false
	}
	if len(f.loggedAt) >= maxRefusals {
		if maps.DeleteFunc(f.loggedAt, old); len(f.loggedAt) >= maxRefusals {
			return false
		}
	}
	if f.loggedAt == nil {
		f.loggedAt = map[refusal]time.Time{}
	}
	f.loggedAt[key] = now
	return true
}

// forget is called when a caller is served: the next time the address may belong to another caller.
func (f *refusals) forget(caller string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.loggedAt, func(k refusal, _ time.Time) bool { return k.caller == caller })
}

// callerOf returns the address of a call's peer, without the port; "" if it is not known.
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
