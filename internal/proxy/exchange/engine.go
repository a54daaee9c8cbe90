// Package exchange is what a request goes through, whatever protocol it came in: listener and
// route, filters, the choice of a backend and its endpoint, retries, copies, timeouts, the relay of
// the response, and the record that is counted and logged. It exists so that this is straight-line code
// which reads like docs/life-of-a-request.md, run by the goroutine of an HTTP/1 connection or
// of an HTTP/2 stream; client.go says what those have to offer.
//
// It must never import the packages that own connections from clients, nor the engine.
package exchange

import (
	"context"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/compression"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
)

// Engine is what all exchanges of a proxy share. Its exported fields are set before the first one.
type Engine struct {
	Limits   http1.Limits
	Observer *observe.Observer
	Logging  bool // request lines are wanted: remember what only they show
	// LoggedRequest and LoggedResponse are the headers, in lower case, whose values lines have.
	LoggedRequest, LoggedResponse []string
	// KeepRequestIDs makes X-Request-Id of clients be passed on where it is plain.
	KeepRequestIDs bool
	// MaxKept is how many bytes may be at hand of all request bodies together that are read whole or kept to be sent again, without those of which no more is than of any
	// request; 0 is no bound.
	MaxKept int64
	// Background ends copies of requests (mirrors) that are under way.
	Background context.Context
	// Snapshot is the configuration in force, never nil once connections are served.
	Snapshot atomic.Pointer[snapshot.Snapshot]
	// Clock is the coarse clock in Unix milliseconds; its owner advances it.
	Clock atomic.Int64
	// Draining makes every response end its connection.
	Draining atomic.Bool
	// Overloaded makes every new request be refused: memory is scarce.
	Overloaded atomic.Bool

	// Budget is what may be allocated until Overloaded is set. New connections and requests are refused where nothing is left of it, as where Overloaded is set.
	Budget buffer.Budget

	// Every request reads what stands above; what copies of requests and tunnels write to lies apart.
	_       [128]byte
	mirrors mirrors
	tunnels tunnels
	// Encoders are those of the responses that are compressed.
	Encoders compression.Encoders
	paced    pacedResponses
	// HangUps is what tunnels share. It is to be closed behind the last of them.
	HangUps tunnel.HangUps

	keptBodies keptBodies
}

// Cost is an estimate of what a request under way takes, in bytes: its stack, its Exchange and its head, but no large buffer.
const Cost = 16 << 10

// Holds is how many bytes at least a response holds of which a part stands in a buffer, which may be a little one.
func Holds(little bool) uint64 {
	if little {
		return buffer.LittleSize + Cost
	}
	return buffer.Size
}

// Refuses reports whether new connections and requests are refused: memory is scarce.
func (e *Engine) Refuses() bool { return e.Overloaded.Load() || e.Budget.Exhausted() }

// Now is the coarse clock in Unix milliseconds.
func (e *Engine) Now() int64 { return e.Clock.Load() }

// Mirrors is the number of copies of requests under way.
func (e *Engine) Mirrors() int { return e.mirrors.count() }

// Wait waits for the copies of requests that are under way. No exchange may begin any more.
func (e *Engine) Wait() { e.mirrors.running.Wait() }
