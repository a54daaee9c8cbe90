// Package exchange processes a request, whatever protocol it arrived in: listener and route, filters, the choice of a
// backend and its endpoint, retries, mirrors, timeouts, the relay of the response, and the record that is counted and
// logged. It exists so that this is straight-line code which reads like docs/life-of-a-request.md, run by the goroutine
// of an HTTP/1 connection or of an HTTP/2 stream. What these must provide is defined in client.go.
//
// It must never import the packages that own connections from clients, nor the engine.
package exchange

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/compression"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Engine is what all exchanges of a proxy share. Its exported fields are set before the first exchange.
type Engine struct {
	Limits   http1.Limits
	Observer *observe.Observer
	Logging  bool // an access log is written, so record what only it shows
	// LoggedRequest and LoggedResponse are the names of the headers whose values are logged, in lower case.
	LoggedRequest, LoggedResponse []string
	// KeepRequestIDs makes the gateway pass on a client's X-Request-Id if it is a plain value.
	KeepRequestIDs bool
	// MaxKept is the largest number of bytes held for all request bodies together that are read completely, or kept to
	// be sent again, because configuration requires it. It does not count bodies for which no more is held than for any
	// request. 0 means no limit.
	MaxKept int64
	// Upstreams holds the connections to backends that are for one client each; nil if there are none.
	Upstreams *upstream.Set
	// Background ends the copies of requests (mirrors) that are in progress.
	Background context.Context
	// Snapshot is the current configuration. It is never nil once connections are served.
	Snapshot atomic.Pointer[snapshot.Snapshot]
	// Clock is the coarse clock in Unix milliseconds. Its owner advances it.
	Clock atomic.Int64
	// Draining makes every response end its connection.
	Draining atomic.Bool
	// Overloaded makes every new request be refused because memory is scarce.
	Overloaded atomic.Bool

	// Budget is how much may be allocated before Overloaded is set. New connections and requests are refused when
	// nothing is left of it, as when Overloaded is set.
	Budget buffer.Budget

	// padding: every request reads the fields above; mirrors and tunnels write to those below
	_       [128]byte
	mirrors mirrors
	tunnels tunnels
	// Encoders are the encoders of the responses that are being compressed.
	Encoders compression.Encoders
	paced    pacedResponses
	// HangUps is shared by the tunnels. It must be closed after the last of them.
	HangUps tunnel.HangUps

	keptBodies keptBodies
}

// Cost estimates the memory of a request in progress in bytes: its stack, its Exchange and its head, but no large
// buffer.
const Cost = 16 << 10

// Holds returns the least number of bytes that a response holds while a part of it is in a buffer. little means that it
// may be a little buffer.
func Holds(little bool) uint64 {
	if little {
		return buffer.LittleSize + Cost
	}
	return buffer.Size
}

// Refuses reports whether new connections and requests are refused because memory is scarce.
func (e *Engine) Refuses() bool { return e.Overloaded.Load() || e.Budget.Exhausted() }

// Now returns the coarse clock in Unix milliseconds.
func (e *Engine) Now() int64 { return e.Clock.Load() }

// ClientGone must be called when a connection from a client has ended, with the client's address, see Client.Peer.
func (e *Engine) ClientGone(client netip.AddrPort) {
	if e.Upstreams != nil {
		e.Upstreams.ClientGone(client)
	}
}

// Mirrors returns the number of copies of requests in progress.
func (e *Engine) Mirrors() int { return e.mirrors.count() }

// Wait waits for the copies of requests that are in progress. No exchange may begin afterwards.
func (e *Engine) Wait() { e.mirrors.running.Wait() }
