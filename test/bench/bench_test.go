//go:build linux

package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/test/bench/load"
)

// Over 2n rounds everybody has every place equally often, and every round has everybody.
func TestOrderIsFair(t *testing.T) {
	for n := 1; n <= 4; n++ {
		places := map[[2]int]int{}
		for round := range 2 * n {
			turn := order(n, round)
			if sorted := slices.Sorted(slices.Values(turn)); len(slices.Compact(sorted)) != n {
				t.Fatalf("%d contenders, round %d: %v", n, round, turn)
			}
			for place, contender := range turn {
				places[[2]int{place, contender}]++
			}
		}
		for key, count := range places {
			if count != 2 {
				t.Errorf("%d contenders: place %d is contender %d's %d times, want 2", n, key[0], key[1], count)
			}
		}
	}
	if a, b := order(3, 0), order(3, 1); a[0] != b[2] || a[2] != b[0] {
		t.Errorf("rounds 0 and 1 are %v and %v: not backwards", a, b)
	}
}

func TestSeries(t *testing.T) {
	var s series
	s.add(&load.Result{
		Requests: 1000, Window: 2 * time.Second, Proxy: 20 * time.Millisecond, Load: 100 * time.Millisecond,
		Origin: 300 * time.Millisecond, Others: 500 * time.Millisecond, P50: time.Millisecond, P99: 3 * time.Millisecond,
	})
	s.add(&load.Result{Requests: 1, Window: time.Second, Errors: 2, FirstError: "first"})
	s.add(&load.Result{Requests: 1, Window: time.Second, Errors: 1, FirstError: "second"})
	for name, c := range map[string][2]float64{
		"values": {s.values[0], 20}, "rate": {s.rate[0], 500}, "p50": {s.p50[0], 1}, "p99": {s.p99[0], 3},
		"proxyBusy": {s.proxyBusy[0], 0.01}, "loadBusy": {s.loadBusy[0], 0.2}, "others": {s.others[0], 0.25},
	} {
		if c[0] != c[1] {
			t.Errorf("%s = %v, want %v", name, c[0], c[1])
		}
	}
	if s.errors != 3 || s.firstError != "first" {
		t.Errorf("%d errors, first %q; want 3, first", s.errors, s.firstError)
	}
}

// What is moved in bulk costs by the byte.
func TestSeriesOfBytes(t *testing.T) {
	s := series{bytes: 1 << 20}
	s.add(&load.Result{Requests: 2048, Window: 4 * time.Second, Proxy: time.Second})
	if s.values[0] != 500 || s.rate[0] != 512 {
		t.Errorf("%v ms per GiB at %v MiB/s, want 500 at 512", s.values[0], s.rate[0])
	}
}

// Whoever forwards connections needs nginx's stream module, which is a package of its own, and has all ports.
func TestLayer4Workloads(t *testing.T) {
	for _, name := range workloadNames() {
		if want := strings.HasPrefix(name, "tcp") || strings.HasPrefix(name, "tls-") || name == "idle-tcp" || strings.HasPrefix(name, "udp"); layer4(name) != want {
			t.Errorf("layer4(%q) = %v, want %v", name, !want, want)
		}
	}
}

func TestForwarded(t *testing.T) {
	got := forwarded(getInspect, true)
	if got[0] != "GET /api/v2/inspect?a=b HTTP/1.1" {
		t.Errorf("request line %q", got[0])
	}
	for _, want := range []string{
		"host: " + apiHost, "x-forwarded-for: 127.0.0.1", "x-forwarded-host: " + apiHost, "x-forwarded-proto: https",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if !slices.Contains(forwarded(postInspect, false), "x-forwarded-proto: http") {
		t.Error("a plain request should be forwarded as http")
	}
}

func TestRequests(t *testing.T) {
	head, body, _ := strings.Cut(string(postBody), "\r\n\r\n")
	if len(body) != uploadBody || !strings.Contains(head, fmt.Sprintf("Content-Length: %d", uploadBody)) {
		t.Errorf("upload of %d bytes, head %q", len(body), head)
	}
	if !strings.HasSuffix(string(getClosing), "\r\nConnection: close\r\n\r\n") {
		t.Errorf("%q does not end in Connection: close", getClosing)
	}
}

func TestFlags(t *testing.T) {
	s, err := parseFlags([]string{"-n", "2", "-contenders", "nginx", "-workloads", "A,idle"}, io.Discard)
	if err != nil || s.rounds != 2 || !slices.Equal(s.contenders, []string{"nginx"}) || !slices.Equal(s.workloads, []string{"A", "idle"}) {
		t.Errorf("settings %+v, %v", s, err)
	}
	if s, err = parseFlags(nil, io.Discard); err != nil || s.rounds < 9 || len(s.contenders) != 5 || len(s.workloads) != len(workloads()) {
		t.Errorf("defaults %+v, %v", s, err)
	}
	s, err = parseFlags([]string{"-baseline", "old", "-contenders", "moongate"}, io.Discard)
	if err != nil || s.baseline != "old" || !slices.Equal(s.contenders, []string{"moongate", baseline}) {
		t.Errorf("with a baseline %+v, %v", s, err)
	}
	for _, args := range [][]string{
		{"-n", "0"}, {"-contenders", "apache"}, {"-contenders", baseline}, {"-workloads", "D"}, {"-window", "0s"}, {"-proxy-cpu", "1"}, {"extra"},
		{"-streams", "0"}, {"-streams", "101"}, {"-streams", "7", "-workloads", "http2"}, {"-watches", "150"},
		{"-profile", "f", "-window", "900ms"}, {"-profile", "f", "-contenders", "nginx"},
	} {
		if _, err := parseFlags(args, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// Every template renders for every workload's variant, and leaves nothing unfilled.
func TestTemplates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	for _, v := range []variant{{}, {HAProxyBuffer: 32 << 10}, {AccessLog: true}, {Layer4: true, NginxBuffer: 64 << 10}} {
		for _, name := range []string{"nginx.conf.tmpl", "haproxy.cfg.tmpl", "moongate.yaml.tmpl", "caddy.json.tmpl"} {
			c := &configuration{variant: v, Dir: "/dir", Plain: 11111, TLS: 22222, GRPC: 44444, TCP: 7777, Passthrough: 8888, UDP: 1212, Origin: originPorts{33333, 55555, 6666, 9999}, Authority: "PEM", Certificate: "Y2VydA==", Key: "a2V5"}
			if err := render(path, name, c); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"11111", "22222", "33333", "44444", "55555", "6666", wwwHost, apiHost, "/api/v2/"} {
				if !bytes.Contains(text, []byte(want)) {
					t.Errorf("%s lacks %q", name, want)
				}
			}
			for _, port := range []string{"7777", "8888", "1212", "9999"} {
				udp := port == "1212" || port == "9999"
				if want := v.Layer4 && !(udp && name == "haproxy.cfg.tmpl") && name != "caddy.json.tmpl"; bytes.Contains(text, []byte(port)) != want {
					t.Errorf("%s has port %s: %v, want %v", name, port, !want, want)
				}
			}
			if bytes.Contains(text, []byte("<no value>")) {
				t.Errorf("%s has a gap", name)
			}
		}
	}
}

// Every rule stands in a route, with its backends once, and beside it every policy.
func TestWriteRules(t *testing.T) {
	t.Run("filters", func(t *testing.T) { testWriteRules(t, rules) })
	t.Run("policies", func(t *testing.T) { testWriteRules(t, policyRules) })
}

func testWriteRules(t *testing.T, rules []rule) {
	t.Helper()
	dir := t.TempDir()
	if err := writeRules(dir, rules); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "rules-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, file := range files {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, '\n'), part...)
	}
	if got := bytes.Count(text, []byte("\n      backendRefs:")); got != len(rules) {
		t.Errorf("%d rules have backends, want %d:\n%s", got, len(rules), text)
	}
	policies := 0
	for _, r := range rules {
		if r.Policy != "" {
			policies++
		}
		if !bytes.Contains(text, []byte(r.Path)) || !bytes.Contains(text, []byte(r.YAML)) || !bytes.Contains(text, []byte(r.Policy)) || !bytes.Contains(r.traffic().request, []byte("GET "+r.Path)) {
			t.Errorf("rule %q is not there as a whole", r.Label)
		}
	}
	if got := bytes.Count(text, []byte("\nkind: BackendTrafficPolicy")); got != policies {
		t.Errorf("%d policies, want %d:\n%s", got, policies, text)
	}
}

// buildMoongate builds Moongate from the source and returns its file.
func buildMoongate(t *testing.T) string {
	t.Helper()
	binary, err := build(t.Context(), t.TempDir(), ".", "./cmd/moongate")
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// testConfiguration returns what Moongate is configured with to serve on three ports, in front of an origin.
func testConfiguration(t *testing.T, v variant, free []uint16, origin *originPorts, cert *certificate) *configuration {
	t.Helper()
	encode := base64.StdEncoding.EncodeToString
	return &configuration{variant: v, Dir: t.TempDir(), Plain: free[0], TLS: free[1], GRPC: free[2], Origin: *origin,
		Certificate: encode(cert.chain), Key: encode(cert.key), Authority: string(cert.chain)}
}

// TestManifestsAreValid: Moongate finds nothing wrong with the manifests of any workload.
func TestManifestsAreValid(t *testing.T) {
	cert, err := newCertificate()
	if err != nil {
		t.Fatal(err)
	}
	binary := buildMoongate(t)
	for name, v := range map[string]variant{"plain": {}, "routes": {Routes: 3}, "filters": {Rules: rules}, "policies": {Rules: policyRules}, "layer 4": {Layer4: true}} {
		c := testConfiguration(t, v, []uint16{8080, 8443, 8081}, &originPorts{HTTP: 9080, TLS: 9443, GRPC: 9081, UDP: 9082}, cert)
		c.TCP, c.Passthrough, c.UDP = 9000, 9001, 9002
		if _, err := startMoongate(binary, c); err != nil { // which writes them, and starts nothing
			t.Fatal(err)
		}
		out, err := exec.Command(binary, "check", "-f", filepath.Join(c.Dir, "manifests")).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestWriteRoutes(t *testing.T) {
	dir := t.TempDir()
	if err := writeRoutes(dir, 4); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 4 {
		t.Fatalf("files %q, %v; want 4", files, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "other-3.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: other-3\n", "- host-3.example.test\n", "value: /other/3\n"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("other-3.yaml lacks %q:\n%s", want, text)
		}
	}
}

// An odd edit changes the file that the even one before it made; every path is new.
func TestEdits(t *testing.T) {
	paths := map[string]bool{}
	for i := range 10 {
		e := edit(i)
		if paths[e.Path] {
			t.Errorf("path %s comes twice", e.Path)
		}
		paths[e.Path] = true
		if i%2 == 1 && e.Name != edit(i-1).Name || i%2 == 0 && i > 0 && e.Name == edit(i-1).Name {
			t.Errorf("edit %d is to %s, the one before to %s", i, e.Name, edit(i-1).Name)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	err := checkInstalled([]string{"moongate", "no-such-proxy"}, []string{"tcp"})
	if err == nil || !strings.Contains(err.Error(), "apt-get install no-such-proxy") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line with the command", err)
	}
}

// A machine that gets slower from round to round says nothing of who is cheaper, if each round is judged by itself.
func TestByRound(t *testing.T) {
	all := []*series{
		{label: "moongate", values: []float64{8, 16, 40}},
		{label: "nginx", values: []float64{10, 20, 40}},
		{label: "haproxy", values: []float64{10}},
	}
	for label, want := range map[string]string{"nginx": "0.80 (0.80-0.90)", "haproxy": "-", "other": "-"} {
		if got := byRound(all[0], all, label); got != want {
			t.Errorf("to %s: %s, want %s", label, got, want)
		}
	}
}

// A baseline is compared in columns of its own.
func TestReportBaseline(t *testing.T) {
	var out bytes.Buffer
	b := &bench{settings: &settings{contenders: []string{"moongate", baseline}, baseline: "old"}, out: &out}
	b.summarize("T", "µs", []*series{{label: "moongate", values: []float64{8, 9}}, {label: baseline, values: []float64{10, 10}}})
	b.printSummary()
	for _, want := range []string{"| to baseline | to baseline by round |", "| 0.85 | 0.85 (0.83-0.88) |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

// Who takes no part in a workload has no figure, and the others have theirs in their own columns.
func TestReportWithoutAContender(t *testing.T) {
	var out bytes.Buffer
	b := &bench{settings: &settings{contenders: []string{"haproxy", "moongate", "nginx"}}, out: &out}
	b.summarize("T", "µs", []*series{{label: "moongate", values: []float64{8}}, {label: "nginx", values: []float64{10}}})
	b.printSummary()
	if want := "| T | µs | - | 8.00 | 10.0 | 0.80 | - | 0.80 (0.80-0.80) | - |"; !strings.Contains(out.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, out.String())
	}
}

// Doubtful figures carry their doubt.
func TestReportNamesDoubts(t *testing.T) {
	var out bytes.Buffer
	b := &bench{settings: &settings{contenders: []string{"moongate", "nginx"}}, out: &out}
	all := []*series{
		{label: "moongate", values: []float64{8}, rate: []float64{1}, loadBusy: []float64{0.99}, proxyBusy: []float64{0.5}, others: []float64{0}},
		{label: "nginx", values: []float64{16}, rate: []float64{1}, loadBusy: []float64{0.5}, proxyBusy: []float64{1}, others: []float64{0.3},
			errors: 3, firstError: "reset"},
	}
	b.printTraffic(&traffic{title: "T"}, all, 0)
	b.summarize("T", "µs", all)
	b.printSummary()
	for _, want := range []string{
		"| moongate | 8.00 | 8.00-8.00 | 8.00-8.00 | 0.50 | - |", "moongate waited for the load side",
		"nginx: others used 30 %", "**nginx: 3 failed requests**, first: reset", "| T | µs | 8.00 | 16.0 | 0.50 | - | 0.50 (0.50-0.50) | - |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "nginx waited") {
		t.Errorf("nginx did not wait:\n%s", out.String())
	}
}
