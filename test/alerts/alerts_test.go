package alerts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

const alertsFile = "../../charts/moongate/files/alerts.yaml"

// ruleTests is a file of tests of rules, written as for "promtool test rules", so far as that is made use of here.
type ruleTests struct {
	Tests []struct {
		Name     string        `yaml:"name"`
		Interval time.Duration `yaml:"interval"`
		Series   []struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		} `yaml:"input_series"`
		Alerts []alertTest `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

// alertTest is which alerts of one name fire at a time; none do where Alerts is empty.
type alertTest struct {
	EvalTime time.Duration `yaml:"eval_time"`
	Name     string        `yaml:"alertname"`
	Alerts   []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

// TestAlerts: what testdata/alerts.test.yaml says fires or is silent does so, and it says both of every alert.
func TestAlerts(t *testing.T) { testRules(t, "testdata/alerts.test.yaml", alertsFile) }

// TestAlertsOfInstallation does the same for MoongateNoLeader as the chart renders it in namespace moongate-system; test/charts compares
// it with what the chart renders.
func TestAlertsOfInstallation(t *testing.T) {
	testRules(t, "testdata/installation.test.yaml", "testdata/installation.yaml")
}

// testRules runs the tests of a file of rules.
func testRules(t *testing.T, testsFile, rulesFile string) {
	text, err := os.ReadFile(testsFile)
	if err != nil {
		t.Fatal(err)
	}
	var all ruleTests
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range all.Tests {
		t.Run(test.Name, func(t *testing.T) {
			input := fmt.Sprintf("load %v\n", test.Interval)
			for _, s := range test.Series {
				input += fmt.Sprintf("  %s %s\n", s.Series, s.Values)
			}
			for _, a := range test.Alerts {
				got := firing(t, rulesFile, input, a.EvalTime)[a.Name]
				if len(a.Alerts) == 0 {
					silent[a.Name] = true
				} else {
					fires[a.Name] = true
				}
				if len(got) != len(a.Alerts) {
					t.Errorf("%s at %v: %d alerts, want %d: %v", a.Name, a.EvalTime, len(got), len(a.Alerts), got)
					continue
				}
				for i, want := range a.Alerts {
					for name, value := range want.Labels {
						if got := got[i].Labels.Get(name); got != value {
							t.Errorf("%s: label %s is %q, want %q", a.Name, name, got, value)
						}
					}
					if want.Annotations["summary"] == "" {
						t.Errorf("%s: the test does not say its summary", a.Name)
					}
					for name, value := range want.Annotations {
						if got := got[i].Annotations.Get(name); got != value {
							t.Errorf("%s: annotation %s is %q, want %q", a.Name, name, got, value)
						}
					}
				}
			}
		})
	}
	names := firing(t, rulesFile, "load 1m\n", 0)
	if len(names) == 0 {
		t.Error("there are no alerts")
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !fires[name] || !silent[name] {
			t.Errorf("%s: tested to fire: %v, to be silent: %v", name, fires[name], silent[name])
		}
	}
}

// firing evaluates the rules of a file every minute until a time, and returns which alerts fire then, by the name of their rules. Every rule has an entry.
func firing(t *testing.T, rulesFile, series string, at time.Duration) map[string][]*rules.Alert {
	t.Helper()
	storage := promqltest.LoadedStorage(t, series)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, 100_000)
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, storage), AppendableV2: storage, Queryable: storage,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Context: t.Context(), Logger: slog.New(slog.DiscardHandler),
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, rulesFile)
	if errs != nil {
		t.Fatal(errs)
	}
	all := map[string][]*rules.Alert{}
	for _, group := range groups {
		for now := time.Duration(0); now <= at; now += time.Minute {
			group.Eval(t.Context(), time.Unix(0, 0).Add(now))
		}
		for _, rule := range group.AlertingRules() {
			if err := rule.LastError(); err != nil {
				t.Errorf("%s: %v", rule.Name(), err)
			}
			all[rule.Name()] = nil
			for _, a := range rule.ActiveAlerts() {
				if a.State == rules.StateFiring {
					all[rule.Name()] = append(all[rule.Name()], a)
				}
			}
			slices.SortFunc(all[rule.Name()], func(a, b *rules.Alert) int { return labels.Compare(a.Labels, b.Labels) })
		}
	}
	return all
}
