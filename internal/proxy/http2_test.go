//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself, and can cut

package proxy

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
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
)

// http2Client makes one HTTP/2 connection to the gateway: in the clear by prior knowledge, or over TLS to
// the server name sni.
func (g *gateway) http2Client(sni string) *http2.ClientConn {
	g.t.Helper()
	var c net.Conn = g.dial()
	if sni != "" {
		var err error
		c, _, err = g.dialTLS(sni, func(c *tls.Config) { c.NextProtos = []string{"h2"} })
		if err != nil {
			g.t.Fatal(err)
		}
		if p := c.(*tls.Conn).ConnectionState().NegotiatedProtocol; p != "h2" {
			g.t.Fatalf("negotiated %q", p)
		}
	}
	cc, err := (&http2.Transport{DisableCompression: true}).NewClientConn(c)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { cc.Close() })
	return cc
}

// conversation2 is a request by HTTP/2 and what is to become of it.
type conversation2 struct {
	name   string
	method string
	header http.Header
	body   io.Reader
	length int64 // -1 is unknown
	reply  string

	sees   []string // in what the backend got
	never  []string
	status int
	gets   string
	fields http.Header // of the response
	reason string
}

var conversations2 = []conversation2{
	{name: "GET", reply: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\nok",
		sees:   []string{"GET /a/b?c=d HTTP/1.1\r\nHost: example.org\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Host: example.org\r\n"},
		never:  []string{"Content-Length", "Transfer-Encoding", "Connection"},
		status: 200, gets: "ok", fields: http.Header{"X-A": {"b"}, "X-Hop": nil, "Connection": nil, "Content-Length": {"2"}}},
	{name: "provenance", header: http.Header{"X-Forwarded-For": {"6.6.6.6"}, "Forwarded": {"for=6"}, "X-Real-Ip": {"6.6.6.6"}, "Via": {"2 x"}, "Te": {"trailers"}},
		reply: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		sees:  []string{"via: 2 x\r\n", "Connection: TE\r\nTE: trailers\r\n"}, never: []string{"6.6.6.6", "for=6"}, status: 200, gets: "ok"},
	{name: "HEAD", method: "HEAD", reply: "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", status: 200, fields: http.Header{"Content-Length": {"7"}}},
	{name: "204", reply: "HTTP/1.1 204 No Content\r\n\r\n", status: 204},
	{name: "304", reply: "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", status: 304},
	{name: "POST without a body", method: "POST", reply: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		sees: []string{"Content-Length: 0\r\n"}, never: []string{"Transfer-Encoding"}, status: 200, gets: "ok"},
	{name: "short body", method: "POST", body: strings.NewReader("hello"), length: 5, reply: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		sees: []string{"Content-Length: 5\r\n", "\r\n\r\nhello"}, never: []string{"Transfer-Encoding"}, status: 200, gets: "ok"},
	{name: "long body", method: "PUT", body: bytes.NewReader(make([]byte, 300_000)), length: 300_000, reply: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		sees: []string{"Content-Length: 300000\r\n"}, never: []string{"Transfer-Encoding"}, status: 200, gets: "ok"},
	{name: "chunked response", reply: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
		status: 200, gets: "abcde", fields: http.Header{"Transfer-Encoding": nil}},
	{name: "until close", reply: "HTTP/1.1 200 OK\r\n\r\nabcde", status: 200, gets: "abcde"},
	{name: "truncated", reply: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", status: 200, gets: "reset", reason: "upstream_truncated"},
	{name: "truncated chunks", reply: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", status: 200, gets: "reset", reason: "upstream_truncated"},
	{name: "malformed", reply: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc", status: 502, gets: "moongate: 502 upstream_malformed\n", reason: "upstream_malformed"},
	{name: "CONNECT", method: "CONNECT", status: 501, gets: "moongate: 501 not_implemented\n", reason: "not_implemented"},
	{name: "unknown expectation", header: http.Header{"Expect": {"a-miracle"}}, status: 417, gets: "moongate: 417 expectation_failed\n", reason: "expectation_failed"},
}

// TestHTTP2Conversations has an independent client speak HTTP/2 to the gateway, in the clear and over
// TLS, and looks at what the backend hears, in HTTP/1.1, and at what comes back.
func TestHTTP2Conversations(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	for _, sni := range []string{"", "example.org"} {
		for _, tc := range conversations2 {
			t.Run(map[string]string{"": "clear"}[sni]+sni+"/"+tc.name, func(t *testing.T) { tc.run(t, sni) })
		}
	}
}

func (tc conversation2) run(t *testing.T, sni string) {
	heard := make(chan string, 1)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		head, err := readHead(r)
		if err != nil {
			return
		}
		body := make([]byte, max(tc.length, 0))
		io.ReadFull(r, body)
		heard <- head + string(body)
		io.WriteString(c, tc.reply)
	})
	g := startGateway(t, Timeouts{})
	scheme := "http"
	if sni == "" {
		g.serve(addr, nil)
	} else {
		scheme = "https"
		g.apply(append(backend("Service/default/b/80", addr), certificate(t, "c", newECDSA(t), "example.org"),
			g.httpsListener("https", "", "c"), routeOf("r", "default/gw/https", "", anyRule())))
	}
	cc := g.http2Client(sni)
	if tc.body != nil {
		tc.body.(io.Seeker).Seek(0, io.SeekStart)
	}
	req, err := http.NewRequest(tc.method, scheme+"://example.org/a/./x/../b?c=d", tc.body)
	if err != nil {
		t.Fatal(err)
	}
	if tc.method == "CONNECT" {
		req.URL.Host, req.Host = "example.org:443", "example.org:443"
	}
	req.ContentLength = tc.length
	if tc.header != nil {
		req.Header = tc.header
	}
	resp, err := cc.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	got := string(b)
	var reset http2.StreamError
	if errors.As(err, &reset) {
		got = "reset"
	} else if err != nil {
		t.Error(err)
	}
	if resp.StatusCode != tc.status || got != tc.gets {
		t.Errorf("%d %q, want %d %q", resp.StatusCode, got, tc.status, tc.gets)
	}
	for name, values := range tc.fields {
		if fmt.Sprint(resp.Header[name]) != fmt.Sprint(values) {
			t.Errorf("%s: %q, want %q", name, resp.Header[name], values)
		}
	}
	want := tc.reason
	if want == "" {
		want = "ok"
	}
	if r := g.reasonsLogged(1); r[0] != want {
		t.Errorf("logged %q, want %q", r[0], want)
	}
	if line := g.log.String(); !strings.Contains(line, `"protocol":"HTTP/2.0"`) || !strings.Contains(line, `"scheme":"`+scheme+`"`) {
		t.Error(line)
	}
	if tc.reply == "" {
		return
	}
	request := <-heard
	for _, part := range tc.sees {
		if !strings.Contains(request, part) {
			t.Errorf("the backend did not see %q in\n%.1000q", part, request)
		}
	}
	for _, part := range tc.never {
		if strings.Contains(request, part) {
			t.Errorf("the backend saw %q in\n%.1000q", part, request)
		}
	}
}

// TestHTTP2Trailers sends trailer fields both ways, with bodies of unknown length.
func TestHTTP2Trailers(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) != 1 || r.TransferEncoding[0] != "chunked" {
			t.Errorf("transfer codings %q", r.TransferEncoding)
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Trailer", "X-Sum")
		w.Write(b)
		w.Header().Set("X-Sum", r.Trailer.Get("X-Part"))
	}), nil)
	cc := g.http2Client("")
	for range 2 {
		body := io.MultiReader(strings.NewReader("hello "), strings.NewReader("world"))
		req, _ := http.NewRequest("POST", "http://h/", io.NopCloser(body))
		req.Trailer = http.Header{"X-Part": {"42"}}
		resp, err := cc.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if string(b) != "hello world" || err != nil || resp.Trailer.Get("X-Sum") != "42" {
			t.Errorf("%q %v %v", b, err, resp.Trailer)
		}
	}
}

// TestHTTP2Interim: 100 and 103 are passed on.
func TestHTTP2Interim(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		io.Copy(w, r.Body) // which says 100
	}), nil)
	cc := g.http2Client("")
	var interim []int
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error { interim = append(interim, code); return nil }})
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://h/", strings.NewReader("hello"))
	req.Header.Set("Expect", "100-continue")
	resp, err := cc.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	if string(b) != "hello" || fmt.Sprint(interim) != "[103 100]" {
		t.Errorf("%q, interim %v", b, interim)
	}
}

// TestHTTP2FullDuplex: the response begins while the request goes on, on several streams at a time.
func TestHTTP2FullDuplex(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		io.Copy(c, r) // chunks and all
	}), nil)
	cc := g.http2Client("")
	var streams []func() bool
	for range 5 {
		pr, pw := io.Pipe()
		req, _ := http.NewRequest("POST", "http://h/", pr)
		resp, err := cc.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, func() bool {
			for i := range 3 {
				said := fmt.Sprintf("ping %d", i)
				io.WriteString(pw, said)
				got := make([]byte, len(said))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != said {
					t.Errorf("%q %v", got, err)
				}
			}
			pw.Close()
			_, err := io.Copy(io.Discard, resp.Body)
			return err == nil
		})
	}
	for i, stream := range streams {
		if !stream() {
			t.Errorf("stream %d did not end well", i)
		}
	}
}

// TestHTTP2Misdirected asks on one connection for the names of several listeners.
func TestHTTP2Misdirected(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)),
		certificate(t, "c", newECDSA(t), "*.org"),
		g.httpsListener("any", "", "c"), g.httpsListener("second", "second-example.org", "c"),
		routeOf("any", "default/gw/any", "example.org", anyRule()),
		routeOf("second", "default/gw/second", "second-example.org", anyRule()),
	))
	for _, tc := range []struct {
		sni, host string
		want      int
	}{
		{"example.org", "example.org", 200},
		{"example.org", "EXAMPLE.org.:443", 200},
		{"example.org", "second-example.org", 421},
		{"example.org", "unknown-example.org", 404},
		{"second-example.org", "second-example.org", 200},
		{"second-example.org", "example.org", 421},
		{"second-example.org", "unknown-example.org", 421},
	} {
		cc := g.http2Client(tc.sni)
		for _, host := range []string{tc.sni, tc.host, tc.sni} { // the connection goes on
			want := 200
			if host == tc.host {
				want = tc.want
			}
			req, _ := http.NewRequest("GET", "https://"+host+"/", nil)
			resp, err := cc.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != want {
				t.Errorf("SNI %q, :authority %q: %d, want %d", tc.sni, host, resp.StatusCode, want)
			}
		}
		cc.Close()
	}
}

// TestALPN: a client that offers both gets HTTP/2, one that offers HTTP/1.1 or nothing gets that.
func TestALPN(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply([]*config.Resource{certificate(t, "c", newECDSA(t), "a.example"), g.httpsListener("https", "", "c")})
	for _, tc := range []struct {
		offers []string
		want   string
	}{{nil, ""}, {[]string{"http/1.1"}, "http/1.1"}, {[]string{"http/1.1", "h2"}, "h2"}, {[]string{"h2"}, "h2"}} {
		c, _, err := g.dialTLS("a.example", func(c *tls.Config) { c.NextProtos = tc.offers })
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().NegotiatedProtocol; got != tc.want {
			t.Errorf("%q: %q, want %q", tc.offers, got, tc.want)
		}
		if tc.want != "h2" {
			if got := statusOf(t, c, bufio.NewReader(c), "a.example", "/"); got != "404" {
				t.Errorf("%q: %s", tc.offers, got)
			}
		}
		c.Close()
	}
}

// TestPriorKnowledge sends the preface in all kinds of pieces, and what only resembles it.
func TestPriorKnowledge(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(cannedBackend(t, cannedResponse(2), 0), nil)
	for _, cut := range []int{1, 3, 14, 15, 16, 18, 22, 24} {
		c := g.dial()
		io.WriteString(c, http2.ClientPreface[:cut])
		time.Sleep(10 * time.Millisecond)
		io.WriteString(c, http2.ClientPreface[cut:])
		fr := http2.NewFramer(c, c)
		fr.WriteSettings()
		if f, err := fr.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
			t.Errorf("cut at %d: %v %v", cut, f, err)
		}
		c.Close()
	}
	for said, want := range map[string]string{
		"PRI * HTTP/2.0\r\nHost: h\r\n\r\n":                       "HTTP/1.1 505 ",
		"PRI / HTTP/2.0\r\n\r\nSM\r\n\r\n":                        "HTTP/1.1 505 ",
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n" + http2.ClientPreface: "HTTP/1.1 200 ", // not first
	} {
		if got := g.roundTrip(said); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q", said, got)
		}
	}
}

// http2Over makes a connection of a client one by HTTP/2, with prior knowledge.
func http2Over(c net.Conn) (*http2.ClientConn, error) {
	return (&http2.Transport{DisableCompression: true}).NewClientConn(c)
}
