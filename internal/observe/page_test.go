package observe

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/testkit"
)

var update = flag.Bool("update", false, "write the pages of docs that are made from the code")

// TestAccessLogPage: the tables of the page have every member with the description that the code has, and no other.
func TestAccessLogPage(t *testing.T) {
	const file = "../../docs/access-log.md"
	const begin, end = "<!-- members: made by go test ./internal/observe -run TestAccessLogPage -update -->\n", "<!-- end of members -->\n"
	var b strings.Builder
	for presence, title := range []string{"In every line", "Only if they have a value", "Only if they are listed"} {
		b.WriteString("\n### " + title + "\n\n| member | meaning |\n|---|---|\n")
		for _, m := range accesslog.Members {
			if int(m.Presence) == presence {
				text := strings.NewReplacer("<", "&lt;", ">", "&gt;", "|", "\\|").Replace(m.Text)
				b.WriteString("| `" + m.Key + "` | " + text + " |\n")
			}
		}
	}
	b.WriteString("\n")
	testkit.SamePart(t, file, begin, end, b.String(), *update)
}

// TestTroubleshootingPage checks that docs/troubleshooting.md lists every reason as the code has it.
func TestTroubleshootingPage(t *testing.T) {
	const file = "../../docs/troubleshooting.md"
	const begin, end = "<!-- reasons: made by go test ./internal/observe -run TestTroubleshootingPage -update -->\n", "<!-- end of reasons -->\n"
	var b strings.Builder
	for _, source := range []struct {
		of    Source
		title string
	}{
		{SourceInternal, "Answered by the gateway: configuration, limits, shutdown"},
		{SourceUpstream, "Caused by the backend, or by an authorization server"},
		{SourceClient, "Caused by the client"},
		{SourceNone, "No error"},
	} {
		fmt.Fprintf(&b, "\n### %s\n\n| status | reason | meaning |\n|---|---|---|\n", source.title)
		for _, r := range Reasons() {
			if r.Source != source.of {
				continue
			}
			status := "-"
			if r.Status != 0 {
				status = fmt.Sprint(r.Status)
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s |\n", status, r.Word, r.Description)
		}
	}
	b.WriteString("\n")
	testkit.SamePart(t, file, begin, end, b.String(), *update)
}

// TestOptionalLogMembers: a record with everything has all members but those that are chosen, and no other.
func TestOptionalLogMembers(t *testing.T) {
	span := SpanID{[32]byte([]byte(strings.Repeat("a", 32))), [16]byte([]byte(strings.Repeat("b", 16)))}
	var keys map[string]any
	line := appendLine(nil, &Record{InjectedDelayMillis: 1, OverriddenStatus: 503, Span: &span, Session: SessionNew,
		ContentEncoding: ContentEncodingGzip, Cause: "closed", Port: 80}, &secondCache{})
	if err := json.Unmarshal(line, &keys); err != nil {
		t.Fatal(err)
	}
	for _, f := range accesslog.Members {
		if f.Presence == accesslog.Chosen {
			continue
		}
		if _, ok := keys[f.Key]; !ok {
			t.Errorf("the line lacks %s", f.Key)
		}
		delete(keys, f.Key)
	}
	if len(keys) > 0 {
		t.Errorf("keys that no list has: %v", keys)
	}
}

// TestMetricsPage: docs/metrics.md has every metric of this program as the code says.
func TestMetricsPage(t *testing.T) {
	groups := []struct{ title, prefixes string }{
		{"Requests", "request_ requests_ route_stat_ response"},
		{"Listeners and clients", "listener_ downstream_"},
		{"Backends and endpoints", "upstream_"},
		{"Limits and policies", "rate_limit_ compression_"},
		{"Configuration", "config_ certificate_ translate_ source_"},
		{"The controller", "controller_ gateway_"},
		{"The process", "memory_ access_log_ process_log_ metrics_ panics_ build_"},
	}
	var b strings.Builder
	b.WriteString(`# Metrics

These metrics are served at /metrics of the admin address, in the Prometheus text format. Controllers and proxies in a cluster also serve them on the port of the health checks, where Prometheus can reach them.
/metrics also has the metrics of the Go runtime (` + "`go_`" + `) and of the process (` + "`process_`" + `). This page is generated from the code (` + "`go test ./internal/observe -run TestMetricsPage -update`" + `).

The series of a rule, a route or a backend appear with its first request. They disappear some minutes after the rule or the backend is removed, and those of a route after the last of its rules with requests is removed. The number of series is limited: requests over the limit are counted under ` + "`route=\"(other)\"`" + `.
`)
	shown := 0
	for _, g := range groups {
		b.WriteString("\n## " + g.title + "\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
		for _, m := range described {
			rest := strings.TrimPrefix(m.name, "moongate_")
			if !slices.ContainsFunc(strings.Fields(g.prefixes), func(p string) bool { return strings.HasPrefix(rest, p) }) {
				continue
			}
			shown++
			labels := "none"
			if len(m.labels) > 0 {
				labels = "`" + strings.Join(m.labels, "`, `") + "`"
			}
			text := strings.NewReplacer("<", "&lt;", ">", "&gt;", "|", "\\|").Replace(m.help)
			b.WriteString("| `" + m.name + "` | " + typeOf(m.name) + " | " + labels + " | " + text + " |\n")
		}
	}
	if shown != len(described) {
		t.Errorf("%d of %d metrics stand in one group each", shown, len(described))
	}
	testkit.SamePage(t, "../../docs/metrics.md", b.String(), *update)
}

// typeOf is the type of a metric by its name: the names follow Prometheus' conventions, which TestTypesOfMetrics checks.
func typeOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_duration_seconds"):
		return "histogram"
	}
	return "gauge"
}

// TestAlertsNameMetrics: what the chart's alerts and the page about them ask for are metrics that there are.
func TestAlertsNameMetrics(t *testing.T) {
	for _, file := range []string{"../../charts/moongate/files/alerts.yaml", "../../docs/monitoring.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`moongate_[a-z_]+`).FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range found {
			series := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base := strings.TrimSuffix(name, suffix); typeOf(base) == "histogram" {
					series = base
				}
			}
			if !slices.ContainsFunc(described, func(m metricText) bool { return m.name == series }) {
				t.Errorf("%s names %s, which there is not", file, name)
			}
		}
	}
}
