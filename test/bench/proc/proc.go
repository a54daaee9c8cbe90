//go:build linux

// Package proc reads from /proc what the benchmark measures (CPU time by
// schedstat, resident memory) and pins processes to CPUs. It exists so that every
// figure comes from the kernel's own books, the same for all contenders. It
// must never import anything but the standard library.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Tree is pid and all its descendants, parents first.
func Tree(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// The name in parentheses may hold anything; the parent is the second word behind it.
		rest := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		child, err1 := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, err2 := strconv.Atoi(rest[1])
		if err1 == nil && err2 == nil {
			children[parent] = append(children[parent], child)
		}
	}
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree, nil
}

// CPU is the time that all threads of the processes have spent on a CPU so far: the
// first number of /proc/PID/task/TID/schedstat, nanoseconds.
func CPU(pids []int) (time.Duration, error) {
	var sum int64
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/task", pid)
		threads, err := os.ReadDir(dir)
		if err != nil {
			return 0, fmt.Errorf("process %d is gone: %w", pid, err)
		}
		for _, thread := range threads {
			data, err := os.ReadFile(dir + "/" + thread.Name() + "/schedstat")
			if err != nil {
				return 0, fmt.Errorf("a thread of process %d ended while it was measured: %w", pid, err)
			}
			first, _, _ := strings.Cut(string(data), " ")
			ns, err := strconv.ParseInt(first, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("schedstat of process %d: %w", pid, err)
			}
			sum += ns
		}
	}
	return time.Duration(sum), nil
}

// Resident is the sum of the processes' resident memory in bytes (VmRSS of /proc/PID/status).
func Resident(pids []int) (int64, error) { return memory(pids, "VmRSS") }

// Anonymous is the part of Resident that is no file (RssAnon): of programs as large as Moongate's, pages come and go that have nothing to do with what is held.
func Anonymous(pids []int) (int64, error) { return memory(pids, "RssAnon") }

func memory(pids []int, field string) (int64, error) {
	var sum int64
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, rest, ok := strings.Cut(string(data), "\n"+field+":")
		if !ok {
			return 0, fmt.Errorf("status of process %d has no %s", pid, field)
		}
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s of process %d: %w", field, pid, err)
		}
		sum += kib << 10
	}
	return sum, nil
}

// Busy is how long the CPU has worked for anybody since boot, and how long the
// hypervisor kept it away; both in steps of 10 ms.
func Busy(cpu int) (busy, stolen time.Duration, err error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	return parseBusy(string(data), cpu)
}

// parseBusy reads "cpuN user nice system idle iowait irq softirq steal ..." (proc(5)).
func parseBusy(stat string, cpu int) (busy, stolen time.Duration, err error) {
	_, rest, ok := strings.Cut(stat, fmt.Sprintf("\ncpu%d ", cpu))
	line, _, _ := strings.Cut(rest, "\n")
	words := strings.Fields(line)
	if !ok || len(words) < 8 {
		return 0, 0, fmt.Errorf("/proc/stat has no CPU %d", cpu)
	}
	const tick = 10 * time.Millisecond
	for i, word := range words[:8] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat, CPU %d: %w", cpu, err)
		}
		switch i {
		case 3, 4: // idle, iowait
		case 7:
			stolen = time.Duration(n) * tick
		default:
			busy += time.Duration(n) * tick
		}
	}
	return busy, stolen, nil
}

// OnCPU runs start on a thread pinned to cpu and unpins the thread afterwards; a
// process that start begins inherits the pin.
func OnCPU(cpu int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, pinned mask
	if err := before.call(syscall.SYS_SCHED_GETAFFINITY); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	pinned[cpu/64] = 1 << (cpu % 64)
	if err := pinned.call(syscall.SYS_SCHED_SETAFFINITY); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	err := start()
	if restore := before.call(syscall.SYS_SCHED_SETAFFINITY); restore != nil && err == nil {
		err = fmt.Errorf("unpin from CPU %d: %w", cpu, restore)
	}
	return err
}

// mask has one bit for each of 1,024 CPUs.
type mask [16]uint64

func (m *mask) call(number uintptr) error {
	_, _, errno := syscall.RawSyscall(number, 0, unsafe.Sizeof(*m), uintptr(unsafe.Pointer(m)))
	if errno != 0 {
		return errno
	}
	return nil
}
