package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	system    = "moongate-system"
	lease     = "moongate-controller"
	tick      = 10 * time.Millisecond // of /proc/PID/stat, on every Linux
	megabyte  = 1 << 20
	ethernet  = "eth0"
	heapInUse = "go_memstats_heap_inuse_bytes"
	heapLive  = "go_memstats_heap_alloc_bytes"
)

// process is one of the product's, as the machine sees it.
type process struct {
	what    string // controller, standby or proxy
	pid     int
	metrics string // URL
}

// processes are the leading controller, those that stand by, and the Gateway's proxies.
func (w *world) processes(ctx context.Context) ([]process, error) {
	holder, err := w.kube.CoordinationV1().Leases(system).Get(ctx, lease, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var out []process
	add := func(namespace, selector, port string, what func(pod string) string) error {
		pods, err := w.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			pid, err := pidOf(pod.Name)
			if err != nil {
				return err
			}
			out = append(out, process{what(pod.Name), pid, "http://" + net.JoinHostPort(pod.Status.PodIP, port) + "/metrics"})
		}
		return nil
	}
	err = errors.Join(
		add(system, "", "9902", func(pod string) string {
			if holder.Spec.HolderIdentity != nil && *holder.Spec.HolderIdentity == pod {
				return "controller"
			}
			return "standby"
		}),
		add(home, gwv1.GatewayNameLabelKey+"="+home, "15901", func(string) string { return "proxy" }))
	return out, err
}

// pidOf finds the program of a pod by its host name, which is the pod's.
func pidOf(pod string) (int, error) {
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return 0, err
	}
	for _, path := range environments {
		content, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(content, []byte("HOSTNAME="+pod+"\x00")) && !bytes.Contains(content, []byte("\x00HOSTNAME="+pod+"\x00")) {
			continue // it has ended, or is another
		}
		name, err := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		if err == nil && strings.TrimSpace(string(name)) == "moongate" {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("no process of pod %s is found", pod)
}

// usage is what a process has used and holds.
type usage struct {
	cpu      time.Duration
	resident int64 // bytes, as the ones below
	anon     int64
	peak     int64
	received int64 // by its pod
}

func (p process) usage() (usage, error) {
	var u usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return u, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return u, err
	}
	traffic, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", p.pid))
	if err != nil {
		return u, err
	}
	u.cpu, err = cpuTime(string(stat))
	u.resident, u.anon, u.peak = kilobytes(status, "VmRSS:"), kilobytes(status, "RssAnon:"), kilobytes(status, "VmHWM:")
	u.received = received(traffic)
	return u, err
}

// cpuTime is the user's and the system's share in /proc/PID/stat.
func cpuTime(stat string) (time.Duration, error) {
	// The second field is the program's name in parentheses, and may hold spaces.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const state, utime, stime = 3, 14, 15
	if len(fields) <= stime-state {
		return 0, fmt.Errorf("%q is no /proc/PID/stat", stat)
	}
	user, err := strconv.ParseInt(fields[utime-state], 10, 64)
	kernel, err2 := strconv.ParseInt(fields[stime-state], 10, 64)
	return time.Duration(user+kernel) * tick, errors.Join(err, err2)
}

// kilobytes reads a line such as "VmRSS:  123 kB", in bytes; 0 without one.
func kilobytes(status []byte, name string) int64 {
	for line := range bytes.Lines(status) {
		if fields := bytes.Fields(line); len(fields) > 1 && string(fields[0]) == name {
			n, _ := strconv.ParseInt(string(fields[1]), 10, 64) // the kernel writes numbers
			return n << 10
		}
	}
	return 0
}

// received is how many bytes came to the pod, by /proc/PID/net/dev.
func received(dev []byte) int64 {
	for line := range bytes.Lines(dev) {
		if name, counters, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == ethernet {
			n, _ := strconv.ParseInt(strings.Fields(counters)[0], 10, 64)
			return n
		}
	}
	return 0
}

// heap is what Go's collector says: bytes of spans in use, and of objects.
func (p process) heap(ctx context.Context) (inUse, objects float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.metrics, nil)
	if err != nil {
		return 0, 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	found := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 {
			if v, err := strconv.ParseFloat(fields[1], 64); err == nil {
				found[fields[0]] = v
			}
		}
	}
	if found[heapInUse] == 0 || found[heapLive] == 0 {
		return 0, 0, fmt.Errorf("%s does not tell of the heap", p.metrics)
	}
	return found[heapInUse], found[heapLive], lines.Err()
}

// busy is how much of the machine's time was not idle, and all of it, since its start.
func busy() (worked, all time.Duration) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(content), "\n")
	const idle, wait = 4, 5
	for i, field := range strings.Fields(line)[1:9] {
		n, _ := strconv.ParseInt(field, 10, 64)
		all += time.Duration(n) * tick
		if i+1 != idle && i+1 != wait {
			worked += time.Duration(n) * tick
		}
	}
	return worked, all
}
