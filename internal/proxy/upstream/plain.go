package upstream

// writeReadPlain is WriteRead by way of net.Conn: on other systems than Linux, for diagnosis, and
// wherever more than the socket lies between us and the peer.
func (c *Conn) writeReadPlain(head, body []byte, b Buffer) (int, error) {
	if c.Reused && !c.Alive() {
		return 0, ErrStale
	}
	if _, err := c.Conn.Write(head); err == nil && len(body) > 0 {
		c.Conn.Write(body) //nolint:errcheck // shows when the response is read
	}
	return c.Conn.Read(b.Take())
}
