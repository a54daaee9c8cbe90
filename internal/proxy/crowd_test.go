//go:build linux

package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// crowdEnv makes the test binary the clients of TestCrowd, in a process of their own: one
// alone may not have the descriptors of both ends. It is "<address> <connections> <how>", see crowdRequest.
const crowdEnv = "MOONGATE_TEST_CROWD"

// crowdAtOnce is how many requests are under way at a time.
const crowdAtOnce = 16

func init() {
	if spec := os.Getenv(crowdEnv); spec != "" {
		if err := crowd(spec); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// crowd opens connections, and makes one request on each for every line of standard input. It says "done"
// each time, and leaves when the input ends.
func crowd(spec string) error {
	var addr, how string
	var n int
	if _, err := fmt.Sscan(spec, &addr, &n, &how); err != nil {
		return err
	}
	if err := descriptorsFor(n); err != nil {
		return err
	}
	clients := make([]crowdClient, n)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var next atomic.Int64
		failures := make([]error, crowdAtOnce)
		var workers sync.WaitGroup
		for w := range failures {
			workers.Go(func() {
				for i := next.Add(1) - 1; i < int64(n) && failures[w] == nil; i = next.Add(1) - 1 {
					failures[w] = crowdRequest(&clients[i], addr, how)
				}
			})
		}
		workers.Wait()
		if err := errors.Join(failures...); err != nil {
			return err
		}
		fmt.Println("done")
	}
	return nil
}

// crowdClient is a connection; nil before its first request.
type crowdClient struct {
	net.Conn
	http2 *crowdHTTP2 // nil for HTTP/1
}

// crowdHTTP2 is what a client of HTTP/2 remembers.
type crowdHTTP2 struct {
	*xhttp2.Framer
	fields *hpack.Encoder
	block  bytes.Buffer
	last   uint32 // stream
}

// crowdRequest makes a request on a connection, which it opens where there is none: "plain", with "tls", with "h2c", which is HTTP/2 in the clear, or
// with "h2".
func crowdRequest(c *crowdClient, addr, how string) error {
	if c.Conn == nil {
		tcp, err := net.DialTimeout("tcp", addr, testkit.Patience)
		if err != nil {
			return err
		}
		tcp.(*net.TCPConn).SetLinger(0) // thousands of ports would be of no use for a minute
		c.Conn = tcp
		config := &tls.Config{InsecureSkipVerify: true, ServerName: "h"}
		if how == "h2" {
			config.NextProtos = []string{"h2"}
		}
		if how == "tls" || how == "h2" {
			c.Conn = tls.Client(tcp, config)
		}
		if how == "h2c" || how == "h2" {
			h := &crowdHTTP2{Framer: xhttp2.NewFramer(c.Conn, c.Conn), last: ^uint32(0)} // the first stream is 1
			h.fields = hpack.NewEncoder(&h.block)
			c.http2 = h
			io.WriteString(c.Conn, xhttp2.ClientPreface)
			h.WriteSettings()
		}
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	if c.http2 != nil {
		return c.http2.request()
	}
	if _, err := io.WriteString(c.Conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		return err
	}
	var buf [1024]byte
	for got := 0; !strings.HasSuffix(string(buf[:got]), "\r\n\r\nhello"); {
		n, err := c.Read(buf[got:])
		if err != nil {
			return fmt.Errorf("%w behind %q", err, buf[:got])
		}
		got += n
	}
	if !strings.HasPrefix(string(buf[:]), "HTTP/1.1 200 ") {
		return fmt.Errorf("got %q", buf[:])
	}
	return nil
}

// request makes a request as curl does.
func (h *crowdHTTP2) request() error {
	h.last += 2
	h.block.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/"}, {"user-agent", "curl/8.5.0"}, {"accept", "*/*"}} {
		h.fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	err := h.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: h.last, BlockFragment: h.block.Bytes(), EndStream: true, EndHeaders: true})
	if err != nil {
		return err
	}
	for {
		f, err := h.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *xhttp2.SettingsFrame:
			if !f.IsAck() {
				err = h.WriteSettingsAck()
			}
		case *xhttp2.GoAwayFrame, *xhttp2.RSTStreamFrame:
			return fmt.Errorf("got %v", f)
		case *xhttp2.DataFrame:
			if f.StreamEnded() {
				if string(f.Data()) != "hello" {
					err = fmt.Errorf("got %q", f.Data())
				}
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// descriptorsFor raises the limit of open files to what n connections and some more take.
func descriptorsFor(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	want := uint64(n + 1000)
	if limit.Cur >= want {
		return nil
	}
	limit.Cur, limit.Max = max(want, limit.Cur), max(want, limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("%w: %d open files are needed; run this with `ulimit -n %d` or as root", err, want, want)
	}
	return nil
}

// inUse is what the heap and the stacks hold after everything that can be freed is.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // pools let go of what two collections in a row find unused
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}

// crowdOf is a process of clients that have not asked yet.
type crowdOf struct {
	t      *testing.T
	input  io.WriteCloser
	output *bufio.Scanner
}

func startCrowd(t *testing.T, addr string, n int, how string) *crowdOf {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", crowdEnv, addr, n, how))
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &crowdOf{t, input, bufio.NewScanner(output)}
}

// ask makes all clients ask, and waits until they have their answers.
func (c *crowdOf) ask() {
	c.t.Helper()
	io.WriteString(c.input, "ask\n")
	if c.output.Scan(); c.output.Text() != "done" {
		c.t.Fatalf("a client failed: %s", c.output.Text())
	}
}

// goroutinesWithin waits until there are no more than n goroutines.
func goroutinesWithin(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, want at most %d", runtime.NumGoroutine(), n)
		}
	}
}

// TestCrowd: thousands of connections ask, idle until they are parked, or dormant, and ask again, and none fails. Idle ones have no
// goroutine and cost no more than what is written here, and when they have left nothing remains.
func TestCrowd(t *testing.T) {
	for _, tc := range []struct {
		how         string
		connections int
		most        uint64 // bytes of heap and stacks for an idle connection
		dormant     uint64 // the same once it is dormant; 0 where it never is
	}{
		{"plain", 10_000, 4 << 10, 1536},
		{"tls", 2_000, 16 << 10, 0}, // nearly all of it is crypto/tls's
		{"h2c", 10_000, 7 << 10, 1536},
		{"h2", 2_000, 20 << 10, 0},
	} {
		t.Run(tc.how, func(t *testing.T) {
			n := tc.connections
			if testing.Short() || raceDetector {
				n /= 10
			}
			if err := descriptorsFor(n); err != nil {
				t.Fatal(err)
			}
			checkLeaks(t)
			checkDescriptors(t)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for {
					if _, err := readHead(r); err != nil {
						return
					}
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
				}
			})
			g := startGatewayWith(t, Options{Timeouts: Timeouts{Handshake: 10 * time.Minute, Idle: 10 * time.Minute}, // however slow the machine is
				MaxConnections: 2 * n, MaxConnectionsPerClient: 2 * n})
			listener := g.httpListener("l", "")
			if tc.how == "tls" || tc.how == "h2" {
				listener = g.httpsListener("l", "", "c")
			}
			g.apply(append(backend("Service/default/b/80", addr),
				certificate(t, "c", newECDSA(t), "h"), listener, routeOf("r", "default/gw/l", "", anyRule())))
			others := runtime.NumGoroutine() + 2*crowdAtOnce // the backend has one for each connection
			startCrowd(t, g.addr(), 100, tc.how).ask()
			goroutinesWithin(t, others)
			before := inUse()
			clients := startCrowd(t, g.addr(), n, tc.how)
			for range 2 {
				clients.ask()
				goroutinesWithin(t, others)
				each := (inUse() - before) / uint64(n)
				t.Logf("%d bytes for each of %d connections", each, n)
				if each > tc.most && n == tc.connections { // what the process itself needs weighs more with few
					t.Errorf("an idle connection costs %d bytes, want at most %d", each, tc.most)
				}
			}
			if tc.dormant > 0 && n == tc.connections {
				g.log.Reset() // it is in this process, too
				testkit.Eventually(t, "dormant", func() bool { return inUse() < before+tc.dormant*uint64(n) })
				t.Logf("%d bytes for each that is dormant", (inUse()-before)/uint64(n))
				clients.ask()
			}
		})
	}
}
