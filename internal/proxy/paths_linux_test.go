//go:build !race

// Not under the race detector: these tests tell from the scheduler's counts that the gateway is at rest, which it
// seldom is for long enough with the detector's own work. The ways that they compare run there in all other tests.

package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// course is how a conversation went, as far as anyone outside of the gateway can tell.
type course struct {
	steps  []string // after each step of the script: how many bytes each end had heard by then
	client string   // what the client heard, and how that ended
	heard  []string // what each connection to the backend heard, and how that ended
	log    []string // the access log, without times and ports
}

func (c *course) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  client heard %s\n", c.client)
	for i, h := range c.heard {
		fmt.Fprintf(&b, "  backend connection %d heard %s\n", i, h)
	}
	for _, l := range c.log {
		fmt.Fprintf(&b, "  logged %s\n", l)
	}
	fmt.Fprintf(&b, "  steps %s\n", strings.Join(c.steps, "; "))
	return b.String()
}

// pathsTries is how often a conversation must go differently on the two paths to count: where it
// depends on who is faster, the two ways that it can go are found on both.
const pathsTries = 6

// FuzzPaths holds the two ways against each other by which the gateway can use its sockets: raw
// calls, and net.Conn. Whatever client and backend say, in whatever parts, and however they end,
// both must make the same of it.
func FuzzPaths(f *testing.F) {
	listener := listenRaw(f)
	fuzzPaths(f, listener, pathsGateway(f, listener, false), pathsGateway(f, listener, true))
}

// FuzzPathsTLS does the same behind TLS, whose records are cut where the script says.
func FuzzPathsTLS(f *testing.F) {
	listener := listenRaw(f)
	signer := newECDSA(f)
	behind := func(plain bool) *gateway {
		g := pathsGateway(f, listener, plain)
		g.apply([]*config.Resource{certificate(f, "c", signer, "h"), g.httpsListener("http", "", "c")})
		return g
	}
	fuzzPaths(f, listener, behind(false), behind(true))
}

func fuzzPaths(f *testing.F, listener *rawListener, raw, plain *gateway) {
	for _, s := range loadPaths(f) {
		f.Add(s.client, s.backend, s.script)
	}
	f.Fuzz(func(t *testing.T, client, backend, script []byte) {
		if len(client) > 8<<10 || len(backend) > 8<<10 || len(script) > 64 || bytes.Count(client, large) > 64 || bytes.Count(backend, large) > 64 {
			return
		}
		var onRaw, onPlain []string
		for range pathsTries {
			onRaw = append(onRaw, converseBy(t, raw, listener, client, backend, script))
			onPlain = append(onPlain, converseBy(t, plain, listener, client, backend, script))
			if slices.ContainsFunc(onRaw, func(c string) bool { return slices.Contains(onPlain, c) }) {
				return
			}
		}
		t.Errorf("client %q\nbackend %q\nscript %q\nraw:\n%splain:\n%s", client, backend, script, onRaw[0], onPlain[0])
	})
}

// pathsGateway is a gateway that sends everything to the listener.
func pathsGateway(t testing.TB, to *rawListener, plain bool) *gateway {
	g := startGatewayWith(t, Options{PlainIO: plain})
	g.serve(to.addr, nil)
	return g
}

// converseBy plays the script on one of the gateways.
func converseBy(t *testing.T, g *gateway, l *rawListener, client, backend, script []byte) string {
	log := &testkit.Log{}
	al, err := observe.OpenAccessLog("json", log, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g.fence()
	g.engine.Observer.Log = al
	g.fence()
	p := &play{t: t, listener: l, unsent: expand(client), texts: bytes.Split(backend, []byte(nextText))}
	p.client = dialRaw(t, g.port)
	if g.generation > 1 { // see FuzzPathsTLS
		p.client.handshake(t)
	}
	p.run(script)
	select {
	case <-g.clients.Empty():
	case <-time.After(10 * time.Second):
		t.Fatalf("the connection does not end: client %q, backend %q, script %q", client, backend, script)
	}
	p.close()
	endpoint := g.upstreams.Get("Service/default/b/80").Endpoints()[0]
	for u := endpoint.Idle(); u != nil; u = endpoint.Idle() {
		u.Close()
	}
	al.Close(time.Second)
	p.log = withoutTimes(t, log.String())
	return p.course.String()
}

var dates = regexp.MustCompile(`Date: [A-Z][a-z]{2}, [^\r]* GMT`)

// large stands for 4 KiB, so that large bodies need not be found byte by byte.
var large = []byte("%")

func expand(b []byte) []byte {
	return bytes.ReplaceAll(b, large, bytes.Repeat([]byte("0123456789abcdef"), 256))
}

// withoutTimes is the access log but for what differs from run to run.
func withoutTimes(t *testing.T, text string) (lines []string) {
	for line := range strings.Lines(text) {
		var all map[string]any
		if err := json.Unmarshal([]byte(line), &all); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, key := range []string{"request_id", "start_time", "duration_ms", "upstream_duration_ms", "client_address"} {
			delete(all, key)
		}
		b, _ := json.Marshal(all)
		lines = append(lines, string(b))
	}
	return lines
}

// unasked is what a backend says that nobody has asked.
const unasked = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

// maxSteps bounds a script.
const maxSteps = 24

// play has a client and a backend follow a script. Everything is done by one goroutine, which
// waits after each step until the gateway has done all that it will do for now.
//
// A script is a line of letters; c, s and b take the next byte for a number. Other bytes mean one of the letters.
//
//	c<n> C  the client sends n bytes, or all that it has
//	s<n>    n bytes of what TLS makes of that leave at once, the others with the next step
//	h r     the client half-closes, or resets
//	b<n> B  the backend's newest connection says n bytes of its answer, or all of it
//	u       it says what nobody asked for
//	f x R   it half-closes, closes, or resets
type play struct {
	course
	t        *testing.T
	listener *rawListener
	client   *rawEnd
	unsent   []byte
	texts    [][]byte
	answers  int // begun
	conns    []*backendEnd
}

// backendEnd is a connection to the backend.
type backendEnd struct {
	*rawEnd
	answered int    // requests
	unsaid   []byte // of the answer to the present one
}

const letters = "cCbBhrfxRus"

func (p *play) run(script []byte) {
	p.settle()
	for steps := 0; len(script) > 0 && steps < maxSteps; steps++ {
		op := script[0]
		if !strings.ContainsRune(letters, rune(op)) {
			op = letters[int(op)%len(letters)]
		}
		script = script[1:]
		n := -1
		if strings.ContainsRune("csb", rune(op)) && len(script) > 0 {
			n = int(script[0])
			script = script[1:]
		}
		p.step(op, n)
		p.settle()
		p.note(op)
	}
	p.finish()
}

// step does one step; n is less than 0 for all.
func (p *play) step(op byte, n int) {
	if op != 's' {
		p.client.flush(0)
	}
	switch op {
	case 's':
		p.client.split = max(n, 0)
		return
	case 'c', 'C':
		p.unsent = p.client.say(p.unsent, n)
		return
	case 'h':
		p.client.halfClose()
		return
	case 'r':
		p.client.reset()
		return
	}
	if len(p.conns) == 0 {
		return
	}
	switch b := p.conns[len(p.conns)-1]; op {
	case 'b', 'B':
		p.answer(b, n)
	case 'u':
		b.say([]byte(unasked), -1)
	case 'f':
		b.halfClose()
	case 'x':
		b.close()
	case 'R':
		b.reset()
	}
}

// answer says n bytes of the answer to the request that b has heard; false where there is nothing to say.
func (p *play) answer(b *backendEnd, n int) bool {
	if len(b.unsaid) == 0 && b.answered < bytes.Count(b.got, []byte(" HTTP/1.1\r\nHost: ")) {
		b.answered++
		b.unsaid = expand(p.texts[min(p.answers, len(p.texts)-1)])
		p.answers++
	}
	if len(b.unsaid) == 0 || b.closed {
		return false
	}
	b.unsaid = b.say(b.unsaid, n)
	return true
}

// finish has the client say all and the backend answer all, then both end.
func (p *play) finish() {
	p.client.flush(0)
	p.client.split = 0
	p.settle()
	for range 40 {
		said := len(p.unsent) > 0 && !p.client.closed
		if said {
			p.unsent = p.client.say(p.unsent, -1)
			p.settle()
		}
		for _, b := range p.conns {
			if p.answer(b, -1) {
				said = true
				p.settle()
			}
		}
		if !said {
			break
		}
	}
	p.note('.')
	p.client.halfClose()
	p.settle()
	for _, b := range p.conns {
		b.halfClose()
	}
	p.settle()
	for n := -1; n != len(p.conns); { // a request that is repeated comes on a new connection
		n = len(p.conns)
		for _, b := range p.conns {
			b.close()
		}
		p.settle()
	}
	p.client.got = dates.ReplaceAll(p.client.got, []byte("Date: now"))
	p.course.client = p.client.describe()
	for _, b := range p.conns {
		b.got = requestIDLine.ReplaceAll(b.got, nil)
		p.heard = append(p.heard, b.describe())
	}
	p.client.close()
}

// note writes down how far everyone is.
func (p *play) note(op byte) {
	s := fmt.Sprintf("%c client %d %s", op, len(p.client.got), p.client.end)
	for _, b := range p.conns {
		s += fmt.Sprintf(", backend %d %s", len(b.got), b.end)
	}
	p.steps = append(p.steps, s)
}

func (p *play) close() {
	p.listener.accept() // late ones
	for _, b := range p.conns {
		b.close()
	}
}

// settle waits until the gateway has taken all that it was told and has nothing more to do.
func (p *play) settle() {
	calm := 0
	for start := time.Now(); time.Since(start) < 5*time.Second; moment() {
		moved := p.client.hear()
		for _, c := range p.listener.accept() {
			p.conns = append(p.conns, &backendEnd{rawEnd: c})
			moved = true
		}
		pending := p.client.pending()
		for _, b := range p.conns {
			moved = b.hear() || moved
			pending = pending || b.pending() || len(b.got) == 0 && b.end == ""
		}
		switch {
		case moved || busy():
			calm = 0
		case calm >= 20, calm >= 2 && !pending:
			return
		default:
			calm++
		}
	}
	p.t.Fatal("the gateway never comes to rest")
}
