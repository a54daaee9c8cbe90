//go:build linux

package proc

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseBusy(t *testing.T) {
	const stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 1000 500 4 5 6 0 0\ncpu1 10 0 0 7 0 0 0 0 0 0\nintr 1\n"
	busy, stolen, err := parseBusy(stat, 0)
	if err != nil || busy != 150*time.Millisecond || stolen != 60*time.Millisecond {
		t.Errorf("CPU 0: busy %v, stolen %v, error %v; want 150ms, 60ms", busy, stolen, err)
	}
	if busy, _, _ := parseBusy(stat, 1); busy != 100*time.Millisecond {
		t.Errorf("CPU 1: busy %v, want 100ms", busy)
	}
	if _, _, err := parseBusy(stat, 2); err == nil {
		t.Error("a CPU that is not there gives no error")
	}
}

func TestCPUGrowsWithWork(t *testing.T) {
	self := []int{os.Getpid()}
	before, err := CPU(self)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if after, err := CPU(self); err != nil {
			t.Fatal(err)
		} else if after > before {
			return
		}
	}
	t.Error("30 s of work did not show in schedstat")
}

func TestTreeHoldsChildren(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	tree, err := Tree(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if tree[0] != os.Getpid() || !slices.Contains(tree, child.Process.Pid) {
		t.Errorf("tree %v should begin with %d and hold %d", tree, os.Getpid(), child.Process.Pid)
	}
}

func TestOnCPUPinsTheChildOnly(t *testing.T) {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	before := allowedCPUs(string(status))
	first, err := strconv.Atoi(strings.FieldsFunc(before, func(r rune) bool { return r == ',' || r == '-' })[0])
	if err != nil {
		t.Fatal(err)
	}
	var child []byte
	err = OnCPU(first, func() (err error) {
		child, err = exec.Command("cat", "/proc/self/status").Output()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := allowedCPUs(string(child)); got != strconv.Itoa(first) {
		t.Errorf("the child may run on CPUs %q, want %d", got, first)
	}
	if status, err = os.ReadFile("/proc/thread-self/status"); err != nil {
		t.Fatal(err)
	}
	if after := allowedCPUs(string(status)); after != before {
		t.Errorf("the calling thread may run on CPUs %q, before %q", after, before)
	}
}

func allowedCPUs(status string) string {
	_, rest, _ := strings.Cut(status, "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func TestResident(t *testing.T) {
	n, err := Resident([]int{os.Getpid()})
	if err != nil || n <= 0 {
		t.Errorf("Resident = %d, %v", n, err)
	}
}
