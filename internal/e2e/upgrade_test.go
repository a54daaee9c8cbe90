package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskHTTPUpgrade does what the page says, and then speaks each of the protocols through the example.
func TestTaskHTTPUpgrade(t *testing.T) {
	t.Parallel()
	asExample(t, "http-upgrade")
	database, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { database.Close() })
	go func() {
		for {
			c, err := database.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "ready\n") // it speaks first
				io.Copy(c, c)
			}()
		}
	}()
	greets := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		switch r.Header.Get("Upgrade") {
		case "websocket":
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return true
			}
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x05hello")
			c.Close()
			return true
		case "":
			return false
		}
		t.Errorf("the backend is asked for %q", r.Header.Get("Upgrade"))
		return false
	})
	db := &backend{name: "database", port: database.Addr().(*net.TCPAddr).Port}
	runTask(t, "http-upgrade", map[int]*backend{3000: greets, 3001: db})

	echo := websocket.Handler(func(c *websocket.Conn) { io.Copy(c, c) })
	app := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		switch strings.ToLower(r.Header.Get("Upgrade")) {
		case "websocket":
			echo.ServeHTTP(w, r)
		case "spdy/3.1":
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return true
			}
			defer c.Close()
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
			io.Copy(c, rw)
		default:
			return false
		}
		return true
	})
	text, err := os.ReadFile("../../examples/backendtrafficpolicy/http-upgrade.yaml")
	if err != nil {
		t.Fatal(err)
	}
	port, log := freePort(t), filepath.Join(t.TempDir(), "access.log")
	here := withPorts(string(text), map[int]int{8080: port, 3000: app.port, 3001: db.port})
	start(t, map[string]string{"http-upgrade.yaml": here}, func(o *cli.RunOptions) { o.AccessLog = log })

	exchanges := func(what string, w io.Writer, r io.Reader) {
		t.Helper()
		for _, n := range []int{1, 1000, 100_000} {
			want := strings.Repeat("x", n)
			go io.WriteString(w, want)
			if got := make([]byte, n); !readsFully(r, got) || string(got) != want {
				t.Errorf("%s: %d bytes did not come back", what, n)
			}
		}
	}
	ws, err := websocket.Dial(fmt.Sprintf("ws://127.0.0.1:%d/chat", port), "", "http://a.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	exchanges("WebSocket", ws, ws)
	ws.Close()
	opens := func(request, status string) (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, request)
		r := bufio.NewReader(c)
		for line, first := "", true; line != "\r\n"; first = false {
			if line, err = r.ReadString('\n'); err != nil || first && !strings.HasPrefix(line, "HTTP/1.1 "+status+" ") {
				t.Fatalf("%q, %v", line, err)
			}
		}
		return c, r
	}
	c, r := opens("POST /exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n", "101")
	exchanges("SPDY", c, r)
	c.Close()
	c, r = opens("CONNECT anywhere.example.com:5432 HTTP/1.1\r\nHost: anywhere.example.com:5432\r\n\r\n", "200")
	if line, err := r.ReadString('\n'); line != "ready\n" || err != nil {
		t.Errorf("the database says %q, %v", line, err)
	}
	exchanges("CONNECT", c, r)
	c.Close()
	testkit.Eventually(t, "three tunnels are logged", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Count(string(text), `"response_code":101`) == 2 && strings.Count(string(text), `"method":"CONNECT"`) == 1
	})
}
