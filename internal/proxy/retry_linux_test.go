package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestNoAttemptsWaitForConnect: where a rule has no attempts a request stays with the endpoint that was chosen for it, for all of the connect timeout, though another one would
// answer.
func TestNoAttemptsWaitForConnect(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2 %v", h2), func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			const timeout = 1500 * time.Millisecond // several times as long as a connect may take where there is another endpoint
			full, good := testkit.FullListener(t), cannedBackend(t, cannedResponse(2), 0)
			if h2 {
				good, _ = h2cBackend(t, 0, func(http.ResponseWriter, *http.Request) {})
			}
			g := startGatewayWith(t, Options{Upstream: upstream.Options{ConnectTimeout: timeout}})
			none := func(r *config.Rule) { r.Retry = &config.Retry{Codes: []uint32{503}} }
			if h2 {
				g.serveH2C(good, none)
			} else {
				g.serve(good, none)
			}
			if status, err := get(g.dial()); status != 200 || err != nil { // from now on it is known how long connects take
				t.Fatalf("got %d, %v", status, err)
			}
			g.apply(backend("Service/default/b/80", good, full.Addr().String())[1:])
			for n := 2; ; n++ {
				begun := time.Now()
				status, err := get(g.dial())
				took := time.Since(begun)
				if status == 200 && n < 100 { // the other one was chosen
					continue
				}
				reasons := g.reasonsLogged(n)
				if line := strings.Split(strings.TrimSpace(g.log.String()), "\n")[n-1]; status != 504 || reasons[n-1] != "connect_timeout" || took < timeout || !strings.Contains(line, `"attempts":1}`) {
					t.Errorf("got %d after %v, %v: %s", status, took, err, line)
				}
				return
			}
		})
	}
}
