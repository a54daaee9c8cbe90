package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskWebSocket has a backend that greets and ends, as curl would wait for more.
func TestTaskWebSocket(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "chat", func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") != "websocket" {
			http.Error(w, "this is a WebSocket server", http.StatusBadRequest)
			return true
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return true
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x05hello")
		c.Close()
		return true
	})
	runTask(t, "websocket", map[int]*backend{3000: b})
}

// TestWebSocket talks to a WebSocket server over listeners with HTTP and HTTPS, while the configuration changes.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	port, secure := freePort(t), freePort(t)
	echo := websocket.Handler(func(c *websocket.Conn) { io.Copy(c, c) })
	b := newBackend(t, "b", func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") == "" {
			return false
		}
		if got := r.Header.Get("X-Forwarded-For"); got != "127.0.0.1" {
			t.Errorf("X-Forwarded-For: %q", got)
		}
		echo.ServeHTTP(w, r)
		return true
	})
	log := filepath.Join(t.TempDir(), "access.log")
	ws := strings.Replace(service("default", "b", b), "{port: 80}", "{port: 80, appProtocol: kubernetes.io/ws}", 1)
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, ""), httpsListener("https", secure, "", "{name: cert}")) +
		secret(t, "default", "cert", "a.example.com") + ws, "route.yaml": route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]")},
		func(o *cli.RunOptions) { o.AccessLog = log })

	if got := (ask{url: local(port, "/plain")}).do(t); got.StatusCode != 200 || got.echo.Backend != "b" {
		t.Errorf("a request without Upgrade: %s from %q", got.Status, got.echo.Backend)
	}
	if out, stderr, _ := moongate("explain", "-f", g.dir, "GET", local(port, "/chat")); !strings.Contains(out, " in HTTP/1.1 and WebSocket: ") {
		t.Errorf("explain does not say it:\n%s%s", out, stderr)
	}
	var open []*websocket.Conn
	for _, url := range []string{fmt.Sprintf("ws://127.0.0.1:%d/chat", port), fmt.Sprintf("wss://127.0.0.1:%d/chat", secure)} {
		cfg, err := websocket.NewConfig(url, "http://a.example.com/")
		if err != nil {
			t.Fatal(err)
		}
		cfg.TlsConfig = &tls.Config{InsecureSkipVerify: true, ServerName: "a.example.com"}
		c, err := websocket.DialConfig(cfg)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		defer c.Close()
		open = append(open, c)
	}
	exchange := func(when string) {
		t.Helper()
		for _, c := range open {
			for _, n := range []int{1, 1000, 100_000} {
				want := bytes.Repeat([]byte("x"), n)
				go c.Write(want)
				if got := make([]byte, n); !readsFully(c, got) || !bytes.Equal(got, want) {
					t.Errorf("%s %s: %d bytes did not come back", c.Config().Location, when, n)
				}
			}
		}
	}
	exchange("at first")
	g.write("route.yaml", route("r", "  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: moved.example.com}}]}]"))
	testkit.Eventually(t, "the route is another", func() bool { return (ask{url: local(port, "/chat")}).do(t).StatusCode == 302 })
	exchange("after an edit")
	for _, c := range open {
		c.Close()
	}
	testkit.Eventually(t, "two WebSockets are logged", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Count(string(text), `"response_code":101`) == 2
	})
}

func readsFully(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}
