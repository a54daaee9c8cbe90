//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// printHeader says on what, with what and when the figures were made.
func (b *bench) printHeader() {
	fmt.Fprintf(b.out, "%s; %s, %d CPUs, Linux %s\n\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), cpuModel(), runtime.NumCPU(), kernel())
	for _, name := range b.contenders {
		fmt.Fprintf(b.out, "- %s: %s\n", name, b.version(name))
	}
	fmt.Fprintf(b.out, "- load generator and origin: this program, %s\n", runtime.Version())
	fmt.Fprintf(b.out, "\nProxy on CPU %d, load generator and origin on CPU %d; %d connections; %d rounds of %v after %v of warm-up.\n",
		b.proxyCPU, b.loadCPU, b.connections, b.rounds, b.window, b.warmup)
}

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH // not every architecture has a model name
}

func kernel() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

// version is what the program says of itself, in one line.
func (b *bench) version(name string) string {
	if name == floor {
		return "no proxy: receives and sends each message once (test/bench/forward)"
	}
	args := map[string][]string{
		"nginx": {program("nginx"), "-v"}, "haproxy": {program("haproxy"), "-v"}, "moongate": {b.moongate, "version"}, "caddy": {b.caddy, "version"}, baseline: {b.baseline, "version"},
	}[name]
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return fmt.Sprintf("unknown version (%v)", err)
	}
	line, _, _ = strings.Cut(strings.TrimPrefix(line, "nginx version: "), " - http")
	if name == "moongate" {
		line += ", commit " + commit()
	}
	return strings.Join(strings.Fields(line), " ")
}

// commit names the state of the repository.
func commit() string {
	root, err := repository()
	if err != nil {
		return "unknown"
	}
	out, err := exec.Command("git", "-C", filepath.Clean(root), "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
