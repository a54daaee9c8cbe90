package observe

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func layoutOf(t testing.TB, o accesslog.Options) *accesslog.Layout {
	t.Helper()
	l, problems := accesslog.Compile(o)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return l
}

// fullRecord has something to say about every member.
func fullRecord(stats *RuleStats) *Record {
	span := SpanID{[32]byte([]byte(strings.Repeat("a", 32))), [16]byte([]byte(strings.Repeat("b", 16)))}
	r := exampleRecord(stats)
	r.InjectedDelayMillis, r.OverriddenStatus, r.Span, r.Session, r.ContentEncoding = 1, 503, &span, SessionNew, ContentEncodingGzip
	r.Cause, r.Port = "closed", 80
	return r
}

// TestAllMembersAreTheDefault: the lines that are made member by member are those of the default.
func TestAllMembersAreTheDefault(t *testing.T) {
	m := NewMetrics(MetricsOptions{})
	all := layoutOf(t, accesslog.Options{Members: []string{"all"}})
	odd := exampleLabels
	odd.Rule = "a \"strange\" name"
	withoutPort := exampleRecord(nil)
	withoutPort.ClientAddr = netip.AddrPortFrom(withoutPort.ClientAddr.Addr(), 0)
	noBackend := exampleRecord(m.Rule(exampleLabels))
	noBackend.Backend = 0
	for _, r := range []*Record{{}, exampleRecord(nil), exampleRecord(m.Rule(exampleLabels)), exampleRecord(m.Rule(odd)), fullRecord(nil), withoutPort, noBackend} {
		want := string(appendLine(nil, r, new(secondCache)))
		if got := string(appendLaidOut(nil, r, all, new(secondCache))); got != want {
			t.Errorf("line\n%swant\n%s", got, want)
		}
	}
}

func TestChosenMembers(t *testing.T) {
	r := fullRecord(NewMetrics(MetricsOptions{}).Rule(exampleLabels))
	r.Headers = &Headers{[]byte("https://a.example/?token=1"), nil, []byte("")}
	for _, tc := range []struct {
		o    accesslog.Options
		want string
	}{
		{accesslog.Options{Members: []string{"response_code", "path", "session"}}, `{"response_code":200,"path":"/cart/items?page=2","session":"new"}`},
		{accesslog.Options{Members: []string{"client_ip", "common_time"}}, `{"client_ip":"192.0.2.7","common_time":"21/Nov/2026:04:02:14 +0000"}`},
		{accesslog.Options{Members: []string{"response_header.b", "request_header.referer", "request_header.a"}},
			`{"response_header.b":"","request_header.referer":"https://a.example/?token=1","request_header.a":null}`},
		{accesslog.Options{Members: []string{"path", "request_header.referer"}, Redact: []string{"token", "page"}}, `{"path":"/cart/items?page=*","request_header.referer":"https://a.example/?token=*"}`},
		{accesslog.Options{Format: "combined"}, `192.0.2.7 - - [21/Nov/2026:04:02:14 +0000] "GET /cart/items?page=2 HTTP/1.1" 200 1024 "https://a.example/?token=1" "curl/8.5.0"`},
		{accesslog.Options{Format: "{{{method}}} {rule}, {backend} {gateway} {listener} {route} {cause}:{port} {request_header.a} {request_header.b} {response_header.c}."},
			`{GET} 0, Service/shop/cart/8080 shop/edge https HTTPRoute/shop/cart closed:80 https://a.example/?token=1 - -.`},
	} {
		if got := string(appendLaidOut(nil, r, layoutOf(t, tc.o), new(secondCache))); got != tc.want+"\n" {
			t.Errorf("%+v:\n%swant\n%s", tc.o, got, tc.want)
		}
	}
	// Nothing is known of a connection that has ended before a request, and a text has a - for each.
	got := string(appendLaidOut(nil, &Record{}, layoutOf(t, accesslog.Options{Format: `{client_ip} "{user_agent}" {response_code} {trace_id} {upstream_duration_ms} {request_header.a}`}), new(secondCache)))
	if want := "- \"-\" 0 - - -\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRedaction(t *testing.T) {
	some := layoutOf(t, accesslog.Options{Redact: []string{"token", "pass word", "a[b]"}})
	every := layoutOf(t, accesslog.Options{Redact: []string{"*"}})
	for in, want := range map[string][2]string{
		"/":                              {"/", "/"},
		"/token=secret":                  {"/token=secret", "/token=secret"},
		"/?token=secret":                 {"/?token=*", "/?token=*"},
		"/?token=a=b&x=1":                {"/?token=*&x=1", "/?token=*&x=*"},
		"/?x=1&token=secret#token=2":     {"/?x=1&token=*#token=*", "/?x=*&token=*#token=*"},
		"/?x=1;token=secret":             {"/?x=1;token=*", "/?x=*"},
		"/?x=1?token=secret":             {"/?x=1?token=*", "/?x=*"},
		"/?token=abc;def&y=1":            {"/?token=*&y=1", "/?token=*&y=*"},
		"/?token=abc?def#y=1":            {"/?token=*#y=1", "/?token=*#y=*"},
		"/?token=;a=1":                   {"/?token=*", "/?token=*"},
		"/?secret":                       {"/?secret", "/?*"},
		"/?a;secret#secret":              {"/?a;secret#secret", "/?*#*"},
		"/?TOKEN=secret":                 {"/?TOKEN=*", "/?TOKEN=*"},
		"/?%74oke%6E=secret":             {"/?%74oke%6E=*", "/?%74oke%6E=*"},
		"/?pass+word=1&pass%20word=2":    {"/?pass+word=*&pass%20word=*", "/?pass+word=*&pass%20word=*"},
		"/?a%5Bb%5d=1":                   {"/?a%5Bb%5d=*", "/?a%5Bb%5d=*"},
		"/?tokens=1&toke=2&token&token=": {"/?tokens=1&toke=2&token&token=", "/?tokens=*&toke=*&*&token="},
		"/?%=1&%7=2&%zz=3":               {"/?%=1&%7=2&%zz=3", "/?%=*&%7=*&%zz=*"},
		"/a#access=1":                    {"/a#access=1", "/a#access=*"},
		"/?&&=&=1":                       {"/?&&=&=1", "/?&&=&=*"},
		"/é?token=\"\n":                  {"/é?token=*", "/é?token=*"},
		"":                               {"", ""},
	} {
		for i, l := range []*accesslog.Layout{some, every} {
			if got := string(appendRedacted(nil, []byte(in), 100, l)); got != `"`+want[i]+`"` {
				t.Errorf("%q: %s, want %q", in, got, want[i])
			}
		}
	}
	if got := string(appendRedacted(nil, []byte("/?token=1234567890"), 12, some)); got != `"/?token=*"` {
		t.Errorf("a value that is cut: %s", got)
	}
	if got := string(appendRedacted(nil, nil, 10, some)); got != "null" {
		t.Errorf("nil: %s", got)
	}
}

// FuzzLaidOut: whatever a client sends, a line is one line, within its bound, and of a redacted value nothing is in it.
func FuzzLaidOut(f *testing.F) {
	f.Add([]byte("GET"), []byte("/?secret=1"), []byte("a"), int64(0))
	f.Add([]byte("\"\n\\"), []byte("/?%73ecret=\xff&;secret=&secret=\"\n"), bytes.Repeat([]byte{1}, 600), int64(math.MinInt64))
	layouts := []*accesslog.Layout{
		layoutOf(f, accesslog.Options{Members: []string{"all", "client_ip", "common_time", "request_header.referer", "response_header.x"}, Redact: []string{"*"}}),
		layoutOf(f, accesslog.Options{Format: `"{method}" "{path}" "{request_header.x}"`, Redact: []string{"secret"}}),
		layoutOf(f, accesslog.Options{Format: "combined"}),
	}
	f.Fuzz(func(t *testing.T, method, target, header []byte, number int64) {
		r := fullRecord(nil)
		r.Method, r.Target, r.UserAgent, r.StartUnixNano, r.DurationNano = method, target, header, number, number
		r.Headers = &Headers{target, header}
		for i, l := range layouts {
			line := appendLaidOut(nil, r, l, new(secondCache))
			if bound := lineBound(r) + l.Bound + maxEscape*headerBytes(r); len(line) > bound || len(line) > maxLaidOut {
				t.Fatalf("%d: %d bytes, bound %d, maximum %d", i, len(line), bound, maxLaidOut)
			}
			if at := bytes.IndexByte(line, '\n'); at != len(line)-1 || !utf8.Valid(line) {
				t.Fatalf("%d: not one line of UTF-8: %q", i, line)
			}
			if !l.Text && !json.Valid(line) {
				t.Fatalf("%d: not JSON: %q", i, line)
			}
			if l.Text {
				continue
			}
			var got struct {
				Path *string `json:"path"`
			}
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatal(err)
			}
			if got.Path == nil || len(target) > accesslog.MaxTarget {
				continue
			}
			_, parameters, _ := strings.Cut(*got.Path, "?")
			for _, p := range strings.FieldsFunc(parameters, func(r rune) bool { return strings.ContainsRune("?&;#", r) }) {
				if _, value, named := strings.Cut(p, "="); value != "" && value != "*" || !named && p != "*" {
					t.Fatalf("%q is not redacted in %q", value, *got.Path)
				}
			}
		}
	})
}

// TestSampling: of requests that have not failed, or by the client's fault, one of OneIn has a line, of others each as long as there are not many in a second.
func TestSampling(t *testing.T) {
	const requests = 5000
	for name, tc := range map[string]struct {
		Record
		all bool
	}{
		"ok":              {Record{Status: 200, Reason: ReasonOK}, false},
		"refused":         {Record{Status: 404, Reason: ReasonRouteNotFound}, false},
		"not implemented": {Record{Status: 501, Reason: ReasonNotImplemented}, false},
		"version":         {Record{Status: 505, Reason: ReasonVersionNotSupported}, false},
		"backend500":      {Record{Status: 500, Reason: ReasonOK}, true},
		"gateway503":      {Record{Status: 503, Reason: ReasonNoEndpoints}, true},
		"truncated":       {Record{Status: 200, Reason: ReasonUpstreamTruncated}, true},
		"overridden":      {Record{Status: 200, Reason: ReasonOK, OverriddenStatus: 502}, true},
	} {
		for _, perSecond := range []int{maxFailureLines, requests} {
			var s sink
			l, err := OpenAccessLog("stdout", &s, accesslog.Options{OneIn: 50, Members: []string{"method"}})
			if err != nil {
				t.Fatal(err)
			}
			for i := range requests {
				r := tc.Record
				r.StartUnixNano = exampleStart.Truncate(time.Second).UnixNano() + int64(i/perSecond)*int64(time.Second)
				l.write(&r)
			}
			if err := l.Close(5 * time.Second); err != nil {
				t.Fatal(err)
			}
			from, to := 30, 200 // 100 are expected; so far off is less likely than one in 10^12
			switch {
			case tc.all && perSecond == maxFailureLines:
				from, to = requests, requests
			case tc.all: // a flood
				from, to = from+maxFailureLines-10, to+maxFailureLines
			}
			if n := countLines([]byte(s.String())); n < from || n > to {
				t.Errorf("%s, %d in a second: %d lines of %d requests, want from %d to %d", name, perSecond, n, requests, from, to)
			}
			if l.Dropped() != 0 {
				t.Errorf("%d lines were dropped: what is left out by sampling is not", l.Dropped())
			}
		}
	}
	unsampled := openLog(t, "stdout", io.Discard)
	if unsampled.oneIn != 0 {
		t.Error("without sampling a request asks for a random number")
	}
}

// TestFailureBudget: a request that ended in an earlier second does not give others room.
func TestFailureBudget(t *testing.T) {
	var f failureBudget
	for range maxFailureLines {
		if !f.take(7) {
			t.Fatal("there is no room")
		}
	}
	if f.take(7) || f.take(6) {
		t.Error("more lines than there is room for")
	}
	if !f.take(8) || !f.take(6) {
		t.Error("no room in another second")
	}
	const later = 7 + clockSetBack + 2
	for range maxFailureLines {
		f.take(later)
	}
	if f.take(later - clockSetBack) {
		t.Error("a request that ended a while ago has given room")
	}
	for i := range maxFailureLines + 1 {
		if got, want := f.take(7), i < maxFailureLines; got != want {
			t.Fatalf("line %d after the clock was set back: %t", i, got)
		}
	}
}

// A file that was renamed is opened anew without a signal.
func TestAccessLogFollowsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	l := openLog(t, path, nil)
	r := exampleRecord(nil)
	l.write(r)
	testkit.Eventually(t, "the first line is written", func() bool { return content(t, path) != "" })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the file is made anew", func() bool {
		l.write(r)
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0
	})
	if l.WriteErrors() != 0 || l.Dropped() != 0 {
		t.Errorf("%d errors, %d lines dropped", l.WriteErrors(), l.Dropped())
	}
}

// A line with everything that can be chosen allocates nothing.
func TestLaidOutAllocatesNothing(t *testing.T) {
	for _, o := range []accesslog.Options{
		{Members: []string{"all", "client_ip", "common_time", "request_header.referer", "response_header.x"}, Redact: []string{"page", "token"}},
		{Format: "combined", OneIn: 2},
	} {
		l, err := OpenAccessLog("stdout", io.Discard, o)
		if err != nil {
			t.Fatal(err)
		}
		m := NewMetrics(MetricsOptions{AccessLog: l})
		r := fullRecord(m.Rule(exampleLabels))
		r.Cause = "" // which connections alone have
		r.Headers = &Headers{[]byte("https://a.example/?token=1&\"é"), nil}
		finisher := Observer{Metrics: m, Log: l}
		finisher.Finish(r)
		if got := testing.AllocsPerRun(2000, func() { finisher.Finish(r) }); got != 0 {
			t.Errorf("%+v: %v allocations, want 0", o, got)
		}
		l.Close(time.Second)
	}
}

func BenchmarkAppendLaidOut(b *testing.B) {
	r := exampleRecord(NewMetrics(MetricsOptions{}).Rule(exampleLabels))
	r.Headers = &Headers{[]byte("https://a.example/"), nil}
	for name, o := range map[string]accesslog.Options{
		"all": {Members: []string{"all"}}, "redacted": {Redact: []string{"page", "token"}}, "combined": {Format: "combined"},
	} {
		layout := layoutOf(b, o)
		b.Run(name, func(b *testing.B) {
			buf := make([]byte, 0, 4096)
			var clock secondCache
			b.ReportAllocs()
			for b.Loop() {
				buf = appendLaidOut(buf[:0], r, layout, &clock)
			}
		})
	}
}
