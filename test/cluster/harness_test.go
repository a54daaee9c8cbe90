//go:build cluster

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// harness is a running cluster and the ways into it.
type harness struct {
	cluster
	name   string
	client *kubernetes.Clientset
	http   *http.Client // a connection per request, from the cluster's host
}

const patience = 30 * time.Second

func program(name string) string { return filepath.Join(os.Getenv("CLUSTER_BIN"), name) }

// command runs the cluster's program as a user would.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	run := exec.Command(program("cluster"), append([]string{"-name", name}, args...)...)
	var stderr bytes.Buffer
	run.Stderr = &stderr
	output, err := run.Output()
	if err != nil {
		t.Fatalf("cluster %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	return string(output)
}

func start(t *testing.T, args ...string) *harness {
	t.Helper()
	h := &harness{name: fmt.Sprintf("test%d", os.Getpid())}
	h.cluster = cluster{dir: filepath.Join(baseDir(), h.name)}
	t.Cleanup(func() { command(t, h.name, "down") })
	begin := time.Now()
	said := command(t, h.name, append([]string{"up", "-kube", os.Getenv("CLUSTER_KUBE"), "-dns", os.Getenv("CLUSTER_DNS")}, args...)...)
	t.Logf("up after %s", time.Since(begin))
	if want := "export KUBECONFIG=" + h.kubeconfig() + "\n"; said != want {
		t.Errorf("up says %q, want %q", said, want)
	}
	config, err := clientcmd.BuildConfigFromFlags("", h.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if h.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	h.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: h.dial}}
	return h
}

// dial connects from the cluster's network: the socket stays in the namespace
// in which it was made.
func (h *harness) dial(ctx context.Context, network, address string) (net.Conn, error) {
	p, err := h.process()
	if err != nil {
		return nil, err
	}
	type result struct {
		connection net.Conn
		err        error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.pid))
		if err == nil {
			defer namespace.Close()
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		// An address, not a name: a dial that races addresses would leave this thread.
		connection, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, address)
		done <- result{connection, err}
	}()
	r := <-done
	return r.connection, r.err
}

// ask sends a request into the cluster.
func (h *harness) ask(method, url string) (status int, body string, err error) {
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := h.http.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// get is ask where anything but 200 fails the test.
func (h *harness) get(t *testing.T, url string) string {
	t.Helper()
	status, body, err := h.ask("GET", url)
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: %d %q %v", url, status, body, err)
	}
	return body
}

// eventually tries until try returns "", which otherwise says what is missing.
func eventually(t *testing.T, try func() string) {
	t.Helper()
	missing := ""
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if missing = try(); missing == "" {
			return
		}
	}
	t.Fatalf("not after %s: %s", patience, missing)
}

// traces is what a cluster could leave on the machine.
type traces struct{ interfaces, tables, mounts string }

func lookForTraces(t *testing.T) traces {
	t.Helper()
	var found traces
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		found.interfaces += i.Name + " "
	}
	tables, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		t.Fatal(err)
	}
	found.tables = string(tables)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	found.mounts = string(mounts)
	return found
}

// namespaces are the namespaces of every process of the machine, by the link
// that names them, each with one process that is in it.
func namespaces(t *testing.T) map[string]string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil { // it may have ended meanwhile
			all[name] = link
		}
	}
	return all
}

// own are the namespaces that the cluster's processes have and this one does not.
func (h *harness) own(t *testing.T) []string {
	t.Helper()
	p, err := h.process()
	if err != nil {
		t.Fatal(err)
	}
	mine, _ := filepath.Glob("/proc/self/ns/*")
	foreign := map[string]bool{}
	for _, link := range mine {
		name, _ := os.Readlink(link)
		foreign[name] = true
	}
	var own []string
	for name, link := range namespaces(t) {
		if foreign[name] {
			continue
		}
		var pid int
		fmt.Sscanf(link, "/proc/%d/", &pid)
		if descends(pid, p.pid) {
			own = append(own, name)
		}
	}
	return own
}

func descends(pid, from int) bool {
	for pid > 1 {
		if pid == from {
			return true
		}
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		rest := string(content[bytes.LastIndexByte(content, ')')+1:])
		var state string
		if _, err := fmt.Sscan(rest, &state, &pid); err != nil {
			return false
		}
	}
	return false
}

// checkGone fails the test if anything of a cluster is left.
func checkGone(t *testing.T, before traces, own []string) {
	t.Helper()
	if after := lookForTraces(t); after != before {
		t.Errorf("traces on the machine: before\n%v\nafter\n%v", before, after)
	}
	eventually(t, func() string { // the machine's init still has to bury the process
		left := namespaces(t)
		for _, name := range own {
			if link, ok := left[name]; ok {
				return name + " is still alive: " + link
			}
		}
		return ""
	})
}
