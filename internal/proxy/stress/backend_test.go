package stress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// peer is one endpoint: a port of loopback that understands HTTP/1.1 and HTTP/2.
type peer struct {
	s    *run
	name string
	port int
	// secure has the certificate where the endpoint is reached over TLS; it is nil in the clear.
	secure *tls.Certificate
	// alpn is what it chooses over TLS; empty: another on each connection.
	alpn []string
	sink bool // takes copies

	conns sync.WaitGroup
	count atomic.Uint64

	mu     sync.Mutex
	l      net.Listener // nil: connections are refused
	open   map[net.Conn]bool
	closed bool
}

// listen opens the port, or opens it again.
func (p *peer) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.l != nil || p.closed {
		return nil
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
	if err != nil {
		return err
	}
	p.l = l
	p.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			if p.closed {
				p.mu.Unlock()
				c.Close()
				return
			}
			p.open[c] = true
			p.mu.Unlock()
			n := p.count.Add(1)
			p.conns.Go(func() {
				defer func() {
					p.mu.Lock()
					delete(p.open, c)
					p.mu.Unlock()
					c.Close()
				}()
				p.serve(c, n)
			})
		}
	})
	return nil
}

// refuse closes the port; connections go on.
func (p *peer) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.l != nil {
		p.l.Close()
		p.l = nil
	}
}

// close ends everything and waits for it.
func (p *peer) close() {
	p.refuse()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.conns.Wait()
}

// cutConn closes the connection when a number of bytes has been written.
type cutConn struct {
	net.Conn
	left int
	rst  bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) <= c.left {
		c.left -= len(b)
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:c.left])
	c.left = 0
	cut(c.Conn, c.rst)
	return n, net.ErrClosed
}

func (c *cutConn) NetConn() net.Conn { return c.Conn }

// serve serves one connection.
func (p *peer) serve(raw net.Conn, n uint64) {
	d := newDice(p.s.seed, 1<<50|uint64(p.port)<<32|n)
	name := fmt.Sprintf("%s#%d", p.name, n)
	calm := p.s.calm.Load() || p.sink
	if !calm && d.oneIn(40) { // no answer at all
		d.pause(time.Second)
		cut(raw, d.oneIn(2))
		return
	}
	c, cuts := raw, false
	if !calm && d.oneIn(15) {
		cuts = true
		c = &cutConn{Conn: raw, left: d.IntN(1 << (4 + d.IntN(14))), rst: d.oneIn(2)}
	}
	if p.secure != nil {
		protocols := p.alpn
		if len(protocols) == 0 {
			protocols = of(d, []string{"h2"}, []string{"http/1.1"}, []string{"h2", "http/1.1"})
		}
		t := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*p.secure}, NextProtos: protocols})
		t.SetDeadline(time.Now().Add(settle))
		if err := t.Handshake(); err != nil {
			return
		}
		t.SetDeadline(time.Time{})
		c = t
	}
	r := bufio.NewReaderSize(c, 4096)
	start, err := r.Peek(3)
	if err != nil {
		return
	}
	if string(start) != "PRI" {
		p.serveHTTP1(d, c, r, name, cuts)
		return
	}
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	p.serveHTTP2(d, c, r, name)
}

// responder is one request at a backend, whatever its protocol.
type responder interface {
	// Read reads the request's body; io.EOF is its regular end.
	io.Reader
	// requestTrailer is the value of the trailer sumField, behind the end of the body.
	requestTrailer() string
	interim(status int) error
	// head sends the final head, with the length that the plan wants.
	head(p *plan, fields ...string) error
	// write sends a part of the response's body.
	write(p *plan, b []byte) error
	// end ends the response.
	end(p *plan, trailer string) error
	// abort breaks off.
	abort(how string)
}

// errBroken is that the backend broke off, as planned.
var errBroken = errors.New("broken off")

// known finds the conversation of a request and checks that its head is all its own.
func (p *peer) known(at, method, path string, values func(name string) []string) (*conversation, *attempt) {
	id, err := strconv.ParseUint(path[strings.LastIndexByte(path, '/')+1:], 16, 64)
	c := p.s.register.find(id)
	if err != nil || c == nil {
		p.s.fail(nil, "%s: a request that nobody has sent: %s %s", at, method, path)
		return nil, nil
	}
	a := c.attempt(at, p.sink)
	if method != c.method || path != c.path() {
		p.s.fail(c, "%s: %s %s came", at, method, path)
	}
	for name, want := range map[string]string{idField: c.name(), lengthField: strconv.Itoa(c.length)} {
		if got := values(name); len(got) != 1 || got[0] != want {
			p.s.fail(c, "%s: %s is %q, want %q", at, name, got, want)
		}
	}
	for _, v := range values(echoField) {
		if strings.ReplaceAll(v, c.name(), "") != "" {
			p.s.fail(c, "%s: %s is %q", at, echoField, v)
		}
	}
	return c, a
}

// answer carries out the plan of an attempt. An error is that the connection, or the stream, is of no more use.
func (p *peer) answer(c *conversation, a *attempt, r responder, expects bool) error {
	c.process(a)
	pl := a.plan
	body := &checker{content: content{kind: ofRequest, id: c.id}}
	buf := make([]byte, 16<<10)
	// read reads up to so many bytes of the request, or all.
	whole := false
	read := func(limit int) error {
		for !whole && (limit == readAllFirst || body.at < int64(limit)) {
			want := len(buf)
			if limit != readAllFirst {
				want = min(want, limit-int(body.at))
			}
			n, err := r.Read(buf[:want])
			if foreign, wrong := body.check(buf[:n]); wrong != nil {
				p.s.wrongBytes(c, foreign, "request at %s: %v", a.backend, wrong)
				return wrong
			}
			switch {
			case err == io.EOF:
				whole = true
				c.note("attempt %d has read the whole body, %d bytes", a.n, body.at)
				if body.at != int64(c.length) {
					p.s.fail(c, "%s: the request ended after %d bytes of %d", a.backend, body.at, c.length)
				}
				if c.malformed || c.isUnsent() {
					p.s.fail(c, "%s: a request whose client did not finish it came to a regular end", a.backend)
				}
				if got := r.requestTrailer(); got != "" && got != c.name() || got != "" && !c.trailer {
					p.s.fail(c, "%s: the request's trailer is %q", a.backend, got)
				} else if got != "" {
					p.s.count("backend: request trailers")
				}
			case err != nil:
				c.note("attempt %d: reading the body after %d bytes: %v", a.n, body.at, err)
				return err
			case body.at > int64(c.length):
				p.s.fail(c, "%s: the request has %d bytes, want %d", a.backend, body.at, c.length)
				return io.ErrUnexpectedEOF
			}
		}
		return nil
	}
	if expects && pl.continues {
		if err := r.interim(100); err != nil {
			return err
		}
	}
	if err := read(pl.readFirst); err != nil {
		return err
	}
	for range pl.interims {
		if err := r.interim(103); err != nil {
			return err
		}
	}
	if pl.wait > 0 {
		time.Sleep(pl.wait)
	}
	if pl.breakAt == breakAtHead {
		c.note("attempt %d breaks off before the head", a.n)
		r.abort(pl.breakBy)
		return errBroken
	}
	var reading chan error
	if pl.duplex {
		reading = make(chan error, 1)
		go func() { reading <- read(readAllFirst) }()
	}
	err := p.respond(c, a, r)
	c.note("attempt %d has responded: %v", a.n, err)
	if reading != nil {
		if err != nil {
			r.abort(byRST)
		}
		return errors.Join(err, <-reading)
	}
	if err == nil && pl.readRest {
		err = read(readAllFirst)
	}
	if err == nil && !whole {
		return io.ErrUnexpectedEOF // what follows is the rest of the body
	}
	return err
}

// respond sends the response.
func (p *peer) respond(c *conversation, a *attempt, r responder) error {
	pl := a.plan
	d := newDice(p.s.seed^c.id, uint64(a.n)+1<<21)
	fields := []string{idField, c.name(), attemptField, strconv.Itoa(a.n)}
	if pl.oneIn(3) {
		fields = append(fields, echoField, strings.Repeat(c.name(), 1+d.IntN(20)))
	}
	if err := r.head(pl, fields...); err != nil {
		return err
	}
	what := content{kind: ofResponse, id: c.id, attempt: uint32(a.n)}
	end := pl.length
	if pl.bodiless(c.method) {
		end = 0
	}
	for at := 0; at < end; {
		n := d.piece(end - at)
		if pl.breakAt >= 0 {
			if at >= pl.breakAt {
				break
			}
			n = min(n, pl.breakAt-at)
		}
		if err := r.write(pl, what.bytes(int64(at), n)); err != nil {
			return err
		}
		at += n
		if pl.slow && d.oneIn(3) {
			d.pause(3 * time.Millisecond)
		}
	}
	if pl.breakAt >= 0 && end > 0 {
		c.note("attempt %d breaks off", a.n)
		r.abort(pl.breakBy)
		return errBroken
	}
	return r.end(pl, c.name())
}

// http1Responder is a request by HTTP/1.1.
type http1Responder struct {
	c   net.Conn
	d   dice
	req *http.Request
	buf bytes.Buffer // a head that waits for what follows
}

func (r *http1Responder) Read(b []byte) (int, error) { return r.req.Body.Read(b) }
func (r *http1Responder) requestTrailer() string     { return r.req.Trailer.Get(sumField) }

func (r *http1Responder) flush() error {
	b := r.buf.Bytes()
	defer r.buf.Reset()
	for len(b) > 0 {
		n := len(b)
		if r.d.oneIn(10) {
			n = 1 + r.d.IntN(n)
		}
		r.c.SetWriteDeadline(time.Now().Add(settle))
		if _, err := r.c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (r *http1Responder) interim(status int) error {
	fmt.Fprintf(&r.buf, "HTTP/1.1 %d Interim\r\n", status)
	if status != 100 {
		fmt.Fprintf(&r.buf, "%s: %s\r\n", idField, r.req.Header.Get(idField))
	}
	r.buf.WriteString("\r\n")
	return r.flush()
}

func (r *http1Responder) head(p *plan, fields ...string) error {
	if p.malformed {
		r.buf.WriteString(of(r.d, "HTTP/1.1 20\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "\x00\x01", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"))
		r.flush()
		r.abort(byFIN)
		return errBroken
	}
	fmt.Fprintf(&r.buf, "HTTP/1.1 %d Status\r\n", p.status)
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(&r.buf, "%s: %s\r\n", fields[i], fields[i+1])
	}
	if p.closes && p.announced {
		r.buf.WriteString("Connection: close\r\n")
	}
	switch {
	case p.status == 204 || p.status == 304:
	case p.framing == withLength:
		fmt.Fprintf(&r.buf, "Content-Length: %d\r\n", p.length)
	case p.framing == chunked:
		r.buf.WriteString("Transfer-Encoding: chunked\r\n")
		if p.trailer {
			fmt.Fprintf(&r.buf, "Trailer: %s\r\n", sumField)
		}
	}
	r.buf.WriteString("\r\n")
	if r.d.oneIn(3) {
		return r.flush()
	}
	return nil
}

func (r *http1Responder) write(p *plan, b []byte) error {
	if p.framing == chunked {
		fmt.Fprintf(&r.buf, "%x\r\n%s\r\n", len(b), b)
	} else {
		r.buf.Write(b)
	}
	return r.flush()
}

func (r *http1Responder) end(p *plan, sum string) error {
	if p.framing == chunked && !p.bodiless(r.req.Method) {
		r.buf.WriteString("0\r\n")
		if p.trailer {
			fmt.Fprintf(&r.buf, "%s: %s\r\n", sumField, sum)
		}
		r.buf.WriteString("\r\n")
	}
	if p.surplus && r.buf.Len() > 0 && p.framing != untilClose {
		// In one segment with the response: were they later, they could be the next response for all that anyone can tell.
		r.buf.WriteString("HTTP/1.1 200 OK\r\nX-Id: stray\r\nContent-Length: 5\r\n\r\nstray")
		r.c.Write(r.buf.Bytes())
		r.buf.Reset()
		return errBroken
	}
	return r.flush()
}

func (r *http1Responder) abort(how string) {
	r.flush()
	cut(r.c, how != byFIN)
}

// serveHTTP1 serves a connection by HTTP/1.1. cuts tells that it will break at some byte.
func (p *peer) serveHTTP1(d dice, c net.Conn, br *bufio.Reader, name string, cuts bool) {
	defer c.Close()
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			if text := err.Error(); strings.Contains(text, "malformed") || strings.Contains(text, "invalid") {
				p.s.fail(nil, "%s: the proxy sent what is no request: %v", name, err)
			}
			return
		}
		conv, a := p.known(name+" HTTP/1.1", req.Method, req.URL.Path, req.Header.Values)
		if conv == nil {
			return
		}
		p.s.count("backend: HTTP/1.1")
		pl := a.plan
		if req.ContentLength >= 0 && req.ContentLength != int64(conv.length) && !conv.malformed {
			p.s.fail(conv, "%s: Content-Length is %d, want %d", name, req.ContentLength, conv.length)
		}
		if cuts && pl.framing == untilClose {
			pl.framing = withLength
		}
		err = p.answer(conv, a, &http1Responder{c: c, d: d, req: req}, req.Header.Get("Expect") != "")
		if err != nil || pl.closes || pl.framing == untilClose {
			if pl.closes && d.oneIn(2) {
				d.pause(20 * time.Millisecond) // a stale connection
			}
			return
		}
	}
}

// http2Responder is a stream.
type http2Responder struct {
	st *h2stream
	d  dice // of what is written
	rd dice // of what is read, maybe at the same time
	id string
}

func (r *http2Responder) Read(b []byte) (int, error) {
	n, err := r.st.Read(b)
	if n > 0 {
		if r.rd.oneIn(20) {
			r.rd.pause(2 * time.Millisecond)
		}
		r.st.consumed(n)
	}
	return n, err
}

func (r *http2Responder) requestTrailer() string {
	r.st.c.mu.Lock()
	defer r.st.c.mu.Unlock()
	return field(r.st.trailer, strings.ToLower(sumField))
}

func (r *http2Responder) interim(status int) error {
	if status == 100 {
		return r.st.head(r.d, false, ":status", "100")
	}
	return r.st.head(r.d, false, ":status", strconv.Itoa(status), strings.ToLower(idField), r.id)
}

func (r *http2Responder) head(p *plan, fields ...string) error {
	out := []string{":status", strconv.Itoa(p.status)}
	for i := 0; i < len(fields); i += 2 {
		out = append(out, strings.ToLower(fields[i]), fields[i+1])
	}
	if p.malformed {
		out = append(out, of(r.d, "Upper", "connection", "content-length", ":late"), "x")
	} else if p.framing == withLength && p.status != 204 {
		out = append(out, "content-length", strconv.Itoa(p.length))
	}
	return r.st.head(r.d, false, out...)
}

func (r *http2Responder) write(_ *plan, b []byte) error { return r.st.send(r.d, b, false) }

func (r *http2Responder) end(p *plan, sum string) error {
	if p.trailer {
		return r.st.head(r.d, true, strings.ToLower(sumField), sum)
	}
	return r.st.send(r.d, nil, true)
}

func (r *http2Responder) abort(how string) {
	if how == byStream {
		r.st.reset(of(r.d, http2.ErrCodeNo, http2.ErrCodeInternal, http2.ErrCodeCancel, http2.ErrCodeEnhanceYourCalm, http2.ErrCodeProtocol))
		return
	}
	if !r.d.oneIn(3) { // the connection carries others, too
		r.st.reset(http2.ErrCodeInternal)
		return
	}
	r.st.c.close(how == byRST)
}

// h2backend is a backend's end of an HTTP/2 connection.
type h2backend struct {
	*h2conn
	p *peer
	d dice // of the goroutine that reads

	streams  sync.WaitGroup
	mu       sync.Mutex
	attempts map[uint32]*inFlight // by stream
	last     uint32               // of our GOAWAY
}

type inFlight struct {
	c *conversation
	a *attempt
}

const noGoAway = 1<<31 - 1

func (p *peer) serveHTTP2(d dice, c net.Conn, br *bufio.Reader, name string) {
	calm := p.s.calm.Load() || p.sink
	window, settings := int64(65535), []http2.Setting(nil)
	if !calm {
		window = of(d, int64(65535), 65535, 1, 1000, 1<<20)
		if n := of(d, -1, 1, 2, 5, 100, 100, 0); n >= 0 && (n > 0 || d.oneIn(4)) {
			settings = append(settings, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(n)})
		}
		if d.oneIn(3) {
			settings = append(settings, http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(d.IntN(5000))})
		}
	}
	if d.oneIn(10) && !calm {
		d.pause(50 * time.Millisecond) // SETTINGS come late
	}
	b := &h2backend{p: p, d: d, attempts: map[uint32]*inFlight{}, last: noGoAway}
	b.h2conn = newH2(p.s, c, br, name, true, window, settings...)
	b.begun = b.stream
	b.hold = d.oneIn(4)
	moody := newDice(p.s.seed, d.Uint64())
	b.streams.Go(func() { b.mood(moody) })
	b.serve()
	b.streams.Wait()
}

// mood changes what the backend allows while it serves.
func (b *h2backend) mood(d dice) {
	for {
		select {
		case <-b.ended:
			return
		case <-time.After(time.Duration(1+d.IntN(150)) * time.Millisecond):
		}
		calm := b.p.s.calm.Load() || b.p.sink
		switch k := d.IntN(14); {
		case calm && k > 0:
		case k <= 3:
			n := of(d, uint32(0), 0, 1, 2, 10, 100)
			if calm {
				n = 100
			}
			b.write(func() error { return b.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n}) })
		case k == 4 && d.oneIn(3):
			b.goAway(d, uint32(d.IntN(100)))
		case k == 5 && d.oneIn(3):
			b.goAway(d, noGoAway-1) // none yet, which says that it will end
		case k == 6 && d.oneIn(4):
			b.close(d.oneIn(2))
		case k == 7:
			b.write(func() error { return b.fr.WritePing(false, [8]byte{1}) })
		case k == 8:
			b.write(func() error {
				return b.fr.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(d.IntN(5000))})
			})
		}
	}
}

// goAway says that no stream above last was or will be processed.
func (b *h2backend) goAway(d dice, last uint32) {
	b.mu.Lock()
	b.last = min(b.last, last)
	last = b.last
	for id, f := range b.attempts {
		if id > last {
			f.c.refuse(f.a, fmt.Sprintf("GOAWAY %d", last))
		}
	}
	b.mu.Unlock()
	b.p.s.count("backend: GOAWAY")
	b.write(func() error {
		return b.fr.WriteGoAway(last, of(d, http2.ErrCodeNo, http2.ErrCodeNo, http2.ErrCodeEnhanceYourCalm), nil)
	})
	if last < 1000 && d.oneIn(2) {
		soon := time.Duration(d.IntN(100)) * time.Millisecond
		b.streams.Go(func() {
			select {
			case <-b.ended:
			case <-time.After(soon):
				b.close(false)
			}
		})
	}
}

// stream takes a stream, or refuses it.
func (b *h2backend) stream(st *h2stream) {
	head, end, _ := st.nextHead()
	path, method := field(head, ":path"), field(head, ":method")
	conv, a := b.p.known(fmt.Sprintf("%s stream %d", b.name, st.id), method, path, func(name string) []string { return valuesOf(head, name) })
	if conv == nil {
		return
	}
	b.p.s.count("backend: HTTP/2")
	if n := field(head, "content-length"); n != "" && n != strconv.Itoa(conv.length) && !conv.malformed {
		b.p.s.fail(conv, "%s: content-length is %s, want %d", a.backend, n, conv.length)
	}
	if end && conv.length > 0 {
		b.p.s.fail(conv, "%s: the request ended with its head, though it has a body of %d bytes", a.backend, conv.length)
	}
	b.mu.Lock()
	b.attempts[st.id] = &inFlight{conv, a}
	ignored := st.id > b.last
	b.mu.Unlock()
	if ignored {
		conv.refuse(a, "the GOAWAY before")
		st.drop()
		return
	}
	pl := a.plan
	switch {
	case pl.refuse == "REFUSED_STREAM":
		conv.refuse(a, pl.refuse)
		b.p.s.count("backend: REFUSED_STREAM")
		st.reset(http2.ErrCodeRefusedStream)
		b.forget(st)
		return
	case pl.refuse == "GOAWAY" && pl.oneIn(3):
		last := uint32(0)
		if pl.last == 1 && st.id > 2 {
			last = st.id - 2
		}
		b.goAway(b.d, last)
		if b.d.oneIn(2) {
			b.forget(st)
			return
		}
	case pl.goAway:
		b.goAway(b.d, st.id)
	}
	d, rd := newDice(b.p.s.seed^conv.id, uint64(a.n)+1<<22), newDice(b.p.s.seed^conv.id, uint64(a.n)+1<<23)
	b.streams.Go(func() {
		defer b.forget(st)
		st.patience(longest)
		err := b.p.answer(conv, a, &http2Responder{st, d, rd, conv.name()}, field(head, "expect") != "")
		if err != nil && !errors.Is(err, errBroken) {
			st.reset(of(d, http2.ErrCodeNo, http2.ErrCodeCancel))
		}
		// What a plan leaves open is ended by the proxy, which has the whole response.
	})
}

// forget ends what is known of a stream.
func (b *h2backend) forget(st *h2stream) {
	b.mu.Lock()
	delete(b.attempts, st.id)
	b.mu.Unlock()
	st.drop()
}
