package proxy

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/client"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// long has tests last as long as what they are about does in reality: go test ./internal/proxy -run 'TestFailover|TestRetryBudgetStorm' -long.
var long = flag.Bool("long", false, "run TestFailover with five cycles of 22 s, and hold it to its times; TestRetryBudgetStorm with an interval of 10 s")

// gateway is a Proxy under test with the configuration it was given last.
type gateway struct {
	*Proxy
	t          testing.TB
	port       int
	generation uint64
	log        *testkit.Log
	accessLog  *observe.AccessLog
}

var loopback = netip.MustParseAddr("127.0.0.1")

var ports = testkit.Ports{Low: 15000, High: 26000}

// freePort is a port that nothing listens on.
func freePort(t testing.TB) int {
	t.Helper()
	return ports.Free(t)
}

func startGateway(t testing.TB, timeouts Timeouts) *gateway {
	t.Helper()
	return startGatewayWith(t, Options{Timeouts: timeouts})
}

// startGatewayWith sets what a test needs itself: where to bind, and the access log.
func startGatewayWith(t testing.TB, o Options) *gateway {
	t.Helper()
	return startLoggingGateway(t, o, accesslog.Options{})
}

// startLoggingGateway is startGatewayWith for an access log whose lines are not the default.
func startLoggingGateway(t testing.TB, o Options, lines accesslog.Options) *gateway {
	t.Helper()
	log := &testkit.Log{}
	al, err := observe.OpenAccessLog("json", log, lines)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, port: freePort(t), log: log, accessLog: al}
	o.Bind, o.AccessLog = []netip.Addr{loopback}, al
	g.Proxy = New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		g.Shutdown(ctx)
		al.Close(time.Second)
	})
	return g
}

// apply puts resources in force and fails the test if any is refused.
func (g *gateway) apply(upserts []*config.Resource, removals ...config.ID) Result {
	g.t.Helper()
	g.generation++
	r := g.Apply(&config.Update{Generation: g.generation, Upserts: upserts, Removals: removals})
	for key, err := range r.Listeners {
		g.t.Fatalf("listener %s: %v", key, err)
	}
	for id, err := range r.Rejected {
		g.t.Fatalf("%s: %v", id, err)
	}
	return r
}

// serve makes the gateway send everything to one backend by way of rule.
func (g *gateway) serve(addr string, change func(*config.Rule)) {
	g.t.Helper()
	rule := &config.Rule{
		Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
	}
	if change != nil {
		change(rule)
	}
	g.apply(append(backend("Service/default/b/80", addr), g.httpListener("http", ""), routeOf("r", "default/gw/http", "", rule)))
}

func (g *gateway) httpListener(name, hostname string) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{
		Key: "default/gw/" + name, Gateway: "default/gw", Name: name, Port: uint32(g.port),
		Protocol: config.Protocol_PROTOCOL_HTTP, Hostname: hostname,
	}}}
}

func routeOf(name, listener, hostname string, rules ...*config.Rule) *config.Resource {
	for i, r := range rules {
		r.Index = uint32(i)
	}
	return &config.Resource{Kind: &config.Resource_Route{Route: &config.Route{
		Key: "HTTPRoute/default/" + name, Namespace: "default", Name: name,
		Attachments: []*config.Attachment{{Listener: listener, Hostnames: []*config.Hostname{{Effective: hostname, Original: hostname}}}},
		Rules:       rules,
	}}}
}

func backend(key string, addrs ...string) []*config.Resource {
	e := &config.Endpoints{Key: key}
	for _, a := range addrs {
		ap := netip.MustParseAddrPort(a)
		e.Endpoints = append(e.Endpoints, &config.Endpoint{Address: ap.Addr().String(), Port: uint32(ap.Port())})
	}
	return []*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}},
		{Kind: &config.Resource_Endpoints{Endpoints: e}},
	}
}

func filterOf(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (g *gateway) addr() string { return fmt.Sprintf("127.0.0.1:%d", g.port) }

func (g *gateway) dial() net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr())
	if err != nil {
		g.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(testkit.Patience))
	g.t.Cleanup(func() { c.Close() })
	return c
}

// roundTrip sends raw bytes and returns everything up to the end of the connection.
func (g *gateway) roundTrip(raw string) string {
	g.t.Helper()
	c := g.dial()
	if _, err := io.WriteString(c, raw); err != nil {
		g.t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil && len(b) == 0 {
		g.t.Fatal(err)
	}
	// The end may come with the last response, before the gateway has done with the request.
	c.Close()
	peer := c.LocalAddr().(*net.TCPAddr).AddrPort()
	g.eventually("the connection ends", func() bool {
		ended := true
		g.clients.Each(func(c *client.Conn) { ended = ended && c.Peer() != peer })
		return ended
	})
	return string(b)
}

// reasonsLogged waits for n access-log lines and returns their reason words.
func (g *gateway) reasonsLogged(n int) []string {
	g.t.Helper()
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(10 * time.Millisecond) {
		var words []string
		for line := range strings.Lines(g.log.String()) {
			_, rest, ok := strings.Cut(line, `"reason":"`)
			if !ok {
				g.t.Fatalf("no reason in %s", line)
			}
			word, _, _ := strings.Cut(rest, `"`)
			words = append(words, word)
		}
		if len(words) >= n {
			return words
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%d log lines, want %d: %s", len(words), n, g.log.String())
		}
	}
}

// listenLocally opens a socket of the test.
func listenLocally(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// rawBackend runs handle on each accepted connection and returns its address.
func rawBackend(t testing.TB, handle func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	return acceptingBackend(t, func() func(net.Conn, *bufio.Reader) { return handle })
}

// acceptingBackend is a rawBackend that asks accept who handles each connection, in the order in which they were made.
func acceptingBackend(t testing.TB, accept func() func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		conns []net.Conn
	)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			handle := accept()
			wg.Go(func() {
				defer c.Close()
				handle(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// httpBackend answers with net/http.
func httpBackend(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// refusedAddr is an address at which connections are refused until the test ends: its port is taken, so that no other test's server gets it.
func refusedAddr(t testing.TB) string { return refusedAt(t, 0) }

// refusedAt is refusedAddr on a port that a server of the test has left, or on any where it is 0.
func refusedAt(t testing.TB, port int) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil { // connections of before may linger
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: loopback.As4()}); err != nil {
		t.Fatal(err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(loopback, uint16(addr.(*syscall.SockaddrInet4).Port)).String()
}

// readHead reads one message head and returns it.
func readHead(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			return b.String(), err
		}
		if line == "\r\n" {
			return b.String(), nil
		}
	}
}

// testLabel is the profiler label of the goroutines of a test that checks for leaks.
const testLabel = "test"

var leakChecks atomic.Int64

// checkLeaks fails the test if goroutines are left over at its end. They are known by a label, which goroutines inherit from those that start
// them, so tests may run side by side. What a timer starts has none; TestMain looks for it. Call it first, but for t.Parallel.
func checkLeaks(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("%s %d", t.Name(), leakChecks.Add(1)) // -count runs a test again
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(testLabel, name)))
	t.Cleanup(func() {
		pprof.SetGoroutineLabels(context.Background()) // this one is none of them
		label := fmt.Sprintf("%q:%q", testLabel, name)
		if left := leftOver(func(stack string) bool { return strings.Contains(stack, label) }); left != "" {
			t.Fatalf("goroutines are left over:\n%s", left)
		}
	})
}

// leftOver waits for goroutines to end, and returns the stacks of those that do not.
func leftOver(is func(stack string) bool) (stacks string) {
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(10 * time.Millisecond) {
		if stacks = goroutines(is); stacks == "" || time.Now().After(deadline) {
			return stacks
		}
	}
}

// goroutines returns the stacks of goroutines, with their labels, which are so.
func goroutines(is func(stack string) bool) (stacks string) {
	var profile strings.Builder
	pprof.Lookup("goroutine").WriteTo(&profile, 1)
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if is(stack) {
			stacks += stack + "\n\n"
		}
	}
	return stacks
}

// TestLeaksAreFound: what a test leaves behind is known as its own, also what was started by something that it has started, and what another
// leaves behind is not.
func TestLeaksAreFound(t *testing.T) {
	end, started := make(chan struct{}), make(chan struct{})
	defer close(end)
	begin := func(name string) {
		pprof.Do(t.Context(), pprof.Labels(testLabel, name), func(context.Context) {
			go func() {
				go func() {
					started <- struct{}{}
					<-end
				}()
			}()
		})
		<-started
	}
	begin("one")
	begin("other")
	label := fmt.Sprintf("%q:%q", testLabel, "one")
	testkit.Eventually(t, "exactly one is found", func() bool { // the one that has started it may still be ending
		left := goroutines(func(stack string) bool { return strings.Contains(stack, label) })
		return strings.Count(left, label) == 1 && strings.Contains(left, "TestLeaksAreFound")
	})
}

// minParallel is how many tests run side by side at least: most of them wait.
const minParallel = 8

// TestMain has many tests run side by side, and fails if goroutines of the proxy are left over when all have ended.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked && runtime.GOMAXPROCS(0) < minParallel {
		flag.Set("test.parallel", strconv.Itoa(minParallel))
	}
	code := m.Run()
	if code == 0 {
		of := func(stack string) bool {
			return strings.Contains(stack, "moongate/internal/proxy") && !strings.Contains(stack, "proxy.TestMain")
		}
		if left := leftOver(of); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines are left over:\n%s", left)
			code = 1
		}
	}
	os.Exit(code)
}
