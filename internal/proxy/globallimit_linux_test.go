package proxy

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestGlobalLimitWait: while Redis does not answer a request waits for it no longer than its own deadline and its client do, whatever the timeout is.
func TestGlobalLimitWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		leaves       bool
		timeout      time.Duration
	}{
		{name: "deadline", reason: "request_timeout", timeout: 300 * time.Millisecond},
		{name: "client leaves", reason: "client_closed", leaves: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			server := testkit.StartRedis(t)
			var asked atomic.Int64
			g := startGateway(t, Timeouts{})
			limits := limitedGlobally(&config.RateLimit{Requests: 100, RequestCost: 1})
			g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) }), func(r *config.Rule) {
				limits(r)
				r.RequestTimeoutNanos = int64(c.timeout)
			})
			g.countsIn(&config.RateLimitService{Address: server.Address, FailClosed: true, TimeoutNanos: int64(testkit.Patience)})
			server.Pause(t)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			cc := g.http2Client("")
			answered := make(chan int, 1)
			go func() {
				req, _ := http.NewRequestWithContext(ctx, "GET", "http://h/", nil)
				resp, err := cc.RoundTrip(req)
				if err != nil {
					answered <- 0
					return
				}
				resp.Body.Close()
				answered <- resp.StatusCode
			}()
			if c.leaves {
				testkit.Eventually(t, "the request waits", func() bool { return strings.Contains(strings.Join(stacksOf(t), "\n"), "ratelimit.(*Redis).decide") })
				leave()
			}
			status := <-answered
			if r := g.reasonsLogged(1); r[0] != c.reason || !c.leaves && status != http.StatusGatewayTimeout || asked.Load() != 0 {
				t.Errorf("answered %d, logged %q, and the backend was asked %d times; want %s", status, r, asked.Load(), c.reason)
			}
		})
	}
}
