//go:build !race

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestSlowReaders: clients that ask for much at once and take next to nothing of it cannot have the gateway use more memory than it may, whatever their number: it
// would be killed by the kernel. When they are stuck, a new client is served.
func TestSlowReaders(t *testing.T) {
	const limit, clients, size = 96 << 20, 1200, 8 << 20
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	go func() {
		part := make([]byte, 64<<10)
		for {
			c, err := backend.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.(*net.TCPConn).SetWriteBuffer(16 << 10) // else the kernel takes megabytes of each response
				for r := bufio.NewReader(c); ; {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
					for range size / len(part) {
						if _, err := c.Write(part); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	_, backendPort, _ := net.SplitHostPort(backend.Addr().String())
	file := filepath.Join(t.TempDir(), "all.yaml")
	port := freePort(t)
	text := fmt.Sprintf(slowReadersManifest, port, backendPort)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOMEMLIMIT", strconv.Itoa(limit))
	p := startProcess(t, "run", "-f", file, "--bind", "127.0.0.1", "--admin-address", "127.0.0.1:0", "--access-log", "off", "--max-connections-per-client", "-1")
	addr := fmt.Sprintf("127.0.0.1:%d", port)

	d := net.Dialer{Timeout: testkit.Patience, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 536) // as above, on the gateway's side
		})
	}}
	var all sync.WaitGroup
	open := make(chan net.Conn, clients)
	for range clients {
		all.Go(func() {
			c, err := d.Dial("tcp", addr)
			if err != nil {
				return // refused
			}
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			open <- c
		})
	}
	stop, peak := make(chan struct{}), make(chan int)
	go func() {
		most := 0
		for {
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
				most = max(most, anonymous(p.Process.Pid))
			}
		}
	}()
	all.Wait()
	testkit.Eventually(t, "a new client is served", func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		var status [12]byte
		_, err = io.ReadFull(c, status[:])
		return err == nil && string(status[9:]) == "200"
	})
	close(stop)
	if most := <-peak; most > limit || most == 0 {
		t.Errorf("%d MiB were in use, of %d MiB", most>>20, limit>>20)
	} else {
		t.Logf("%d MiB of %d MiB", most>>20, limit>>20)
	}
	close(open)
	for c := range open {
		c.Close()
	}
}

// anonymous is how much memory a process has of its own, in bytes; 0 if it is gone.
func anonymous(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kib, _ := strconv.Atoi(string(bytes.Fields(rest)[0]))
			return kib << 10
		}
	}
	return 0
}

const slowReadersManifest = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: moongate
  listeners:
  - {name: http, port: %d, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules:
  - backendRefs: [{name: web, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: %s}]
endpoints:
- addresses: [127.0.0.1]
`
