package proxy

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/moongate-dev/moongate/internal/config"
)

// What rules may list.
var (
	toWebSocket      = &config.Upgrade{Type: "websocket"}
	toSPDY           = &config.Upgrade{Type: "spdy/3.1"}
	connectHere      = &config.Upgrade{Type: "CONNECT", Terminate: true}
	connectToBackend = &config.Upgrade{Type: "CONNECT"}
)

const (
	connectRequest = "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"
	spdyRequest    = "POST /exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
	spdyResponse   = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
)

// switchingTo has requests of a rule switch to what is listed, and to nothing else.
func switchingTo(list ...*config.Upgrade) func(*config.Rule) {
	return func(r *config.Rule) { r.Traffic = &config.RuleTraffic{UpgradesSet: true, Upgrades: list} }
}

// tunnelBackend hands over the connections that it accepts, of which nothing was read.
func tunnelBackend(t testing.TB) (addr string, accepted <-chan *net.TCPConn) {
	conns, done := make(chan *net.TCPConn, 64), make(chan struct{})
	addr = rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		conns <- c.(*net.TCPConn)
		<-done
	})
	t.Cleanup(func() { close(done) })
	return addr, conns
}

// TestUpgradeList: a list of a rule takes the place of what backends say, and what stands behind a request that was not switched is the next request.
func TestUpgradeList(t *testing.T) {
	t.Parallel()
	const (
		next = "GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
		ok   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		sent = "HTTP/1.1 200 "
	)
	for name, tc := range map[string]struct {
		list              []*config.Upgrade
		protocol          config.BackendProtocol
		request, response string
		want              []string // of all that the client gets, in order
		tunnelled, asked  bool
		reasons           string
	}{
		"WebSocket of a backend that names none":  {[]*config.Upgrade{toWebSocket}, 0, upgradeRequest, upgradeResponse, []string{"HTTP/1.1 101 ", "\r\n\r\ntunnel:" + next}, true, true, "upgraded"},
		"WebSocket that the list has not":         {[]*config.Upgrade{toSPDY}, 2, upgradeRequest, ok, []string{sent, "ok", sent, "/next"}, false, false, "upgrade_ignored ok"},
		"WebSocket of an empty list":              {nil, 2, upgradeRequest, ok, []string{sent, "ok", sent, "/next"}, false, false, "upgrade_ignored ok"},
		"WebSocket by POST":                       {[]*config.Upgrade{toWebSocket}, 0, strings.Replace(upgradeRequest, "GET", "POST", 1), ok, []string{sent, "ok", sent, "/next"}, false, false, "upgrade_ignored ok"},
		"SPDY":                                    {[]*config.Upgrade{toSPDY, toWebSocket}, 0, spdyRequest, spdyResponse, []string{"HTTP/1.1 101 ", "\r\n\r\ntunnel:" + next}, true, true, "upgraded"},
		"SPDY by GET":                             {[]*config.Upgrade{toSPDY}, 0, strings.NewReplacer("POST", "GET", "Content-Length: 0\r\n", "").Replace(spdyRequest), spdyResponse, []string{"HTTP/1.1 101 ", "tunnel:" + next}, true, true, "upgraded"},
		"SPDY that the backend refuses":           {[]*config.Upgrade{toSPDY}, 0, spdyRequest, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", []string{"HTTP/1.1 403 ", "no", sent, "/next"}, false, true, "ok ok"},
		"SPDY that the backend switches to other": {[]*config.Upgrade{toSPDY}, 0, spdyRequest, upgradeResponse, []string{"HTTP/1.1 502 ", sent, "/next"}, false, true, "upstream_malformed ok"},
		"SPDY with a body":                        {[]*config.Upgrade{toSPDY}, 0, strings.Replace(spdyRequest, "Content-Length: 0\r\n\r\n", "Content-Length: 1\r\n\r\nx", 1), ok, []string{sent, "ok", sent, "/next"}, false, false, "ok ok"},
		"SPDY with chunks":                        {[]*config.Upgrade{toSPDY}, 0, strings.Replace(spdyRequest, "Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 1), ok, []string{sent, "ok", sent, "/next"}, false, false, "ok ok"},
		"SPDY without a list":                     {nil, 2, spdyRequest, ok, []string{sent, "ok", sent, "/next"}, false, false, "upgrade_ignored ok"},
		"a choice of protocols":                   {[]*config.Upgrade{toSPDY, toWebSocket}, 0, strings.Replace(spdyRequest, "SPDY/3.1", "websocket, SPDY/3.1", 1), ok, []string{sent, "ok", sent, "/next"}, false, false, "upgrade_ignored ok"},
		"HTTP/2 in the clear":                     {[]*config.Upgrade{toSPDY}, 0, strings.Replace(spdyRequest, "SPDY/3.1", "h2c", 1), ok, []string{sent, "ok", sent, "/next"}, false, false, "ok ok"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			asked := make(chan string, 10)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for {
					head, err := readHead(r)
					if err != nil {
						return
					}
					if strings.HasPrefix(head, "GET /next") {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n/next")
						continue
					}
					asked <- head
					switch {
					case strings.Contains(head, "Content-Length: 1\r\n"):
						r.ReadByte()
					case strings.Contains(head, "chunked\r\n"):
						for line := ""; line != "0\r\n"; line, _ = r.ReadString('\n') {
						}
						r.ReadString('\n')
					}
					io.WriteString(c, tc.response)
					if tc.tunnelled {
						b, _ := io.ReadAll(r)
						fmt.Fprintf(c, "tunnel:%s", b)
						return
					}
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, switchingTo(tc.list...))
			g.apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/default/b/80", Protocol: tc.protocol}}}})
			g.answers(tc.request+next, tc.tunnelled, tc.want)
			if head := <-asked; strings.Contains(head, "Connection: Upgrade\r\nUpgrade: ") != tc.asked || strings.Count(head, "pgrade:") > 1 {
				t.Errorf("the backend was asked %q", head)
			}
			if got := strings.Join(g.reasonsLogged(len(strings.Fields(tc.reasons))), " "); got != tc.reasons {
				t.Errorf("logged as %s, want %s", got, tc.reasons)
			}
		})
	}
}

// TestUpgradeListOverTLS: a backend that would choose HTTP/2 is asked for WebSocket on a connection of HTTP/1.1, whatever connections there are; one in HTTP/2 alone is not.
func TestUpgradeListOverTLS(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	echo := websocket.Handler(func(c *websocket.Conn) { io.Copy(c, c) })
	cert := certificate(t, "Secret/default/b", newECDSA(t), "b.example.com")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert.GetCertificate().ChainPem, cert.GetCertificate().KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			echo.ServeHTTP(w, r)
			return
		}
		io.WriteString(w, r.Proto)
	})}
	go server.ServeTLS(l, "", "")
	t.Cleanup(func() { server.Close() })
	g := startGateway(t, Timeouts{})
	g.serve(l.Addr().String(), switchingTo(toWebSocket))
	g.apply(overTLS("Service/default/b/80", "b.example.com", cert.GetCertificate().ChainPem, 0))
	plain := func() {
		t.Helper()
		if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "HTTP/2.0") {
			t.Errorf("another request is sent otherwise: %q", got)
		}
	}
	plain()
	for range 2 {
		cfg, err := websocket.NewConfig("ws://h/chat", "http://h/")
		if err != nil {
			t.Fatal(err)
		}
		ws, err := websocket.NewClient(cfg, g.dial())
		if err != nil {
			t.Fatal(err)
		}
		passes(t, ws, ws)
		ws.Close()
		plain()
	}
	// A backend that does not switch has answered on that connection, which is not used for anything else.
	for range 2 {
		got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 4") {
			t.Errorf("a handshake without a key: %.60q", got)
		}
		plain()
	}
	addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	g.serveH2C(addr, switchingTo(toWebSocket))
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"); !strings.HasSuffix(got, "HTTP/2.0") {
		t.Errorf("a backend in HTTP/2 alone: %q", got)
	}
}

// connected opens a tunnel by HTTP/1.1 and returns the head of the response.
func connected(t testing.TB, c net.Conn, early string) (r *bufio.Reader, head string) {
	t.Helper()
	io.WriteString(c, connectRequest+early)
	r = bufio.NewReader(c)
	head, err := readHead(r)
	if err != nil {
		t.Fatalf("%q, %v", head, err)
	}
	return r, head
}

// TestConnect: the backend of a CONNECT that ends at the gateway gets what follows it, and nothing else, also what came before the answer; half-closed ends go on.
func TestConnect(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct{ plain, https bool }{"raw": {}, "plain": {plain: true}, "HTTPS": {https: true}, "HTTPS, plain": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			addr, accepted := tunnelBackend(t)
			g := startGatewayWith(t, Options{PlainIO: o.plain})
			g.serve(addr, func(r *config.Rule) {
				switchingTo(connectHere)(r)
				r.RequestTimeoutNanos = int64(200 * time.Millisecond) // which is over with the response
			})
			var c net.Conn
			if o.https {
				g.apply([]*config.Resource{certificate(t, "c", newECDSA(t), "h"), g.httpsListener("http", "", "c")})
				var err error
				if c, _, err = g.dialTLS("h", nil); err != nil {
					t.Fatal(err)
				}
			} else {
				c = g.dial()
			}
			const early = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
			r, head := connected(t, c, early)
			if !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || strings.Contains(head, "Content-Length") || strings.Contains(head, "Transfer-Encoding") || !strings.Contains(head, "Date: ") {
				t.Errorf("the response is %q", head)
			}
			backend := <-accepted
			got := make([]byte, len(early))
			if _, err := io.ReadFull(backend, got); string(got) != early || err != nil {
				t.Fatalf("%q, %v", got, err)
			}
			time.Sleep(300 * time.Millisecond)
			want := make([]byte, 3<<20) // more than all buffers
			rand.Read(want)
			var moves sync.WaitGroup
			moves.Go(func() {
				c.Write(want)
				c.(interface{ CloseWrite() error }).CloseWrite()
			})
			moves.Go(func() {
				if got, err := io.ReadAll(backend); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the backend got %d bytes, %v", len(got), err)
				}
				backend.Write(want) // after the client's end
				backend.CloseWrite()
			})
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the client got %d bytes, %v", len(got), err)
			}
			moves.Wait()
			g.reasonsLogged(1)
			for _, part := range []string{`"reason":"upgraded"`, `"method":"CONNECT"`, `"response_code":200`, `"path":"h:443"`,
				fmt.Sprintf(`"bytes_received":%d`, len(early)+len(want)), fmt.Sprintf(`"bytes_sent":%d`, len(want))} {
				if !strings.Contains(g.log.String(), part) {
					t.Errorf("no %s in %s", part, g.log.String())
				}
			}
		})
	}
}

// TestConnectToTLS: the gateway makes the TLS of a backend that wants it, and offers it no protocol.
func TestConnectToTLS(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	cert := certificate(t, "Secret/default/b", newECDSA(t), "b.example.com")
	addr, _ := tlsBackend(t, cert, "h2", "http/1.1")
	g := startGateway(t, Timeouts{})
	g.serve(addr, switchingTo(connectHere))
	g.apply(overTLS("Service/default/b/80", "b.example.com", cert.GetCertificate().ChainPem, config.BackendProtocol_BACKEND_PROTOCOL_H2C))
	c := g.dial()
	r, head := connected(t, c, "")
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Fatal(head)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if b, err := io.ReadAll(r); err != nil || !strings.Contains(string(b), "HTTP/1.1 b.example.com ") {
		t.Errorf("%q, %v", b, err)
	}
}

// TestConnectForwarded: a CONNECT that is forwarded keeps its form, and its backend decides: success of any kind is a tunnel, whatever its fields say of a body.
func TestConnectForwarded(t *testing.T) {
	t.Parallel()
	const behind = "GET /behind HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, tc := range map[string]struct {
		response  string
		rule      func(*config.Rule)
		head      string // that the backend gets, its beginning
		gets      string // that the client gets, its beginning
		without   string // what it does not get
		tunnelled bool
		reason    string
	}{
		"success":                 {response: "HTTP/1.1 200 Connection established\r\n\r\n", gets: "HTTP/1.1 200 Connection established\r\n", tunnelled: true, reason: "upgraded"},
		"success with a length":   {response: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\n", gets: "HTTP/1.1 200 OK\r\nX-A: 1\r\n", without: "Content-Length", tunnelled: true, reason: "upgraded"},
		"success with chunks":     {response: "HTTP/1.1 299 OK\r\nTransfer-Encoding: chunked\r\n\r\n", gets: "HTTP/1.1 299 OK\r\n", without: "chunked", tunnelled: true, reason: "upgraded"},
		"no content":              {response: "HTTP/1.1 204 No Content\r\n\r\n", gets: "HTTP/1.1 204 No Content\r\n", tunnelled: true, reason: "upgraded"},
		"behind interim response": {response: "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", gets: "HTTP/1.1 103 ", tunnelled: true, reason: "upgraded"},
		"refused":                 {response: "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", gets: "HTTP/1.1 407 ", reason: "ok"},
		"redirected":              {response: "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", gets: "HTTP/1.1 302 ", reason: "ok"},
		"switched":                {response: upgradeResponse, gets: "HTTP/1.1 502 ", reason: "upstream_malformed"},
		"without an answer":       {gets: "HTTP/1.1 502 ", reason: "upstream_reset"},
		"to another host": {response: "HTTP/1.1 200 OK\r\n\r\n", gets: "HTTP/1.1 200 ", head: "CONNECT b.example.com:443 HTTP/1.1\r\nHost: b.example.com:443\r\n", tunnelled: true, reason: "upgraded",
			rule: func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.UrlRewrite{Hostname: "b.example.com"}))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			heads := make(chan string, 4)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				head, err := readHead(r)
				if err != nil {
					return
				}
				heads <- head
				if tc.response == "" {
					return
				}
				io.WriteString(c, tc.response)
				if tc.tunnelled {
					b, _ := io.ReadAll(r)
					fmt.Fprintf(c, "tunnel:%s", b)
					return
				}
				if b, err := r.Peek(1); err == nil {
					t.Errorf("%q came to a backend that has made no tunnel", b)
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, func(r *config.Rule) {
				switchingTo(connectToBackend)(r)
				if tc.rule != nil {
					tc.rule(r)
				}
			})
			c := g.dial()
			io.WriteString(c, connectRequest+behind)
			r := bufio.NewReader(c)
			r.Peek(1) // a client that leaves before it has an answer is gone
			c.(*net.TCPConn).CloseWrite()
			b, err := io.ReadAll(r)
			if err != nil || !strings.HasPrefix(string(b), tc.gets) || strings.HasSuffix(string(b), "\r\n\r\ntunnel:"+behind) != tc.tunnelled || tc.without != "" && strings.Contains(string(b), tc.without) {
				t.Errorf("the client gets %q, %v", b, err)
			}
			if !tc.tunnelled && (!strings.Contains(string(b), "Connection: close\r\n") || strings.Count(string(b), "HTTP/1.1 ") != 1) {
				t.Errorf("the connection goes on: %q", b)
			}
			if tc.head == "" {
				tc.head = "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n"
			}
			if head := <-heads; !strings.HasPrefix(head, tc.head) || strings.Contains(head, "Content-Length") || strings.Contains(head, "Upgrade") || strings.Count(head, "Host:") != 2 { // X-Forwarded-Host
				t.Errorf("the backend gets %q", head)
			}
			if words := g.reasonsLogged(1); words[0] != tc.reason || len(words) > 1 {
				t.Errorf("logged as %v, want %s", words, tc.reason)
			}
		})
	}
}

// TestConnectGuards: a CONNECT that opens no tunnel has one answer, and what is behind it is nobody's.
func TestConnectGuards(t *testing.T) {
	t.Parallel()
	const behind = "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, tc := range map[string]struct {
		request string
		rule    func(*config.Rule)
		status  int
		reason  string
	}{
		"no policy":            {request: connectRequest, status: 501, reason: "not_implemented"},
		"not in the list":      {request: connectRequest, rule: switchingTo(toWebSocket), status: 501, reason: "not_implemented"},
		"of a method's match":  {request: connectRequest, rule: func(r *config.Rule) { r.Matches[0].Method = "CONNECT" }, status: 501, reason: "not_implemented"},
		"of another method":    {request: connectRequest, rule: func(r *config.Rule) { switchingTo(connectHere)(r); r.Matches[0].Method = "GET" }, status: 404, reason: "route_not_found"},
		"of another path":      {request: connectRequest, rule: func(r *config.Rule) { switchingTo(connectHere)(r); r.Matches[0].Path.Value = "/x" }, status: 404, reason: "route_not_found"},
		"with a length":        {request: "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nContent-Length: 5\r\n\r\nhello", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
		"with a longer length": {request: "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nContent-Length: 5000\r\n\r\nhello", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
		"with chunks":          {request: "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", rule: switchingTo(connectToBackend), status: 400, reason: "bad_request"},
		"with both":            {request: "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n", rule: switchingTo(connectToBackend), status: 400, reason: "bad_request"},
		"without a port":       {request: "CONNECT h HTTP/1.1\r\nHost: h\r\n\r\n", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
		"with a path":          {request: "CONNECT /h:443 HTTP/1.1\r\nHost: h\r\n\r\n", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
		"with a URL":           {request: "CONNECT http://h:443/ HTTP/1.1\r\nHost: h\r\n\r\n", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
		"with a user":          {request: "CONNECT a@h:443 HTTP/1.1\r\nHost: h\r\n\r\n", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
		"of a rule that fails": {request: connectRequest, rule: func(r *config.Rule) { r.Failure = &config.Failure{Status: 500, Reason: "policy_invalid"} }, status: 500, reason: "policy_invalid"},
		"which a filter answers": {request: connectRequest, rule: func(r *config.Rule) {
			switchingTo(connectHere)(r)
			r.Filters = append(r.Filters, filterOf(t, &config.RequestRedirect{Hostname: "x", StatusCode: 302}))
		}, status: 302, reason: "redirect"},
		"which a fault answers": {request: connectRequest, rule: func(r *config.Rule) { // with what would open a tunnel
			switchingTo(connectHere)(r)
			r.Traffic.FaultInjection = &config.FaultInjection{Abort: &config.FaultAbort{HttpStatus: 200, PerMillion: all}}
		}, status: 502, reason: "fault_injected"},
		"which a fault answers without content": {request: connectRequest, rule: func(r *config.Rule) {
			switchingTo(connectHere)(r)
			r.Traffic.FaultInjection = &config.FaultInjection{Abort: &config.FaultAbort{HttpStatus: 204, PerMillion: all}}
		}, status: 502, reason: "fault_injected"},
		"of gRPC": {request: strings.Replace(connectRequest, "\r\n\r\n", "\r\nContent-Type: application/grpc\r\n\r\n", 1), rule: func(r *config.Rule) {
			switchingTo(connectHere)(r)
			r.Traffic.FaultInjection = &config.FaultInjection{Abort: &config.FaultAbort{HttpStatus: 503, PerMillion: all}}
		}, status: 503, reason: "fault_injected"},
		"whose answer is overridden": {request: connectRequest, rule: func(r *config.Rule) {
			switchingTo(connectHere)(r)
			r.Traffic.FaultInjection = &config.FaultInjection{Abort: &config.FaultAbort{HttpStatus: 503, PerMillion: all}}
			r.Traffic.ResponseOverrides = []*config.ResponseOverride{{Statuses: statuses(503, 503), StatusCode: 200}}
		}, status: 503, reason: "fault_injected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serve(rawBackend(t, func(_ net.Conn, r *bufio.Reader) {
				head, _ := readHead(r)
				t.Errorf("a backend hears %q", head)
			}), tc.rule)
			got := g.roundTrip(tc.request + behind)
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", tc.status)) || !strings.Contains(got, "Connection: close\r\n") || strings.Count(got, "HTTP/1.1 ") != 1 {
				t.Errorf("%q", got)
			}
			if words := g.reasonsLogged(1); words[0] != tc.reason || len(words) > 1 {
				t.Errorf("logged as %v, want %s", words, tc.reason)
			}
		})
	}
}

// TestConnectIsNotOverridden: bytes follow the success of a CONNECT, so that it stays one.
func TestConnectIsNotOverridden(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, accepted := tunnelBackend(t)
	g := startGateway(t, Timeouts{})
	g.serve(addr, func(r *config.Rule) {
		switchingTo(connectHere)(r)
		r.Traffic.ResponseOverrides = []*config.ResponseOverride{{Statuses: statuses(200, 299), StatusCode: 503}}
	})
	c := g.dial()
	r, head := connected(t, c, "")
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Fatal(head)
	}
	b := <-accepted
	passes(t, c, b)
	passes(t, b, r)
}

// TestConnectFails: a backend that takes no connection is no tunnel, and another endpoint is tried.
func TestConnectFails(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(refusedAddr(t), switchingTo(connectHere))
	if got := g.roundTrip(connectRequest); !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, "connect_failed") {
		t.Errorf("%q", got)
	}
	addr, accepted := tunnelBackend(t)
	g.apply(backend("Service/default/b/80", refusedAddr(t), addr))
	for range 4 {
		c := g.dial()
		r, head := connected(t, c, "")
		if !strings.HasPrefix(head, "HTTP/1.1 200 ") {
			t.Fatal(head)
		}
		b := <-accepted
		passes(t, c, b)
		passes(t, b, r)
	}
}

// TestConnectRules: beside a rule that takes CONNECT others go on as they are, and the name of the authority chooses among routes.
func TestConnectRules(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, accepted := tunnelBackend(t)
	web := httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Method) })
	g := startGateway(t, Timeouts{})
	any := &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}
	tunnel := &config.Rule{Matches: []*config.Match{{Path: any, Method: "CONNECT"}}, BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}}}
	switchingTo(connectHere)(tunnel)
	rest := &config.Rule{Matches: []*config.Match{{Path: any}}, BackendRefs: []*config.BackendRef{{Backend: "Service/default/w/80", Weight: 1}}}
	other := &config.Rule{Matches: []*config.Match{{Path: any}}, BackendRefs: []*config.BackendRef{{Backend: "Service/default/w/80", Weight: 1}}}
	g.apply(append(append(backend("Service/default/b/80", addr), backend("Service/default/w/80", web)...), g.httpListener("http", ""),
		routeOf("r", "default/gw/http", "a.example.com", rest, tunnel), routeOf("o", "default/gw/http", "o.example.com", other)))
	for authority, status := range map[string]int{"a.example.com:443": 200, "A.Example.com.:1": 200, "o.example.com:443": 501, "n.example.com:443": 404} {
		c := g.dial()
		io.WriteString(c, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
		r := bufio.NewReader(c)
		head, err := readHead(r)
		if err != nil || !strings.HasPrefix(head, fmt.Sprintf("HTTP/1.1 %d ", status)) {
			t.Errorf("%s: %q, %v", authority, head, err)
		}
		if status == 200 {
			b := <-accepted
			passes(t, b, r)
			passes(t, c, b)
		}
	}
	for _, method := range []string{"GET", "OPTIONS", "POST"} {
		if got := g.roundTrip(method + " / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, method) {
			t.Errorf("%s: %q", method, got)
		}
	}
}
