package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is the cluster's one process as the machine sees it: a number, and the
// time of its start, because numbers are used again.
type process struct {
	pid     int
	started string
}

var errNotRunning = errors.New("is not running")

func (c cluster) process() (process, error) {
	content, err := os.ReadFile(c.pidFile())
	if errors.Is(err, fs.ErrNotExist) {
		return process{}, fmt.Errorf("cluster %s %w", filepath.Base(c.dir), errNotRunning)
	}
	if err != nil {
		return process{}, err
	}
	var p process
	if _, err := fmt.Sscan(string(content), &p.pid, &p.started); err != nil {
		return process{}, fmt.Errorf("%s: %w", c.pidFile(), err)
	}
	if startTime(p.pid) != p.started {
		return process{}, fmt.Errorf("cluster %s %w", filepath.Base(c.dir), errNotRunning)
	}
	return p, nil
}

func (c cluster) writePID(pid int) error {
	return os.WriteFile(c.pidFile(), fmt.Appendf(nil, "%d %s\n", pid, startTime(pid)), 0o600)
}

// startTime is field 22 of /proc/PID/stat, in ticks since boot; "" if there is no such process.
func startTime(pid int) string {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The second field is the program's name in parentheses, and may hold spaces.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	const state, start = 3, 22
	if fields[0] == "Z" {
		return ""
	}
	return fields[start-state]
}

// end ends the process, and with it, as it is the first of its namespace of
// processes, everything that it ever started.
func (p process) end(grace time.Duration) error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		for until := time.Now().Add(grace); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
			if startTime(p.pid) != p.started {
				return nil
			}
		}
	}
	return fmt.Errorf("process %d does not end", p.pid)
}
