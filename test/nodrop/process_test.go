//go:build nodrop

package nodrop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// process is the first process of a pod's only container, 0 if there is none now: a child of the
// cluster's process that has the pod's name for a host name. This test shares the machine's
// numbers with them.
func process(t *testing.T, pod string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	parent, _, _ := strings.Cut(string(content), " ")
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil || !strings.Contains(string(status), "\nPPid:\t"+parent+"\n") {
			continue
		}
		name, err := os.ReadFile(filepath.Join(dir, "root/etc/hostname"))
		if err != nil || strings.TrimSpace(string(name)) != pod {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	return 0
}

// signal sends a signal to a pod's process, and returns which one it was.
func signal(t *testing.T, pod string, s syscall.Signal) (pid int) {
	t.Helper()
	if pid = process(t, pod); pid == 0 {
		t.Fatalf("pod %s has no process", pod)
	}
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("%s to pod %s: %v", s, pod, err)
	}
	return pid
}

// replaced waits until another process than pid runs in the pod.
func replaced(t *testing.T, pod string, pid int) {
	t.Helper()
	eventually(t, func() string {
		if now := process(t, pod); now == 0 || now == pid {
			return fmt.Sprintf("pod %s has process %d, after %d", pod, now, pid)
		}
		return ""
	})
}
