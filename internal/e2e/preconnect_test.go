package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskPreconnect does what the page says, and counts the connections that the backend accepts while a request is under way.
func TestTaskPreconnect(t *testing.T) {
	t.Parallel()
	asExample(t, "preconnect")
	var accepted atomic.Int64
	held, goOn := make(chan bool), make(chan bool)
	b := &backend{name: "app", Server: httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			held <- true
			<-goOn
		}
	}))}
	b.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted.Add(1)
		}
	}
	b.Start()
	t.Cleanup(b.Close)
	b.port = b.Listener.Addr().(*net.TCPAddr).Port
	runTask(t, "preconnect", map[int]*backend{3000: b})

	url := startExample(t, "preconnect", b)
	before := accepted.Load()
	status := make(chan int, 1)
	go func() {
		resp, err := http.Get(url + "/held")
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-held
	testkit.Eventually(t, "there is a second connection", func() bool { return accepted.Load() >= before+2 })
	close(goOn)
	if got := <-status; got != http.StatusOK {
		t.Errorf("the request: %d", got)
	}
}
