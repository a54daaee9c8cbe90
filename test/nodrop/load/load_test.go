package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve answers each connection by answer, which is called with the number of
// requests before on the connection and in all, and returns whether to go on.
func serve(t *testing.T, answer func(c net.Conn, r *http.Request, onThis, inAll int) bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var all atomic.Int64
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				reader := bufio.NewReader(connection)
				for i := 0; ; i++ {
					request, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					io.Copy(io.Discard, request.Body)
					if !answer(connection, request, i, int(all.Add(1)-1)) {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func run(t *testing.T, address string, kind Kind) Report {
	t.Helper()
	l := Start(Spec{Address: address, Clients: map[Kind]int{kind: 1}, Timeout: 5 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Await(ctx, 20); err != nil {
		t.Error(err)
	}
	return l.Stop()
}

func TestAllKindsSucceed(t *testing.T) {
	var methods [2]atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "example.org" || r.URL.Path != "/path" {
			http.Error(w, "not what was to be sent", http.StatusBadRequest)
		}
		content, err := io.ReadAll(r.Body)
		if r.Method == http.MethodPost && (err != nil || len(content) != uploaded) {
			http.Error(w, "no body", http.StatusBadRequest)
		}
		if r.Method == http.MethodPost {
			methods[1].Add(1)
		} else {
			methods[0].Add(1)
		}
	}))
	t.Cleanup(server.Close)
	l := Start(Spec{
		Address: server.Listener.Addr().String(), Host: "example.org", Path: "/path",
		Clients: map[Kind]int{Kept: 2, Upload: 1, Fresh: 2},
	})
	if err := l.Await(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	r := l.Stop()
	if len(r.Failures) > 0 || r.Repeated > 0 || r.Requests < 50 || r.Slowest == 0 {
		t.Error(r)
	}
	if got := int(methods[0].Load() + methods[1].Load()); got != r.Requests || methods[1].Load() < 10 {
		t.Errorf("the server counts %d requests, %d of them uploads; the report says %d", got, methods[1].Load(), r.Requests)
	}
}

// TestFailures sees every way to fail exactly once, and only once.
func TestFailures(t *testing.T) {
	once := func(text string) func(net.Conn, *http.Request, int, int) bool {
		return func(c net.Conn, _ *http.Request, _, inAll int) bool {
			if inAll != 5 {
				io.WriteString(c, fine)
				return true
			}
			io.WriteString(c, text)
			return false
		}
	}
	for name, test := range map[string]struct {
		kind   Kind
		answer string
		says   string // "" is no failure
	}{
		"closed, kept":      {Kept, "", ""},
		"closed, upload":    {Upload, "", "kept connection closed: EOF"},
		"closed, fresh":     {Fresh, "", "await the answer: EOF"},
		"half a head":       {Kept, "HTTP/1.1 200", "read the answer"},
		"half a body":       {Kept, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", "after 2 bytes"},
		"another status":    {Kept, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy", `status 503: "busy"`},
		"announces its end": {Kept, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", ""},
		"announces, upload": {Upload, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", ""},
		"not HTTP":          {Fresh, "nonsense\r\n\r\n", "malformed"},
	} {
		r := run(t, serve(t, once(test.answer)), test.kind)
		switch {
		case test.says == "" && len(r.Failures) > 0:
			t.Errorf("%s: %s", name, r)
		case test.says != "" && (len(r.Failures) != 1 || !strings.Contains(r.Failures[0].Reason, test.says)):
			t.Errorf("%s: %s; want %q", name, r, test.says)
		}
		if want := name == "closed, kept"; (r.Repeated == 1) != want || r.Repeated > 1 {
			t.Errorf("%s: %d repeated", name, r.Repeated)
		}
	}
}

func TestConnectionsAreKept(t *testing.T) {
	var connections atomic.Int64
	address := serve(t, func(c net.Conn, _ *http.Request, onThis, _ int) bool {
		if onThis == 0 {
			connections.Add(1)
		}
		io.WriteString(c, fine)
		return true
	})
	if r := run(t, address, Kept); len(r.Failures) > 0 || connections.Load() != 1 {
		t.Errorf("%d connections: %s", connections.Load(), r)
	}
	connections.Store(0)
	if r := run(t, address, Fresh); len(r.Failures) > 0 || int(connections.Load()) != r.Requests {
		t.Errorf("%d connections: %s", connections.Load(), r)
	}
}

// TestIdleConnectionEnds: the end of a connection that was idle is no failure, not even before an upload.
func TestIdleConnectionEnds(t *testing.T) {
	address := serve(t, func(c net.Conn, _ *http.Request, onThis, _ int) bool {
		io.WriteString(c, fine)
		return onThis == 0 // the second answer is the last, and does not say so
	})
	l := Start(Spec{Address: address, Clients: map[Kind]int{Upload: 1}, Pause: 50 * time.Millisecond})
	if err := l.Await(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	if r := l.Stop(); len(r.Failures) > 0 {
		t.Error(r)
	}
}

func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	r := run(t, listener.Addr().String(), Fresh)
	if len(r.Failures) != r.Requests || !strings.Contains(r.String(), "times: begin: fresh, reused false: connect: dial: ") {
		t.Error(r)
	}
}

func TestAwaitGivesUp(t *testing.T) {
	address := serve(t, func(net.Conn, *http.Request, int, int) bool { time.Sleep(100 * time.Millisecond); return true })
	l := Start(Spec{Address: address, Clients: map[Kind]int{Kept: 1}, Timeout: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Await(ctx, 1000); err == nil || !strings.Contains(err.Error(), "no progress") {
		t.Error(err)
	}
	if r := l.Stop(); len(r.Failures) != r.Requests {
		t.Errorf("an answer that never comes is no failure: %s", r)
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com" // as the certificate of httptest
	l := Start(Spec{Address: server.Listener.Addr().String(), TLS: config, Clients: map[Kind]int{Kept: 1, Upload: 1, Fresh: 1}})
	if err := l.Await(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if r := l.Stop(); len(r.Failures) > 0 {
		t.Error(r)
	}
	// A certificate that nobody vouches for is a failure like any other.
	l = Start(Spec{Address: server.Listener.Addr().String(), TLS: &tls.Config{ServerName: "example.com", RootCAs: x509.NewCertPool()}, Clients: map[Kind]int{Fresh: 1}})
	l.Phase("distrust")
	if err := l.Await(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if r := l.Stop(); len(r.Failures) != r.Requests || !strings.Contains(r.String(), "distrust: fresh, reused false: connect: handshake: ") {
		t.Error(r)
	}
}

func TestRefusedConnectionsAreDialledAgain(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	address := server.Listener.Addr().String()
	server.Close()
	l := Start(Spec{Address: address, Clients: map[Kind]int{Fresh: 1}, Timeout: time.Minute})
	if err := l.Await(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	l.Redial(true)
	l.Phase("redial")
	for before := l.refused.Load(); l.refused.Load() < before+3; {
		time.Sleep(time.Millisecond)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go http.Serve(listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err := l.Await(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	r := l.Stop()
	if r.Redialled != 1 || len(r.Failures) < 3 || r.Failures[len(r.Failures)-1].Phase != "begin" {
		t.Error(r)
	}
}
