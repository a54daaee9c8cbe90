package upstream

// writeReadPlain is WriteRead through net.Conn: for systems other than Linux, for diagnosis, and for TLS connections.
func (c *Conn) writeReadPlain(head, body []byte, b Buffer) (int, error) {
	if c.Reused && !c.Alive() {
		return 0, ErrStale
	}
	if _, err := c.Conn.Write(head); err == nil && len(body) > 0 {
		c.Conn.Write(body) //nolint:errcheck // an error occurs again when the response is read
	}
	return c.Conn.Read(b.Take())
}
