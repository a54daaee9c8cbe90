package stress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2conn is one end of an HTTP/2 connection, of a client or of a backend. It is written for this test, frame by
// frame: it can do what no library would, and it notices where the proxy breaks the protocol.
type h2conn struct {
	s      *run
	nc     net.Conn
	name   string
	server bool
	// begun is called for each stream of a client's, on the goroutine that reads.
	begun func(*h2stream)
	// hold keeps the window of the connection until what came has been consumed; else it is given back at once.
	hold bool

	wmu     sync.Mutex // guards what is written, and the order of stream identifiers
	fr      *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	nextID  uint32

	mu       sync.Mutex
	cond     sync.Cond // of mu: anything has changed, or time has passed
	streams  map[uint32]*h2stream
	err      error // set where the connection has ended
	closed   bool  // by us
	sendWin  int64
	theirWin int64 // initial window of their streams
	ourWin   int64 // initial window of ours
	recvWin  int64
	newWin   int64  // initial window of a stream as the peer knows it, which has acknowledged ours or not
	allowed  uint32 // streams that the peer allows
	goneAway bool   // the peer has said GOAWAY
	ended    chan struct{}
}

// h2stream is a stream; guarded by the connection's mu.
type h2stream struct {
	c        *h2conn
	id       uint32
	heads    [][]hpack.HeaderField
	trailer  []hpack.HeaderField
	buf      []byte
	ended    bool // END_STREAM has come
	rst      error
	sendWin  int64
	recvWin  int64
	firstWin int64
	sent     bool // END_STREAM or RST_STREAM was sent
	widened  bool // a small window was made a larger one
	by       time.Time
}

var (
	errGone     = errors.New("the connection has ended")
	errPatience = errors.New("nothing came for too long")
)

// resetError is that the peer has reset the stream.
type resetError struct{ code http2.ErrCode }

func (e *resetError) Error() string { return fmt.Sprintf("RST_STREAM %v", e.code) }

// settle is how long a write may take. The proxy always reads, so it is never reached but by a defect.
const settle = 20 * time.Second

func newH2(s *run, nc net.Conn, r *bufio.Reader, name string, server bool, window int64, settings ...http2.Setting) *h2conn {
	c := &h2conn{s: s, nc: nc, name: name, server: server, nextID: 1, streams: map[uint32]*h2stream{}, sendWin: 65535, theirWin: 65535,
		ourWin: window, recvWin: 65535, newWin: 65535, allowed: 100, ended: make(chan struct{})}
	c.cond.L = &c.mu
	c.fr = http2.NewFramer(nc, r)
	c.fr.SetReuseFrames()
	c.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(window)})
	c.write(func() error {
		if !server {
			if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
				return err
			}
		}
		return c.fr.WriteSettings(settings...)
	})
	return c
}

// serve reads until the connection ends.
func (c *h2conn) serve() {
	tick := time.NewTicker(20 * time.Millisecond)
	go func() { // waits look at their deadlines
		for {
			select {
			case <-tick.C:
				c.mu.Lock()
				c.cond.Broadcast()
				c.mu.Unlock()
			case <-c.ended:
				tick.Stop()
				return
			}
		}
	}()
	err := c.read()
	c.mu.Lock()
	byUs := c.closed
	c.err = fmt.Errorf("%w: %v", errGone, err)
	c.cond.Broadcast()
	c.mu.Unlock()
	var conn http2.ConnectionError
	var stream http2.StreamError
	if !byUs && (errors.As(err, &conn) || errors.As(err, &stream)) {
		c.s.fail(nil, "%s: the proxy broke the protocol: %v (%v)", c.name, err, c.fr.ErrorDetail())
	}
	c.nc.Close()
	close(c.ended)
}

// close ends the connection at once. With reset the peer gets RST instead of FIN.
func (c *h2conn) close(reset bool) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	cut(c.nc, reset)
}

func (c *h2conn) write(f func() error) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.nc.SetWriteDeadline(time.Now().Add(settle))
	return f()
}

func (c *h2conn) read() error {
	for {
		f, err := c.fr.ReadFrame()
		if err != nil {
			return err
		}
		if err := c.take(f); err != nil {
			return err
		}
	}
}

func (c *h2conn) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		c.mu.Lock()
		if f.IsAck() {
			for _, st := range c.streams {
				st.recvWin += c.ourWin - c.newWin
			}
			c.newWin = c.ourWin
			c.mu.Unlock()
			return nil
		}
		f.ForeachSetting(func(s http2.Setting) error {
			switch s.ID {
			case http2.SettingInitialWindowSize:
				for _, st := range c.streams {
					st.sendWin += int64(s.Val) - c.theirWin
				}
				c.theirWin = int64(s.Val)
			case http2.SettingMaxConcurrentStreams:
				c.allowed = s.Val
			}
			return nil
		})
		c.cond.Broadcast()
		c.mu.Unlock()
		return c.write(func() error {
			if v, ok := f.Value(http2.SettingHeaderTableSize); ok {
				c.encoder.SetMaxDynamicTableSizeLimit(v)
			}
			return c.fr.WriteSettingsAck()
		})
	case *http2.PingFrame:
		if !f.IsAck() {
			data := f.Data
			return c.write(func() error { return c.fr.WritePing(true, data) })
		}
	case *http2.WindowUpdateFrame:
		c.mu.Lock()
		if f.StreamID == 0 {
			c.sendWin += int64(f.Increment)
		} else if st := c.streams[f.StreamID]; st != nil {
			st.sendWin += int64(f.Increment)
		}
		c.cond.Broadcast()
		c.mu.Unlock()
	case *http2.MetaHeadersFrame:
		return c.takeHead(f)
	case *http2.DataFrame:
		return c.takeData(f)
	case *http2.RSTStreamFrame:
		c.mu.Lock()
		if st := c.streams[f.StreamID]; st != nil && st.rst == nil {
			st.rst = &resetError{f.ErrCode}
		}
		c.cond.Broadcast()
		c.mu.Unlock()
	case *http2.GoAwayFrame:
		c.mu.Lock()
		c.goneAway = true
		for id, st := range c.streams {
			if id > f.LastStreamID && !c.server {
				st.rst = &resetError{http2.ErrCodeRefusedStream}
			}
		}
		c.cond.Broadcast()
		code, debug := f.ErrCode, string(f.DebugData())
		mayBlame := !c.closed
		c.mu.Unlock()
		if mayBlame && code != http2.ErrCodeNo {
			c.s.count(fmt.Sprintf("%s GOAWAY from the proxy: %v %s", c.role(), code, debug))
		}
	}
	return nil
}

func (c *h2conn) role() string {
	if c.server {
		return "backend:"
	}
	return "client:"
}

func (c *h2conn) takeHead(f *http2.MetaHeadersFrame) error {
	fields := append([]hpack.HeaderField(nil), f.Fields...)
	first := ""
	if len(fields) > 0 {
		first = fields[0].Name
	}
	c.mu.Lock()
	st := c.streams[f.StreamID]
	opened := st == nil && c.server && len(first) > 0 && first[0] == ':'
	if opened {
		st = &h2stream{c: c, id: f.StreamID, sendWin: c.theirWin, recvWin: c.newWin, firstWin: c.newWin}
		c.streams[f.StreamID] = st
	}
	if st != nil {
		if len(first) > 0 && first[0] == ':' {
			st.heads = append(st.heads, fields)
		} else {
			st.trailer = fields
		}
		st.ended = st.ended || f.StreamEnded()
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	if opened {
		c.begun(st)
	}
	return nil
}

func (c *h2conn) takeData(f *http2.DataFrame) error {
	n := int64(f.Length)
	c.mu.Lock()
	st := c.streams[f.StreamID]
	c.recvWin -= n
	over := n > 0 && c.recvWin < 0 // an empty frame needs no window
	kept := false
	if st != nil {
		st.recvWin -= n
		over = over || n > 0 && st.recvWin < 0
		if st.ended {
			c.mu.Unlock()
			c.s.fail(nil, "%s: DATA behind the end of stream %d", c.name, f.StreamID)
			return nil
		}
		st.buf = append(st.buf, f.Data()...)
		st.ended = f.StreamEnded()
		kept = true
		st.recvWin += n - int64(len(f.Data())) // padding is consumed at once, told with the rest
	}
	windows := ""
	if over {
		windows = fmt.Sprintf("%d bytes leave %d of the connection's window", n, c.recvWin)
		if st != nil {
			windows += fmt.Sprintf(" and %d of the stream's, which began with %d, later %d", st.recvWin, st.firstWin, c.ourWin)
		}
	}
	c.cond.Broadcast()
	give := n
	if c.hold && kept {
		give = n - int64(len(f.Data()))
	}
	c.recvWin += give
	c.mu.Unlock()
	if over {
		c.s.fail(nil, "%s: stream %d: more DATA than the window allows: %s", c.name, f.StreamID, windows)
	}
	if padding := uint32(n) - uint32(len(f.Data())); padding > 0 && kept {
		id := f.StreamID
		c.write(func() error { return c.fr.WriteWindowUpdate(id, padding) })
	}
	if give > 0 {
		return c.write(func() error { return c.fr.WriteWindowUpdate(0, uint32(give)) })
	}
	return nil
}

// wait waits for a change; mu is held. It fails where nothing more can come of it.
func (st *h2stream) wait() error {
	c := st.c
	switch {
	case st.rst != nil:
		return st.rst
	case c.err != nil:
		return c.err
	case !st.by.IsZero() && time.Now().After(st.by):
		return errPatience
	}
	c.cond.Wait()
	return nil
}

// patience makes waits fail after d.
func (st *h2stream) patience(d time.Duration) {
	st.c.mu.Lock()
	st.by = time.Now().Add(d)
	st.c.mu.Unlock()
}

// nextHead waits for a head.
func (st *h2stream) nextHead() (fields []hpack.HeaderField, end bool, err error) {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	for len(st.heads) == 0 {
		if st.ended {
			return nil, false, io.ErrUnexpectedEOF
		}
		if err := st.wait(); err != nil {
			return nil, false, err
		}
	}
	fields, st.heads = st.heads[0], st.heads[1:]
	return fields, st.ended && len(st.buf) == 0, nil
}

// Read reads what has come of the body, without giving the window back; see consumed.
func (st *h2stream) Read(p []byte) (int, error) {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	for len(st.buf) == 0 {
		if st.ended {
			return 0, io.EOF
		}
		if err := st.wait(); err != nil {
			return 0, err
		}
	}
	n := copy(p, st.buf)
	st.buf = st.buf[n:]
	return n, nil
}

// consumed gives the window back.
func (st *h2stream) consumed(n int) {
	c := st.c
	c.mu.Lock()
	give, back := c.hold, n
	if give {
		c.recvWin += int64(n)
	}
	if !st.widened && c.ourWin < 65535 { // else a large body would take a frame for each byte
		st.widened = true
		n += 65535
	}
	st.recvWin += int64(n)
	over := st.ended || st.rst != nil || c.err != nil
	c.mu.Unlock()
	c.write(func() error {
		if !over {
			c.fr.WriteWindowUpdate(st.id, uint32(n))
		}
		if give {
			return c.fr.WriteWindowUpdate(0, uint32(back))
		}
		return nil
	})
}

// drop gives the window back for what came and nobody reads, and forgets the stream.
func (st *h2stream) drop() {
	c := st.c
	c.mu.Lock()
	n := len(st.buf)
	st.buf = nil
	delete(c.streams, st.id)
	if c.hold {
		c.recvWin += int64(n)
	}
	c.mu.Unlock()
	if n > 0 && c.hold {
		c.write(func() error { return c.fr.WriteWindowUpdate(0, uint32(n)) })
	}
}

// open sends a request's head and returns its stream.
func (c *h2conn) open(d dice, end bool, fields ...string) (*h2stream, error) {
	var st *h2stream
	err := c.write(func() error {
		c.mu.Lock()
		if c.err != nil || c.goneAway {
			c.mu.Unlock()
			return errGone
		}
		st = &h2stream{c: c, id: c.nextID, sendWin: c.theirWin, recvWin: c.newWin, firstWin: c.newWin, sent: end}
		c.nextID += 2
		c.streams[st.id] = st
		c.mu.Unlock()
		return c.writeHead(d, st.id, end, fields)
	})
	return st, err
}

// head sends a head or a trailer section.
func (st *h2stream) head(d dice, end bool, fields ...string) error {
	return st.c.write(func() error {
		st.c.mu.Lock()
		sent := st.sent
		st.sent = sent || end
		st.c.mu.Unlock()
		if sent {
			return errGone
		}
		return st.c.writeHead(d, st.id, end, fields)
	})
}

// writeHead sends fields, names and values in turn, in as many frames as d likes; wmu is held.
func (c *h2conn) writeHead(d dice, id uint32, end bool, fields []string) error {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: d.oneIn(10)})
	}
	b := c.block.Bytes()
	n := len(b)
	if d.oneIn(4) {
		n = d.IntN(len(b) + 1)
	}
	p := http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:n], EndStream: end, EndHeaders: n == len(b)}
	if d.oneIn(10) {
		p.PadLength = uint8(d.IntN(256))
	}
	if err := c.fr.WriteHeaders(p); err != nil {
		return err
	}
	for left := 3; !p.EndHeaders; left-- { // many of them are a flood
		b = b[n:]
		if n = 1 + d.IntN(len(b)); left == 1 {
			n = len(b)
		}
		p.EndHeaders = n == len(b)
		if err := c.fr.WriteContinuation(id, p.EndHeaders, b[:n]); err != nil {
			return err
		}
	}
	return nil
}

// send sends a part of a body as far as the windows allow, and waits for them.
func (st *h2stream) send(d dice, data []byte, end bool) error {
	c := st.c
	for {
		c.mu.Lock()
		for len(data) > 0 && (c.sendWin <= 0 || st.sendWin <= 0) {
			if err := st.wait(); err != nil {
				c.mu.Unlock()
				return err
			}
		}
		switch {
		case st.rst != nil:
			c.mu.Unlock()
			return st.rst
		case c.err != nil:
			c.mu.Unlock()
			return c.err
		}
		n := int(min(int64(len(data)), 16384, max(c.sendWin, 0), max(st.sendWin, 0)))
		padding := 0
		if room := min(c.sendWin, st.sendWin) - int64(n) - 1; n < 16000 && room > 0 && d.oneIn(20) {
			padding = d.IntN(int(min(room, 256)))
		}
		cost := int64(n)
		if padding > 0 {
			cost += int64(padding) + 1
		}
		c.sendWin -= cost
		st.sendWin -= cost
		last := end && n == len(data)
		c.mu.Unlock()
		err := c.write(func() error {
			c.mu.Lock()
			sent := st.sent
			st.sent = sent || last
			c.mu.Unlock()
			if sent {
				return errGone
			}
			if padding > 0 {
				return c.fr.WriteDataPadded(st.id, last, data[:n], make([]byte, padding))
			}
			return c.fr.WriteData(st.id, last, data[:n])
		})
		if err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// reset resets the stream unless it has ended.
func (st *h2stream) reset(code http2.ErrCode) {
	st.c.write(func() error {
		st.c.mu.Lock()
		over := st.sent && st.ended || st.rst != nil
		st.sent = true
		if st.rst == nil {
			st.rst = errGone
		}
		st.c.cond.Broadcast()
		st.c.mu.Unlock()
		if over {
			return nil
		}
		return st.c.fr.WriteRSTStream(st.id, code)
	})
}

// field finds a field.
func field(fields []hpack.HeaderField, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// cut closes a connection, by RST where reset is set. TLS is not told.
func cut(c net.Conn, reset bool) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok && reset {
		t.SetLinger(0)
	}
	c.Close()
}
