package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// stenographer is a backend of HTTP/2 that writes down what each stream says, as x/net reads
// it, and answers those that have ended.
type stenographer struct {
	mu      sync.Mutex
	open    map[net.Conn]bool
	streams []*understood // in order; body and trailer of those that have not ended are of no interest
	ended   map[*understood]bool
	wrong   error // what was malformed
	answer  func(w *http2.Framer, stream uint32)
}

func newStenographer() *stenographer { return &stenographer{open: map[net.Conn]bool{}} }

func (b *stenographer) reset(answer func(w *http2.Framer, stream uint32)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams, b.ended, b.wrong, b.answer = nil, map[*understood]bool{}, nil, answer
}

func (b *stenographer) handle(c net.Conn, r *bufio.Reader) {
	b.mu.Lock()
	b.open[c] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.open, c)
		b.mu.Unlock()
	}()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	fr := http2.NewFramer(c, r)
	fr.AllowIllegalWrites = true
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	fr.WriteSettings()
	streams := map[uint32]*understood{}
	for {
		f, err := fr.ReadFrame()
		b.mu.Lock()
		goOn := b.take(fr, streams, f, err)
		b.mu.Unlock()
		if !goOn {
			return
		}
	}
}

// take writes down one frame; false ends the connection.
func (b *stenographer) take(fr *http2.Framer, streams map[uint32]*understood, f http2.Frame, err error) bool {
	switch err.(type) {
	case nil:
	case http2.StreamError, http2.ConnectionError:
		b.wrong = fmt.Errorf("%w: %v", err, fr.ErrorDetail())
		return false
	default:
		return false
	}
	u := streams[f.Header().StreamID]
	ended := false
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			fr.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			fr.WritePing(true, f.Data)
		}
	case *http2.MetaHeadersFrame:
		if ended = f.StreamEnded(); u != nil {
			for _, h := range f.Fields {
				u.trailer = append(u.trailer, [2]string{h.Name, h.Value})
			}
			break
		}
		u = &understood{method: f.PseudoValue("method"), target: f.PseudoValue("path")}
		streams[f.StreamID] = u
		b.streams = append(b.streams, u)
		for _, h := range f.Fields {
			u.fields = append(u.fields, [2]string{h.Name, h.Value})
		}
	case *http2.DataFrame:
		if n := len(f.Data()); n > 0 {
			fr.WriteWindowUpdate(0, uint32(n))
			fr.WriteWindowUpdate(f.StreamID, uint32(n))
		}
		if u != nil {
			u.body += string(f.Data())
		}
		ended = f.StreamEnded()
	}
	if ended && u != nil {
		b.ended[u] = true
		b.answer(fr, f.Header().StreamID)
	}
	return true
}

// finish ends the connection, and returns the streams that have ended.
func (b *stenographer) finish(t *testing.T, g *gateway) (whole []understood) {
	select {
	case <-g.clients.Empty():
	case <-time.After(testkit.Patience):
		t.Fatal("the connection does not end")
	}
	e := g.upstreams.Get("Service/default/b/80").Endpoints()[0]
	b.mu.Lock()
	defer b.mu.Unlock()
	for deadline := time.Now().Add(testkit.Patience); e.Stats().Open > 0 || len(b.open) > 0; {
		for c := range b.open { // there may be one that nobody waited for any more
			c.Close()
		}
		b.mu.Unlock()
		time.Sleep(20 * time.Microsecond)
		b.mu.Lock()
		if time.Now().After(deadline) {
			t.Fatalf("connections to the backend are left: %+v", e.Stats())
		}
	}
	if b.wrong != nil {
		t.Fatalf("the backend hears what is malformed: %v", b.wrong)
	}
	for _, u := range b.streams {
		if b.ended[u] {
			whole = append(whole, *u)
		}
	}
	return whole
}

func answerOK(w *http2.Framer, stream uint32) {
	w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: []byte{0x88}})
	w.WriteData(stream, true, []byte("ok"))
}

// FuzzTranslationToHTTP2 lets a client say any bytes of HTTP/1 to a backend of HTTP/2: what has ended
// there must be the requests that a lenient server reads in those bytes, in their order.
func FuzzTranslationToHTTP2(f *testing.F) {
	for _, c := range conversations {
		f.Add([]byte(c.request))
	}
	for _, file := range readCases(f, "smuggling") {
		if s, ok := file.section("client"); ok {
			if b, err := s.bytes(); err == nil {
				f.Add(b)
			}
		}
	}
	f.Add([]byte("GET /a/%2e%2e/%41?b HTTP/1.1\r\nHost: H:80\r\nX-A: 1\r\nx-a:2\r\nCookie: a=b\r\nCookie: c=d\r\nTE: trailers\r\nConnection: TE, x-hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n5;a\r\nhello\r\n0\r\nX-T: 1\r\nX_Forwarded_For: 6\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhelloGET http://h/x HTTP/1.0\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"))
	b := newStenographer()
	g := startGateway(f, Timeouts{})
	g.serveH2C(rawBackend(f, b.handle), nil)
	f.Fuzz(func(t *testing.T, says []byte) {
		if len(says) > 24<<10 {
			return
		}
		b.reset(answerOK)
		speak(t, g, says, false)
		whole := b.finish(t, g)
		want, _ := lenient{}.requests(says)
		want = slices.DeleteFunc(want, func(u understood) bool { return forwards(u.method, u.fields) == 0 })
		if len(whole) > len(want) {
			t.Fatalf("%q: the backend understands %d requests, a lenient server %d: %+v", says, len(whole), len(want), whole)
		}
		for i := range whole {
			checkHeardByHTTP2(t, says, &want[i], &whole[i])
		}
	})
}

// checkHeardByHTTP2 compares a request as it was sent by HTTP/1 with what the backend got.
func checkHeardByHTTP2(t *testing.T, says []byte, want, got *understood) {
	t.Helper()
	path, authority := strings.TrimPrefix(want.target, "\r\n"), ""
	hop := map[string]bool{"connection": true, "keep-alive": true, "proxy-connection": true, "transfer-encoding": true, "upgrade": true, "trailer": false}
	for _, f := range want.fields {
		switch strings.ToLower(f[0]) {
		case "connection":
			for _, option := range strings.Split(f[1], ",") {
				hop[strings.ToLower(strings.Trim(option, " \t"))] = true
			}
		case "host":
			authority = strings.Trim(f[1], " \t")
		}
	}
	if scheme, rest, ok := strings.Cut(path, "://"); ok && !strings.HasPrefix(path, "/") && scheme != "" {
		i := strings.IndexAny(rest+"/", "/?")
		if authority, path = rest[:i], rest[i:]; path == "" || path[0] == '?' {
			path = "/" + path
		}
		if path == "/" && want.method == "OPTIONS" && i == len(rest) {
			path = "*"
		}
	}
	path, query, hasQuery := strings.Cut(path, "?")
	if path = normal(path); hasQuery {
		path += "?" + query
	}
	wanted := pseudo(want.method, authority, path)
	for _, f := range want.fields {
		if name := strings.ToLower(f[0]); told(name) && !hop[name] {
			wanted = append(wanted, name+": "+counted(want.method, want.fields, name, strings.Trim(f[1], " \t")))
		} else if name == "cookie" && !hop[name] {
			wanted = append(wanted, "cookie: "+strings.Trim(f[1], " \t"))
		}
	}
	checkFields(t, fmt.Sprintf("%q", says), wanted, got, len(want.body))
	if got.body != want.body {
		t.Fatalf("%q: the backend understands body %q", says, got.body)
	}
	for _, f := range got.trailer {
		if !slices.ContainsFunc(want.trailer, func(w [2]string) bool {
			return strings.ToLower(w[0]) == f[0] && strings.Trim(w[1], " \t") == f[1] && toldBehind(f[0])
		}) {
			t.Fatalf("%q: the backend understands trailer %q", says, got.trailer)
		}
	}
}

// pseudo is what the backend must see of the request itself.
func pseudo(method, authority, path string) []string {
	all := []string{":method: " + method, ":scheme: http", ":path: " + path,
		"x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http", "x-forwarded-host: " + authority, "cdn-loop: moongate"}
	if authority != "" { // HTTP/1.0 may have none
		all = append(all, ":authority: "+authority)
	}
	return all
}

// checkFields compares what a backend got by HTTP/2 with the lines that it should. How Cookie is cut into lines is free.
func checkFields(t *testing.T, what string, wanted []string, got *understood, length int) {
	t.Helper()
	var fields []string
	for _, f := range got.fields {
		switch {
		case f[0] == "content-length":
			if f[1] != fmt.Sprint(length) {
				t.Fatalf("%s: the backend understands length %s", what, f[1])
			}
		case f[0] == "x-request-id" && uuid.MatchString(f[1]):
		case f[0] == "te" && f[1] == "trailers", f[0] == "expect" && f[1] == "100-continue":
		default:
			fields = append(fields, f[0]+": "+f[1])
		}
	}
	if fields, wanted = withCookies(fields), withCookies(wanted); !slices.Equal(fields, wanted) {
		t.Fatalf("%s: the backend understands\n%q, want\n%q", what, fields, wanted)
	}
}

// withCookies sorts lines, and joins those of Cookie (RFC 9113 section 8.2.3) that hold any.
func withCookies(lines []string) []string {
	var all, cookies []string
	for _, l := range lines {
		if value, ok := strings.CutPrefix(l, "cookie: "); ok {
			if value != "" {
				cookies = append(cookies, value)
			}
		} else {
			all = append(all, l)
		}
	}
	if cookies != nil {
		all = append(all, "cookie: "+strings.Join(cookies, "; "))
	}
	slices.Sort(all)
	return all
}

// FuzzTranslationAmongHTTP2 is FuzzTranslation with a backend of HTTP/2.
func FuzzTranslationAmongHTTP2(f *testing.F) {
	addSpoken(f)
	b := newStenographer()
	g := startGateway(f, Timeouts{})
	g.serveH2C(rawBackend(f, b.handle), nil)
	f.Fuzz(func(t *testing.T, method, scheme, authority, path, name1, value1, name2, value2 string, body []byte, tname, tvalue string, sh uint16) {
		s := &spoken{method: method, scheme: scheme, authority: authority, path: path, fields: [][2]string{{name1, value1}, {name2, value2}},
			trailer: [2]string{tname, tvalue}, body: body, shape: shape(sh) % lastShape}
		if s.tooLarge() {
			return
		}
		b.reset(answerOK)
		a := askHTTP2(t, g, s)
		whole := b.finish(t, g)
		switch {
		case a.ended && a.status == 200 && len(whole) != 1 && forwards(s.method, s.fields) != 0:
			t.Fatalf("%v: %d requests are heard for it: %+v", s, len(whole), whole)
		case len(whole) == 0:
			return
		case len(whole) > 1, !s.ends() && s.length() < 0, s.shape&wrongLength != 0:
			t.Fatalf("%v: %d whole requests are heard: %+v", s, len(whole), whole)
		}
		checkAmongHTTP2(t, s, &whole[0])
	})
}

func checkAmongHTTP2(t *testing.T, s *spoken, got *understood) {
	t.Helper()
	path, query, hasQuery := strings.Cut(s.path, "?")
	if path = normal(path); hasQuery {
		path += "?" + query
	}
	wanted := pseudo(s.method, s.authority, path)
	for _, f := range s.fields {
		if told(f[0]) || f[0] == "cookie" {
			wanted = append(wanted, f[0]+": "+counted(s.method, s.fields, f[0], f[1]))
		}
	}
	want := s.wholeBody()
	checkFields(t, s.String(), wanted, got, len(want))
	if !bytes.Equal([]byte(got.body), want) {
		t.Fatalf("%v: the backend understands body %q", s, got.body)
	}
	for _, f := range got.trailer {
		if f != s.trailer || !toldBehind(f[0]) || s.shape&withTrailer == 0 {
			t.Fatalf("%v: the backend understands trailer %q", s, got.trailer)
		}
	}
}
