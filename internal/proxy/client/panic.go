package client

// recovered is deferred by what looks after all connections: a panic about one of them leaves the others alone.
func (s *Set) recovered() {
	if v := recover(); v != nil {
		s.engine.Observer.Panicked("connection", v)
	}
}

// recovered is deferred by the goroutines that run a connection: a panic ends that alone. What the connection has from
// pools is in an unknown state and does not go back.
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
	c.tcp.ResetOnClose() // the client must not take what it has of a response for all of it
	c.end()
}
