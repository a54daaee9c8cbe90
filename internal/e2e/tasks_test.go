package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestTasksOfRoutes does what the pages about rules of HTTPRoutes say, with backends that echo.
func TestTasksOfRoutes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default-gateways", "headers", "matching", "redirects", "weights"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runTask(t, name, map[int]*backend{3000: newBackend(t, "app", nil), 3001: newBackend(t, "other", nil)})
		})
	}
}

// TestTaskHTTP2Backends: the backend is spoken to in HTTP/2.
func TestTaskHTTP2Backends(t *testing.T) {
	t.Parallel()
	b := &backend{name: "app", Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the backend was asked by %s", r.Proto)
		}
	}))}
	b.Config.Protocols = new(http.Protocols)
	b.Config.Protocols.SetHTTP1(true)
	b.Config.Protocols.SetUnencryptedHTTP2(true)
	b.Start()
	t.Cleanup(b.Close)
	b.port = b.Listener.Addr().(*net.TCPAddr).Port
	runTask(t, "http2-backends", map[int]*backend{3000: b})
}
