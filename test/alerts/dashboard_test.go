package alerts

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
)

// dashboard is a dashboard of Grafana, so far as it is tested.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []struct {
		ID                 int
		Title, Description string
		Type               string
		GridPos            struct{ X, Y, W, H int }
		Targets            []struct {
			Expr, LegendFormat, RefID string
		}
	}
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	text, err := os.ReadFile("../../charts/moongate/files/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// TestDashboardQueries: every query of the dashboard finds something in series of the metrics of docs/metrics.md, with their labels, and legends name labels that its
// result has.
func TestDashboardQueries(t *testing.T) {
	storage := promqltest.LoadedStorage(t, everyMetric(t))
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
	d := readDashboard(t)
	queries := 0
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			queries++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$gateway", ".*", "$route", ".*").Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable that there is not, or that the test does not know: %s", panel.Title, expr)
			}
			q, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(20*time.Minute))
			if err != nil {
				t.Errorf("%s: %v in %s", panel.Title, err, expr)
				continue
			}
			vector, err := q.Exec(t.Context()).Vector()
			if err != nil || len(vector) == 0 {
				t.Errorf("%s finds nothing, %v: %s", panel.Title, err, expr)
				q.Close()
				continue
			}
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !vector[0].Metric.Has(label[1]) {
					t.Errorf("%s: the legend names the label %s, the result has %v", panel.Title, label[1], vector[0].Metric)
				}
			}
			if math.IsNaN(vector[0].F) { // divided by nothing
				t.Errorf("%s: the result is not a number: %s", panel.Title, expr)
			}
			q.Close()
		}
	}
	if queries == 0 {
		t.Error("the dashboard has no queries")
	}
}

// TestDashboardForm: what Grafana relies on: identifiers are unique, panels do not overlap, and each says what it shows.
func TestDashboardForm(t *testing.T) {
	d := readDashboard(t)
	if d.UID != "moongate" || d.Title == "" {
		t.Errorf("uid %q, title %q", d.UID, d.Title)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("panel %s: id %d is used twice, or absent", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %d %q lacks a title, a description or queries", p.ID, p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %s overlaps %s or the edge at %d, %d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] {
				t.Errorf("panel %s: refId %s is used twice", p.Title, target.RefID)
			}
			refs[target.RefID] = true
		}
	}
	described := everyMetric(t)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((moongate_\w+)(?:{.*})?, (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil || !regexp.MustCompile(m[1]+`{[^}]*\b`+m[2]+`="`).MatchString(described) {
			t.Errorf("variable %s: %s asks for a metric or label that there is not", v.Name, v.Definition)
		}
	}
}

// everyMetric is a load of series for promqltest, of every metric of docs/metrics.md with its labels, and of the process' metrics that the dashboard has.
func everyMetric(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]string{
		"condition": {"Accepted", "Programmed"}, "status": {"True", "False"}, "code": {"200", "503"}, "state": {"current", "lagging"}, "mode": {"enforced", "shadow"}, "health": {"unhealthy", "ejected"},
	}
	var b strings.Builder
	b.WriteString("load 1m\n")
	line := func(name string, labels []string, value string) {
		fmt.Fprintf(&b, "  %s{%s} %s\n", name, strings.Join(append(slices.Clone(labels), `instance="10.0.0.1:15901"`), ","), value)
	}
	n := 0
	for _, m := range regexp.MustCompile("(?m)^\\| `(moongate_\\w+)` \\| (\\w+) \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1) {
		n++
		name, kind := m[1], m[2]
		sets := [][]string{nil}
		for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			some := values[label[1]]
			if some == nil {
				some = []string{"one"}
			}
			var next [][]string
			for _, set := range sets {
				for _, value := range some {
					next = append(next, append(slices.Clone(set), fmt.Sprintf("%s=%q", label[1], value)))
				}
			}
			sets = next
		}
		for _, labels := range sets {
			switch kind {
			case "gauge":
				line(name, labels, "1x30")
			case "counter":
				line(name, labels, "0+10x30")
			case "histogram":
				for _, le := range []string{"0.1", "1", "+Inf"} {
					line(name+"_bucket", append(slices.Clone(labels), fmt.Sprintf("le=%q", le)), "0+10x30")
				}
				line(name+"_sum", labels, "0+10x30")
				line(name+"_count", labels, "0+10x30")
			default:
				t.Fatalf("%s is a %s", name, kind)
			}
		}
	}
	if n < 40 {
		t.Fatalf("docs/metrics.md has %d metrics that were understood", n)
	}
	line("process_resident_memory_bytes", nil, "1x30")
	line("process_cpu_seconds_total", nil, "0+10x30")
	return b.String()
}
