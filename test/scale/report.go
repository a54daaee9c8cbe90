package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// report is what is printed at the end, also of a run that failed: Markdown.
type report struct {
	head   []string
	rows   [][]string // work, measured, aim
	memory [][]string
}

// machine says on what this is a run.
func (r *report) machine() {
	r.head = append(r.head, fmt.Sprintf("%s; %s, %d CPUs, Linux %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"), cpuModel(), runtime.NumCPU(), kernel()))
}

// cluster says of what it is one.
func (r *report) cluster(ctx context.Context, w *world) {
	version := "unknown"
	if v, err := w.kube.Discovery().ServerVersion(); err == nil {
		version = v.GitVersion
	}
	image := "unknown"
	if d, err := w.kube.AppsV1().Deployments(system).Get(ctx, lease, metav1.GetOptions{}); err == nil {
		image = imageOf(d)
	}
	r.head = append(r.head, fmt.Sprintf("Kubernetes %s, all of it on this machine; %s", version, image))
}

func imageOf(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		return c.Image
	}
	return "unknown"
}

func cpuModel() string {
	content, _ := os.ReadFile("/proc/cpuinfo") // without one it is unknown
	for line := range strings.Lines(string(content)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

func kernel() string {
	content, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(content))
}

func (r *report) row(work, figure, aim string) { r.rows = append(r.rows, []string{work, figure, aim}) }

func (r *report) attached(n int, setup, teardown *phaseResult) {
	for _, p := range []struct {
		what, aim string
		*phaseResult
	}{{"setup", "2 s", setup}, {"teardown", "20 s", teardown}} {
		r.row(fmt.Sprintf("%s of %d routes: from the last request to the right count", p.what, n),
			fmt.Sprintf("%s (requests: %s)", seconds(p.counted), seconds(p.requests)), "<= "+p.aim)
		r.row("- writes of the Gateway's status", fmt.Sprint(p.writes), "< 300")
		aim, note := "0", ""
		if p.what == "setup" {
			aim = fmt.Sprint(n)
		}
		if p.early > 0 {
			note = fmt.Sprintf(", %d of them before the Service was seen", p.early)
		}
		r.row("- writes of the routes' statuses", fmt.Sprint(p.statuses, note), aim)
	}
}

func (r *report) propagation(what string, p *propagation) {
	if len(p.served) == 0 {
		return
	}
	aim := "<= 20 ms"
	r.row(fmt.Sprintf("propagation, %d %s: mean", len(p.served), what), millis(mean(p.served)), aim)
	r.row("- p50, p99, max", fmt.Sprintf("%s, %s, %s", millis(quantile(p.served, 0.5)), millis(quantile(p.served, 0.99)), millis(quantile(p.served, 1))), "")
	tenth := max(1, len(p.served)/10)
	r.row("- mean of the first tenth, of the last", fmt.Sprintf("%s, %s", millis(mean(p.served[:tenth])), millis(mean(p.served[len(p.served)-tenth:]))), "flat")
	r.row("- the API server's part, which comes before: mean", millis(mean(p.created)), "")
	r.row("- wrong answers", fmt.Sprint(p.wrong), "0")
}

func (r *report) change(e *edits) {
	r.row(fmt.Sprintf("route change: failures of %d requests during %d edits", e.requests, e.made), fmt.Sprint(len(e.failures)), "0")
}

func (r *report) loaded(total int, made, followed time.Duration) {
	r.row(fmt.Sprintf("load of %d routes: made in, all counted and accepted after another", total), fmt.Sprintf("%s, %s", seconds(made), seconds(followed)), "")
}

func (r *report) sets(sets, routes int, made, followed time.Duration) {
	r.row(fmt.Sprintf("%d ListenerSets with %d routes: made in, all counted and accepted after another", sets, routes), fmt.Sprintf("%s, %s", seconds(made), seconds(followed)), "")
}

func (r *report) costs(when string, costs []cost) {
	for _, c := range costs {
		r.memory = append(r.memory, []string{when, c.what, fmt.Sprintf("%.4f", c.cores),
			mib(float64(c.resident)), mib(float64(c.most)), mib(float64(c.anon)), mib(float64(c.peak)), mib(c.inUse), mib(c.objects),
			fmt.Sprintf("%.1f", c.received/1000), fmt.Sprintf("%.0f %%", 100*c.busy)})
	}
}

func (r *report) certificates(one, many *certified) {
	r.row(fmt.Sprintf("%d certificates on one port, %d for each listener: start", many.number, many.perListener), seconds(many.ready), "<= 3 s")
	r.row("- CPU time of it", seconds(many.begun), "")
	r.row("- start with one certificate", seconds(one.ready), "")
	ratios := many.ratios(one)
	r.row("- CPU time of a full handshake, compared with one certificate: median of rounds", fmt.Sprintf("%.2f", ratios[len(ratios)/2]), "<= 1.1")
	r.row("- lowest, highest", fmt.Sprintf("%.2f, %.2f", ratios[0], ratios[len(ratios)-1]), "")
	r.row("- means of all rounds", fmt.Sprintf("%.0f us, %.0f us with one certificate: %.2f", micros(mean(many.costs)), micros(mean(one.costs)),
		float64(mean(many.costs))/float64(mean(one.costs))), "<= 1.1")
	r.row("- resident MiB of controller and proxy in one process", fmt.Sprintf("%s, %s with one certificate", mib(float64(many.resident)), mib(float64(one.resident))), "")
}

func (r *report) churned(when string, c *churn) {
	r.row(fmt.Sprintf("%s: %d changes of endpoints, %d of routes: writes of the routes' statuses", when, c.endpoints, c.routes), fmt.Sprint(c.statuses), fmt.Sprintf("<= %d", c.routes))
	r.row("- writes of the Gateway's status", fmt.Sprint(c.gateway), "0")
}

func (r *report) print(to io.Writer) error {
	var b strings.Builder
	for _, line := range r.head {
		fmt.Fprintf(&b, "%s\n\n", line)
	}
	table(&b, []string{"work", "measured", "aim"}, r.rows)
	if len(r.memory) > 0 {
		table(&b, []string{"while", "process", "CPU, cores", "resident MiB", "most", "of it anonymous", "ever", "Go heap in use", "live and dead objects", "received kB/s", "machine busy"}, r.memory)
		fmt.Fprintln(&b, "Aims: controller <= 350 MiB and 0.05 cores, proxy <= 60 MiB and 0.01 cores; with 2,500 ListenerSets and 40,000 routes controller <= 600 MiB, proxy <= 140 MiB.")
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func table(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, row := range rows {
		line(row)
	}
	b.WriteString("\n")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func mib(bytes float64) string       { return fmt.Sprintf("%.1f", bytes/megabyte) }

// mean is 0 of nothing.
func mean(of []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range of {
		sum += d
	}
	return sum / time.Duration(max(1, len(of)))
}

// quantile is the smallest value that so large a share of the values does not exceed; 1 is the greatest. There must be one.
func quantile(of []time.Duration, share float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	at := int(share*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}
