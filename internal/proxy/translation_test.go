package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// transcript is a backend that reads requests as net/http does, answers those that are whole, and
// remembers every byte.
type transcript struct {
	mu    sync.Mutex
	heard []*bytes.Buffer
	whole []*http.Request // with the body in Body, read
	wrong []error
	says  []byte // the answer
	once  bool   // the connection ends behind it
	// begun and ended count connections, since ever; unused those of which the gateway knows
	// nothing, because its client was gone before they were made.
	begun, ended, unused int64
}

func (b *transcript) reset(says []byte, once bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard, b.whole, b.wrong, b.says, b.once = nil, nil, nil, says, once
}

func (b *transcript) handle(c net.Conn, _ *bufio.Reader) {
	heard := &bytes.Buffer{}
	b.mu.Lock()
	b.heard = append(b.heard, heard)
	b.begun++
	b.mu.Unlock()
	defer func() {
		c.Close()
		b.mu.Lock()
		b.ended++
		b.mu.Unlock()
	}()
	r := bufio.NewReader(io.TeeReader(c, lockedWriter{&b.mu, heard}))
	for {
		if _, err := r.Peek(1); err != nil {
			return
		}
		req, err := http.ReadRequest(r)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(req.Body)
			req.Body = io.NopCloser(bytes.NewReader(body))
		}
		b.mu.Lock()
		says, once := b.says, b.once
		switch {
		case err == nil:
			b.whole = append(b.whole, req)
		case !cutOff(err):
			b.wrong = append(b.wrong, err)
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
		c.Write(says)
		if once {
			return
		}
	}
}

// translator is a gateway in front of two such backends: one gets what a rule guards, the other the rest.
type translator struct {
	*gateway
	open, guarded *transcript
}

const openBackend, guardedBackend = "Service/default/open/80", "Service/default/guarded/80"

func newTranslator(t testing.TB) *translator {
	tr := &translator{gateway: startGateway(t, Timeouts{}), open: &transcript{}, guarded: &transcript{}}
	prefix := func(p string) *config.PathMatch {
		return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: p}
	}
	to := func(key string, matches ...*config.Match) *config.Rule {
		return &config.Rule{Matches: matches, BackendRefs: []*config.BackendRef{{Backend: key, Weight: 1}}}
	}
	tr.apply(slices.Concat(backend(openBackend, rawBackend(t, tr.open.handle)), backend(guardedBackend, rawBackend(t, tr.guarded.handle)), []*config.Resource{
		tr.httpListener("http", ""),
		routeOf("r", "default/gw/http", "",
			to(guardedBackend, &config.Match{Path: prefix("/guarded")}, &config.Match{Path: prefix(""), Method: "DELETE"},
				&config.Match{Path: prefix(""), Headers: []*config.ValueMatch{{Name: "x-role", Value: "admin"}}}),
			to(openBackend, &config.Match{Path: prefix("")})),
	}))
	return tr
}

// ask says a request by HTTP/2 and returns what both backends have heard when all is over.
func (tr *translator) ask(t *testing.T, s *spoken, says []byte, once bool) (a answered, heard []byte) {
	tr.open.reset(says, once)
	tr.guarded.reset(says, once)
	a = askHTTP2(t, tr.gateway, s)
	select {
	case <-tr.clients.Empty():
	case <-time.After(testkit.Patience):
		t.Fatalf("the connection does not end: %v", s)
	}
	if !s.ends() {
		time.Sleep(time.Millisecond) // for one that was given up while it was made
	}
	tr.open.finish(t, tr.upstreams.Get(openBackend).Endpoints()[0])
	tr.guarded.finish(t, tr.upstreams.Get(guardedBackend).Endpoints()[0])
	return a, slices.Concat(tr.open.all(t, s), tr.guarded.all(t, s))
}

// finish ends the connections to the backend and waits until it has read all that was sent on them.
func (b *transcript) finish(t *testing.T, e *upstream.Endpoint) {
	for u := e.Idle(); u != nil; u = e.Idle() {
		u.Close()
	}
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(20 * time.Microsecond) {
		b.mu.Lock()
		unused := b.ended - e.Stats().Dialled
		done := b.begun == b.ended && unused >= b.unused
		if done {
			b.unused = unused
		}
		b.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("connections to the backend have ended %d less than were made, as %d before", -unused, -b.unused)
		}
	}
}

// all is every byte that was heard, and fails where it was malformed.
func (b *transcript) all(t *testing.T, s *spoken) (all []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.heard {
		all = append(all, h.Bytes()...)
	}
	for _, err := range b.wrong {
		t.Fatalf("%v: the backend hears %q: %v", s, all, err)
	}
	return all
}

// FuzzTranslation lets a client say any request by HTTP/2 to a backend of HTTP/1.1. What that
// understands, however lenient it is, must be what was routed: method, path, host, fields,
// body and trailer; and of a request that is malformed or not ended it never has the whole.
func FuzzTranslation(f *testing.F) {
	addSpoken(f)
	tr := newTranslator(f)
	f.Fuzz(func(t *testing.T, method, scheme, authority, path, name1, value1, name2, value2 string, body []byte, tname, tvalue string, sh uint16) {
		s := &spoken{method: method, scheme: scheme, authority: authority, path: path, fields: [][2]string{{name1, value1}, {name2, value2}},
			trailer: [2]string{tname, tvalue}, body: body, shape: shape(sh) % lastShape}
		if s.tooLarge() {
			return
		}
		a, heard := tr.ask(t, s, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), false)
		whole := len(tr.open.whole) + len(tr.guarded.whole)
		understood := checkLenient(t, heard, a.status != 200)
		switch {
		case len(understood) != whole:
			t.Fatalf("%v: the backend hears %q, which is %d requests for one and %d for another", s, heard, whole, len(understood))
		case a.ended && a.status == 200 && whole != 1 && forwards(s.method, s.fields) != 0:
			t.Fatalf("%v: %d requests are heard for it: %q", s, whole, heard)
		case whole == 0:
			return
		case whole > 1, !s.ends() && s.length() < 0, s.shape&wrongLength != 0: // where the length has come, that is the end to a backend
			t.Fatalf("%v: %d whole requests are heard: %q", s, whole, heard)
		}
		checkUnderstood(t, s, &understood[0])
		if len(tr.open.whole) > 0 {
			checkStandard(t, s, tr.open.whole[0], false)
		} else {
			checkStandard(t, s, tr.guarded.whole[0], true)
		}
	})
}

// checkStandard compares what net/http understood with what was said and routed.
func checkStandard(t *testing.T, s *spoken, r *http.Request, guarded bool) {
	t.Helper()
	path, query, hasQuery := strings.Cut(r.RequestURI, "?")
	if wantPath, wantQuery, wantHas := strings.Cut(s.path, "?"); path != normal(wantPath) || query != wantQuery || hasQuery != wantHas {
		t.Fatalf("%v: the backend understands target %q", s, r.RequestURI)
	}
	if r.Method != s.method || r.Host != s.authority {
		t.Fatalf("%v: the backend understands %s %s", s, r.Method, r.Host)
	}
	if want := path == "/guarded" || strings.HasPrefix(path, "/guarded/") || r.Method == "DELETE" ||
		slices.Contains(r.Header["X-Role"], "admin"); want != guarded && len(r.Header["X-Role"]) < 2 {
		t.Fatalf("%v: routed by the guarded rule: %v, and the backend understands %s %s with role %q", s, guarded, r.Method, path, r.Header["X-Role"])
	}
	body, _ := io.ReadAll(r.Body)
	if !bytes.Equal(body, s.wholeBody()) {
		t.Fatalf("%v: the backend understands body %q", s, body)
	}
}

// normal is a path with escapes of unreserved characters decoded, the others in upper case, and
// dot segments removed (RFC 3986 section 6.2.2).
func normal(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+2 >= len(path) {
			b.WriteByte(path[i])
			continue
		}
		escape := strings.ToUpper(path[i : i+3])
		if c, err := url.PathUnescape(escape); err == nil && url.QueryEscape(c) == c {
			escape = c
		}
		b.WriteString(escape)
		i += 2
	}
	var out []string
	segments := strings.Split(b.String(), "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case "..":
			if len(out) > 1 {
				out = out[:len(out)-1]
			}
			fallthrough
		case ".":
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, segment)
		}
	}
	return strings.Join(out, "/")
}

// told tells whether a field of the client's must reach the backend: its framing, hop and provenance
// are ours to say, and Cookie is put together.
func told(name string) bool {
	switch name {
	case "host", "te", "expect", "content-length", "cookie", "http2-settings", "proxy-authenticate", "proxy-authorization", "proxy-authentication-info":
		return false
	}
	switch n := cgiName(name); n {
	case "forwarded", "x-real-ip", "x-forwarded":
		return false
	default:
		return !strings.HasPrefix(n, "x-forwarded-")
	}
}

// toldBehind tells whether a trailer field may reach the other side: servers may merge it with the header section, whatever they take its name for.
func toldBehind(name string) bool { return told(name) && told(cgiName(name)) }

// forwards is how often a request may be forwarded by its Max-Forwards, -1 where nothing bounds it.
func forwards(method string, fields [][2]string) (n int64) {
	n = -1
	if method != "OPTIONS" && method != "TRACE" {
		return n
	}
	for _, f := range fields {
		if !strings.EqualFold(f[0], "max-forwards") {
			continue
		}
		value := strings.Trim(f[1], " \t")
		if n >= 0 || value == "" || strings.Trim(value, "0123456789") != "" {
			return -1
		}
		n, _ = strconv.ParseInt(value, 10, 32) // which is the greatest where it is too large
	}
	return n
}

// counted is the value with which a backend must see a field, the name of which is in lower case.
func counted(method string, fields [][2]string, name, value string) string {
	if n := forwards(method, fields); n > 0 && name == "max-forwards" {
		return strconv.FormatInt(n-1, 10)
	}
	return value
}

// checkUnderstood compares fields and trailer, byte for byte.
func checkUnderstood(t *testing.T, s *spoken, u *understood) {
	t.Helper()
	var want, got []string
	for _, f := range s.fields {
		if told(f[0]) {
			want = append(want, f[0]+": "+counted(s.method, s.fields, f[0], f[1]))
		}
	}
	for _, f := range u.fields {
		switch f[0] {
		case "Host", "Content-Length", "Transfer-Encoding", "Expect", "Connection", "TE", "cookie":
			continue
		case "X-Request-Id":
			if !uuid.MatchString(f[1]) {
				t.Fatalf("%v: %s is %q", s, f[0], f[1])
			}
			continue
		case "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "CDN-Loop":
			if want := map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": s.authority, "CDN-Loop": "moongate"}[f[0]]; f[1] != want {
				t.Fatalf("%v: %s is %q", s, f[0], f[1])
			}
			continue
		}
		got = append(got, f[0]+": "+f[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%v: the backend understands fields %q", s, got)
	}
	for _, f := range u.trailer {
		if f != s.trailer || !toldBehind(f[0]) || s.shape&withTrailer == 0 {
			t.Fatalf("%v: the backend understands trailer %q", s, u.trailer)
		}
	}
	if s.shape&withTrailer != 0 && s.shape&noBody == 0 && u.chunked && len(u.trailer) == 0 && strings.HasPrefix(s.trailer[0], "x-") && toldBehind(s.trailer[0]) {
		t.Fatalf("%v: the trailer is lost", s)
	}
}
