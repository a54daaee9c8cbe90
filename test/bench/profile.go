//go:build linux

package main

import (
	"context"
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

// profileGrace is how much longer than its window a profile may take to arrive.
const profileGrace = 30 * time.Second

// beginProfile has a contender profiled during the window that follows, if it is Moongate and -profile is set. wait returns when the
// profile has been saved.
func (b *bench) beginProfile(c *contender) (wait func() error) {
	if b.profile == "" || c.name != "moongate" {
		return func() error { return nil }
	}
	file := filepath.Join(b.dir, fmt.Sprintf("profile-%d", len(b.profiles)))
	b.profiles = append(b.profiles, file)
	done := make(chan error, 1)
	go func() {
		time.Sleep(b.warmup)
		done <- b.saveProfile(c.admin, file)
	}()
	return func() error { return <-done }
}

// saveProfile writes a CPU profile of a Moongate, of the length of a window, to a file.
func (b *bench) saveProfile(admin netip.AddrPort, file string) error {
	ctx, cancel := context.WithTimeout(b.ctx, b.window+profileGrace)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, int(b.window.Seconds())), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
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

// writeProfile merges the profiles of all windows into a file, which it replaces at once: Moongate may be compiled with it.
func (b *bench) writeProfile(file string) error {
	if len(b.profiles) == 0 {
		return fmt.Errorf("no workload with a Moongate was measured, so there is nothing to write to %s", file)
	}
	part := file + ".part"
	cmd := exec.CommandContext(b.ctx, "go", append([]string{"tool", "pprof", "-proto", "-output", part}, b.profiles...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		os.Remove(part)
		return fmt.Errorf("go tool pprof: %w\n%s", err, out)
	}
	return os.Rename(part, file)
}
