package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// replaced is moongate as a process whose successors write where it does.
type replaced struct {
	t   *testing.T
	log string // a file
	pid int    // of the one that serves
	cmd *exec.Cmd
	end chan error
}

// startReplaced starts a program that is this one, with the arguments of run.
func startReplaced(t *testing.T, program string, args ...string) *replaced {
	t.Helper()
	r := &replaced{t: t, log: filepath.Join(t.TempDir(), "log"), end: make(chan error, 1)}
	out, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r.cmd = exec.Command(program, append([]string{"run", "--bind", "127.0.0.1", "--access-log", "off"}, args...)...)
	r.cmd.Env = append(os.Environ(), "MOONGATE_E2E_MAIN=1")
	r.cmd.Stdout, r.cmd.Stderr = out, out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.pid = r.cmd.Process.Pid
	go func() { r.end <- r.cmd.Wait() }()
	t.Cleanup(func() {
		for _, pid := range append(r.successors(), r.cmd.Process.Pid) {
			syscall.Kill(pid, syscall.SIGKILL) // most have ended
		}
		if t.Failed() {
			t.Logf("log of moongate:\n%s", r.text())
		}
	})
	r.sees("ready", 1)
	return r
}

func (r *replaced) text() string {
	b, err := os.ReadFile(r.log)
	if err != nil {
		r.t.Error(err)
	}
	return string(b)
}

// sees waits until the log has a text n times.
func (r *replaced) sees(what string, n int) {
	r.t.Helper()
	testkit.Eventually(r.t, fmt.Sprintf("%q, %d times, in the log", what, n), func() bool { return strings.Count(r.text(), what) >= n })
}

var takenOver = regexp.MustCompile(`another process has taken over.* pid=(\d+)`)

// successors are the processes that have taken over.
func (r *replaced) successors() (all []int) {
	for _, m := range takenOver.FindAllStringSubmatch(r.text(), -1) {
		pid, _ := strconv.Atoi(m[1])
		all = append(all, pid)
	}
	return all
}

// replace has another process take over.
func (r *replaced) replace() {
	r.t.Helper()
	before := len(r.successors())
	if err := syscall.Kill(r.pid, syscall.SIGUSR2); err != nil {
		r.t.Fatal(err)
	}
	testkit.Eventually(r.t, "another process takes over", func() bool { return len(r.successors()) > before })
	r.pid = r.successors()[before]
}

// traffic sends requests of one kind after another until stop, and counts those that fail.
type traffic struct {
	all      sync.WaitGroup
	stop     atomic.Bool
	sent     atomic.Int64
	failures testkit.Log
}

func (l *traffic) run(kind string, send func() error) {
	l.all.Go(func() {
		for !l.stop.Load() {
			if err := send(); err != nil {
				fmt.Fprintf(&l.failures, "%s: %v\n", kind, err)
			}
			l.sent.Add(1)
		}
	})
}

func (l *traffic) end() {
	l.stop.Store(true)
	l.all.Wait()
}

// answers is a request that must be answered by 200, and by a backend with the body that it got.
func answers(a ask) error {
	got, err := a.try()
	switch {
	case err != nil:
		return err
	case got.StatusCode != 200:
		return errors.New(got.Status)
	case len(got.echo.Body) != len(a.body):
		return fmt.Errorf("%d bytes of %d reached the backend", len(got.echo.Body), len(a.body))
	}
	return nil
}

// overHTTP2 is a client that speaks HTTP/2 in the clear.
func overHTTP2() *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: &p}}
}

// TestReplace has one process after another take over while all kinds of traffic pass, and nothing fails.
func TestReplace(t *testing.T) {
	t.Parallel()
	dir, port, slow := site(t)
	udp, tcp, adminPort := freePort(t), freePort(t), freePort(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for c, err := echo.Accept(); err == nil; c, err = echo.Accept() {
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	text, err := os.ReadFile(filepath.Join(dir, "all.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	gateways := strings.TrimPrefix(gatewayWith(listenerOf("tcp", "TCP", tcp), listenerOf("udp", "UDP", udp)), class)
	more := strings.Replace(gateways, "name: gw", "name: l4", 1) + service("default", "echo", &backend{port: echo.Addr().(*net.TCPAddr).Port}) +
		l4Route("TCPRoute", "tcp", "echo") + fmt.Sprintf(strings.ReplaceAll(udpServices, "name: b", "name: c"), newUDPBackend(t, "a").port, newUDPBackend(t, "b").port) + l4Route("UDPRoute", "udp", "a")
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), append(text, more...), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startReplaced(t, os.Args[0], "-f", dir, "--admin-address", fmt.Sprintf("127.0.0.1:%d", adminPort))

	url := local(port, "/")
	var l traffic
	body := strings.Repeat("x", 5000)
	for range 2 {
		kept, multiplexed := &http.Client{Transport: &http.Transport{}}, overHTTP2()
		l.run("HTTP/1.1", func() error { return answers(ask{url: url, client: kept}) })
		l.run("a body", func() error { return answers(ask{method: "PUT", url: url, body: body, client: kept}) })
		l.run("HTTP/2", func() error { return answers(ask{url: url, client: multiplexed}) })
	}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	l.run("new connections", func() error { time.Sleep(time.Millisecond); return answers(ask{url: url, client: fresh}) })
	l.run("admin", func() error {
		time.Sleep(time.Millisecond)
		return answers(ask{url: local(adminPort, "/readyz"), client: fresh})
	})
	l.run("TCP", func() error { time.Sleep(time.Millisecond); return echoes(tcp) })
	l.run("UDP", func() error {
		time.Sleep(time.Millisecond)
		if got := answered(t, udp); got != "a" {
			return fmt.Errorf("%q answers", got)
		}
		return nil
	})
	tunnel, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", tcp))
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		waiting := slow.send(t, port)
		r.replace()
		if err := echo1(tunnel); err != nil { // it is the first process's, which lives as long as it
			t.Errorf("a tunnel that was there before: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
		slow.release <- struct{}{}
		resp, err := http.ReadResponse(waiting, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("the request in flight: %v %v", resp, err)
		}
	}
	l.end()
	if l.sent.Load() < 100 {
		t.Errorf("only %d requests: that is no load", l.sent.Load())
	}
	if failed := l.failures.String(); failed != "" {
		t.Errorf("of %d requests failed:\n%s", l.sent.Load(), failed)
	}
	if n := len(r.successors()); n != 3 {
		t.Errorf("%d successors", n)
	}
	tunnel.Close()
	if err := <-r.end; err != nil {
		t.Errorf("the first process: %v", err)
	}
	syscall.Kill(r.pid, syscall.SIGTERM)
	testkit.Eventually(t, "the last one ends", func() bool { return echoes(tcp) != nil })
}

// echoes sends something over a new connection and expects it back.
func echoes(port int) error {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer c.Close()
	return echo1(c)
}

func echo1(c net.Conn) error {
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

func listenerOf(name, protocol string, port int) string {
	return fmt.Sprintf("{name: %s, protocol: %s, port: %d}", name, protocol, port)
}

func l4Route(kind, name, backend string) string {
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: %s
metadata: {name: %s}
spec: {parentRefs: [{name: l4, sectionName: %[2]s}], rules: [{backendRefs: [{name: %s, port: 80}]}]}
`, kind, name, backend)
}

// TestReplaceUpgrades takes the program that lies where this one was; one that ends is no harm.
func TestReplaceUpgrades(t *testing.T) {
	t.Parallel()
	dir, port, _ := site(t)
	program := filepath.Join(t.TempDir(), "moongate")
	install := func(make func(path string) error) {
		t.Helper()
		if err := make(program + ".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(program+".new", program); err != nil {
			t.Fatal(err)
		}
	}
	self := func(path string) error {
		b, err := os.ReadFile(os.Args[0])
		if err != nil {
			return err
		}
		return os.WriteFile(path, b, 0o755)
	}
	install(self)
	// What no process can serve is no reason to refuse another one.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	blocked := strings.TrimPrefix(gatewayWith(httpListener("only", taken.Addr().(*net.TCPAddr).Port, "")), class)
	more := strings.Replace(blocked, "name: gw", "name: blocked", 1) + route("broken", "  rules: [{backendRefs: [{name: 7}]}]")
	if err := os.WriteFile(filepath.Join(dir, "more.yaml"), []byte(more), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startReplaced(t, program, "-f", dir, "--admin-address", "127.0.0.1:0")
	install(func(path string) error { return os.WriteFile(path, []byte("#!/bin/sh\nexit 3\n"), 0o755) })
	syscall.Kill(r.pid, syscall.SIGUSR2)
	r.sees("the replacement failed; this process continues to serve", 1)
	r.sees("exit status 3", 1)
	install(func(path string) error { return os.WriteFile(path, []byte("\x7fELF"), 0o755) })
	syscall.Kill(r.pid, syscall.SIGUSR2)
	r.sees("the replacement failed; this process continues to serve", 2)
	if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 {
		t.Errorf("%s", got.Status)
	}
	install(self)
	r.replace()
	if !strings.Contains(r.text(), "not ready") {
		t.Error("the port that is taken is served")
	}
	if err := <-r.end; err != nil {
		t.Errorf("the first process: %v", err)
	}
	if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 {
		t.Errorf("%s", got.Status)
	}
}

// TestReplaceLosesNothing: what another process could not read any more keeps this one.
func TestReplaceLosesNothing(t *testing.T) {
	t.Parallel()
	dir, port, _ := site(t)
	r := startReplaced(t, os.Args[0], "-f", dir, "--admin-address", "127.0.0.1:0")
	path := filepath.Join(dir, "all.yaml")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(good, []byte("backendRefs: [{name: b"), []byte("backendRefs: [{name: 7"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	r.sees("all.yaml:", 1)
	syscall.Kill(r.pid, syscall.SIGUSR2)
	r.sees("an earlier version of HTTPRoute default/r is served, which another process could not read; correct "+path, 1)
	if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 {
		t.Errorf("%s", got.Status)
	}
	if err := os.WriteFile(path, good, 0o644); err != nil {
		t.Fatal(err)
	}
	const refused = "the replacement failed"
	for len(r.successors()) == 0 { // until it has read the file
		before := strings.Count(r.text(), refused)
		syscall.Kill(r.cmd.Process.Pid, syscall.SIGUSR2)
		testkit.Eventually(t, "it can be replaced again, or says why not", func() bool {
			return len(r.successors()) == 1 || strings.Count(r.text(), refused) > before
		})
	}
	if n := strings.Count(r.text(), "starting a process"); n != 1 {
		t.Errorf("%d processes were started", n)
	}
}

// TestReplaceTwice: who asks again while a process is replaced gets another one, though the first process is asked.
func TestReplaceTwice(t *testing.T) {
	t.Parallel()
	dir, port, slow := site(t)
	r := startReplaced(t, os.Args[0], "-f", dir, "--admin-address", "127.0.0.1:0")
	waiting := slow.send(t, port) // so that the first one drains while it is asked again
	syscall.Kill(r.pid, syscall.SIGUSR2)
	r.sees("starting a process to take over", 1)
	syscall.Kill(r.pid, syscall.SIGUSR2)
	r.sees("another process has taken over", 2)
	slow.release <- struct{}{}
	if resp, err := http.ReadResponse(waiting, nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("the request in flight: %v %v", resp, err)
	}
	if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 {
		t.Errorf("%s", got.Status)
	}
}

// TestReplaceKilled kills the process that is replaced before its successor is ready, which serves then.
func TestReplaceKilled(t *testing.T) {
	t.Parallel()
	dir, port, _ := site(t)
	// So many that there is time to kill in.
	var routes strings.Builder
	for i := range 3000 {
		routes.WriteString(route(fmt.Sprintf("r%d", i), "  rules: [{backendRefs: [{name: b, port: 80}]}]"))
	}
	if err := os.WriteFile(filepath.Join(dir, "routes.yaml"), []byte(routes.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startReplaced(t, os.Args[0], "-f", dir, "--admin-address", "127.0.0.1:0")
	syscall.Kill(r.pid, syscall.SIGUSR2)
	r.sees("starting a process to take over", 1)
	var successor int
	testkit.Eventually(t, "a successor", func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range all {
			env, _ := os.ReadFile(path) // of one that has ended this moment
			args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			if bytes.Contains(env, []byte("MOONGATE_HANDOVER_SUCCESSOR=")) && bytes.Contains(args, []byte(dir)) {
				successor, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
				return true
			}
		}
		return false
	})
	syscall.Kill(r.pid, syscall.SIGKILL)
	<-r.end
	defer syscall.Kill(successor, syscall.SIGKILL)
	if n := len(r.successors()); n != 0 {
		t.Fatalf("killed too late: %d successors", n)
	}
	testkit.Eventually(t, "the successor serves", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", local(port, "/"), nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
}

// TestReplaceKeepsSessions: another process understands the cookies of persistent sessions of the one before.
func TestReplaceKeepsSessions(t *testing.T) {
	t.Parallel()
	a, b := newBackend(t, "a", nil), newBackend(t, "b", nil)
	dir, port := t.TempDir(), freePort(t)
	text := gatewayWith(httpListener("http", port, "")) + service("default", "shop", a, b) +
		route("r", "  rules: [{backendRefs: [{name: shop, port: 80}], sessionPersistence: {cookie: {name: cart}}}]")
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startReplaced(t, os.Args[0], "-f", dir, "--admin-address", "127.0.0.1:0")
	first := ask{url: local(port, "/")}.do(t)
	cookies := first.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("cookies %v", cookies)
	}
	r.replace()
	field := map[string]string{"Cookie": cookies[0].Name + "=" + cookies[0].Value}
	for range 20 {
		if got := (ask{url: local(port, "/"), header: field}).do(t); got.echo.Backend != first.echo.Backend || len(got.Cookies()) != 0 {
			t.Fatalf("from %s to %s, cookies %v", first.echo.Backend, got.echo.Backend, got.Cookies())
		}
	}
}

// TestReplaceKeepsHealth: another process does not ask endpoints whose health check the one before has seen fail, although its own takes a moment.
func TestReplaceKeepsHealth(t *testing.T) {
	t.Parallel()
	checked := func(status int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/healthz" {
				return false
			}
			time.Sleep(500 * time.Millisecond)
			w.WriteHeader(status)
			return true
		}
	}
	dir, port := t.TempDir(), freePort(t)
	text := gatewayWith(httpListener("http", port, "")) + service("default", "b", newBackend(t, "a", checked(200)), newBackend(t, "b", checked(200)), newBackend(t, "sick", checked(503))) +
		route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]") + `---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: checks}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]
  healthCheck: {active: {type: HTTP, http: {path: /healthz}, interval: 500ms}}
`
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startReplaced(t, os.Args[0], "-f", dir, "--admin-address", "127.0.0.1:0")
	sick := func(n int) (asked bool) {
		for range n {
			asked = ask{url: local(port, "/")}.do(t).echo.Backend == "sick" || asked
		}
		return asked
	}
	testkit.Eventually(t, "the sick one is left alone", func() bool { return !sick(20) })
	r.replace()
	if sick(50) {
		t.Error("the sick one is asked again")
	}
}
