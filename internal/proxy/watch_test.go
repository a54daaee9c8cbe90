//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself

package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// watched is a backend that answers each request with a head and one message, and leaves the rest to the test.
type watched struct {
	peers   chan *framePeer // of each request, in their order
	streams chan uint32     // likewise
	resets  chan uint32     // the streams that were reset
}

func newWatched(t testing.TB) (*watched, string) {
	w := &watched{make(chan *framePeer, 1<<12), make(chan uint32, 1<<12), make(chan uint32, 1<<12)}
	return w, rawFrames(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 100}}, func(f *framePeer) {
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			f.acknowledge(frame)
			switch frame := frame.(type) {
			case *http2.RSTStreamFrame:
				w.resets <- frame.StreamID
			case *http2.MetaHeadersFrame:
				f.head(frame.StreamID, false, ":status", "200", "content-type", "application/grpc")
				f.WriteData(frame.StreamID, false, []byte("first"))
				w.peers <- f
				w.streams <- frame.StreamID
			}
		}
	})
}

// watches opens n watches that have had their first message.
func (g *gateway) watches(cc *http2.ClientConn, n int, fields ...string) (all []*http.Response) {
	g.t.Helper()
	for range n {
		req, _ := http.NewRequestWithContext(g.t.Context(), "POST", "http://h/test.Watch/Watch", http.NoBody)
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		for i := 0; i < len(fields); i += 2 {
			req.Header.Set(fields[i], fields[i+1])
		}
		resp, err := cc.RoundTrip(req)
		if err != nil {
			g.t.Fatal(err)
		}
		g.t.Cleanup(func() { resp.Body.Close() })
		if err := reads(resp, "first"); err != nil {
			g.t.Fatal(err)
		}
		all = append(all, resp)
	}
	return all
}

func reads(resp *http.Response, want string) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
		return fmt.Errorf("%q, %v, want %q", got, err, want)
	}
	return nil
}

// suspended waits until no goroutine carries out a request of the test, which has called checkLeaks.
func suspended(t *testing.T) {
	t.Helper()
	label := fmt.Sprintf("%q:\"%s ", testLabel, t.Name())
	testkit.Eventually(t, "no goroutine waits for a message", func() bool {
		return goroutines(func(stack string) bool {
			return strings.Contains(stack, label) && strings.Contains(stack, "http2.(*worker).work")
		}) == ""
	})
}

// TestIdleWatchHasNoGoroutine: a response that brings nothing for long is waited for without a goroutine, and goes on as often as it brings something.
func TestIdleWatchHasNoGoroutine(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	w, addr := newWatched(t)
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)
	all := g.watches(g.http2Client(""), 20)
	suspended(t)
	var peers []*framePeer
	var streams []uint32
	for range all {
		peers, streams = append(peers, <-w.peers), append(streams, <-w.streams)
	}
	for round := range 2 {
		for i := range all {
			peers[i].WriteData(streams[i], false, fmt.Appendf(nil, "message %d", round))
		}
		for i, resp := range all {
			if err := reads(resp, fmt.Sprintf("message %d", round)); err != nil {
				t.Fatalf("watch %d: %v", i, err)
			}
		}
		suspended(t)
	}
	for i := range all {
		peers[i].head(streams[i], true, "grpc-status", "0")
	}
	for i, resp := range all {
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("watch %d ends with %q, %v, %v", i, rest, err, resp.Trailer)
		}
	}
	for i, r := range g.reasonsLogged(len(all)) {
		if r != "ok" {
			t.Errorf("request %d is logged as %s", i, r)
		}
	}
	recorded := regexp.MustCompile(`"method":"POST".*"authority":"h","path":"/test.Watch/Watch".*"user_agent":"Go-http-client/2.0","request_id":"[0-9a-f-]{36}"`)
	for line := range strings.Lines(g.log.String()) {
		if !recorded.MatchString(line) {
			t.Errorf("what is recorded of the request is not logged: %s", line)
		}
	}
}

// TestIdleWatchEnds ends a watch that is waited for without a goroutine in each way that there is.
func TestIdleWatchEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		fields       []string
		do           func(g *gateway, cc *http2.ClientConn, resp *http.Response, f *framePeer, stream uint32)
		resets       bool // the backend's stream
	}{
		{name: "the client gives up the stream", reason: "client_closed", resets: true,
			do: func(_ *gateway, _ *http2.ClientConn, resp *http.Response, _ *framePeer, _ uint32) { resp.Body.Close() }},
		{name: "the client closes", reason: "client_closed", resets: true,
			do: func(_ *gateway, cc *http2.ClientConn, _ *http.Response, _ *framePeer, _ uint32) { cc.Close() }},
		{name: "the backend gives up the stream", reason: "upstream_truncated",
			do: func(_ *gateway, _ *http2.ClientConn, _ *http.Response, f *framePeer, stream uint32) {
				f.WriteRSTStream(stream, http2.ErrCodeInternal)
			}},
		{name: "the backend closes", reason: "upstream_truncated",
			do: func(_ *gateway, _ *http2.ClientConn, _ *http.Response, f *framePeer, _ uint32) { f.c.Close() }},
		{name: "its time is over", reason: "grpc_timeout", fields: []string{"Grpc-Timeout", "2500m"}, resets: true,
			do: func(*gateway, *http2.ClientConn, *http.Response, *framePeer, uint32) {}},
		{name: "the gateway stops", reason: "shutting_down", resets: true,
			do: func(g *gateway, _ *http2.ClientConn, _ *http.Response, _ *framePeer, _ uint32) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
				defer cancel()
				g.Shutdown(ctx)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			w, addr := newWatched(t)
			g := startGateway(t, Timeouts{})
			g.serveH2C(addr, nil)
			cc := g.http2Client("")
			resp := g.watches(cc, 1, tc.fields...)[0]
			suspended(t)
			f, stream := <-w.peers, <-w.streams
			tc.do(g, cc, resp, f, stream)
			if r := g.reasonsLogged(1); r[0] != tc.reason {
				t.Errorf("logged %s, want %s", r[0], tc.reason)
			}
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("the client takes the response for complete")
			}
			if tc.resets {
				select {
				case got := <-w.resets:
					if got != stream {
						t.Errorf("stream %d of the backend is reset, want %d", got, stream)
					}
				case <-time.After(testkit.Patience):
					t.Error("the backend's stream goes on")
				}
			}
		})
	}
}
