package upstream

// secureTrip is roundTrip over TLS: the poller is armed before the request goes out, so that no read is made just to learn that nothing has
// come yet, and no memory is held for the wait.
type secureTrip struct {
	c          *Conn
	s          *secure
	step       func(fd uintptr) bool // made once
	head, body []byte
	buffer     Buffer
	sent       bool
	stale      bool
	n          int
	err        error
}

// newSecureTrip returns nil where the system cannot read without waiting.
func newSecureTrip(c *Conn, s *secure) *secureTrip {
	if !readsNow || c.probe.rawConn() == nil {
		return nil
	}
	t := &secureTrip{c: c, s: s}
	t.step = func(uintptr) bool {
		if !t.sent {
			t.sent = true
			if reused := t.send(); t.stale || reused {
				return t.stale
			}
			// On a fresh connection the backend may have spoken before the poller was armed.
		}
		t.n, t.err = s.readNow(t.buffer.Take())
		if t.n == 0 && t.err == errNothingYet {
			t.buffer.Give()
			return false
		}
		return true
	}
	return t
}

// send writes the request, unless a connection that was used before turns out stale, and reports whether nothing can have come before that.
func (t *secureTrip) send() (reused bool) {
	if t.c.Reused && !t.c.Alive() {
		t.stale = true
		return true
	}
	if _, err := t.s.tls.Write(t.head); err == nil && len(t.body) > 0 {
		t.s.tls.Write(t.body) //nolint:errcheck // shows when the response is read
	}
	return t.c.Reused
}

// read waits for more of a response.
func (t *secureTrip) read(b Buffer) (int, error) {
	t.buffer, t.sent, t.stale, t.n, t.err = b, true, false, 0, nil
	err := t.c.probe.rawConn().Read(t.step)
	t.buffer = nil
	if err != nil {
		return 0, err
	}
	return t.n, t.err
}

// writeRead is Conn.WriteRead.
func (t *secureTrip) writeRead(head, body []byte, b Buffer) (int, error) {
	t.head, t.body, t.buffer, t.sent, t.stale, t.n, t.err = head, body, b, false, false, 0, nil
	err := t.c.probe.rawConn().Read(t.step)
	t.head, t.body, t.buffer = nil, nil, nil
	switch {
	case err != nil:
		return 0, err
	case t.stale:
		return 0, ErrStale
	}
	return t.n, t.err
}
