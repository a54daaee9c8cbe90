package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// smuggling is one case of testdata/smuggling, see its README.
type smuggling struct {
	name      string
	client    []byte
	frames    []string
	answers   []smugglersAnswer
	status    []string
	hears     string
	noEnd     bool
	told      string
	checkTold bool
}

type smugglersAnswer struct {
	text  []byte
	close bool
}

// smugglers makes the cases of a file.
func smugglers(t *testing.T, file *caseFile) (all []smuggling) {
	each := []string{""}
	if s, ok := file.section("each"); ok {
		each = s.lines
	}
	for i, variant := range each {
		c := smuggling{name: file.name}
		if variant != "" {
			c.name = fmt.Sprintf("%s/%d", file.name, i+1)
		}
		told := map[string]bool{}
		for _, s := range file.sections {
			for j := range s.lines {
				if j == 0 {
					s.lines = append([]string(nil), s.lines...)
				}
				s.lines[j] = strings.ReplaceAll(s.lines[j], "{each}", variant)
			}
			b, err := s.bytes()
			if err != nil && s.name != "each" {
				t.Fatalf("%s: section %s: %v", c.name, s.name, err)
			}
			told[s.name] = true
			switch s.name {
			case "each":
			case "client":
				c.client = b
			case "HTTP/2":
				c.frames = s.lines
			case "backend":
				c.answers = append(c.answers, smugglersAnswer{b, s.argument == "close"})
			case "status":
				c.status = s.lines
			case "backend hears":
				c.hears = string(b)
			case "backend hears no end":
				c.noEnd = true
			case "client hears":
				c.told, c.checkTold = string(b), true
			default:
				t.Fatalf("%s: there is no section %q", c.name, s.name)
			}
		}
		if told["client"] == told["HTTP/2"] || !told["status"] || told["backend hears"] == c.noEnd {
			t.Fatalf("%s: client or HTTP/2, status, and one way that the backend hears, are needed", c.name)
		}
		if len(c.answers) == 0 {
			c.answers = []smugglersAnswer{{text: []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")}}
		}
		all = append(all, c)
	}
	return all
}

// TestSmuggling plays testdata/smuggling.
func TestSmuggling(t *testing.T) {
	checkLeaks(t)
	var cases []smuggling
	for _, file := range readCases(t, "smuggling") {
		cases = append(cases, smugglers(t, &file)...)
	}
	for _, way := range []struct {
		name           string
		plain, dribble bool
	}{{name: "raw"}, {name: "byte for byte", dribble: true}, {name: "plain", plain: true}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			var present atomic.Pointer[victim]
			g := startGatewayWith(t, Options{PlainIO: way.plain})
			// A connection is of the case in which it was accepted, however late it is read.
			backend := acceptingBackend(t, func() func(net.Conn, *bufio.Reader) {
				v := present.Load()
				v.handlers.Add(1)
				return v.handle
			})
			g.serve(backend, nil)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					v := &victim{answers: c.answers}
					present.Store(v)
					c.play(t, g, v, way.dribble)
					closeIdle(t, g)
					v.await(t, backend)
					c.check(t, v)
				})
			}
		})
	}
}

// closeIdle makes the next request take a new connection to the backend.
func closeIdle(t *testing.T, g *gateway) {
	select {
	case <-g.clients.Empty(): // now all that were in use are idle or closed
	case <-time.After(10 * time.Second):
		t.Fatal("a client's connection does not end")
	}
	for _, e := range g.upstreams.Get("Service/default/b/80").Endpoints() {
		for u := e.Idle(); u != nil; u = e.Idle() {
			u.Close()
		}
	}
}

func (c *smuggling) play(t *testing.T, g *gateway, v *victim, dribble bool) {
	var status []string
	if c.frames != nil {
		status = c.speakHTTP2(t, g)
	} else {
		got := speak(t, g, c.client, dribble)
		status = c.statuses(t, got)
		if told := dateLine.ReplaceAllString(string(got), ""); c.checkTold && told != c.told {
			t.Errorf("the client hears\n%q, want\n%q", told, c.told)
		}
	}
	if got, want := strings.Join(status, ", "), strings.Join(c.status, ", "); got != want {
		t.Errorf("the client gets %q, want %q", got, want)
	}
	if got := g.roundTrip("GET /harmless HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "\r\n\r\nharmless") {
		t.Errorf("another client gets %q", got)
	}
}

// check compares what the backend has heard, on connections that have ended.
func (c *smuggling) check(t *testing.T, v *victim) {
	heard := v.all()
	if c.noEnd {
		if v.complete() || strings.Contains(heard, "evil") {
			t.Errorf("the backend hears\n%q, which is the whole of a request", heard)
		}
		return
	}
	if heard != c.hears {
		t.Errorf("the backend hears\n%q, want\n%q", heard, c.hears)
	}
}

// speak says the bytes, half-closes, and returns what comes until the end.
func speak(t *testing.T, g *gateway, b []byte, dribble bool) []byte {
	c, err := net.Dial("tcp", g.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	go func() {
		step := max(len(b), 1)
		if dribble && len(b) < 4<<10 {
			step = 1
		}
		for part := range slices.Chunk(b, step) {
			if _, err := c.Write(part); err != nil {
				return
			}
		}
		c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection does not end: said %q, got %q", b, got)
	}
	return got
}

// statuses reads with net/http what the client got.
func (c *smuggling) statuses(t *testing.T, got []byte) (all []string) {
	r := bufio.NewReader(bytes.NewReader(got))
	for i := 0; ; i++ {
		if _, err := r.Peek(1); err != nil {
			return all
		}
		prefix := ""
		if i < len(c.status) && strings.HasPrefix(c.status[i], "HEAD ") {
			prefix = "HEAD "
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: strings.TrimSpace(prefix)})
		if err != nil {
			t.Errorf("the client gets %q: %v", got, err)
			return all
		}
		if resp.StatusCode < 200 {
			all = append(all, fmt.Sprint(resp.StatusCode))
			continue
		}
		said := fmt.Sprint(prefix, resp.StatusCode)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			said += " cut"
		}
		all = append(all, said)
	}
}

// speakHTTP2 sends the frames of a case and returns how its stream ended.
func (c *smuggling) speakHTTP2(t *testing.T, g *gateway) []string {
	r := g.rawHTTP2()
	defer r.c.Close()
	frames, err := parseFrames(c.frames)
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	for _, f := range frames {
		if f.data != nil {
			r.fr.WriteData(1, f.end, f.data)
			continue
		}
		r.block.Reset()
		for _, h := range f.fields {
			r.enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: f.end, EndHeaders: true, BlockFragment: r.block.Bytes()})
	}
	return strings.Fields(strings.TrimSuffix(r.outcome(1), " end"))
}

// smugglersFrame is HEADERS, or DATA where data is not nil.
type smugglersFrame struct {
	fields [][2]string
	data   []byte
	end    bool
}

func parseFrames(lines []string) (all []smugglersFrame, err error) {
	for _, line := range lines {
		if line, err = unescape(line, false); err != nil {
			return nil, err
		}
		word, rest, _ := strings.Cut(line, " ")
		last := len(all) - 1
		switch {
		case word == "HEADERS":
			all = append(all, smugglersFrame{fields: request2("POST", "/")})
			all[last+1].fields[2][1] = "h"
		case word == "TRAILERS":
			all = append(all, smugglersFrame{})
		case word == "DATA":
			all = append(all, smugglersFrame{data: append([]byte{}, rest...)})
		case last < 0:
			return nil, errors.New("the first frame is not there")
		case word == "END":
			all[last].end = true
		case word == "without":
			all[last].set(rest, nil)
		default:
			name, value, ok := strings.Cut(line, " = ")
			if !ok {
				return nil, fmt.Errorf("%q is neither a frame nor a field", line)
			}
			all[last].set(name, &value)
		}
	}
	return all, nil
}

// set changes one of the pseudo-header fields that are there, or adds a field; nil takes it away.
func (f *smugglersFrame) set(name string, value *string) {
	for i, h := range f.fields {
		if h[0] != name || !strings.HasPrefix(name, ":") {
			continue
		}
		if value == nil {
			f.fields = append(f.fields[:i], f.fields[i+1:]...)
		} else {
			f.fields[i][1] = *value
		}
		return
	}
	if value != nil {
		f.fields = append(f.fields, [2]string{name, *value})
	}
}

// victim is a backend that answers as it is told, and remembers what it reads.
type victim struct {
	answers  []smugglersAnswer
	handlers sync.WaitGroup // one for each connection that was accepted
	mu       sync.Mutex
	given    int // answers
	heard    []*bytes.Buffer
}

// await returns when all that the gateway has sent on connections that it has closed is heard. They are accepted in the order in which they were made, so
// that one more connection comes behind them all.
func (v *victim) await(t *testing.T, backend string) {
	c, err := net.Dial("tcp", backend)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := io.WriteString(c, harmless); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Fatalf("the backend does not answer: %v", err)
	}
	c.Close()
	ended := make(chan struct{})
	go func() {
		v.handlers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(testkit.Patience):
		t.Fatalf("a connection to the backend does not end; it has heard\n%q", v.all())
	}
}

// complete tells whether the backend was told the whole of a request.
func (v *victim) complete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.given > 0
}

func (v *victim) handle(c net.Conn, _ *bufio.Reader) {
	defer v.handlers.Done()
	heard := &bytes.Buffer{}
	v.mu.Lock()
	v.heard = append(v.heard, heard)
	v.mu.Unlock()
	r := bufio.NewReader(io.TeeReader(c, lockedWriter{&v.mu, heard}))
	for {
		req, err := http.ReadRequest(r)
		if err == nil {
			_, err = io.Copy(io.Discard, req.Body)
		}
		if err != nil {
			io.Copy(io.Discard, r)
			return
		}
		if req.URL.Path == "/harmless" {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nharmless")
			continue
		}
		v.mu.Lock()
		a := v.answers[min(v.given, len(v.answers)-1)]
		v.given++
		v.mu.Unlock()
		c.Write(a.text)
		if a.close {
			return
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// harmless is what a backend hears of the other client.
const harmless = "GET /harmless HTTP/1.1\r\nHost: h\r\n" + provenance + "\r\n"

// provenance is what the gateway says of every client here.
const provenance = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\nCDN-Loop: moongate\r\n"

// requestIDLine is one that the gateway has made.
var requestIDLine = regexp.MustCompile(`X-Request-Id: [0-9a-f-]{36}\r\n`)

// all is what was heard on all connections, but for the other client and for what the gateway adds.
func (v *victim) all() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all strings.Builder
	for _, h := range v.heard {
		all.Write(h.Bytes())
	}
	heard := requestIDLine.ReplaceAllString(all.String(), "")
	return strings.ReplaceAll(strings.ReplaceAll(heard, harmless, ""), provenance, "")
}

var dateLine = regexp.MustCompile(`Date: [^\r]*\r\n`)
