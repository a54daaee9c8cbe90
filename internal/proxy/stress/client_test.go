package stress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// longest is how long a client waits for anything. All that backends do on purpose takes less.
const longest = 30 * time.Second

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// client makes connections until the run ends.
func (s *run) client(k int) {
	d := newDice(s.seed, uint64(k))
	for n := uint64(0); s.going(); n++ {
		s.visit(d, k, n)
	}
}

// visit makes one connection, by any protocol, and its requests.
func (s *run) visit(d dice, k int, n uint64) {
	by2, secure, port := d.oneIn(3), d.oneIn(3), s.port
	switch {
	case secure:
		port = s.securePort
	case d.oneIn(10):
		port = s.otherPort
	}
	c, err := s.dial(port, secure, by2)
	if err != nil {
		if port != s.otherPort {
			s.fail(nil, "client %d cannot connect: %v", k, err)
		}
		return
	}
	v := &visitor{s: s, d: d, c: c, first: uint64(k+1)<<44 | n<<12, port: port, name: fmt.Sprintf("client %d.%d", k, n)}
	defer c.Close()
	if by2 {
		v.http2()
	} else {
		v.http1()
	}
}

func (s *run) dial(port int, secure, by2 bool) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), longest)
	if err != nil || !secure {
		return c, err
	}
	config := &tls.Config{ServerName: hostname, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}, ClientSessionCache: s.sessions}
	if by2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	t := tls.Client(c, config)
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	if got := t.ConnectionState().PeerCertificates[0].Subject.CommonName; got != "one" && got != "two" {
		s.fail(nil, "the proxy shows the certificate of %q", got)
	}
	return t, nil
}

// visitor is one connection of a client's.
type visitor struct {
	s     *run
	d     dice
	c     net.Conn
	name  string
	port  int
	first uint64 // identity of the first request
	made  uint64
}

// request makes up a request.
func (v *visitor) request(protocol string) *conversation {
	d := v.d
	c := &conversation{s: v.s, id: v.first | v.made, client: v.name + " by " + protocol, method: of(d, "GET", "GET", "HEAD", "POST", "POST", "POST", "PUT", "DELETE"),
		class: of(d, v.s.classes...), calm: v.s.calm.Load()}
	v.made++
	if c.calm {
		c.class = of(d, calmClasses...)
	}
	switch {
	case c.method == "POST", c.method == "PUT", c.method != "HEAD" && d.oneIn(10):
		c.body, c.length = true, d.size()
	}
	if v.port == v.s.otherPort {
		c.class = "flap"
	}
	v.s.register.add(c)
	return c
}

// fields are those of a request's head, names and values in turn.
func (c *conversation) fields(d dice) []string {
	fields := []string{idField, c.name(), lengthField, strconv.Itoa(c.length)}
	for range d.IntN(3) {
		fields = append(fields, echoField, strings.Repeat(c.name(), 1+d.IntN(30)))
	}
	return fields
}

// http1Request is a request as bytes.
type http1Request struct {
	*conversation
	bytes    []byte
	head     int // how many of them are the head
	expects  bool
	begun    chan struct{} // closed when it is being sent
	answer   chan struct{} // receives when 100 or the final head has come
	complete chan struct{} // closed when the response has come to its end
}

func (v *visitor) http1Request() *http1Request {
	c, d := v.request("HTTP/1.1"), v.d
	r := &http1Request{conversation: c, begun: make(chan struct{}), answer: make(chan struct{}, 1), complete: make(chan struct{})}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", c.method, c.path(), hostname)
	for fields := c.fields(d); len(fields) > 0; fields = fields[2:] {
		fmt.Fprintf(&b, "%s: %s\r\n", fields[0], fields[1])
	}
	if d.oneIn(3) {
		b.WriteString("TE: trailers\r\nConnection: TE\r\n")
	}
	inChunks := false
	if d.oneIn(20) {
		b.WriteString("Connection: close\r\n")
	}
	if c.body {
		if inChunks = d.oneIn(2); inChunks {
			b.WriteString("Transfer-Encoding: chunked\r\n")
			c.trailer = d.oneIn(3)
		} else {
			fmt.Fprintf(&b, "Content-Length: %d\r\n", c.length)
		}
		if r.expects = d.oneIn(8); r.expects {
			b.WriteString("Expect: 100-continue\r\n")
		}
	}
	b.WriteString("\r\n")
	r.head = b.Len()
	what := content{kind: ofRequest, id: c.id}
	if !inChunks {
		b.Write(what.bytes(0, c.length))
		r.bytes = b.Bytes()
		return r
	}
	c.malformed = d.oneIn(40) && !c.calm
	for at := 0; at < c.length; {
		n := d.piece(c.length - at)
		if c.malformed && d.oneIn(3) {
			break
		}
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, what.bytes(int64(at), n))
		at += n
	}
	if c.malformed {
		b.WriteString(of(d, "zz\r\n", "\r\n", "-1\r\n", "5 5\r\n"))
		r.bytes = b.Bytes()
		return r
	}
	b.WriteString("0\r\n")
	if c.trailer {
		fmt.Fprintf(&b, "%s: %s\r\n", sumField, c.name())
	}
	b.WriteString("\r\n")
	r.bytes = b.Bytes()
	return r
}

// http1 makes some requests by HTTP/1.1.
func (v *visitor) http1() {
	d, calm := v.d, v.s.calm.Load()
	var requests []*http1Request
	for range 1 + d.IntN(8) {
		requests = append(requests, v.http1Request())
	}
	defer func() {
		for _, r := range requests {
			v.s.register.end(r.conversation)
		}
	}()
	u := &http1Upload{visitor: v, d: newDice(v.s.seed^v.first, 1), requests: requests, pipelined: d.oneIn(2), cutAt: -1, over: make(chan struct{}), done: make(chan struct{})}
	if !calm && d.oneIn(8) {
		u.cutAt = d.IntN(len(requests))
		u.cut = d.IntN(len(requests[u.cutAt].bytes) + 1)
	}
	u.slow = d.oneIn(6)
	go u.run()
	slow := d.oneIn(8)
	r := bufio.NewReaderSize(v.c, 4096)
	for _, req := range requests {
		select {
		case <-req.begun:
		case <-u.done:
		}
		select {
		case <-req.begun:
		default:
			goto over // it was never sent
		}
		if !v.http1Response(r, req, u, slow) {
			break
		}
		close(req.complete)
	}
over:
	close(u.over)
	cut(v.c, d.oneIn(3) && !calm)
	<-u.done
}

// http1Response reads and judges one response. It returns whether another may follow.
func (v *visitor) http1Response(r *bufio.Reader, req *http1Request, u *http1Upload, slow bool) bool {
	vd := &verdict{c: req.conversation, proto: "HTTP/1.1", later: req != u.requests[0]}
	for {
		v.c.SetReadDeadline(time.Now().Add(longest))
		resp, err := http.ReadResponse(r, &http.Request{Method: req.method})
		if err != nil {
			if text := err.Error(); strings.Contains(text, "malformed") || strings.Contains(text, "invalid") {
				vd.fail("got what is no response: %v", err)
			} else {
				vd.broken(err, u.gaveUp())
			}
			return false
		}
		if resp.StatusCode == 100 || resp.StatusCode >= 200 {
			select {
			case req.answer <- struct{}{}:
			default:
			}
		}
		if resp.StatusCode < 200 {
			if vd.interim(resp.StatusCode, resp.Header.Get(idField)) != nil {
				return false
			}
			continue
		}
		if vd.final(resp.StatusCode, resp.Header.Values) != nil {
			return false
		}
		buf := make([]byte, 8<<10)
		for {
			if slow && v.d.oneIn(4) {
				v.d.pause(3 * time.Millisecond)
			}
			v.c.SetReadDeadline(time.Now().Add(longest))
			n, err := resp.Body.Read(buf[:1+v.d.IntN(len(buf))])
			if vd.data(buf[:n]) != nil {
				return false
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				vd.broken(err, u.gaveUp())
				return false
			}
		}
		return vd.end(resp.Trailer.Get(sumField)) == nil && !resp.Close
	}
}

// http1Upload sends the requests of a connection.
type http1Upload struct {
	*visitor
	d         dice
	requests  []*http1Request
	pipelined bool
	slow      bool
	cutAt     int // the client leaves within this request, when cut bytes of it are sent; -1 is never
	cut       int
	left      bool
	mu        sync.Mutex
	over      chan struct{} // closed when the client has read what it wanted
	done      chan struct{} // closed when nothing more is sent
}

// gaveUp reports whether the client itself has left.
func (u *http1Upload) gaveUp() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.left
}

func (u *http1Upload) run() {
	defer close(u.done)
	for i, r := range u.requests {
		if i > 0 && !u.pipelined {
			select {
			case <-u.requests[i-1].complete:
			case <-u.over:
				return
			}
		}
		b, unsent := r.bytes, false
		if i == u.cutAt {
			b, unsent = b[:u.cut], u.cut < len(b)
		}
		if unsent {
			r.setUnsent()
		}
		close(r.begun)
		rest, err := u.send(r, b)
		r.note("client sent %d bytes of %d: %v", len(b)-len(rest), len(r.bytes), err)
		if err != nil {
			r.setUnsent()
			return
		}
		if i == u.cutAt {
			u.mu.Lock()
			u.left = true
			u.mu.Unlock()
			u.d.pause(10 * time.Millisecond)
			r.note("client leaves")
			if half, ok := u.c.(interface{ CloseWrite() error }); ok && u.d.oneIn(3) {
				half.CloseWrite()
				return
			}
			cut(u.c, u.d.oneIn(2))
			return
		}
	}
}

// send sends bytes of a request, in pieces.
func (u *http1Upload) send(r *http1Request, b []byte) (rest []byte, err error) {
	if r.expects && len(b) >= r.head {
		if _, err := u.c.Write(b[:r.head]); err != nil {
			return b, err
		}
		b = b[r.head:]
		select {
		case <-r.answer:
		case <-u.over:
			return b, net.ErrClosed
		case <-time.After(time.Duration(u.d.IntN(200)) * time.Millisecond): // RFC 9110 section 10.1.1: it need not wait for ever
		}
	}
	for len(b) > 0 {
		n := u.d.piece(len(b))
		u.c.SetWriteDeadline(time.Now().Add(longest))
		if _, err := u.c.Write(b[:n]); err != nil {
			if isTimeout(err) {
				u.s.fail(r.conversation, "nothing was taken for %v", longest)
			}
			return b, err
		}
		b = b[n:]
		if u.slow && u.d.oneIn(2) || u.d.oneIn(20) {
			u.d.pause(4 * time.Millisecond)
		}
	}
	return nil, nil
}

// http2 makes some requests by HTTP/2.
func (v *visitor) http2() {
	d, calm := v.d, v.s.calm.Load()
	window := of(d, int64(65535), 65535, 1<<20, 1000, 1)
	c := newH2(v.s, v.c, bufio.NewReader(v.c), v.name+" by HTTP/2", false, window, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	c.hold = d.oneIn(4)
	served := make(chan struct{})
	go func() {
		c.serve()
		close(served)
	}()
	var left sync.Once
	gone := make(chan struct{})
	leave := func() { left.Do(func() { close(gone); c.close(d.oneIn(2)) }) }
	if !calm && d.oneIn(10) {
		t := time.AfterFunc(time.Duration(d.IntN(200))*time.Millisecond, func() {
			left.Do(func() { close(gone); c.close(true) })
		})
		defer t.Stop()
	}
	var streams sync.WaitGroup
	places := make(chan struct{}, 1+d.IntN(30))
	for range 1 + d.IntN(40) {
		places <- struct{}{}
		c.mu.Lock()
		over := c.err != nil || c.goneAway
		most := int(c.allowed)
		c.mu.Unlock()
		if over || len(places) > most {
			break
		}
		req := v.request("HTTP/2")
		sd := newDice(v.s.seed^req.id, 2)
		streams.Go(func() {
			defer func() { <-places }()
			defer v.s.register.end(req)
			v.http2Request(c, req, sd, gone)
		})
		if d.oneIn(4) {
			d.pause(2 * time.Millisecond)
		}
	}
	streams.Wait()
	leave()
	<-served
}

// http2Request makes one request and judges its response.
func (v *visitor) http2Request(c *h2conn, req *conversation, d dice, gone chan struct{}) {
	fields := []string{":method", req.method, ":scheme", "http", ":path", req.path(), ":authority", hostname}
	if _, secure := v.c.(*tls.Conn); secure {
		fields[3] = "https"
	}
	for own := req.fields(d); len(own) > 0; own = own[2:] {
		fields = append(fields, strings.ToLower(own[0]), own[1])
	}
	if d.oneIn(3) {
		fields = append(fields, "te", "trailers")
	}
	expects := false
	if req.body {
		declared := req.length
		if d.oneIn(40) && !req.calm {
			req.malformed = true
			declared += of(d, 1, 100) // were it less, a backend would have a whole request before anybody could know better
		}
		if req.declared = d.oneIn(2) || req.malformed; req.declared {
			fields = append(fields, "content-length", strconv.Itoa(declared))
		}
		req.trailer = d.oneIn(4)
		if expects = d.oneIn(8); expects {
			fields = append(fields, "expect", "100-continue")
		}
	}
	end := !req.body || req.length == 0 && !req.trailer && !req.malformed && d.oneIn(2)
	calm := req.calm
	// When the client resets the stream: behind so many bytes of its body, or of the response.
	resetUp, resetDown := -1, -1
	if !calm && d.oneIn(10) {
		if req.body && d.oneIn(2) {
			resetUp = d.IntN(req.length + 1)
		} else {
			resetDown = d.IntN(20000) - 1000
		}
	}
	if !end {
		req.setUnsent() // until its end is sent
	}
	st, err := c.open(d, end, fields...)
	if err != nil {
		req.setUnsent()
		req.note("not opened: %v", err)
		return
	}
	st.patience(longest)
	defer st.drop()
	answered := make(chan struct{})
	var once sync.Once
	go100 := func() { once.Do(func() { close(answered) }) }
	var upload sync.WaitGroup
	var mine struct {
		sync.Mutex
		reset bool
	}
	reset := func(why string) {
		req.note("client resets the stream %s", why)
		mine.Lock()
		mine.reset = true
		mine.Unlock()
		st.reset(of(d, http2.ErrCodeCancel, http2.ErrCodeNo, http2.ErrCodeInternal))
	}
	isMine := func() bool {
		select {
		case <-gone:
			return true
		default:
		}
		mine.Lock()
		defer mine.Unlock()
		return mine.reset
	}
	if !end {
		ud := newDice(v.s.seed^req.id, 3)
		upload.Go(func() {
			if expects {
				select {
				case <-answered:
				case <-time.After(time.Duration(ud.IntN(200)) * time.Millisecond):
				}
			}
			err := v.http2Upload(st, req, ud, resetUp)
			if err == errBroken {
				mine.Lock()
				mine.reset = true
				mine.Unlock()
				st.reset(http2.ErrCodeCancel)
			}
			req.note("client sent its body: %v", err)
		})
	}
	defer upload.Wait()
	defer go100()
	vd := &verdict{c: req, proto: "HTTP/2"}
	if resetDown < -500 {
		d.pause(20 * time.Millisecond)
		reset("before the response")
	}
	for !vd.head {
		head, _, err := st.nextHead()
		if err != nil {
			vd.broken(err, isMine())
			st.reset(http2.ErrCodeCancel)
			return
		}
		go100()
		status, _ := strconv.Atoi(field(head, ":status"))
		values := func(name string) []string { return valuesOf(head, name) }
		if status < 200 {
			if vd.interim(status, strings.Join(values(idField), " and ")) != nil {
				break
			}
			continue
		}
		if vd.final(status, values) != nil {
			break
		}
	}
	slow := d.oneIn(10)
	buf := make([]byte, 8<<10)
	for got := 0; ; {
		if resetDown >= -500 && got >= resetDown && resetDown != -1 {
			reset("within the response")
		}
		n, err := st.Read(buf[:1+d.IntN(len(buf))])
		if vd.data(buf[:n]) != nil {
			st.reset(http2.ErrCodeCancel)
			return
		}
		got += n
		if n > 0 {
			if slow && d.oneIn(3) {
				d.pause(5 * time.Millisecond)
			}
			st.consumed(n)
			st.patience(longest)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			vd.broken(err, isMine())
			st.reset(http2.ErrCodeCancel)
			return
		}
	}
	c.mu.Lock()
	trailer := field(st.trailer, strings.ToLower(sumField))
	c.mu.Unlock()
	vd.end(trailer)
	if d.oneIn(2) {
		st.reset(http2.ErrCodeNo) // enough: the rest of the body is not wanted
	}
}

func valuesOf(head []hpack.HeaderField, name string) (values []string) {
	for _, f := range head {
		if f.Name == strings.ToLower(name) {
			values = append(values, f.Value)
		}
	}
	return values
}

// http2Upload sends a body, and gives up behind resetAt bytes, if that is not negative.
func (v *visitor) http2Upload(st *h2stream, req *conversation, d dice, resetAt int) error {
	slow := d.oneIn(6)
	what := content{kind: ofRequest, id: req.id}
	for at := 0; at < req.length; {
		if resetAt >= 0 && at >= resetAt {
			return errBroken
		}
		n := d.piece(req.length - at)
		if resetAt >= 0 {
			n = min(n, resetAt-at)
		}
		last := at+n == req.length && !req.trailer && d.oneIn(2)
		if last || req.declared && at+n == req.length { // a backend by HTTP/1.1 does not wait for END_STREAM then
			req.sending()
		}
		if err := st.send(d, what.bytes(int64(at), n), last); err != nil {
			return err
		}
		if at += n; last {
			return nil
		}
		if slow && d.oneIn(2) || d.oneIn(20) {
			d.pause(4 * time.Millisecond)
		}
	}
	if resetAt >= 0 {
		return errBroken
	}
	req.sending()
	if req.trailer {
		return st.head(d, true, strings.ToLower(sumField), req.name())
	}
	return st.send(d, nil, true)
}
