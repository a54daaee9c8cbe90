package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestHTTP2RequestTimeout: timeouts.request ends a response that the client does not take.
func TestHTTP2RequestTimeout(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		w.Write(make([]byte, 16<<20))
	}), func(r *config.Rule) { r.RequestTimeoutNanos = int64(2 * time.Second) })
	cc := g.http2Client("")
	for _, tc := range []struct {
		path   string
		status int
	}{{"/large", 200}, {"/slow", 504}} {
		req, _ := http.NewRequest("GET", "http://h"+tc.path, nil)
		resp, err := cc.RoundTrip(req)
		if err != nil || resp.StatusCode != tc.status {
			t.Fatal(tc.path, resp, err)
		}
		defer resp.Body.Close() // unread: its window stays shut
	}
	for _, reason := range g.reasonsLogged(2) {
		if reason != "request_timeout" {
			t.Errorf("logged %q", reason)
		}
	}
}

// TestHTTP2SlowBody: a request body that stops is a 408, and the connection goes on.
func TestHTTP2SlowBody(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{BodyIdle: 300 * time.Millisecond})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), nil)
	cc := g.http2Client("")
	pr, pw := io.Pipe()
	defer pw.Close()
	req, _ := http.NewRequest("POST", "http://h/", pr)
	resp, err := cc.RoundTrip(req)
	if err != nil || resp.StatusCode != 408 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	req, _ = http.NewRequest("POST", "http://h/", strings.NewReader("again"))
	resp, err = cc.RoundTrip(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	io.Copy(io.Discard, resp.Body)
}

// TestHTTP2Drain: requests in flight end well while the gateway shuts down, and connections do not
// wait for their idle timeout.
func TestHTTP2Drain(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	release := make(chan struct{})
	g := startGateway(t, Timeouts{})
	g.serve(httpBackendRaw(t, release), nil)
	cc := g.http2Client("")
	idle := g.http2Client("")
	if err := idle.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		req, _ := http.NewRequest("GET", "http://h/", nil)
		resp, err := cc.RoundTrip(req)
		if err == nil {
			var b []byte
			if b, err = io.ReadAll(resp.Body); err == nil && len(b) != 1000 {
				err = fmt.Errorf("%d bytes", len(b))
			}
		}
		got <- err
	}()
	for cc.State().StreamsActive == 0 {
		time.Sleep(time.Millisecond)
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		defer cancel()
		done <- g.Shutdown(ctx)
	}()
	for cc.CanTakeNewRequest() { // until GOAWAY has come
		time.Sleep(time.Millisecond)
	}
	close(release)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestHTTP2ShutdownCuts: what does not end in time is cut, and logged as that.
func TestHTTP2ShutdownCuts(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	release := make(chan struct{})
	defer close(release)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackendRaw(t, release), nil)
	cc := g.http2Client("")
	failed := make(chan error, 1)
	go func() {
		req, _ := http.NewRequest("GET", "http://h/", nil)
		_, err := cc.RoundTrip(req)
		failed <- err
	}()
	for cc.State().StreamsActive == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := g.Shutdown(ctx); err == nil {
		t.Error("nothing had to be cut")
	}
	if err := <-failed; err == nil {
		t.Error("the request did not fail")
	}
	if r := g.reasonsLogged(1); r[0] != "shutting_down" {
		t.Errorf("logged %q", r[0])
	}
}

// TestHTTP2Mirror: copies of streamed and of short bodies are whole.
func TestHTTP2Mirror(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	copies := make(chan copyOf, 2)
	g := startGateway(t, Timeouts{})
	g.apply(backend("Service/default/copy/80", mirrorBackend(t, copies)))
	g.serve(echo(t), mirrorTo(t, "Service/default/copy/80"))
	cc := g.http2Client("")
	for _, size := range []int{5, 200_000} {
		sent := strings.Repeat("x", size)
		req, _ := http.NewRequest("POST", "http://h/", strings.NewReader(sent))
		resp, err := cc.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != sent || err != nil {
			t.Errorf("%d bytes came back of %d, %v", len(b), size, err)
		}
		select {
		case c := <-copies:
			if string(c.body) != sent {
				t.Errorf("the copy has %d bytes of %d", len(c.body), size)
			}
		case <-time.After(testkit.Patience):
			t.Fatal("no copy")
		}
	}
}
