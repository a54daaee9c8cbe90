package observe

import (
	"bytes"
	"encoding/json"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

var exampleStart = time.Date(2026, 11, 21, 4, 2, 14, 123_987_000, time.UTC)

func exampleRecord(stats *RuleStats) *Record {
	return &Record{
		StartUnixNano: exampleStart.UnixNano(), DurationNano: 1_234_567,
		ClientAddr: netip.MustParseAddrPort("192.0.2.7:50123"),
		Method:     []byte("GET"), Scheme: "https", Host: []byte("shop.example.com:8443"),
		Target: []byte("/cart/items?page=2"), Protocol: "HTTP/1.1",
		UserAgent: []byte("curl/8.5.0"), RequestID: []byte("7f0c1b52"),
		Status: 200, Reason: ReasonOK, BytesReceived: 12, BytesSent: 1024,
		Stats: stats, Backend: 1,
		Upstream: netip.MustParseAddrPort("[2001:db8::1]:8080"), UpstreamDurationNano: 999_999, Attempts: 1,
	}
}

var exampleLabels = RuleLabels{Gateway: "shop/edge", Listener: "https", Route: "HTTPRoute/shop/cart", Rule: "0", Backends: []string{"Service/shop/cart/8080"}}

func TestLine(t *testing.T) {
	m := NewMetrics(MetricsOptions{})
	got := string(appendLine(nil, exampleRecord(m.Rule(exampleLabels)), new(secondCache)))
	want := `{"start_time":"2026-11-21T04:02:14.123Z","method":"GET","scheme":"https","authority":"shop.example.com:8443",` +
		`"path":"/cart/items?page=2","protocol":"HTTP/1.1","response_code":200,"reason":"ok","bytes_received":12,"bytes_sent":1024,` +
		`"duration_ms":1.234,"client_address":"192.0.2.7:50123","user_agent":"curl/8.5.0","request_id":"7f0c1b52",` +
		`"gateway":"shop/edge","listener":"https","route":"HTTPRoute/shop/cart","rule":"0","backend":"Service/shop/cart/8080",` +
		`"upstream_host":"[2001:db8::1]:8080","upstream_duration_ms":0.999,"attempts":1}` + "\n"
	if got != want {
		t.Errorf("line\n%swant\n%s", got, want)
	}
}

// The zero Record has every key too, in the order of accesslog.Members.
func TestLineHasAllKeys(t *testing.T) {
	line := appendLine(nil, &Record{}, new(secondCache))
	d := json.NewDecoder(bytes.NewReader(line))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for _, f := range accesslog.Members {
		if f.Presence != accesslog.Always {
			continue
		}
		key, err := d.Token()
		if err != nil || key != f.Key {
			t.Fatalf("key %v (%v), want %s in %s", key, err, f.Key, line)
		}
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
		if f.Text == "" {
			t.Errorf("%s has no description", f.Key)
		}
	}
	if d.More() {
		t.Errorf("keys beyond those in %s", line)
	}
}

func TestEscaping(t *testing.T) {
	for in, want := range map[string]string{
		"":                         `""`,
		"plain text, 16 by":        `"plain text, 16 by"`,
		`say "hi" \ there`:         `"say \"hi\" \\ there"`,
		"tab\tnul\x00\x7f\x1b[":    `"tab\u0009nul\u0000\u007f\u001b["`,
		"Grüße 日本 🙂":               `"Grüße 日本 🙂"`,
		"\xff\xc3(\xed\xa0\x80":    `"\ufffd\ufffd(\ufffd\ufffd\ufffd"`,
		"C1 \u0080\u009b":          `"C1 \u0080\u009b"`,
		"a\u2028b\u2029\u202ec":    `"a\u2028b\u2029\u202ec"`, // which end lines, or turn what follows around
		"\u061c\u200f\u2069\u2014": "\"\\u061c\\u200f\\u2069\u2014\"",
		"eight by\x7fafter tha":    `"eight by\u007fafter tha"`,
		"\ufffd stays itself":      "\"\ufffd stays itself\"",
	} {
		if got := string(appendText(nil, []byte(in), 100)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := string(appendText(nil, nil, 100)); got != "null" {
		t.Errorf("nil: %s, want null", got)
	}
}

// Every byte at every place of a word is recognised as plain or not.
func TestPlainPrefix(t *testing.T) {
	for c := range 256 {
		for at := range 17 {
			s := []byte("abcdefghijklmnopq")
			s[at] = byte(c)
			want := len(s)
			if !isPlain(byte(c)) {
				want = at
			}
			if got := plainPrefix(s); got != want {
				t.Fatalf("byte %#x at %d: %d, want %d", c, at, got, want)
			}
		}
	}
}

func TestCutKeepsCharactersWhole(t *testing.T) {
	for limit := 4; limit < 12; limit++ {
		if got := cut([]byte("aé日🙂é日🙂"), limit); !utf8.Valid(got) || len(got) > limit || len(got) < limit-3 {
			t.Errorf("limit %d: %q", limit, got)
		}
	}
	if got := cut(bytes.Repeat([]byte{0x80}, 20), 10); len(got) != 10 {
		t.Errorf("continuation bytes only: %d, want 10", len(got))
	}
}

func TestSecondCache(t *testing.T) {
	var c secondCache
	for _, n := range []int64{0, 999_999_999, 1e9, 1e9 + 1e6, -1, -1e9, exampleStart.UnixNano(), math.MaxInt64, math.MinInt64} {
		want := time.Unix(0, n).UTC().Format("2006-01-02T15:04:05.000Z")
		if got := string(c.append(nil, n)); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestMillis(t *testing.T) {
	for in, want := range map[int64]string{0: "0.000", -5: "0.000", 999: "0.000", 1000: "0.001", 1_050_000: "1.050", 61_000_000_000: "61000.000"} {
		if got := string(appendMillis(nil, in)); got != want {
			t.Errorf("%d: %s, want %s", in, got, want)
		}
	}
}

// FuzzLine: whatever a client sends, a line is one line of valid JSON that says it, within its bound.
func FuzzLine(f *testing.F) {
	f.Add([]byte("GET"), []byte("example.com"), []byte("/a?b=c"), []byte("curl"), "0", int64(0), 200)
	f.Add([]byte("\x00\""), []byte("\\\xff"), []byte("/\xc3\x28\n"), []byte("\u009b\u2028"), "rule \"\n", int64(-1), -1)
	f.Add([]byte(nil), bytes.Repeat([]byte{0}, 600), bytes.Repeat([]byte("\x01"), 9000), bytes.Repeat([]byte("é"), 600), strings.Repeat("\xfe", 600), int64(math.MinInt64), math.MaxInt)
	m := NewMetrics(MetricsOptions{})
	f.Fuzz(func(t *testing.T, method, host, target, agent []byte, rule string, number int64, status int) {
		stats := m.Rule(RuleLabels{Gateway: "a/b", Listener: rule, Route: rule, Rule: rule, Backends: []string{rule}})
		defer stats.Release()
		r := Record{StartUnixNano: number, DurationNano: number, Method: method, Host: host, Target: target, UserAgent: agent, RequestID: agent,
			BytesReceived: number, BytesSent: number, UpstreamDurationNano: number, Attempts: int32(status), Status: status, Stats: stats, Backend: 1,
			Upstream: netip.AddrPortFrom(netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666"), 65535), Scheme: "https", Protocol: "HTTP/1.1"}
		line := appendLine(nil, &r, new(secondCache))
		if len(line) > lineBound(&r) || len(line) > maxLine {
			t.Fatalf("%d bytes, bound %d, maximum %d", len(line), lineBound(&r), maxLine)
		}
		if i := bytes.IndexByte(line, '\n'); i != len(line)-1 || !utf8.Valid(line) {
			t.Fatalf("not one line of UTF-8: %q", line)
		}
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		checkText(t, got["method"], method, accesslog.MaxMethod)
		checkText(t, got["authority"], host, accesslog.MaxHost)
		checkText(t, got["path"], target, accesslog.MaxTarget)
		checkText(t, got["user_agent"], agent, accesslog.MaxUserAgent)
	})
}

// checkText compares with what encoding/json makes of the same bytes.
func checkText(t *testing.T, got any, in []byte, limit int) {
	t.Helper()
	if in == nil {
		if got != nil {
			t.Fatalf("%v, want null", got)
		}
		return
	}
	if len(in) > limit {
		in = cut(in, limit)
	}
	raw, err := json.Marshal(string(in))
	if err != nil {
		t.Fatal(err)
	}
	var want string
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}

func TestBufferHoldsTheLongestLine(t *testing.T) {
	if maxLaidOut > logBufferBytes {
		t.Errorf("a line may have %d bytes, a buffer has %d", maxLaidOut, logBufferBytes)
	}
}

func BenchmarkAppendLine(b *testing.B) {
	r := exampleRecord(NewMetrics(MetricsOptions{}).Rule(exampleLabels))
	buf := make([]byte, 0, 4096)
	var clock secondCache
	b.SetBytes(int64(len(appendLine(buf, r, &clock))))
	b.ReportAllocs()
	for b.Loop() {
		buf = appendLine(buf[:0], r, &clock)
	}
}
