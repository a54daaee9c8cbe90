package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// numberedBackends are backends in the place of those at 3000 and the ports after that, named after these ports.
func numberedBackends(t testing.TB, n int, also func(port int) func(http.ResponseWriter, *http.Request) bool) map[int]*backend {
	t.Helper()
	backends := map[int]*backend{}
	for port := 3000; port < 3000+n; port++ {
		var instead func(http.ResponseWriter, *http.Request) bool
		if also != nil {
			instead = also(port)
		}
		backends[port] = newBackend(t, fmt.Sprint(port), instead)
	}
	return backends
}

// holder holds requests with X-Hold.
type holder struct {
	held    atomic.Int32
	release chan struct{}
	once    sync.Once
}

func (h *holder) let() { h.once.Do(func() { close(h.release) }) }

func (h *holder) hold(_ http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("X-Hold") != "" {
		h.held.Add(1)
		<-h.release
	}
	return false
}

// TestPolicyLoadBalancing: in turn, by lot, and to whoever has less to do.
func TestPolicyLoadBalancing(t *testing.T) {
	t.Parallel()
	holders := map[int]*holder{}
	e := serveExample(t, numberedBackends(t, 3, func(port int) func(http.ResponseWriter, *http.Request) bool {
		holders[port] = &holder{release: make(chan struct{})}
		return holders[port].hold
	}), []string{"load-balancing.yaml"})
	t.Cleanup(func() { // a backend waits for its requests when it ends
		for _, h := range holders {
			h.let()
		}
	})
	e.page()

	var order []string
	for range 300 {
		order = append(order, e.ask("/round-robin", nil).echo.Backend)
	}
	for i := range order {
		if i >= 3 && order[i] != order[i-3] || i > 0 && order[i] == order[i-1] {
			t.Fatalf("RoundRobin: request %d after %v went to %s", i, order[max(i-3, 0):i], order[i])
		}
	}
	const n = 1200
	by, again, last := map[string]int{}, 0, ""
	for range n {
		at := e.ask("/random", nil).echo.Backend
		by[at]++
		if at == last {
			again++
		}
		last = at
	}
	for port := range holders {
		chance(t, fmt.Sprintf("Random: requests to %d", port), by[fmt.Sprint(port)], n, 1./3)
	}
	chance(t, "Random: requests to the endpoint of the one before", again, n-1, 1./3)

	var all sync.WaitGroup
	const held = 18
	for range held {
		all.Go(func() {
			if _, err := (ask{url: local(e.port, "/least-request"), header: map[string]string{"X-Hold": "1"}}).try(); err != nil {
				t.Error(err)
			}
		})
	}
	sum := func() (n int32) {
		for _, h := range holders {
			n += h.held.Load()
		}
		return n
	}
	testkit.Eventually(t, "requests are held", func() bool { return sum() == held })
	busy := 3000
	for port, h := range holders {
		if h.held.Load() > holders[busy].held.Load() {
			busy = port
		}
	}
	for port, h := range holders {
		if port != busy {
			h.let()
		}
	}
	// The endpoint with six requests or more is chosen when the others have as many, which they have until their answers are through.
	testkit.Eventually(t, "the busy endpoint is spared", func() bool { return e.answered("/least-request", 60)[fmt.Sprint(busy)] == 0 })
	holders[busy].let()
	all.Wait()
	testkit.Eventually(t, "it is used again", func() bool { return e.answered("/least-request", 60)[fmt.Sprint(busy)] > 0 })
}

// TestPolicyConsistentHash: equal requests stay at an endpoint, keys are spread, and a client without the cookie is given one.
func TestPolicyConsistentHash(t *testing.T) {
	t.Parallel()
	backends := numberedBackends(t, 5, nil)
	e := serveExample(t, backends, []string{"consistent-hash.yaml"})
	e.page()
	const keys = 500
	for path, request := range map[string]func(key, other int) (string, map[string]string){
		"/headers": func(key, other int) (string, map[string]string) {
			return fmt.Sprint("/headers/", other), map[string]string{"x-tenant": "a", "X-User": fmt.Sprint(key), "X-Other": fmt.Sprint(other)}
		},
		"/header": func(key, other int) (string, map[string]string) {
			return fmt.Sprint("/header/", other), map[string]string{"X-User": fmt.Sprint(key), "X-Tenant": fmt.Sprint(other)}
		},
		"/cookie": func(key, other int) (string, map[string]string) {
			return fmt.Sprint("/cookie/", other), map[string]string{"Cookie": fmt.Sprintf("other=%d; place=%d", other, key)}
		},
		"/query": func(key, other int) (string, map[string]string) {
			return fmt.Sprintf("/query?other=%d&cart=%d", other, key), nil
		},
	} {
		at := make([]string, keys)
		by := map[string]int{}
		ask := func(key, other int) string {
			a := e.ask(request(key, other))
			if a.Header.Get("Set-Cookie") != "" {
				t.Fatalf("%s: it sets the cookie %q", path, a.Header.Get("Set-Cookie"))
			}
			return a.echo.Backend
		}
		for key := range keys {
			at[key] = ask(key, 0)
			by[at[key]]++
		}
		for port := range backends {
			chance(t, fmt.Sprintf("%s: keys at %d", path, port), by[fmt.Sprint(port)], keys, 1./5)
		}
		for key := range keys {
			if again := ask(key, 1+key%7); again != at[key] {
				t.Errorf("%s: key %d was at %s, and went to %s", path, key, at[key], again)
			}
		}
	}
	t.Run("cookie", func(t *testing.T) {
		by := map[string]bool{}
		for range 40 {
			first := e.ask("/cookie", nil)
			set := first.Header.Get("Set-Cookie")
			pair, attributes, _ := strings.Cut(set, ";")
			if !strings.HasPrefix(pair, "place=") || attributes != " Max-Age=3600; SameSite=Strict; Path=/; HttpOnly" {
				t.Fatalf("Set-Cookie: %s", set)
			}
			by[first.echo.Backend] = true
			second := e.ask("/cookie", map[string]string{"Cookie": pair})
			if second.echo.Backend != first.echo.Backend || second.Header.Get("Set-Cookie") != "" {
				t.Errorf("a client of %s is at %s, with Set-Cookie %q", first.echo.Backend, second.echo.Backend, second.Header.Get("Set-Cookie"))
			}
		}
		if len(by) < 3 {
			t.Errorf("40 clients are at %v", by)
		}
	})
	t.Run("source", func(t *testing.T) {
		by := map[string]bool{}
		for i := 1; i <= 40; i++ {
			from := net.IPv4(127, 0, 0, 1)
			if runtime.GOOS == "linux" { // elsewhere the loopback interface has one address
				from[15] = byte(i)
			}
			var first string
			for k := range 2 {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
				client := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
				at := (ask{url: local(e.port, fmt.Sprint("/source-ip/", k)), client: client}).do(t).echo.Backend
				if k > 0 && at != first {
					t.Errorf("client %s was at %s, and went to %s", from, first, at)
				}
				first = at
			}
			by[first] = true
		}
		if want := map[bool]int{true: 3, false: 1}[runtime.GOOS == "linux"]; len(by) < want {
			t.Errorf("40 clients are at %v", by)
		}
	})
	t.Run("an endpoint goes", func(t *testing.T) {
		user := func(key int) map[string]string {
			return map[string]string{"X-Tenant": "a", "X-User": fmt.Sprint(key)}
		}
		at := make([]string, keys)
		for key := range keys {
			at[key] = e.ask("/headers", user(key)).echo.Backend
		}
		slice := fmt.Sprintf("ports:\n- port: %d\nendpoints:\n- addresses: [127.0.0.1]\n", backends[3004].port)
		gone := strings.Replace(e.served[e.name], slice, strings.Replace(slice, "\n- addresses: [127.0.0.1]", " []", 1), 1)
		e.write(e.name, gone)
		testkit.Eventually(t, "only the keys of the endpoint that is gone are elsewhere", func() bool {
			moved := 0
			for key := range keys {
				now := e.ask("/headers", user(key)).echo.Backend
				if now == "3004" {
					return false
				}
				if at[key] != "3004" && now != at[key] {
					moved++
				}
			}
			return moved <= keys/50 // of a table of 5 endpoints one slot in a thousand changes otherwise
		})
	})
}

// TestPolicySlowStart: a new endpoint gets no more than the window lets it, and all of its share in the end.
func TestPolicySlowStart(t *testing.T) {
	t.Parallel()
	const window = 15 * time.Second
	e := serveExample(t, numberedBackends(t, 2, nil), []string{"slow-start.yaml"})
	e.page()
	if by := e.answered("/app", 100); by["3000"] != 50 || by["3001"] != 50 {
		t.Errorf("endpoints that were there from the beginning: %v", by)
	}
	newcomer := newBackend(t, "new", nil)
	begun := time.Now()
	e.write("new.yaml", strings.Replace(service("default", "app", newcomer)[strings.Index(service("default", "app", newcomer), "---"):], "app-0", "app-new", 1))
	testkit.Eventually(t, "the new endpoint is used", func() bool { return e.ask("/app", nil).echo.Backend == "new" })
	const batch = 210
	low := 0
	testkit.Eventually(t, "it gets as much as the others", func() bool {
		start := time.Now()
		n := e.answered("/app", batch)["new"]
		weight := min(max(float64(time.Since(begun))/float64(window), .1), 1)
		changes := float64(time.Since(start) / (100 * time.Millisecond))      // of the weight in the meantime, at most
		if most := batch*weight/(2+weight) + 2 + changes; float64(n) > most { // turns are exact but for where a weight begins and ends
			t.Fatalf("%d of %d requests %v after it has come, want at most %.0f", n, batch, time.Since(begun), most)
		}
		if n < batch/3-2 {
			low++
		}
		return n >= batch/3-1
	})
	if low == 0 && time.Since(begun) < window {
		t.Errorf("it had its whole share before the window was over")
	}
}

// TestPolicyZones: shares by zones, of a proxy whose zone is known.
func TestPolicyZones(t *testing.T) {
	t.Parallel()
	backends := numberedBackends(t, 6, nil)
	inZone := func(zone string) func(*cli.RunOptions) { return func(o *cli.RunOptions) { o.Zone = zone } }
	const n = 900
	for zone, shares := range map[string]map[string]float64{ // of zone a
		"a": {"/prefer-local": 2. / 3, "/force-local": 1, "/weighted": .9},
		"b": {"/prefer-local": 0, "/force-local": 0, "/weighted": .9},
		"":  {"/prefer-local": 1. / 3, "/force-local": 1. / 3, "/weighted": .9},
	} {
		t.Run("zone "+zone, func(t *testing.T) {
			t.Parallel()
			e := serveExample(t, backends, []string{"zone-aware.yaml"}, inZone(zone))
			if zone == "a" {
				e.page()
			}
			for path, share := range shares {
				by := e.answered(path, n)
				inA := by["3000"] + by["3001"]
				chance(t, path+": requests to zone a", inA, n, share)
				if d := by["3000"] - by["3001"]; d < -1 || d > 1 {
					t.Errorf("%s: within the zone %v", path, by)
				}
			}
		})
	}
}

// TestPolicyEndpointOverride: a request is answered by the endpoint that it names, as far as it is one of the Service.
func TestPolicyEndpointOverride(t *testing.T) {
	t.Parallel()
	backends := numberedBackends(t, 3, nil)
	foreign := newBackend(t, "foreign", nil)
	e := serveExample(t, backends, []string{"endpoint-override.yaml"})
	e.page()
	at := func(b *backend) string { return b.Listener.Addr().String() }
	for range 5 {
		for port, b := range backends {
			for _, header := range []map[string]string{
				{"X-Endpoint": at(b)},
				{"x-fallback-endpoint": at(b)},
				{"X-Endpoint": at(foreign) + ", " + at(b)},
				{"X-Endpoint": "nonsense", "X-Fallback-Endpoint": at(b)},
				{"X-Endpoint": at(b), "X-Fallback-Endpoint": at(backends[3000])},
			} {
				if got := e.ask("/app", header).echo.Backend; got != fmt.Sprint(port) {
					t.Errorf("%v: %s has answered, want %d", header, got, port)
				}
			}
		}
	}
	by := map[string]int{}
	for range 30 {
		by[e.ask("/app", map[string]string{"X-Endpoint": at(foreign)}).echo.Backend]++
	}
	if by["3000"] != 10 || by["3001"] != 10 || by["3002"] != 10 {
		t.Errorf("requests that name no endpoint of the Service: %v", by)
	}
	e.ask("/app?logged", map[string]string{"X-Endpoint": at(backends[3002])})
	testkit.Eventually(t, "the access log names the endpoint", func() bool {
		for line := range strings.Lines(e.out.String()) {
			if strings.Contains(line, "/app?logged") {
				return strings.Contains(line, `"upstream_host":"`+at(backends[3002])+`"`)
			}
		}
		return false
	})
}

// reportingBackend is a backend that reports its load: with each response, and to whoever asks for it by gRPC.
type reportingBackend struct {
	*backend
	field   atomic.Pointer[string] // endpoint-load-metrics
	queue   atomic.Uint64          // bits of named_metrics.queue in messages
	streams atomic.Int32
	host    atomic.Pointer[string] // that a stream was asked of
}

func newReportingBackend(t testing.TB, name string) *reportingBackend {
	t.Helper()
	r := &reportingBackend{}
	ended := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics" {
			r.stream(w, req, ended)
			return
		}
		if f := r.field.Load(); f != nil {
			w.Header().Set("Endpoint-Load-Metrics", *f)
		}
		w.Header().Set("X-Backend", name)
		fmt.Fprintf(w, `{"Backend":%q}`, name)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(ended) }) // before Close, which waits for streams
	r.backend = &backend{Server: s, name: name, port: s.Listener.Addr().(*net.TCPAddr).Port}
	return r
}

// stream sends a report every 100 ms: 100 requests per second, and the utilization of a queue.
func (r *reportingBackend) stream(w http.ResponseWriter, req *http.Request, ended chan struct{}) {
	io.Copy(io.Discard, req.Body)
	host := req.Host
	r.host.Store(&host)
	r.streams.Add(1)
	w.Header().Set("Content-Type", "application/grpc")
	for {
		double := func(b []byte, field protowire.Number, bits uint64) []byte {
			return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), bits)
		}
		entry := double(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "queue"), 2, r.queue.Load())
		report := protowire.AppendBytes(protowire.AppendTag(double(nil, 6, math.Float64bits(100)), 8, protowire.BytesType), entry)
		w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(report))), report...))
		w.(http.Flusher).Flush()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-req.Context().Done():
			return
		case <-ended:
			return
		}
	}
}

// TestPolicyBackendUtilization: shares follow what endpoints report of themselves, with responses and by streams.
func TestPolicyBackendUtilization(t *testing.T) {
	t.Parallel()
	first, second := newReportingBackend(t, "3000"), newReportingBackend(t, "3001")
	say := func(b *reportingBackend, utilization, errors float64) {
		b.field.Store(new(fmt.Sprintf("TEXT application_utilization=%g, rps_fractional=100, eps=%g", utilization, errors)))
	}
	out := func(b *reportingBackend, utilization float64) { b.queue.Store(math.Float64bits(utilization)) }
	out(first, .1)
	out(second, .9)
	say(first, .2, 0)
	say(second, .2, 0)
	e := serveExample(t, map[int]*backend{3000: first.backend, 3001: second.backend}, []string{"backend-utilization.yaml"})
	e.page()
	const n = 200
	// The turns of weighted endpoints are exact but for where they begin and end; while a batch is under way the weights may change.
	shareOfFirst := func(path string, want float64) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("%s: the first endpoint has a share of %.2f", path, want), func() bool {
			return math.Abs(float64(e.answered(path, n)["3000"])/n-want) < .02
		})
	}
	shareOfFirst("/in-band", .5)
	if f := e.ask("/in-band", nil).Header.Get("Endpoint-Load-Metrics"); f != "" {
		t.Errorf("the client gets the report %q", f)
	}
	say(second, .6, 0)
	shareOfFirst("/in-band", .75)
	say(first, .8, 0)
	say(second, .2, 0)
	shareOfFirst("/in-band", .2)
	say(first, .2, 20) // a fifth of the requests fail: as if the utilization were 0.4
	shareOfFirst("/in-band", 1./3)
	shareOfFirst("/out-of-band", .9)
	for range 5 { // whatever the responses report, which speaks for the second
		if got := float64(e.answered("/out-of-band", n)["3000"]) / n; math.Abs(got-.9) >= .02 {
			t.Errorf("/out-of-band: the first endpoint has a share of %.2f after it had 0.9", got)
		}
	}
	out(first, .6)
	out(second, .2)
	shareOfFirst("/out-of-band", .25)
	if h := first.host.Load(); h == nil || *h != "app.example" {
		t.Errorf("the stream was asked of %v", h)
	}
}
