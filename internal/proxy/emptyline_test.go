package proxy

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestEmptyLineBetweenRequests: an empty line before a request line is ignored (RFC 9112 section 2.2). It begins neither the time that a head may take nor that of a
// request, and does not keep the connection open for longer.
func TestEmptyLineBetweenRequests(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{Head: 300 * time.Millisecond})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }), nil)
	c := g.dial()
	r := bufio.NewReader(c)
	for _, segments := range [][]string{{"", "\r\n"}, {"\r\n"}, {"\r\n", "\r\n"}} {
		for i, s := range segments {
			if s == "" { // behind the end of a request
				s = "GET /before HTTP/1.1\r\nHost: h\r\n\r\n\r\n"
			}
			io.WriteString(c, s)
			if i == 0 && len(s) > 2 {
				expectOK(t, r)
			}
			time.Sleep(800 * time.Millisecond) // longer than a head may take
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		expectOK(t, r)
	}
	if n := len(g.reasonsLogged(4)); n != 4 {
		t.Errorf("%d requests are logged, want 4", n)
	}
	idle := startGateway(t, Timeouts{Idle: time.Second})
	idle.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }), nil)
	c = idle.dial()
	r = bufio.NewReader(c)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	expectOK(t, r)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				io.WriteString(c, "\r\n")
			}
		}
	}()
	if n, err := io.Copy(io.Discard, r); n > 0 {
		t.Errorf("%d bytes, %v, want the end of an idle connection", n, err)
	}
}

// expectOK reads a response of status 200 and its body.
func expectOK(t *testing.T, r *bufio.Reader) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if io.Copy(io.Discard, resp.Body); resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
}
