package upstream

import (
	"context"
	"time"
)

// maxPreconnect is the most that is made of BackendConnections.preconnect_per_endpoint_percent.
const maxPreconnect = 300

// maxSpare bounds how many spare connections to an endpoint are being made at a time.
const maxSpare = 8

// preconnect makes spare connections, so that there are as many as a percentage of the requests in flight needs, and follows each request that is given a connection.
func (e *Endpoint) preconnect() {
	s := e.settings()
	if s == nil || s.preconnect <= 100 || e.inner != nil { // requests are not counted there
		return
	}
	if e.suspect.Load() != notSuspect || e.avoided() { // one request at a time finds out how it does
		return
	}
	if e.backend.root().breaker.starved.Load() > 0 { // who waits for the limit on all connections comes first
		return
	}
	want := (e.inFlightNow()*s.preconnect + 99) / 100
	if e.multiplexes() {
		e.preconnectShared(want)
		return
	}
	for e.open.Load()+e.spares.Load() < want {
		if e.spares.Add(1) > maxSpare || e.reserve() != notLimited {
			e.spares.Add(-1)
			return
		}
		go e.dialSpare()
	}
}

// dialSpare makes a connection that idles then, or is given to who waits.
func (e *Endpoint) dialSpare() {
	defer e.spares.Add(-1)
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
	if e.speaksHTTP2(c) { // the backend has changed its mind since it chose HTTP/1.1
		e.sharing.mu.Lock()
		defer e.sharing.mu.Unlock()
		e.sharing.exclusive.Store(false)
		e.share(c)
		return
	}
	c.idle()
}

// preconnectShared makes one more connection where those that are there do not carry so many streams.
func (e *Endpoint) preconnectShared(want int64) {
	h := &e.sharing
	var room int64
	for _, s := range h.list() {
		room += s.limit()
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

// idle makes a connection available that was not used since it was made.
func (c *Conn) idle() {
	c.released = c.endpoint.backend.set.clock.Load()
	c.giveBack()
}
