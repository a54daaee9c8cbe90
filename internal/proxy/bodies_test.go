//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself, and can cut

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// stampSize is how often a body says whose it is, and where in it this is.
const stampSize = 64

// appendStamped appends size bytes of the body of request id.
func appendStamped(b []byte, id string, size int) []byte {
	end := len(b) + size
	for at := 0; len(b) < end; at += stampSize {
		b = fmt.Appendf(b, "%-*s\n", stampSize-1, id+" "+strconv.Itoa(at))
	}
	return b[:end]
}

// stamped is a body as a backend receives it.
type stamped struct {
	id  string
	got int
	buf []byte
}

// take reports whether p is what follows in the body.
func (s *stamped) take(p []byte) bool {
	for len(p) > 0 {
		from := s.got % stampSize
		s.buf = fmt.Appendf(s.buf[:0], "%-*s\n", stampSize-1, s.id+" "+strconv.Itoa(s.got-from))
		n := min(len(p), stampSize-from)
		if !bytes.Equal(p[:n], s.buf[from:from+n]) {
			return false
		}
		s.got += n
		p = p[n:]
	}
	return true
}

// bodyRun is a run of clients and backends that hold every body against whose it is.
type bodyRun struct {
	t               *testing.T
	served, refused atomic.Int64
	byHTTP1         atomic.Int64 // of those served
}

// receive checks a part of a body, and with end its length.
func (s *bodyRun) receive(how string, b *stamped, want string, p []byte, end bool) {
	at := b.got
	if !b.take(p) {
		s.t.Errorf("%s: behind byte %d of request %s came %.200q", how, at, b.id, p)
	}
	if n, err := strconv.Atoi(want); end && (err != nil || n != b.got) {
		s.t.Errorf("%s: the body of request %s ended after %d bytes of %s", how, b.id, b.got, want)
	}
}

// serveHTTP1 is a backend's connection by HTTP/1.1.
func (s *bodyRun) serveHTTP1(d dice, c net.Conn, r *bufio.Reader) {
	buf := make([]byte, 8<<10)
	for {
		req, err := http.ReadRequest(r)
		if err != nil || d.oneIn(40) {
			return
		}
		b := &stamped{id: req.Header.Get("X-Id")}
		early := d.oneIn(30)
		for !early {
			n, err := req.Body.Read(buf)
			s.receive("HTTP/1.1", b, req.Header.Get("X-Size"), buf[:n], err == io.EOF)
			if err == io.EOF {
				break
			}
			if err != nil || d.oneIn(300) {
				return
			}
		}
		if !early {
			s.served.Add(1)
			s.byHTTP1.Add(1)
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(b.id), b.id)
		if early || d.oneIn(20) {
			return
		}
	}
}

// serveHTTP2 is a backend's connection by HTTP/2, that refuses streams, goes away, allows fewer streams and closes.
func (s *bodyRun) serveHTTP2(d dice, c net.Conn, r *bufio.Reader) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, preface); err != nil {
		return
	}
	f := &framePeer{Framer: http2.NewFramer(c, r), c: c}
	f.SetReuseFrames()
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(1 + d.IntN(8))})
	type stream struct {
		stamped
		want string
	}
	streams := map[uint32]*stream{}
	refuse := func(id uint32) {
		delete(streams, id)
		s.refused.Add(1)
		f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
	}
	end := func(id uint32) {
		st := streams[id]
		if st == nil {
			return
		}
		delete(streams, id)
		s.receive("HTTP/2", &st.stamped, st.want, nil, true)
		s.served.Add(1)
		f.answer(id, st.id)
	}
	var last uint32
	goneAway := false
	for {
		frame, err := f.ReadFrame()
		if err != nil || d.oneIn(200) {
			return
		}
		f.acknowledge(frame)
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			id := frame.StreamID
			if frame.PseudoValue("method") == "" { // a trailer section
				end(id)
				break
			}
			if goneAway {
				break
			}
			st := &stream{}
			for _, h := range frame.RegularFields() {
				switch h.Name {
				case "x-id":
					st.id = h.Value
				case "x-size":
					st.want = h.Value
				}
			}
			streams[id] = st
			switch {
			case d.oneIn(3):
				refuse(id)
			case d.oneIn(15): // this one was not processed, and others before it maybe not either
				s.refused.Add(1)
				goneAway = true
				if d.oneIn(2) {
					last = 0
					clear(streams)
				}
				delete(streams, id)
				f.WriteGoAway(last, http2.ErrCodeNo, nil)
			case d.oneIn(20):
				f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(d.IntN(2))})
				last = id
			default:
				last = id
			}
			if frame.StreamEnded() {
				end(id)
			}
		case *http2.DataFrame:
			id := frame.StreamID
			if st := streams[id]; st != nil {
				s.receive("HTTP/2", &st.stamped, st.want, frame.Data(), false)
				if d.oneIn(12) {
					refuse(id)
				}
			}
			if n := len(frame.Data()); n > 0 {
				f.WriteWindowUpdate(0, uint32(n))
				if !frame.StreamEnded() {
					f.WriteWindowUpdate(id, uint32(n))
				}
			}
			if frame.StreamEnded() {
				end(id)
			}
		}
	}
}

// backend is an endpoint that speaks HTTP/1.1 on one connection and HTTP/2 on the next, or lets it hang.
func (s *bodyRun) backend(pair tls.Certificate, newDice func() dice, both bool) string {
	return rawBackend(s.t, func(c net.Conn, _ *bufio.Reader) {
		d := newDice()
		if d.oneIn(10) { // a dial that hangs
			c.SetReadDeadline(time.Now().Add(time.Duration(d.IntN(300)) * time.Millisecond))
			io.Copy(io.Discard, c)
			return
		}
		protocols := []string{"h2"}
		if both && d.oneIn(2) {
			protocols[0] = "http/1.1"
		}
		tc := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: protocols})
		if tc.Handshake() != nil {
			return
		}
		if tc.ConnectionState().NegotiatedProtocol == "h2" {
			s.serveHTTP2(d, tc, bufio.NewReader(tc))
		} else {
			s.serveHTTP1(d, tc, bufio.NewReader(tc))
		}
	})
}

// size is that of a body: mostly such as can be sent again, sometimes beyond.
func (d dice) size() int {
	switch d.IntN(8) {
	case 0:
		return d.IntN(300 << 10)
	case 1, 2:
		return d.IntN(70 << 10)
	}
	return d.IntN(3000)
}

// post sends a request by HTTP/1.1, and reports whether the connection takes another.
func (s *bodyRun) post(d dice, c net.Conn, r *bufio.Reader, id string) bool {
	body := appendStamped(nil, id, d.size())
	head := fmt.Sprintf("%s / HTTP/1.1\r\nHost: h\r\nX-Id: %s\r\nX-Size: %d\r\n", []string{"POST", "PUT"}[d.IntN(2)], id, len(body))
	var raw []byte
	if d.oneIn(3) {
		raw = append([]byte(head+fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))), body...)
	} else {
		raw = append([]byte(head+"Transfer-Encoding: chunked\r\n\r\n"), d.chunked(body)...)
	}
	leaves := d.oneIn(30)
	if leaves {
		raw = raw[:d.IntN(len(raw))]
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		d := dice{rand.New(rand.NewPCG(uint64(len(raw)), 1))}
		d.send(c, raw)
		if leaves {
			c.Close()
		}
	}()
	defer func() {
		c.SetDeadline(time.Unix(1, 0))
		<-sent
		c.SetDeadline(time.Now().Add(testkit.Patience))
	}()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if resp.StatusCode == 200 && err == nil && string(got) != id {
		s.t.Errorf("the answer to request %s was %.100q", id, got)
	}
	select {
	case <-sent:
		return err == nil && !resp.Close
	default:
		return false
	}
}

// post2 sends a request by HTTP/2.
func (s *bodyRun) post2(d dice, cc *http2.ClientConn, id string) bool {
	body := appendStamped(nil, id, d.size())
	reader, writer := io.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var in io.Reader = bytes.NewReader(body)
	if d.oneIn(2) {
		in = reader
		part := dice{rand.New(rand.NewPCG(uint64(len(body)), 2))}
		done := make(chan struct{})
		go func() {
			defer close(done)
			part.send(writer, body)
			writer.Close()
		}()
		defer func() {
			reader.Close()
			<-done
		}()
	}
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://h/", io.NopCloser(in))
	req.Header.Set("X-Id", id)
	req.Header.Set("X-Size", strconv.Itoa(len(body)))
	resp, err := cc.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if resp.StatusCode == 200 && err == nil && string(got) != id {
		s.t.Errorf("the answer to request %s was %.100q", id, got)
	}
	return err == nil
}

// TestBodiesStayApart holds every byte that a backend receives against the request that it receives it for, while endpoints
// speak now one protocol and now the other, refuse streams, go away, lower their limits, let dials hang and close, and
// while the configuration changes. No body is another's, and none ends early.
func TestBodiesStayApart(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var participants atomic.Uint64
	newDice := func() dice { return dice{rand.New(rand.NewPCG(seed, participants.Add(1)))} }
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	pair, err := tls.X509KeyPair(cert.GetCertificate().ChainPem, cert.GetCertificate().KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	s := &bodyRun{t: t}
	addrs := []string{s.backend(pair, newDice, true), s.backend(pair, newDice, true), s.backend(pair, newDice, false)}
	g := startGatewayWith(t, Options{Timeouts: Timeouts{Linger: 20 * time.Millisecond}, Upstream: upstream.Options{ConnectTimeout: 200 * time.Millisecond}})
	g.serve(addrs[0], nil)
	g.apply(backend("Service/default/b/80", addrs...)[1:])
	ca := cert.GetCertificate().ChainPem
	g.apply(overTLS("Service/default/b/80", "backend.example", ca, config.BackendProtocol_BACKEND_PROTOCOL_HTTP))
	end := time.Now().Add(4 * time.Second)
	if testing.Short() {
		end = time.Now().Add(time.Second)
	}
	var work sync.WaitGroup
	for k := range 6 {
		work.Go(func() {
			d := newDice()
			for i := 0; time.Now().Before(end) && !t.Failed(); i++ {
				c, err := net.Dial("tcp", g.addr())
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(time.Now().Add(testkit.Patience))
				r := bufio.NewReader(c)
				for n := 0; n < 20 && s.post(d, c, r, fmt.Sprintf("k%dc%dn%d", k, i, n)); n++ {
				}
				c.Close()
			}
		})
	}
	for k := range 2 {
		work.Go(func() {
			d := newDice()
			for i := 0; time.Now().Before(end) && !t.Failed(); i++ {
				c, err := net.Dial("tcp", g.addr())
				if err != nil {
					t.Error(err)
					return
				}
				cc, err := (&http2.Transport{DisableCompression: true}).NewClientConn(c)
				if err != nil {
					t.Error(err)
					return
				}
				var streams sync.WaitGroup
				for n := range 4 {
					d := dice{rand.New(rand.NewPCG(d.Uint64(), 3))}
					streams.Go(func() {
						for m := range 5 {
							s.post2(d, cc, fmt.Sprintf("h%dc%dn%dm%d", k, i, n, m))
						}
					})
				}
				streams.Wait()
				cc.Close()
				c.Close()
			}
		})
	}
	work.Go(func() { // endpoints and their protocol change
		for i := 0; time.Now().Before(end); i++ {
			time.Sleep(60 * time.Millisecond)
			g.apply(backend("Service/default/b/80", [][]string{addrs, addrs[:2], addrs[1:], addrs[:1]}[i%4]...)[1:])
			if i%7 == 6 {
				protocol := []config.BackendProtocol{config.BackendProtocol_BACKEND_PROTOCOL_H2C, config.BackendProtocol_BACKEND_PROTOCOL_HTTP}[i/7%2]
				g.apply(overTLS("Service/default/b/80", "backend.example", ca, protocol))
			}
		}
	})
	work.Wait()
	t.Logf("%d bodies arrived whole, %d of them by HTTP/1.1; %d streams were refused", s.served.Load(), s.byHTTP1.Load(), s.refused.Load())
	if s.served.Load() < 20 || s.byHTTP1.Load() == 0 || s.refused.Load() == 0 {
		t.Error("too little has happened for the test to mean anything")
	}
	if log := g.log.String(); strings.Contains(log, `"reason":"internal"`) {
		t.Error("a request ended as internal")
	}
}
