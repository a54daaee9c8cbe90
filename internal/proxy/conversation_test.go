package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// conversation is what a client says, what the backend does, and what each must see.
type conversation struct {
	name    string
	request string // the client half-closes nothing; the last request should end the connection
	// response is what the backend sends after each request head; "%BODY%" first waits for the
	// request body of 5 bytes. The backend closes where it has no Content-Length.
	response string
	closes   bool     // the backend closes behind its response
	want     string   // the whole of what the client reads
	sees     []string // parts of what the backend reads, in order
	never    []string // what the backend must not see
	reasons  []string
}

const date = "Date: Mon, 05 Jan 2026 10:00:00 GMT\r\n"

var conversations = []conversation{
	{
		name:     "content length",
		request:  "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 5\r\n\r\nhello",
		want:     "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 5\r\nConnection: close\r\n\r\nhello",
		sees:     []string{"GET /a HTTP/1.1\r\nHost: h\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http\r\n", "X-Forwarded-Host: h\r\n"},
		never:    []string{"Connection:"},
		reasons:  []string{"ok"},
	},
	{
		name:     "chunked with trailer",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5;ext=1\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 9\r\nContent-Length: 3\r\n\r\n",
		want:     "HTTP/1.1 200 OK\r\n" + date + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n6\r\nhello!\r\n0\r\nX-Sum: 9\r\n\r\n",
		sees:     []string{"TE: trailers\r\n"},
		reasons:  []string{"ok"},
	},
	{
		name:     "until close becomes chunked",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "\r\nhello", closes: true,
		want:    "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		reasons: []string{"ok"},
	},
	{
		name:     "HTTP/1.0 client gets no chunks",
		request:  "GET / HTTP/1.0\r\nHost: h\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		want:     "HTTP/1.1 200 OK\r\n" + date + "Connection: close\r\n\r\nhello",
		sees:     []string{"GET / HTTP/1.1\r\n"},
		reasons:  []string{"ok"},
	},
	{
		name:     "HTTP/1.0 keep-alive",
		request:  "GET /1 HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.0\r\nHost: h\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok",
		want: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\nConnection: keep-alive\r\n\r\nok" +
			"HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\nConnection: close\r\n\r\nok",
		reasons: []string{"ok", "ok"},
	},
	{
		name:     "HEAD keeps the length and has no body",
		request:  "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 5\r\n\r\n",
		want:     "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 5\r\nConnection: close\r\n\r\n",
		reasons:  []string{"ok"},
	},
	{
		name:     "204 and 304 have no body",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 304 Not Modified\r\n" + date + "ETag: \"x\"\r\n\r\n",
		want:     "HTTP/1.1 304 Not Modified\r\n" + date + "ETag: \"x\"\r\nConnection: close\r\n\r\n",
		reasons:  []string{"ok"},
	},
	{
		name:     "426 keeps its Upgrade",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 426 Upgrade Required\r\n" + date + "Upgrade: websocket\r\nConnection: keep-alive, upgrade\r\nContent-Length: 2\r\n\r\nno",
		want:     "HTTP/1.1 426 Upgrade Required\r\n" + date + "Content-Length: 2\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\nno",
		reasons:  []string{"ok"},
	},
	{
		name:     "426 for HTTP/1.0",
		request:  "GET / HTTP/1.0\r\nHost: h\r\n\r\n",
		response: "HTTP/1.1 426 Upgrade Required\r\n" + date + "Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nno",
		want:     "HTTP/1.1 426 Upgrade Required\r\n" + date + "Content-Length: 2\r\nConnection: close\r\n\r\nno",
		reasons:  []string{"ok"},
	},
	{
		name:     "Max-Forwards is counted down",
		request:  "OPTIONS / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 10\r\n\r\nTRACE / HTTP/1.1\r\nHost: h\r\nmax-forwards: 1\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok",
		want: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok" +
			"HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\nConnection: close\r\n\r\nok",
		sees:    []string{"OPTIONS / ", "\r\nMax-Forwards: 9\r\n", "TRACE / ", "\r\nmax-forwards: 0\r\n"},
		reasons: []string{"ok", "ok"},
	},
	{
		name:     "Max-Forwards that says nothing",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\nOPTIONS / HTTP/1.1\r\nHost: h\r\nMax-Forwards: -1\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok",
		want: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok" +
			"HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\nConnection: close\r\n\r\nok",
		sees:    []string{"GET / ", "\r\nMax-Forwards: 0\r\n", "OPTIONS / ", "\r\nMax-Forwards: -1\r\n"},
		reasons: []string{"ok", "ok"},
	},
	{
		name:     "early hints are passed on",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n" + date + "Content-Length: 0\r\n\r\n",
		want:     "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n" + date + "Content-Length: 0\r\nConnection: close\r\n\r\n",
		reasons:  []string{"ok"},
	},
	{
		name:     "pipelined requests with bodies",
		request:  "POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabcdeGET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok",
		want: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok" +
			"HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\nConnection: close\r\n\r\nok",
		sees:    []string{"POST /1 HTTP/1.1\r\n", "Content-Length: 5\r\n\r\nabcde", "GET /2 HTTP/1.1"},
		reasons: []string{"ok", "ok"},
	},
	{
		name:     "chunked upload with pipelined request behind it",
		request:  "POST /1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\nX-T: 1\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok",
		want: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nok" +
			"HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\nConnection: close\r\n\r\nok",
		sees:    []string{"Transfer-Encoding: chunked\r\n", "5\r\nabcde\r\n0\r\nX-T: 1\r\n\r\n", "GET /2"},
		reasons: []string{"ok", "ok"},
	},
	{
		name:     "provenance is ours to say",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_Host: evil\r\nForwarded: for=6\r\nX-Real-IP: 6.6.6.6\r\nX-Forwarded-Prefix: /x\r\nVia: 1.1 v\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Connection: X-Back\r\nX-Back: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n",
		want:     "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 0\r\nConnection: close\r\n\r\n",
		sees:     []string{"Via: 1.1 v\r\n", "X-Forwarded-For: 127.0.0.1\r\n"},
		never:    []string{"6.6.6.6", "evil", "for=6", "Prefix", "X-Hop", "Keep-Alive", "Proxy-Connection"},
		reasons:  []string{"ok"},
	},
	{
		name:     "malformed response",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
		want:     "HTTP/1.1 502 Bad Gateway\r\n",
		reasons:  []string{"upstream_malformed"},
	},
	{
		name:     "a switch of protocols that nobody asked for",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n",
		response: "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
		want:     "HTTP/1.1 502 Bad Gateway\r\n",
		never:    []string{"Upgrade", "upgrade"},
		reasons:  []string{"upstream_malformed"},
	},
	{
		name:     "response breaks off in its head",
		request:  "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nContent-Le", closes: true,
		want:    "HTTP/1.1 502 Bad Gateway\r\n",
		reasons: []string{"upstream_reset"},
	},
	{
		name:     "response breaks off in its body",
		request:  "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 10\r\n\r\nhello", closes: true,
		want:    "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 10\r\n\r\nhello",
		reasons: []string{"upstream_truncated"},
	},
	{
		name:     "chunked response breaks off",
		request:  "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", closes: true,
		want:    "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		reasons: []string{"upstream_truncated"},
	},
	{
		name:    "CONNECT is not for us",
		request: "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
		want:    "HTTP/1.1 501 Not Implemented\r\n",
		reasons: []string{"not_implemented"},
	},
	{
		name:    "smuggling is refused and the connection ends",
		request: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: h\r\n\r\n",
		want:    "HTTP/1.1 400 Bad Request\r\n",
		reasons: []string{"bad_request"},
	},
	{
		name:     "a bad chunk is answered 400 and cuts the upload",
		request:  "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nzz\r\n",
		response: "",
		want:     "HTTP/1.1 400 Bad Request\r\n",
		reasons:  []string{"bad_request_body"},
	},
	{
		name:     "an absent Date is added",
		request:  "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		want:     "HTTP/1.1 200 OK\r\nDate: ",
		reasons:  []string{"ok"},
	},
}

func TestConversations(t *testing.T) {
	t.Parallel()
	for _, tc := range conversations {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			saw := make(chan string, 16)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for {
					head, err := readHead(r)
					if err != nil {
						saw <- head
						return
					}
					switch {
					case strings.Contains(head, "Content-Length: 5\r\n"):
						body := make([]byte, 5)
						io.ReadFull(r, body)
						head += string(body)
					case strings.Contains(head, "Transfer-Encoding: chunked"):
						for !strings.HasSuffix(head, "0\r\nX-T: 1\r\n\r\n") {
							b, err := r.ReadByte()
							if err != nil {
								saw <- head
								return
							}
							head += string(b)
						}
					}
					saw <- head
					io.WriteString(c, tc.response)
					if tc.closes {
						return
					}
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			got := g.roundTrip(tc.request)
			if strings.HasSuffix(tc.want, "\r\n\r\n") || !strings.HasPrefix(got, tc.want) {
				if got != tc.want {
					t.Errorf("client read\n%q\nwant\n%q", got, tc.want)
				}
			}
			if reasons := g.reasonsLogged(len(tc.reasons)); strings.Join(reasons, " ") != strings.Join(tc.reasons, " ") {
				t.Errorf("logged %q, want %q", reasons, tc.reasons)
			}
			var all string
			for drained := false; !drained; {
				select {
				case s := <-saw:
					all += s
				default:
					drained = true
				}
			}
			rest := all
			for _, want := range tc.sees {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Errorf("backend did not see %q (in order) in\n%q", want, all)
				}
				rest = after
			}
			for _, never := range tc.never {
				if strings.Contains(all, never) {
					t.Errorf("backend saw %q in\n%q", never, all)
				}
			}
		})
	}
}

// TestExpectContinue has a backend that asks for the body, and one that refuses it.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, path, want string }{
		{"asked for", "/yes", "HTTP/1.1 200 OK"},
		{"refused", "/no", "HTTP/1.1 413 Too Large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				head, _ := readHead(r)
				if !strings.Contains(head, "Expect: 100-continue\r\n") {
					t.Errorf("the expectation was not passed on: %q", head)
				}
				if strings.HasPrefix(head, "POST /no") {
					io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
					io.Copy(io.Discard, r)
					return
				}
				io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
				body := make([]byte, 100000)
				if _, err := io.ReadFull(r, body); err != nil {
					t.Error(err)
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			c := g.dial()
			r := bufio.NewReader(c)
			io.WriteString(c, "POST "+tc.path+" HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n")
			head, err := readHead(r)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(head, "HTTP/1.1 100 ") {
				c.Write(make([]byte, 100000))
				head, err = readHead(r)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(head, "Connection: close") {
					t.Errorf("the connection ends although the body was read: %q", head)
				}
			} else if !strings.Contains(head, "Connection: close\r\n") {
				t.Errorf("the body will not be sent, yet the connection goes on: %q", head)
			}
			if !strings.HasPrefix(head, tc.want) {
				t.Errorf("got %q, want %q", head, tc.want)
			}
		})
	}
}

// TestFullDuplex has a backend that echoes each part of the body before the next is sent.
func TestFullDuplex(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for line, before := "", ""; before != "0\r\n"; {
				var err error
				before = line
				if line, err = r.ReadString('\n'); err != nil {
					return
				}
				io.WriteString(c, line) // chunk framing and all
			}
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	c := g.dial()
	r := bufio.NewReader(c)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
	if head, err := readHead(r); err != nil || !strings.HasPrefix(head, "HTTP/1.1 200") {
		t.Fatal(head, err)
	}
	for range 100 {
		const chunk = "6\r\nhello\n\r\n"
		io.WriteString(c, chunk)
		got := make([]byte, len(chunk))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != chunk {
			t.Fatalf("%q %v", got, err)
		}
	}
	io.WriteString(c, "0\r\n\r\n")
	if end, _ := readHead(r); end != "0\r\n\r\n" {
		t.Fatalf("%q", end)
	}
	// The connection goes on.
	c.SetDeadline(time.Now().Add(time.Second))
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n")
	if head, err := readHead(r); err != nil || !strings.HasPrefix(head, "HTTP/1.1 200") {
		t.Fatal(head, err)
	}
}

// TestLocalAnswers checks what the gateway says where no backend is asked.
func TestLocalAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, want, reason string
		rule               func(*config.Rule)
	}{
		{"no backendRefs", "HTTP/1.1 500 ", "no_backend", func(r *config.Rule) { r.BackendRefs = nil }},
		{"all weights 0", "HTTP/1.1 500 ", "no_backend", func(r *config.Rule) { r.BackendRefs[0].Weight = 0 }},
		{"invalid backendRef", "HTTP/1.1 500 ", "backend_invalid", func(r *config.Rule) {
			r.BackendRefs[0] = &config.BackendRef{Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}}
		}},
		{"invalid rule", "HTTP/1.1 500 ", "rule_invalid", func(r *config.Rule) { r.Failure = &config.Failure{Status: 500, Reason: "rule_invalid"} }},
		{"no match", "HTTP/1.1 404 ", "route_not_found", func(r *config.Rule) { r.Matches[0].Method = "PATCH" }},
		{"redirect", "HTTP/1.1 301 Moved Permanently\r\nLocation: https://h/new\r\n", "redirect", func(r *config.Rule) {
			r.Filters = append(r.Filters, filterOf(t, &config.RequestRedirect{Scheme: "https", StatusCode: 301,
				Path: &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: "/new"}}}))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serve("127.0.0.1:1", tc.rule)
			// A second request shows that the first left the connection in order.
			got := g.roundTrip("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			if !strings.HasPrefix(got, tc.want) || strings.Count(got, "HTTP/1.1 "+tc.want[9:12]) != 2 {
				t.Errorf("got %q, want %q twice", got, tc.want)
			}
			for _, r := range g.reasonsLogged(2) {
				if r != tc.reason {
					t.Errorf("logged %q, want %q", r, tc.reason)
				}
			}
		})
	}
}

func TestNoEndpoints(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve("127.0.0.1:1", nil)
	g.apply(backend("Service/default/b/80")[1:])
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Error(got)
	}
	if r := g.reasonsLogged(1); r[0] != "no_endpoints" {
		t.Error(r)
	}
}
