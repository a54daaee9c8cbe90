package proxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// headersLogged have lines show headers.
var headersLogged = accesslog.Options{Redact: []string{"token"}, Members: []string{
	"path", "response_code", "request_header.referer", "request_header.x-team", "response_header.x-answer", "response_header.content-type"}}

// TestLoggedHeaders: the log shows headers of requests as received and of responses as sent, and nothing of another request of the connection.
func TestLoggedHeaders(t *testing.T) {
	t.Parallel()
	g := startLoggingGateway(t, Options{}, headersLogged)
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("X-Answer", "one")
		w.Header().Add("X-Answer", "two")
		w.Header().Set("Content-Type", "text/css")
	}), func(r *config.Rule) {
		r.Matches = nil
		for _, path := range []string{"/a", "/b"} {
			r.Matches = append(r.Matches, &config.Match{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT, Value: path}})
		}
		r.Filters = append(r.Filters,
			filterOf(t, &config.RequestHeaderModifier{Set: []*config.HeaderField{{Name: "X-Team", Value: "changed"}}}),
			filterOf(t, &config.ResponseHeaderModifier{Set: []*config.HeaderField{{Name: "Content-Type", Value: "text/html"}}}))
	})
	c := g.dial()
	r := bufio.NewReader(c)
	for _, request := range []string{
		"GET /a?token=secret HTTP/1.1\r\nHost: h.example\r\nX-Team: a\r\nReferer: http://r.example/?token=secret&x=1\r\nx-team: b\r\n\r\n",
		"GET /b HTTP/1.1\r\nHost: h.example\r\nX-Team:\r\n\r\n",
		"GET /c HTTP/1.1\r\nHost: h.example\r\nX-Team: " + strings.Repeat("x", 2000) + "\r\n\r\n",
	} {
		io.WriteString(c, request)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
	}
	testkit.Eventually(t, "the requests are logged", func() bool { return g.log.Count("\n") == 3 })
	want := []string{
		`{"path":"/a?token=*","response_code":200,"request_header.referer":"http://r.example/?token=*&x=1","request_header.x-team":"a, b","response_header.x-answer":"one, two","response_header.content-type":"text/html"}`,
		`{"path":"/b","response_code":200,"request_header.referer":null,"request_header.x-team":"","response_header.x-answer":"one, two","response_header.content-type":"text/html"}`,
		`{"path":"/c","response_code":404,"request_header.referer":null,"request_header.x-team":"` + strings.Repeat("x", accesslog.MaxHeader) + `","response_header.x-answer":null,"response_header.content-type":"text/plain; charset=utf-8"}`,
	}
	for i, line := range strings.Split(strings.TrimSpace(g.log.String()), "\n") {
		if line != want[i] || !json.Valid([]byte(line)) {
			t.Errorf("line\n%s\nwant\n%s", line, want[i])
		}
	}
}

// TestLoggedHeadersAsSent: headers of responses are those that the client gets, with what the gateway adds at the end.
func TestLoggedHeadersAsSent(t *testing.T) {
	t.Parallel()
	logged := func(t *testing.T, backend string, change func(*config.Rule), request string) string {
		g := startLoggingGateway(t, Options{}, accesslog.Options{Members: []string{"response_code", "response_header.content-encoding", "response_header.date", "response_header.sec-websocket-accept"}})
		g.serve(backend, change)
		c := g.dial()
		io.WriteString(c, request)
		if _, err := io.ReadAll(c); err != nil {
			t.Error(err)
		}
		c.Close() // which ends a tunnel
		testkit.Eventually(t, "the request is logged", func() bool { return g.log.Count("\n") == 1 })
		return g.log.String()
	}
	t.Run("compressed", func(t *testing.T) {
		line := logged(t, httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, strings.Repeat("text ", 1000))
		}), withCompression("gzip"), "GET / HTTP/1.1\r\nHost: h.example\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n")
		if !strings.Contains(line, `"response_header.content-encoding":"gzip"`) {
			t.Error(line)
		}
	})
	t.Run("of the gateway", func(t *testing.T) {
		line := logged(t, "127.0.0.1:1", nil, "GET / HTTP/1.1\r\nHost: h.example\r\nConnection: close\r\n\r\n")
		if strings.Contains(line, `"response_header.date":null`) {
			t.Error(line)
		}
	})
	t.Run("upgraded", func(t *testing.T) {
		line := logged(t, rawBackend(t, func(c net.Conn, r *bufio.Reader) {
			if _, err := http.ReadRequest(r); err == nil {
				io.WriteString(c, upgradeResponse)
			}
		}), switchingTo(toWebSocket), upgradeRequest)
		if !strings.Contains(line, `"response_code":101`) || !strings.Contains(line, `"response_header.sec-websocket-accept":"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="`) {
			t.Error(line)
		}
	})
}
