//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxStreams is what the most modest contender, HAProxy, allows by default.
const maxStreams = 100

// settings are the flags.
type settings struct {
	rounds         int
	window, warmup time.Duration
	contenders     []string
	workloads      []string
	connections    int
	streams        int // of a connection in HTTP/2
	idle           int // connections of the idle workload
	watches        int
	routes         int // of the routes and edits workloads
	edits          int
	proxyCPU       int
	loadCPU        int
	moongate       string // binary; built from the source when empty
	caddy          string // binary; built from its module when empty
	baseline       string // binary of another version; none when empty
	keep           bool
	chart          string // file; none when empty
	profile        string // file; none when empty
}

func main() {
	if runRole(os.Args) {
		return
	}
	s, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, s, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string, output io.Writer) (*settings, error) {
	s := &settings{}
	var contenders, workloads string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(output)
	f.IntVar(&s.rounds, "n", 9, "rounds: windows of each contender per workload")
	f.DurationVar(&s.window, "window", 3*time.Second, "length of a measured window")
	f.DurationVar(&s.warmup, "warmup", time.Second, "load before each window")
	f.StringVar(&contenders, "contenders", "moongate,nginx,haproxy,caddy,floor", "who takes part")
	f.StringVar(&workloads, "workloads", strings.Join(workloadNames(), ","), "what is measured")
	f.IntVar(&s.connections, "connections", 64, "client connections")
	f.IntVar(&s.streams, "streams", 8, "requests in flight on each connection of http2, h2c and grpc workloads, which have -connections/-streams connections")
	f.IntVar(&s.idle, "idle", 2000, "idle connections of the idle workloads")
	f.IntVar(&s.watches, "watches", 10_000, fmt.Sprintf("idle calls of the idle-grpc workload, %d on a connection", maxStreams))
	f.IntVar(&s.routes, "routes", 5000, "HTTPRoutes of the routes and edits workloads")
	f.IntVar(&s.edits, "edits", 100, "route edits of the edits workload")
	f.IntVar(&s.proxyCPU, "proxy-cpu", 0, "CPU of the proxy")
	f.IntVar(&s.loadCPU, "load-cpu", 1, "CPU of the load generator and the origin")
	f.StringVar(&s.moongate, "moongate", "", "moongate binary (default: built from this repository)")
	f.StringVar(&s.caddy, "caddy", "", "caddy binary (default: built from its module)")
	f.StringVar(&s.baseline, "baseline", "", "another moongate binary to compare with in the same run")
	f.BoolVar(&s.keep, "keep", false, "keep the folder with configurations and logs")
	f.StringVar(&s.chart, "chart", "", "file for a chart (SVG) of the summary, relative to nginx")
	f.StringVar(&s.profile, "profile", "", "file for a CPU profile of Moongate in all windows, as go build -pgo takes it; what is measured includes the profiler")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; see -h", f.Arg(0))
	}
	s.contenders, s.workloads = strings.Split(contenders, ","), strings.Split(workloads, ",")
	if s.baseline != "" {
		s.contenders = append(s.contenders, baseline)
	}
	return s, s.check()
}

func (s *settings) check() error {
	for _, name := range s.contenders {
		if starters[name] == nil && name != floor || name == baseline && s.baseline == "" {
			return fmt.Errorf("unknown contender %q; there are moongate, nginx, haproxy, caddy and floor", name)
		}
	}
	for _, name := range s.workloads {
		if !slices.Contains(workloadNames(), name) {
			return fmt.Errorf("unknown workload %q; there are %s", name, strings.Join(workloadNames(), ", "))
		}
	}
	if s.streams < 1 || s.streams > maxStreams {
		return fmt.Errorf("-streams must be 1 to %d", maxStreams)
	}
	if s.connections%s.streams != 0 && slices.ContainsFunc(s.workloads, func(w string) bool {
		return w == "h2c" || strings.HasPrefix(w, "http2") || strings.HasPrefix(w, "grpc")
	}) {
		return errors.New("-streams must divide -connections, or the workloads by HTTP/2 have fewer requests in flight than the others")
	}
	if s.watches < maxStreams || s.watches%maxStreams != 0 {
		return fmt.Errorf("-watches must be a multiple of %d", maxStreams)
	}
	if s.rounds < 1 || s.connections < 1 || s.idle < 1 || s.routes < 1 || s.edits < 1 {
		return errors.New("-n, -connections, -idle, -routes and -edits must be at least 1")
	}
	if s.window <= 0 || s.warmup <= 0 {
		return errors.New("-window and -warmup must be more than 0")
	}
	if s.profile != "" && (s.window < minProfile || !slices.Contains(s.contenders, "moongate")) {
		return fmt.Errorf("-profile needs a -window of at least %s, and moongate among the -contenders", minProfile)
	}
	if s.proxyCPU == s.loadCPU {
		return errors.New("-proxy-cpu and -load-cpu must differ, or the load generator is measured with the proxy")
	}
	return nil
}

// runAll runs the workloads.
func (b *bench) runAll() error {
	for _, name := range b.workloads {
		if err := b.runWorkload(name); err != nil {
			if b.ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return fmt.Errorf("workload %s: %w", name, err)
		}
	}
	return nil
}

// run is the whole benchmark.
func run(ctx context.Context, s *settings, out io.Writer) (err error) {
	if runtime.NumCPU() < 2 {
		return errors.New("needs two CPUs: one for the proxy, one for the load")
	}
	// Before the minutes that it takes to measure what goes there. Of a flag that is not set it is the present folder.
	for name, file := range map[string]string{"-chart": s.chart, "-profile": s.profile} {
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			return fmt.Errorf("%s: %w; the path is relative to the folder test", name, err)
		}
	}
	b, err := newBench(ctx, s, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.printHeader()
	err = b.runAll()
	b.printSummary() // also of what came before an error, which may have taken most of an hour; so is the chart
	if s.chart != "" {
		err = errors.Join(err, b.writeChart(s.chart))
	}
	if err != nil {
		return err
	}
	if b.failures > 0 {
		return fmt.Errorf("%d requests or edits failed; the figures beside them are not to be trusted", b.failures)
	}
	if s.profile != "" {
		return b.writeProfile(s.profile)
	}
	return nil
}
