// Command run executes the conformance suite within the test cluster's network,
// shows how it goes, keeps the output of each test apart, and keeps the report only
// if the run was a whole one. It exists because the suite's tests run side by
// side and their output is one stream. It must never change what the suite does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// Addresses for the tests that ask for one: the last of the load balancer's range that can
// be had, and one that it refuses, because it is outside of it.
const (
	usableAddress   = "10.97.0.250"
	unusableAddress = "192.0.2.1"
)

type settings struct {
	cluster, name, suite       string
	class, profiles, only      string
	version, logs, report      string
	parallel                   int
	timeout                    time.Duration
	organization, project, url string
	contact                    string
}

func main() {
	var s settings
	flag.StringVar(&s.cluster, "cluster", "bin/cluster", "the program that `make cluster` builds")
	flag.StringVar(&s.name, "name", "default", "which cluster")
	flag.StringVar(&s.suite, "suite", "bin/suite.test", "the suite as a program")
	flag.StringVar(&s.class, "class", "moongate", "the GatewayClass")
	flag.StringVar(&s.profiles, "profiles", "GATEWAY-HTTP", "the profiles that the GatewayClass must claim, neither more nor less")
	flag.StringVar(&s.only, "only", "", "regular expression of the names of the tests to run; makes no report")
	flag.StringVar(&s.version, "version", "unknown", "the implementation's version")
	flag.StringVar(&s.logs, "logs", "bin/conformance/default", "folder for the output of each test")
	flag.StringVar(&s.report, "report", "", "file for the report of a run that passed")
	flag.IntVar(&s.parallel, "parallel", 16, "how many tests may run side by side")
	flag.DurationVar(&s.timeout, "timeout", 15*time.Minute, "after which the suite is ended")
	flag.StringVar(&s.organization, "organization", "moongate-dev", "for the report, as the ones below")
	flag.StringVar(&s.project, "project", "moongate", "")
	flag.StringVar(&s.url, "url", "https://github.com/moongate-dev/moongate", "")
	flag.StringVar(&s.contact, "contact", "https://github.com/moongate-dev/moongate/issues/new", "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// command is the suite in the cluster's network, its output as events.
func (s *settings) command(ctx context.Context, report string) *exec.Cmd {
	args := []string{
		"tool", "test2json", "-t", s.cluster, "-name", s.name, "exec", s.suite,
		"-test.v=test2json", "-test.run=^" + suiteTest + "$",
		fmt.Sprintf("-test.parallel=%d", s.parallel), fmt.Sprintf("-test.timeout=%s", s.timeout),
		"-gateway-class=" + s.class, "-conformance-profiles=" + s.profiles,
		"-usable-address=" + usableAddress, "-unusable-address=" + unusableAddress,
		"-organization=" + s.organization, "-project=" + s.project, "-url=" + s.url, "-version=" + s.version, "-contact=" + s.contact,
	}
	if s.only != "" {
		// What is there serves the next run, which then starts at once.
		args = append(args, "-only="+s.only, "-cleanup-base-resources=false")
	} else {
		args = append(args, "-report-output="+report)
	}
	command := exec.CommandContext(ctx, "go", args...)
	// An interrupt lets the suite tidy up no more than the end of the cluster does.
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stderr = os.Stderr
	return command
}

func (s *settings) run(ctx context.Context) error {
	if err := os.RemoveAll(s.logs); err != nil {
		return err
	}
	if err := os.MkdirAll(s.logs, 0o755); err != nil {
		return err
	}
	report, err := filepath.Abs(filepath.Join(s.logs, "report.yaml"))
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.logs, "suite.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	begin := time.Now()
	command := s.command(ctx, report)
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	var r results
	err = r.read(output, func(name, what string, took time.Duration) {
		fmt.Printf("%4.0fs %s %s (%.1fs)\n", time.Since(begin).Seconds(), what, name, took.Seconds())
	}, func(line string) { log.WriteString(line) })
	if err != nil {
		_, _ = io.Copy(log, output) // the suite shall not wait for a reader
	}
	ended := command.Wait() // fails when a test does, which the results say better
	if err = errors.Join(err, s.keep(&r, log.Name())); err != nil {
		return err
	}
	fmt.Printf("%d passed, %d failed, %d skipped, %d not supported, in %.0f s; output: %s\n", len(r.passed), len(r.failed),
		len(r.gaveUp), len(r.unsupported), time.Since(begin).Seconds(), s.logs)
	if err := errors.Join(r.problem(), ended); err != nil {
		return err
	}
	return s.keepReport(report)
}

// keep writes each test's output to a file of its own, and shows why tests failed.
func (s *settings) keep(r *results, suiteLog string) error {
	for name := range r.output {
		if err := os.WriteFile(filepath.Join(s.logs, name+".log"), []byte(r.text(name)), 0o644); err != nil {
			return err
		}
	}
	for _, name := range r.failed {
		fmt.Printf("\n--- %s\n%s", name, digest(r.text(name), 40))
	}
	if len(r.failed) == 0 && !r.succeeded {
		content, err := os.ReadFile(suiteLog)
		if err != nil {
			return err
		}
		fmt.Printf("\n--- the suite\n%s", digest(string(content), 40))
	}
	return nil
}

// keepReport puts the report, as the suite wrote it, where those find it who hand it in.
func (s *settings) keepReport(from string) error {
	if s.only != "" || s.report == "" {
		return nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.report), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.report, content, 0o644); err != nil {
		return err
	}
	fmt.Println("report:", s.report)
	return nil
}
