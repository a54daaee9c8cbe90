package client

// recovered is deferred by what handles all connections: a panic about one of them must not affect the others.
func (s *Set) recovered() {
	if v := recover(); v != nil {
		s.engine.Observer.Panicked("connection", v)
	}
}

// recovered is deferred by the goroutines that run a connection: a panic ends only that connection. Its pooled objects
// are in an unknown state and are not reused.
func (c *Conn) recovered() {
	v := recover()
	if v == nil {
		return
	}
	if c.h1 != nil {
		c.h1.ex.Panicked(v)
	} else {
		c.set.engine.Observer.Panicked("connection", v)
	}
	c.big, c.small, c.h1 = nil, nil, nil
	c.in, c.r, c.w = nil, 0, 0
	c.tcp.ResetOnClose() // so that the client does not take a partial response for a complete one
	c.end()
}
