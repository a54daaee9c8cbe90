package observe

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

// TestCollector exports lines, and reads them as a collector does. One that is not ready is asked again.
func TestCollector(t *testing.T) {
	for name, o := range map[string]accesslog.Options{"json": {}, "text": {Format: "{path} {response_code}"}} {
		t.Run(name, func(t *testing.T) {
			got := make(chan *logspb.LogsData, 10)
			var calls atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/logs" || r.Header.Get("Content-Type") != "application/x-protobuf" {
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
			l.out.(*logExporter).backoff = time.Millisecond
			trace := [32]byte([]byte(strings.Repeat("0a", 16)))
			r := exampleRecord(nil)
			r.TraceID = &trace
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
			if want := uint64(exampleStart.Truncate(time.Millisecond).UnixNano()); record.TimeUnixNano != want || string(record.TraceId) != strings.Repeat("\x0a", 16) {
				t.Errorf("time %d, want %d; trace %x", record.TimeUnixNano, want, record.TraceId)
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

// TestCollectorRefuses counts what a collector does not take, and does not ask it for ever.
func TestCollectorRefuses(t *testing.T) {
	partial := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1))
	for name, tc := range map[string]struct {
		status  int
		body    []byte
		calls   int32
		dropped uint64
	}{
		"bad request": {http.StatusBadRequest, nil, 1, 2},
		"unavailable": {http.StatusServiceUnavailable, nil, otlpTries, 2},
		"redirect":    {http.StatusFound, nil, 1, 2},
		"partial":     {http.StatusOK, partial, 1, 1},
	} {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tc.status)
			w.Write(tc.body)
		}))
		c, err := newLogExporter(server.URL + "/v1/logs")
		if err != nil {
			t.Fatal(err)
		}
		c.backoff = time.Millisecond
		const lines = "{\"a\":1}\n{\"a\":2}\n"
		n, err := c.Write([]byte(lines))
		if dropped := uint64(strings.Count(lines[n:], "\n")); calls.Load() != tc.calls || err == nil || dropped != tc.dropped || n > 0 && lines[n-1] != '\n' {
			t.Errorf("%s: %d calls, %d written, error %v", name, calls.Load(), n, err)
		}
		server.Close()
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
}
