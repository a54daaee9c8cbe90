package observe

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestCollector exports lines, and reads them as a collector does. One that is not ready is asked again.
func TestCollector(t *testing.T) {
	for name, o := range map[string]accesslog.Options{"json": {}, "text": {Format: "{path} {response_code}"}} {
		t.Run(name, func(t *testing.T) {
			got := make(chan *logspb.LogsData, 10)
			var calls atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/logs" || r.Header.Get("Content-Type") != "application/x-protobuf" || r.UserAgent() != "moongate" {
					t.Errorf("%s %s %v %v", r.Method, r.URL, r.Header, err)
				}
				if calls.Add(1) == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				var data logspb.LogsData
				if err := proto.Unmarshal(body, &data); err != nil {
					t.Error(err)
				}
				got <- &data
			}))
			defer server.Close()
			l, err := OpenAccessLog(server.URL, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			newTestClock(l.out.(*logExporter))
			r := exampleRecord(nil)
			r.Span = &SpanID{[32]byte([]byte(strings.Repeat("0a", 16))), [16]byte([]byte(strings.Repeat("0b", 8)))}
			l.write(r)
			l.write(r)
			if err := l.Close(20 * time.Second); err != nil {
				t.Fatal(err)
			}
			close(got)
			var records []*logspb.LogRecord
			for data := range got {
				records = append(records, data.ResourceLogs[0].ScopeLogs[0].LogRecords...)
				if a := data.ResourceLogs[0].Resource.Attributes[0]; a.Key != "service.name" || a.Value.GetStringValue() != "moongate" {
					t.Errorf("resource %v", a)
				}
			}
			if len(records) != 2 || l.WriteErrors() != 0 || l.Dropped() != 0 {
				t.Fatalf("%d records, %d errors, %d dropped", len(records), l.WriteErrors(), l.Dropped())
			}
			record := records[0]
			if name == "text" {
				if want := "/cart/items?page=2 200"; record.Body.GetStringValue() != want {
					t.Errorf("body %v, want %q", record.Body, want)
				}
				return
			}
			if want := uint64(exampleStart.Truncate(time.Millisecond).UnixNano()); record.TimeUnixNano != want || string(record.TraceId) != strings.Repeat("\x0a", 16) || string(record.SpanId) != strings.Repeat("\x0b", 8) {
				t.Errorf("time %d, want %d; trace %x, span %x", record.TimeUnixNano, want, record.TraceId, record.SpanId)
			}
			members := map[string]string{}
			for _, m := range record.Body.GetKvlistValue().GetValues() {
				members[m.Key] = strings.ReplaceAll(m.Value.String(), "  ", " ")
			}
			for key, want := range map[string]string{"method": `string_value:"GET"`, "response_code": "int_value:200", "duration_ms": "double_value:1.234", "route": ""} {
				if v, ok := members[key]; !ok || v != want {
					t.Errorf("%s: %q, want %q", key, v, want)
				}
			}
		})
	}
}

// testClock is the time of an exporter: pauses take none, and are noted.
type testClock struct {
	mu     sync.Mutex
	t      time.Time
	pauses []time.Duration
}

func newTestClock(c *logExporter) *testClock {
	clock := &testClock{t: time.Date(2026, 11, 21, 4, 2, 14, 0, time.UTC)}
	c.now = func() time.Time {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		return clock.t
	}
	c.after = func(d time.Duration) <-chan time.Time {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		clock.t = clock.t.Add(d)
		clock.pauses = append(clock.pauses, d)
		due := make(chan time.Time, 1)
		due <- clock.t
		return due
	}
	return clock
}

func newTestExporter(t *testing.T, url string) (*logExporter, *testClock) {
	t.Helper()
	c, err := newLogExporter(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.CloseIdleConnections)
	return c, newTestClock(c)
}

const twoLines = "{\"a\":1}\n{\"a\":2}\n"

// TestCollectorRefuses counts what a collector does not take, and why. Only what may succeed at another time is sent again.
func TestCollectorRefuses(t *testing.T) {
	partial := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1))
	for name, tc := range map[string]struct {
		status  int
		body    []byte
		again   bool
		dropped uint64
		reason  DropReason
	}{
		"bad request":       {http.StatusBadRequest, nil, false, 2, DropRejected},
		"internal error":    {http.StatusInternalServerError, nil, false, 2, DropRejected},
		"redirect":          {http.StatusFound, nil, false, 2, DropRejected},
		"partial":           {http.StatusOK, partial, false, 1, DropRejected},
		"too many requests": {http.StatusTooManyRequests, nil, true, 2, DropUnavailable},
		"bad gateway":       {http.StatusBadGateway, nil, true, 2, DropUnavailable},
		"unavailable":       {http.StatusServiceUnavailable, nil, true, 2, DropUnavailable},
		"gateway timeout":   {http.StatusGatewayTimeout, nil, true, 2, DropUnavailable},
	} {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tc.status)
			w.Write(tc.body)
		}))
		c, clock := newTestExporter(t, server.URL)
		n, err := c.Write([]byte(twoLines))
		var why *dropError
		if !errors.As(err, &why) || why.reason != tc.reason {
			t.Errorf("%s: error %v, want reason %v", name, err, tc.reason)
		}
		if dropped := uint64(countLines([]byte(twoLines[n:]))); dropped != tc.dropped || n > 0 && twoLines[n-1] != '\n' {
			t.Errorf("%s: %d bytes are written, want all but %d lines", name, n, tc.dropped)
		}
		if again := calls.Load() > 1; again != tc.again {
			t.Errorf("%s: %d attempts", name, calls.Load())
		}
		var total time.Duration
		for _, d := range clock.pauses {
			total += d
		}
		if tc.again && (total < otlpRetryTime || total > otlpRetryTime+2*otlpMaxBackoff) {
			t.Errorf("%s: given up after %v", name, total)
		}
		server.Close()
	}
}

// TestCollectorBackoff: pauses double up to a bound, with jitter, over batches until one succeeds.
func TestCollectorBackoff(t *testing.T) {
	var ready atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	c, clock := newTestExporter(t, server.URL)
	for range 2 {
		if _, err := c.Write([]byte(twoLines)); err == nil {
			t.Fatal("a batch was taken")
		}
	}
	even := 0
	for i, d := range clock.pauses {
		want := min(otlpMinBackoff<<min(i, 10), otlpMaxBackoff)
		if d < want/2 || d > want*3/2 {
			t.Errorf("pause %d is %v, want about %v", i, d, want)
		}
		if d == want {
			even++
		}
	}
	if len(clock.pauses) < 8 || even == len(clock.pauses) {
		t.Errorf("pauses %v have no jitter, or are too few", clock.pauses)
	}
	ready.Store(true)
	for range 2 {
		before := len(clock.pauses)
		if n, err := c.Write([]byte(twoLines)); n != len(twoLines) || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if pauses := len(clock.pauses) - before; pauses > 1 {
			t.Errorf("%d pauses before a batch that is taken", pauses)
		}
	}
	if c.backoff != 0 {
		t.Errorf("backoff %v after a success", c.backoff)
	}
}

// TestCollectorRetryAfter: the next attempt waits as long as the collector asks, within bounds.
func TestCollectorRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"30":                            30 * time.Second,
		"Sat, 21 Nov 2026 04:02:34 GMT": 20 * time.Second,
		"Sat, 21 Nov 2066 04:02:34 GMT": otlpMaxDelay,
		"99999999999":                   otlpMaxDelay,
		"":                              0, "0": 0, "-1": 0, "soon": 0, "Sat, 21 Nov 2026 04:02:04 GMT": 0,
	} {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == 1 {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		c, clock := newTestExporter(t, server.URL)
		if _, err := c.Write([]byte(twoLines)); err != nil || calls.Load() != 2 || len(clock.pauses) != 1 {
			t.Fatalf("%q: %d attempts, pauses %v, %v", value, calls.Load(), clock.pauses, err)
		}
		from, to := want, want+want/10+1
		if want == 0 { // as without it
			from, to = otlpMinBackoff/2, otlpMinBackoff*3/2
		}
		if got := clock.pauses[0]; got < from || got > to {
			t.Errorf("%q: a pause of %v, want from %v to %v", value, got, from, to)
		}
		server.Close()
	}
}

// TestCollectorThrottles: the time that a batch has counts from its own first attempt, not from when it began to wait because of others.
func TestCollectorThrottles(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	c, _ := newTestExporter(t, server.URL)
	for batch := range 2 {
		calls.Store(0)
		if _, err := c.Write([]byte(twoLines)); err == nil || calls.Load() != 2 {
			t.Errorf("batch %d: %d attempts, want 2; error %v", batch, calls.Load(), err)
		}
	}
}

// TestCollectorDuplicates: a batch is sent again where the connection was lost before the response, as OTLP says. Where the collector has only not answered in time, it may have the
// batch already.
func TestCollectorDuplicates(t *testing.T) {
	t.Run("disconnect", func(t *testing.T) {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
		}))
		defer server.Close()
		c, _ := newTestExporter(t, server.URL)
		if _, err := c.Write([]byte(twoLines)); err != nil || calls.Load() != 2 {
			t.Errorf("%d attempts, %v", calls.Load(), err)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}))
		defer server.Close()
		c, _ := newTestExporter(t, server.URL)
		c.client.Transport = &http.Transport{ResponseHeaderTimeout: 50 * time.Millisecond} // begins once the request is sent
		var why *dropError
		if _, err := c.Write([]byte(twoLines)); !errors.As(err, &why) || why.reason != DropUnavailable {
			t.Errorf("error %v", err)
		}
		testkit.Eventually(t, "the request has come", func() bool { return calls.Load() > 0 })
		c.client.CloseIdleConnections()
		server.Close() // waits for other requests
		if calls.Load() != 1 {
			t.Errorf("%d attempts", calls.Load())
		}
	})
	t.Run("no response", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		var calls atomic.Int32
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				calls.Add(1)
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					io.WriteString(conn, "SMTP is spoken here\r\n\r\n")
				}
				conn.Close()
			}
		}()
		c, _ := newTestExporter(t, "http://"+listener.Addr().String())
		if _, err := c.Write([]byte(twoLines)); err == nil || calls.Load() != 1 {
			t.Errorf("%d attempts, %v", calls.Load(), err)
		}
	})
}

// TestCollectorVanishes: a connection on which the collector does not answer any more is not used again, whatever protocols the collector speaks.
func TestCollectorVanishes(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var vanished atomic.Int32 // of the connections to here, those up to this one bring the collector nothing any more
	go func() {
		for n := int32(1); ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			collector, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			go io.Copy(conn, collector) //nolint:errcheck // its end is the test's
			go func() {
				defer collector.Close()
				b := make([]byte, 4096)
				for {
					read, err := conn.Read(b)
					if err != nil {
						return
					}
					if n > vanished.Load() {
						collector.Write(b[:read])
					}
				}
			}()
		}
	}()
	c, _ := newTestExporter(t, "https://"+listener.Addr().String())
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "example.com"}
	if _, err := c.Write([]byte(twoLines)); err != nil {
		t.Fatal(err)
	}
	vanished.Store(1)
	c.client.Timeout = 200 * time.Millisecond
	if _, err := c.Write([]byte(twoLines)); err == nil {
		t.Error("a batch was taken on a connection that brings nothing")
	}
	c.client.Timeout = otlpTimeout
	if _, err := c.Write([]byte(twoLines)); err != nil {
		t.Errorf("the batch after that: %v", err)
	}
}

// TestCollectorTalks: what a collector says where nobody needs it is in no log of the process.
func TestCollectorTalks(t *testing.T) {
	for name, head := range map[string]string{
		"reason":  "HTTP/1.1 400 " + strings.Repeat("a", 1<<18) + "\r\nContent-Length: 0\r\n\r\n",
		"words":   "HTTP/1.1 400 " + strings.Repeat("a", 1<<10) + "\r\nContent-Length: 0\r\n\r\n",
		"head":    "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 1<<18) + "\r\nContent-Length: 0\r\n\r\n",
		"no HTTP": strings.Repeat("a", 1<<18) + "\r\n\r\n",
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					io.Copy(io.Discard, r.Body)
					io.WriteString(conn, head)
				}
				conn.Close()
			}
		}()
		c, _ := newTestExporter(t, "http://"+listener.Addr().String())
		if _, err := c.Write([]byte(twoLines)); err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: error %.600v", name, err)
		}
		listener.Close()
	}
}

// TestCollectorUnreachable: nothing has been sent, so that the batch is tried again until it is given up.
func TestCollectorUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	c, clock := newTestExporter(t, "http://"+listener.Addr().String())
	var why *dropError
	if _, err := c.Write([]byte(twoLines)); !errors.As(err, &why) || why.reason != DropUnavailable || len(clock.pauses) < 5 {
		t.Errorf("pauses %v, error %v", clock.pauses, err)
	}
}

// TestCollectorMakesRoom: where memory is used up, the batch that waits makes room for newer lines.
func TestCollectorMakesRoom(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	l := openLog(t, server.URL, nil)
	r := exampleRecord(nil)
	testkit.Eventually(t, "the batch that waits is given up", func() bool {
		for range 1000 {
			l.write(r)
		}
		return l.DroppedBy(DropUnavailable) > 0
	})
	if l.DroppedBy(DropBufferFull) == 0 || l.made.Load() != logBuffers {
		t.Errorf("%d lines found no room, %d buffers", l.DroppedBy(DropBufferFull), l.made.Load())
	}
	// A batch does not make room while there is some.
	if err := l.Close(time.Millisecond); err == nil {
		t.Error("Close does not say that lines are lost")
	}
	<-l.done
	c := l.out.(*logExporter)
	pressed := make(chan struct{}, 1)
	pressed <- struct{}{}
	due := make(chan time.Time)
	c.stop, c.pressed, c.usedUp, c.ctx = nil, pressed, func() bool { return false }, t.Context()
	c.after = func(time.Duration) <-chan time.Time { return due }
	c.notBefore = time.Now().Add(time.Hour)
	go func() {
		testkit.Eventually(t, "pause looks at the memory", func() bool { return len(pressed) == 0 })
		due <- time.Now()
	}()
	if _, ok := c.pause(); !ok {
		t.Error("the batch was given up though there is memory")
	}
}

// TestCollectorClose: Close cuts a pause short, unless the collector has asked for it, and breaks off what takes too long. Each line that is not exported counts as dropped.
func TestCollectorClose(t *testing.T) {
	const lines = 2000 // more than a buffer has
	var stopped atomic.Bool
	for name, tc := range map[string]struct {
		handle func(w http.ResponseWriter, r *http.Request)
		lost   bool
	}{
		"recovers": {func(w http.ResponseWriter, r *http.Request) {
			if !stopped.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}, false},
		"unavailable": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, true},
		"asks for a delay": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusServiceUnavailable)
			if stopped.Load() {
				t.Error("a request before the delay has passed")
			}
		}, true},
		"hangs": {func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			stopped.Store(false)
			busy := make(chan struct{}, 100) // an export is under way, or the writer pauses
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name == "hangs" {
					busy <- struct{}{}
				}
				tc.handle(w, r)
			}))
			defer server.Close()
			l := openLog(t, server.URL, nil)
			l.out.(*logExporter).after = func(time.Duration) <-chan time.Time {
				busy <- struct{}{}
				return nil // it is not due before the end
			}
			for range lines {
				l.write(exampleRecord(nil))
			}
			<-busy
			stopped.Store(true)
			timeout, want := time.Minute, uint64(0)
			if tc.lost {
				timeout, want = 10*time.Millisecond, lines
			}
			err := l.Close(timeout)
			if tc.lost && (err == nil || !strings.Contains(err.Error(), " lines were dropped")) || !tc.lost && err != nil {
				t.Errorf("Close: %v", err)
			}
			<-l.done
			if got := l.DroppedBy(DropShuttingDown); got != want || l.Dropped() != want {
				t.Errorf("%d lines are dropped by Close, and %d at all, want %d", got, l.Dropped(), want)
			}
		})
	}
}

func TestCollectorURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://a:4318":          "http://a:4318/v1/logs",
		"https://a/":             "https://a/v1/logs",
		"https://a/otlp/v1/logs": "https://a/otlp/v1/logs",
		"http://":                "", "http://u:p@a": "", "http://a?b": "", "http://a#b": "", "http://[": "",
	} {
		c, err := newLogExporter(in)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "--access-log") {
				t.Errorf("%s: %v", in, err)
			}
		} else if err != nil || c.url != want {
			t.Errorf("%s: %v, %v", in, c, err)
		}
	}
}

// TestLogRecordOfText: a text that looks like an object, or begins with one that a client has closed, is sent whole.
func TestLogRecordOfText(t *testing.T) {
	for _, line := range []string{"", "{", "{}x", `{"ua":1},"ip":"192.0.2.1"}`, `{"a":{"m":"GET"},"path":"/"}`, `{"a":[1]}`, `{"a":1`, `{"a"}`, `[1]`, `{"a":1}{"b":2}`} {
		if r := logRecord([]byte(line), 1); r.Body.GetKvlistValue() != nil || r.Body.GetStringValue() != line {
			t.Errorf("%s is sent as %v", line, r.Body)
		}
	}
	if r := logRecord([]byte(`{"a":1,"b":null}`), 1); len(r.Body.GetKvlistValue().GetValues()) != 2 {
		t.Errorf("an object is sent as %v", r.Body)
	}
	if r := logRecord([]byte(`{"a":true,"b":false}`), 1); !proto.Equal(r.Body.GetKvlistValue().GetValues()[0].Value, &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}) ||
		r.Body.GetKvlistValue().GetValues()[1].Value.Value == nil {
		t.Errorf("what a format has fixed is sent as %v", r.Body)
	}
}
