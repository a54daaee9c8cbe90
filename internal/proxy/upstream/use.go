package upstream

import (
	"context"
	"sync/atomic"
)

// Of thousands of backends, most may have no requests for hours. What a backend and its endpoints need only for requests is
// made at their first use, and takes no memory until then.

// endpointUse is the part of an Endpoint that exists since its first use.
type endpointUse struct {
	// life ends when the endpoint is removed from the configuration.
	life context.Context
	end  context.CancelFunc

	// Requests use own or, if the endpoint is spread, the shard of their core; see shard.
	spread atomic.Bool
	shards atomic.Pointer[[]coreShard]
	own    shard
	// inFlight is the number of requests between Begin and End, without those that shards have not reported.
	inFlight atomic.Int64
	// met counts how many times since the last Sweep two cores wrote to inFlight at the same moment.
	met atomic.Int64

	dials   dialQueue
	sharing sharing
	within  within

	open, dialled, failures atomic.Int64
	spares                  atomic.Int64 // connections that preconnect is making

	report loadReport
	// stopReports ends the stream that requests load reports; nil if there is none; guarded by Set.mu.
	stopReports context.CancelFunc
}

// use returns the part that exists since the first use, and makes it if this is the first.
func (e *Endpoint) use() *endpointUse {
	if u := e.used.Load(); u != nil {
		return u
	}
	return e.useFirst()
}

func (e *Endpoint) useFirst() *endpointUse {
	u := &endpointUse{}
	if e.inner != nil {
		u.life, u.end = e.inner.whole.use().life, func() {}
	} else {
		u.life, u.end = context.WithCancel(context.Background())
	}
	u.dials.blocked.backend = e.backend.root()
	u.sharing.blocked.backend = e.backend.root()
	e.used.CompareAndSwap(nil, u) // fails if another request was first
	return e.used.Load()
}

// soFar is like use, but returns zero values before the first use. It is only for reading.
func (e *Endpoint) soFar() *endpointUse {
	if u := e.used.Load(); u != nil {
		return u
	}
	return &unusedEndpoint
}

// backendUse is the part of a Backend that exists since its first use. Variants use that of their base.
type backendUse struct {
	totals   totals
	breaker  Breaker
	sockets  atomic.Int64 // connections that are open or being made, see acquireSocket
	eviction eviction
}

// use is like Endpoint.use. b must not be a variant.
func (b *Backend) use() *backendUse {
	if u := b.used.Load(); u != nil {
		return u
	}
	return b.useFirst()
}

func (b *Backend) useFirst() *backendUse {
	b.used.CompareAndSwap(nil, new(backendUse))
	return b.used.Load()
}

// soFar is like Endpoint.soFar. b must not be a variant.
func (b *Backend) soFar() *backendUse {
	if u := b.used.Load(); u != nil {
		return u
	}
	return &unusedBackend
}

// soFar returns these before the first use. They are zero, and nothing writes to them.
var (
	unusedEndpoint endpointUse
	unusedBackend  backendUse
)
