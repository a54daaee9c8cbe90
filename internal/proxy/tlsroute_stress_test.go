package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	proxytls "github.com/moongate-dev/moongate/internal/proxy/tls"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// stressPlan is what the ends of one connection do, and what came of it.
type stressPlan struct {
	name        string // the server name
	passed      bool   // the backend sees the client's TLS
	fragment    int    // of the ClientHello, in bytes
	segment     int
	sent, reply []byte // behind the ClientHello, and by the backend
	breaks      bool   // the client resets its connection in the place of its end
	replyBreaks bool   // the backend does

	clientGot, backendGot []byte
	clientErr, backendErr error // nil is the end of the stream
	whole                 []byte
	begun, ended          chan struct{} // closed by the backend
}

// cutter sends the first bytes of TLS, the ClientHello, in fragments and segments, and keeps all.
type cutter struct {
	net.Conn
	plan *stressPlan
	cut  bool
}

func (c *cutter) Write(b []byte) (int, error) {
	if c.cut {
		return c.Conn.Write(b)
	}
	c.cut = true
	return len(b), c.plan.write(c.Conn, fragmented(b, c.plan.fragment))
}

// write sends in segments.
func (p *stressPlan) write(c net.Conn, b []byte) error {
	p.whole = append(p.whole, b...)
	for len(b) > 0 {
		n, err := c.Write(b[:min(len(b), p.segment)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// visit is the client's part.
func (p *stressPlan) visit(c *net.TCPConn, hello []byte) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(testkit.Patience))
	c.SetNoDelay(true)
	var stream interface {
		net.Conn
		CloseWrite() error
	} = c
	var err error
	if p.passed {
		err = p.write(c, fragmented(hello, p.fragment))
	} else {
		secure := tls.Client(&cutter{Conn: c, plan: p}, &tls.Config{ServerName: p.name, InsecureSkipVerify: true})
		stream, err = secure, secure.Handshake()
		p.whole = nil
	}
	if err != nil {
		p.clientErr = err
		return
	}
	p.segment = max(p.segment, 1000)
	var sender sync.WaitGroup
	var unsent error
	sender.Go(func() {
		if unsent = p.write(stream, p.sent); unsent != nil {
			return
		}
		if p.breaks {
			<-p.begun // so that there is somebody who must see it
			c.SetLinger(0)
			c.Close()
			return
		}
		stream.CloseWrite()
	})
	p.clientGot, p.clientErr = io.ReadAll(stream)
	sender.Wait()
	p.clientErr = cmp.Or(p.clientErr, unsent)
}

// serve is the backend's part, of which the first bytes were read.
func (p *stressPlan) serve(c *net.TCPConn, first []byte) {
	defer close(p.ended)
	close(p.begun)
	c.SetDeadline(time.Now().Add(testkit.Patience))
	var sender sync.WaitGroup
	var unsent error // which may have taken the error from the socket, whose reads then see the end of a stream
	sender.Go(func() {
		if _, unsent = c.Write(p.reply); unsent != nil {
			return
		}
		if p.replyBreaks {
			c.SetLinger(0)
			c.Close()
			return
		}
		c.CloseWrite()
	})
	rest, err := io.ReadAll(c)
	sender.Wait()
	p.backendGot, p.backendErr = append(first, rest...), cmp.Or(err, unsent)
}

// judge checks that who saw the end of a stream has all of it, and that who did not has seen why.
func (p *stressPlan) judge(t *testing.T) {
	what := fmt.Sprintf("%s (passed on %v, fragments of %d, %d bytes and %d back, breaks %v %v)", p.name, p.passed, p.fragment, len(p.sent), len(p.reply), p.breaks, p.replyBreaks)
	for end, err := range map[string]error{"client": p.clientErr, "backend": p.backendErr} {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the %s was never told", what, end)
		}
	}
	want := p.sent
	if p.passed {
		want = p.whole
	}
	if p.backendErr == nil && !bytes.Equal(p.backendGot, want) {
		t.Errorf("%s: the backend has seen the end after %d bytes of %d", what, len(p.backendGot), len(want))
	}
	if p.backendErr == nil && p.breaks {
		t.Errorf("%s: the client has broken off, and the backend seen the end of a stream", what)
	}
	if p.clientErr == nil && (p.replyBreaks || !bytes.Equal(p.clientGot, p.reply)) {
		t.Errorf("%s: the client has seen the end after %d bytes of %d", what, len(p.clientGot), len(p.reply))
	}
	if !p.breaks && !p.replyBreaks && (p.clientErr != nil || p.backendErr != nil) {
		t.Errorf("%s: nobody has broken off, and the ends have seen %v and %v", what, p.clientErr, p.backendErr)
	}
	if !bytes.HasPrefix(want, p.backendGot) || !bytes.HasPrefix(p.reply, p.clientGot) {
		t.Errorf("%s: other bytes have come than were sent", what)
	}
}

// TestTLSStress has many connections at a time whose ClientHellos come in fragments, and whose ends half-close or break off at random: every byte arrives, or
// both ends learn that it did not.
func TestTLSStress(t *testing.T) {
	t.Parallel()
	for name, plainIO := range map[string]bool{"raw": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stressTLS(t, plainIO)
		})
	}
}

func stressTLS(t *testing.T, plainIO bool) {
	checkLeaks(t)
	connections := 300
	if testing.Short() {
		connections = 60
	}
	plans := map[string]*stressPlan{}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	junk := make([]byte, 1<<20)
	for i := range junk {
		junk[i] = byte(r.Uint32())
	}
	part := func() []byte { return junk[:r.IntN([]int{1, 100, 20_000, 400_000}[r.IntN(4)])] }
	for i := range connections {
		p := &stressPlan{passed: r.IntN(2) == 0, fragment: 1 + r.IntN(600), segment: 1 + r.IntN(2000), sent: part(), reply: part(), breaks: r.IntN(5) == 0, replyBreaks: r.IntN(5) == 0,
			begun: make(chan struct{}), ended: make(chan struct{})}
		p.name = fmt.Sprintf("c%d.t.example", i)
		if p.passed {
			p.name = fmt.Sprintf("c%d.p.example", i)
		}
		plans[p.name] = p
	}
	passed := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		var hello proxytls.Hello
		for b := make([]byte, 0, proxytls.MaxHello); ; {
			n, err := c.Read(b[len(b):cap(b)])
			b = b[:len(b)+n]
			if done, _ := hello.Complete(b); done {
				name, _ := hello.ServerName(b)
				plans[string(name)].serve(c.(*net.TCPConn), b)
				return
			}
			if err != nil {
				t.Errorf("the backend has half of a ClientHello: %v", err)
				return
			}
		}
	})
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}), MaxConnectionsPerClient: 2 * connections, PlainIO: plainIO})
	up := append(backend("Service/default/passed/80/passthrough", passed), certificate(t, "c", newECDSA(t), "*.t.example"), g.tlsListener("t", "*.t.example", "c"),
		g.passthroughListener("p", "*.p.example"), passedRoute("p", "p", "passed", "*.p.example"))
	for name, p := range plans {
		if p.passed {
			continue
		}
		addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
			p.serve(c.(*net.TCPConn), nil)
		})
		service, _, _ := strings.Cut(name, ".")
		up = append(up, backend("Service/default/"+service+"/80", addr)...)
		up = append(up, tlsRoute(service, "t", service, name))
	}
	g.apply(up)
	var all sync.WaitGroup
	turns := make(chan struct{}, 40)
	for _, p := range plans {
		hello := clientHello(t, p.name)
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			c, err := net.Dial("tcp", g.addr())
			if err != nil {
				t.Error(err)
				return
			}
			p.visit(c.(*net.TCPConn), hello)
		})
	}
	all.Wait()
	testkit.Eventually(t, "all connections have ended", func() bool { return g.counted(activeConnections) == 0 })
	g.reasonsLogged(connections)
	for _, p := range plans {
		<-p.ended
		p.judge(t)
	}
}
