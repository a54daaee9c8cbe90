//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// minProfile is the shortest window that can be profiled: the admin server counts in seconds.
const minProfile = time.Second

// beginProfile has a contender profiled during the window that follows, if it is Moongate and profiles are wanted. The result waits
// for the profile.
func (b *bench) beginProfile(c *contender) (wait func() error) {
	if b.profile == "" || c.name != "moongate" {
		return func() error { return nil }
	}
	file := filepath.Join(b.dir, fmt.Sprintf("profile-%d", len(b.profiles)))
	b.profiles = append(b.profiles, file)
	done := make(chan error, 1)
	go func() {
		time.Sleep(b.warmup)
		done <- saveProfile(c.admin, b.window, file)
	}()
	return func() error { return <-done }
}

// saveProfile writes a CPU profile of a Moongate to a file.
func saveProfile(admin netip.AddrPort, length time.Duration, file string) error {
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, int(length.Seconds())))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile of %s: %s: %s", admin, resp.Status, body)
	}
	return os.WriteFile(file, body, 0o600)
}

// writeProfile merges the profiles of all windows into a file.
func (b *bench) writeProfile(file string) error {
	if len(b.profiles) == 0 {
		return fmt.Errorf("no workload with a Moongate was measured, so there is nothing to write to %s", file)
	}
	cmd := exec.CommandContext(b.ctx, "go", append([]string{"tool", "pprof", "-proto", "-output", file}, b.profiles...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go tool pprof: %w\n%s", err, out)
	}
	return nil
}
