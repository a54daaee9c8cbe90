package upstream

import "github.com/moongate-dev/moongate/internal/proxy/socket"

// secureTrip is roundTrip over TLS: the poller is armed before the request is sent, so that no read is needed only to
// learn that nothing has arrived yet, and no buffer is held during the wait.
type secureTrip struct {
	c          *Conn
	s          *secure
	step       func(fd uintptr) bool // created once
	head, body []byte
	buffer     Buffer
	sent       bool
	stale      bool
	n          int
	err        error
}

// newSecureTrip returns nil if the system cannot read without waiting.
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
			// On a new connection the backend may have sent data before the poller was armed.
		}
		t.n, t.err = s.readNow(t.buffer.Take())
		if t.n == 0 && t.err == socket.ErrNothingYet {
			t.buffer.Give()
			return false
		}
		return true
	}
	return t
}

// send writes the request, unless a reused connection turns out to be stale. It reports whether the connection is
// reused, so that nothing can have arrived before.
func (t *secureTrip) send() (reused bool) {
	if t.c.Reused && !t.c.Alive() {
		t.stale = true
		return true
	}
	if _, err := t.s.tls.Write(t.head); err == nil && len(t.body) > 0 {
		t.s.tls.Write(t.body) //nolint:errcheck // an error occurs again when the response is read
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

// writeRead implements Conn.WriteRead.
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
