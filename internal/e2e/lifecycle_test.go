package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestMain lets the test binary be moongate: what needs a process of its own starts it anew. After a run of all tests it also checks that each code block of
// a document was among what they ran.
func TestMain(m *testing.M) {
	if os.Getenv("MOONGATE_E2E_MAIN") != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(checkDocuments(m.Run()))
}

// process is moongate as a process.
type process struct {
	*exec.Cmd
	t      *testing.T
	stdout *testkit.Log
	stderr *testkit.Log
	exit   chan error
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "MOONGATE_E2E_MAIN=1")
	return cmd
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(args...), t: t, stdout: &testkit.Log{}, stderr: &testkit.Log{}, exit: make(chan error, 1)}
	p.Stdout, p.Stderr = p.stdout, p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.exit <- p.Wait() }()
	t.Cleanup(func() {
		p.Process.Kill() // fails where it has ended
		if t.Failed() {
			t.Logf("log of moongate:\n%s", p.stderr)
		}
	})
	testkit.Eventually(t, "moongate is ready", func() bool { return strings.Contains(p.stderr.String(), "msg=ready") })
	return p
}

// waitExit waits for the end and checks the exit code.
func (p *process) waitExit(within time.Duration, code int) {
	p.t.Helper()
	select {
	case <-p.exit:
		if got := p.ProcessState.ExitCode(); got != code {
			p.t.Errorf("exit code %d, want %d\n%s", got, code, p.stderr)
		}
	case <-time.After(within):
		p.t.Fatalf("no exit within %v\n%s", within, p.stderr)
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// slowPath is what a backend does with requests for /slow: it answers them after release only.
type slowPath struct {
	arrived chan struct{} // one for each request that waits
	release chan struct{}
}

func newSlowPath() *slowPath {
	return &slowPath{arrived: make(chan struct{}, 16), release: make(chan struct{})}
}

func (s *slowPath) wait(_ http.ResponseWriter, r *http.Request) (done bool) {
	if r.URL.Path == "/slow" {
		s.arrived <- struct{}{}
		select {
		case <-s.release:
		case <-r.Context().Done():
		}
	}
	return false
}

// send sends a request through the gateway, and returns when it waits at the backend.
func (s *slowPath) send(t *testing.T, port int) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /slow HTTP/1.1\r\nHost: example.com\r\n\r\n")
	select {
	case <-s.arrived:
	case <-time.After(patience):
		t.Fatal("the request does not reach the backend")
	}
	return bufio.NewReader(conn)
}

// site is a folder with a Gateway on a port and a backend that answers when it is told to.
func site(t *testing.T) (dir string, port int, slow *slowPath) {
	slow = newSlowPath()
	b := newBackend(t, "b", slow.wait)
	dir, port = t.TempDir(), freePort(t)
	text := gatewayWith(httpListener("http", port, "")) + service("default", "b", b) + route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]")
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, port, slow
}

// TestSIGTERM follows the shutdown step by step.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	dir, port, slow := site(t)
	adminPort := freePort(t)
	p := startProcess(t, "run", "-f", dir, "--bind", "127.0.0.1", "--admin-address", fmt.Sprintf("127.0.0.1:%d", adminPort),
		"--shutdown-delay", "1s", "--drain-timeout", "20s", "--access-log", "json")
	ready := func() int { return ask{url: local(adminPort, "/readyz")}.do(t).StatusCode }
	if got := ready(); got != 200 {
		t.Fatalf("/readyz %d before", got)
	}
	response := slow.send(t, port)
	p.signal(syscall.SIGTERM)
	testkit.Eventually(t, "not ready", func() bool { return ready() == 503 })
	serving := func() int { return ask{url: local(adminPort, "/readyz?exclude=shutdown")}.do(t).StatusCode }
	if got := serving(); got != 200 {
		t.Errorf("/readyz?exclude=shutdown %d within --shutdown-delay", got)
	}
	if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 {
		t.Errorf("a request within --shutdown-delay: %s", got.Status)
	}
	testkit.Eventually(t, "no new connections", func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return true
		}
		conn.Close()
		return false
	})
	if got := serving(); got != 503 {
		t.Errorf("/readyz?exclude=shutdown %d after --shutdown-delay", got)
	}
	close(slow.release)
	resp, err := http.ReadResponse(response, nil)
	if err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("the request in flight: %+v %v, want 200 with Connection: close", resp, err)
	}
	p.waitExit(patience, 0)
	if n := strings.Count(p.stdout.String(), "\n"); n != 2 {
		t.Errorf("%d lines in the access log, want 2:\n%s", n, p.stdout)
	}
}

// TestDrainTimeout checks that a request that never ends does not keep the process.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	dir, port, slow := site(t)
	p := startProcess(t, "run", "-f", dir, "--bind", "127.0.0.1", "--admin-address", "127.0.0.1:0", "--drain-timeout", "300ms", "--access-log", "off")
	slow.send(t, port)
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	p.waitExit(patience, 0)
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("ended after %v, before --drain-timeout", took)
	}
}

// TestSecondSignal checks that a second signal ends the process at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	dir, port, slow := site(t)
	p := startProcess(t, "run", "-f", dir, "--bind", "127.0.0.1", "--admin-address", "127.0.0.1:0", "--drain-timeout", "1h", "--access-log", "off")
	slow.send(t, port)
	p.signal(syscall.SIGTERM)
	testkit.Eventually(t, "shutting down", func() bool { return strings.Contains(p.stderr.String(), "shutting down") })
	p.signal(syscall.SIGTERM)
	p.waitExit(patience, 1)
}

// TestSIGHUP rotates the access log.
func TestSIGHUP(t *testing.T) {
	t.Parallel()
	dir, port, _ := site(t)
	path := filepath.Join(t.TempDir(), "access.log")
	p := startProcess(t, "run", "-f", dir, "--bind", "127.0.0.1", "--admin-address", "127.0.0.1:0", "--access-log", path)
	logged := func(file, what string) func() bool {
		return func() bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), what)
		}
	}
	ask{url: local(port, "/one")}.do(t)
	testkit.Eventually(t, "the first line", logged(path, "/one"))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	testkit.Eventually(t, "a new file", logged(path, ""))
	ask{url: local(port, "/two")}.do(t)
	testkit.Eventually(t, "the second line in the new file", logged(path, "/two"))
	if logged(path+".1", "/two")() {
		t.Error("the second line is in the old file")
	}
}

// TestReadyWhileServed has a Gateway whose only port is taken, beside one that is served.
func TestReadyWhileServed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	second := strings.Replace(strings.TrimPrefix(gatewayWith(httpListener("only", port, "")), class), "name: gw", "name: blocked", 1)
	g := start(t, map[string]string{"a.yaml": gatewayWith(httpListener("http", freePort(t), ""))})
	ready := func() *answer { return ask{url: "http://" + g.admin + "/readyz"}.do(t) }
	if got := ready(); got.StatusCode != 200 {
		t.Fatalf("/readyz says %d before: %s", got.StatusCode, got.body)
	}
	g.write("b.yaml", second)
	testkit.Eventually(t, "/readyz names the Gateway that is not served", func() bool { return ready().StatusCode == 503 })
	for _, want := range []string{"default/blocked", "only", fmt.Sprintf("port %d is taken", port)} {
		if got := ready(); !strings.Contains(got.body, want) || strings.Contains(got.body, "default/gw") {
			t.Errorf("/readyz does not tell %q: %s", want, got.body)
		}
	}
	taken.Close()
	testkit.Eventually(t, "ready once the port is free", func() bool { return ready().StatusCode == 200 })

	// One that goes, or is no longer accepted, holds nothing up.
	if taken, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	g.write("b.yaml", strings.ReplaceAll(second, strconv.Itoa(port), strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)))
	testkit.Eventually(t, "not ready again", func() bool { return ready().StatusCode == 503 })
	g.remove("b.yaml")
	testkit.Eventually(t, "ready without the Gateway", func() bool { return ready().StatusCode == 200 })
}

// TestProxyReadyWhileServed has a proxy none of whose listeners can be bound.
func TestProxyReadyWhileServed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	c, k := newControl(t)
	p := newPod(t, c, k.token(t, "gw-moongate"))
	c.set(gatewayWith(httpListener("http", port, "")))
	c.lead("first")
	startProcess(t, p.args...)
	ready := func() (status int, body string) {
		got, err := ask{url: local(p.health, "/readyz")}.try()
		if err != nil {
			return 0, err.Error()
		}
		return got.StatusCode, got.body
	}
	testkit.Eventually(t, "/readyz names the listener", func() bool {
		status, body := ready()
		return status == 503 && strings.Contains(body, "default/gw/http") && strings.Contains(body, "address already in use")
	})
	// One that is served is enough: taking the proxy out of its Service would end that one too.
	c.set(gatewayWith(httpListener("http", port, ""), httpListener("other", p.port, "")))
	testkit.Eventually(t, "ready with one listener", func() bool { status, _ := ready(); return status == 200 })
	c.set(gatewayWith(httpListener("http", port, "")))
	testkit.Eventually(t, "not ready without it", func() bool { status, _ := ready(); return status == 503 })
	taken.Close()
	testkit.Eventually(t, "ready once the port is free", func() bool { status, _ := ready(); return status == 200 })
}

// TestPortTaken has a listener's port taken by somebody else, then freed.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port, other := taken.Addr().(*net.TCPAddr).Port, freePort(t)
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("one", port, ""), httpListener("two", other, "")) +
		service("default", "b", newBackend(t, "b", nil)) + route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]")})
	g.waitCondition("Gateway", "gw", "Accepted=False/PortUnavailable")
	if got := (ask{url: local(other, "/")}).do(t); got.StatusCode != 200 {
		t.Errorf("the other listener: %s", got.Status)
	}
	taken.Close()
	testkit.Eventually(t, "the port is served", func() bool {
		got, err := ask{url: local(port, "/")}.try()
		return err == nil && got.StatusCode == 200
	})
	testkit.Eventually(t, "no fault in the status", func() bool { return !g.status("Gateway", "gw").find("Accepted=False/PortUnavailable") })
}

// TestUDPPortTaken has a UDP listener's port taken by somebody else, which takes nothing from the TCP listener of the number.
func TestUDPPortTaken(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	taken, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	udp := fmt.Sprintf("{name: udp, protocol: UDP, port: %d}", port)
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, ""), udp) +
		service("default", "b", newBackend(t, "b", nil)) + route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]")})
	listener := func(name string) string {
		for _, l := range g.status("Gateway", "gw").Status.Listeners {
			if l.Name == name {
				return fmt.Sprint(l.Conditions)
			}
		}
		return ""
	}
	testkit.Eventually(t, "the UDP listener's port is unavailable", func() bool {
		return strings.Contains(listener("udp"), "PortUnavailable") && strings.Contains(listener("udp"), "free the port or use another")
	})
	if strings.Contains(listener("http"), "PortUnavailable") {
		t.Errorf("the TCP listener: %s", listener("http"))
	}
	if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 {
		t.Errorf("the TCP listener: %s", got.Status)
	}
	taken.Close()
	testkit.Eventually(t, "no fault in the status", func() bool { return !strings.Contains(listener("udp"), "PortUnavailable") })
}

// TestAddresses checks spec.addresses: IPv4, IPv6, and one that is not on this host.
func TestAddresses(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	with := func(addresses string) string {
		return strings.Replace(gatewayWith(httpListener("http", port, "")), "  listeners:", "  addresses: ["+addresses+"]\n  listeners:", 1)
	}
	objects := service("default", "b", newBackend(t, "b", nil)) + route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]")
	g := start(t, map[string]string{"gateway.yaml": with("{value: '::1'}, {value: 127.0.0.2}"), "rest.yaml": objects})
	answers := func(host string) bool {
		got, err := ask{url: fmt.Sprintf("http://%s:%d/", host, port)}.try()
		return err == nil && got.StatusCode == 200
	}
	if !answers("[::1]") || !answers("127.0.0.2") || answers("127.0.0.1") {
		t.Errorf("::1 %v, 127.0.0.2 %v, 127.0.0.1 %v; want the first two", answers("[::1]"), answers("127.0.0.2"), answers("127.0.0.1"))
	}
	g.waitCondition("Gateway", "gw", "Programmed=True/Programmed")
	g.write("gateway.yaml", with("{value: 192.0.2.1}, {value: 127.0.0.2}"))
	g.waitCondition("Gateway", "gw", "Programmed=False/AddressNotUsable")
	testkit.Eventually(t, "the usable address is served", func() bool { return answers("127.0.0.2") })
	g.write("gateway.yaml", with("{value: 127.0.0.2}"))
	g.waitCondition("Gateway", "gw", "Programmed=True/Programmed")
}
