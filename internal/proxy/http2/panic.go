package http2

// unlock releases mu, and is deferred. If the deferring function panics, the connection is in an unknown state, so it
// ends with all of its streams.
func (c *Conn) unlock() {
	v := recover()
	if v == nil {
		c.mu.Unlock()
		return
	}
	c.broken = true
	c.mu.Unlock()
	c.nc.Close()
	panic(v)
}

// report reports a recovered panic.
func (c *Conn) report(v any) {
	if c.o.Panicked != nil {
		c.o.Panicked(v)
	}
}

// readSafely is read, which returns an error instead of panicking.
func (c *Conn) readSafely(prior []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			c.report(v)
			err = connError(InternalError, "internal error")
		}
	}()
	return c.read(prior)
}

// readUnlocked reads from nc without mu.
func (c *Conn) readUnlocked() (int, error) {
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.nc.Read(c.in.space())
}

// writeUnlocked writes to nc without mu.
func (c *Conn) writeUnlocked(b []byte) (int, error) {
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.nc.Write(b)
}

// directUnlocked writes as much as the socket takes at once, without mu.
func (c *Conn) directUnlocked(b []byte) (int, error) {
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.direct(b)
}

// endWriting is deferred by the connection's writer. written means that the writer returns normally.
func (c *Conn) endWriting(written *bool) {
	if !*written { // it panics
		c.broken, c.writing = true, false
		c.idle.Broadcast()
	}
}
