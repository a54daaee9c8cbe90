package upstream

import (
	"context"
	"time"
)

// maxPreconnect is the largest value of BackendConnections.preconnect_per_endpoint_percent that is used.
const maxPreconnect = 300

// maxSpare is the largest number of spare connections to an endpoint that are made at a time.
const maxSpare = 8

// preconnect makes spare connections so that there are as many as a percentage of the requests in flight needs. It is
// called for each request that got a connection.
func (e *Endpoint) preconnect() {
	s := e.settings()
	if s == nil || s.preconnect <= 100 || e.inner != nil { // requests are not counted within an Endpoint
		return
	}
	if e.suspect.Load() != notSuspect || e.avoided() { // one request at a time tries the endpoint then
		return
	}
	if e.backend.root().use().breaker.starved.Load() > 0 { // requests that wait for the limit on all connections come first
		return
	}
	want := (e.inFlightNow()*s.preconnect + 99) / 100
	if e.multiplexes() {
		e.preconnectShared(want)
		return
	}
	u := e.use()
	for u.open.Load()+u.spares.Load() < want {
		if u.spares.Add(1) > maxSpare || e.reserve() != notLimited {
			u.spares.Add(-1)
			return
		}
		go e.dialSpare()
	}
}

// dialSpare makes a connection, which becomes idle or is given to a waiting request.
func (e *Endpoint) dialSpare() {
	defer e.use().spares.Add(-1)
	defer func() {
		if v := recover(); v != nil {
			e.backend.set.options.Panicked("connect", v)
		}
	}()
	limit := e.connectLimit(time.Time{})
	limit.spare = true
	c, err := e.dialBy(context.Background(), limit, forRequest, nil)
	if err != nil {
		return
	}
	if e.speaksHTTP2(c) { // the backend now chooses HTTP/2, after it chose HTTP/1.1 before
		h := &e.use().sharing
		h.mu.Lock()
		defer h.mu.Unlock()
		h.exclusive.Store(false)
		e.share(c)
		return
	}
	c.idle()
}

// preconnectShared makes one more connection if the existing ones cannot carry want streams.
func (e *Endpoint) preconnectShared(want int64) {
	h := &e.use().sharing
	var room int64
	for _, s := range h.list() {
		n := s.limit()
		if n <= 0 { // a spare connection would allow no streams either
			return
		}
		room += n
	}
	if room >= want {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dialling == 0 && e.reserve() == notLimited {
		h.dialling++
		limit := e.connectLimit(time.Time{})
		limit.spare = true
		go e.dialShared(limit)
	}
}

// idle makes a new, unused connection available.
func (c *Conn) idle() {
	c.released = c.endpoint.backend.set.clock.Load()
	c.giveBack()
}
