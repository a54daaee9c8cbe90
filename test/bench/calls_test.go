//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/test/bench/origin"
)

// calls are system calls of each kind that a request costs.
type calls struct {
	sends, receives float64
	waits           float64 // for events
	wakes           float64 // of threads of the runtime by each other
	others          float64 // without those that the runtime makes by the clock
}

// within reports whether no kind has more calls than in most. Waits and wakes are not judged: they depend on which thread runs first.
func (c calls) within(most calls) bool {
	return c.sends <= most.sends && c.receives <= most.receives && c.others <= most.others
}

// kinds are the kinds of system calls; those without one come by the clock, or with a new thread.
var kinds = map[string]string{
	"write": "send", "writev": "send", "sendto": "send", "sendmsg": "send", "sendmmsg": "send", "splice": "send", "sendfile": "send",
	"read": "receive", "readv": "receive", "recvfrom": "receive", "recvmsg": "receive", "recvmmsg": "receive",
	"epoll_wait": "wait", "epoll_pwait": "wait", "epoll_pwait2": "wait", "poll": "wait", "ppoll": "wait",
	"futex": "wake", "nanosleep": "", "clock_nanosleep": "", "sched_yield": "", "tgkill": "", "getpid": "", "gettid": "", "getrusage": "", "rt_sigreturn": "",
	"madvise": "", "mmap": "", "munmap": "", "mprotect": "", "clone": "", "clone3": "", "rseq": "", "set_robust_list": "", "rt_sigprocmask": "", "sigaltstack": "",
}

// TestCallsPerRequest counts the system calls that a request costs, by strace, where one client asks for one thing after the other: more of them than were needed when
// this was written are a regression, whatever the machine. A body or a frame may come in more parts than usual, so the least of three counts.
func TestCallsPerRequest(t *testing.T) {
	w := startTraced(t)
	for _, c := range []struct {
		name string
		most calls // the comment has what was measured
		ask  func(t *testing.T) (once func())
	}{
		{"A", calls{sends: 2.1, receives: 3.1, others: 0.5}, func(t *testing.T) func() { return w.askHTTP1(t, false, getSmall, origin.SmallBody) }},            // 2, 3, 3.2, 0
		{"B", calls{sends: 2.2, receives: 3.5, others: 0.5}, func(t *testing.T) func() { return w.askHTTP1(t, false, getBig, origin.BigBody) }},                // 2, 3, 2, 0
		{"C", calls{sends: 2.5, receives: 4, others: 0.5}, func(t *testing.T) func() { return w.askHTTP1(t, false, postBody, origin.SmallBody) }},              // 2, 3, 2.9, 0
		{"TLS", calls{sends: 2.1, receives: 3.1, others: 0.5}, func(t *testing.T) func() { return w.askHTTP1(t, true, getSmall, origin.SmallBody) }},           // 2, 3, 3.6, 0
		{"http2", calls{sends: 2.2, receives: 4.5, others: 0.5}, func(t *testing.T) func() { return w.askHTTP2(t, w.tls, getSmall, origin.SmallBody) }},        // 2, 4.1, 3.7, 1.1
		{"grpc", calls{sends: 3.2, receives: 4.5, others: 0.5}, func(t *testing.T) func() { return w.askHTTP2(t, w.grpc, callUnary, messageSize) }},            // 3, 4.1, 3.5, 0.8
		{"backend-tls", calls{sends: 2.1, receives: 3.1, others: 0.5}, func(t *testing.T) func() { return w.askHTTP1(t, false, getSecure, origin.SmallBody) }}, // 2, 3, 3.1, 0.7
		{"connect", calls{sends: 2.1, receives: 3.2, others: 4.2}, func(t *testing.T) func() { return w.askAnew(t, false) }},                                   // 2, 3, 2.3, 0.1, 4: the fourth saves a segment
		{"handshake", calls{sends: 4.2, receives: 6.2, others: 3.2}, func(t *testing.T) func() { return w.askAnew(t, true) }},                                  // 4, 5.1, 2.2, 0.1, 3.2
	} {
		t.Run(c.name, func(t *testing.T) {
			once := c.ask(t)
			for try := 1; ; try++ {
				got, names := w.count(once)
				t.Logf("%+v; %v", got, names)
				if c.name == "connect" && names["shutdown"] < 0.9 {
					t.Error("the end of a connection does not go with its last response")
				}
				if got.within(c.most) {
					break
				}
				if try == 3 {
					t.Errorf("more than %+v", c.most)
					break
				}
			}
		})
	}
}

// traced is a Moongate whose system calls strace writes down.
type traced struct {
	t                *testing.T
	log              string
	plain, tls, grpc netip.AddrPort
}

func startTraced(t *testing.T) *traced {
	strace := program("strace")
	if strace == "" {
		t.Fatal("install Debian's package strace: make -C test strace")
	}
	cert, ports := serveOrigin(t)
	free, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := startMoongate(buildMoongate(t), testConfiguration(t, variant{}, free, ports, cert))
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) netip.AddrPort { return netip.AddrPortFrom(loopback, free[i]) }
	w := &traced{t, filepath.Join(t.TempDir(), "calls.log"), at(0), at(1), at(2)}
	cmd = exec.Command(strace, append([]string{"-f", "-qq", "-s", "0", "-e", "signal=none", "-o", w.log, "--", cmd.Path}, cmd.Args[1:]...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var output bytes.Buffer // read after the end only
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s", output.Bytes())
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := probe(w.plain, false)
		if err == nil {
			return w
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// callPattern matches a line of strace's log in which a call begins.
var callPattern = regexp.MustCompile(`^\d+ +(\w+)\(`)

// count returns what each of many requests has cost.
func (w *traced) count(once func()) (c calls, names map[string]float64) {
	const warmup, requests = 20, 200
	for range warmup {
		once()
	}
	from := w.settled()
	for range requests {
		once()
	}
	to := w.settled()
	log, err := os.ReadFile(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	names = map[string]float64{}
	for line := range bytes.Lines(log[from:to]) {
		m := callPattern.FindSubmatch(line)
		if m == nil {
			continue // the end of one
		}
		name := string(m[1])
		switch kind, counted := kinds[name]; {
		case kind == "send":
			c.sends++
		case kind == "receive":
			c.receives++
		case kind == "wait":
			c.waits++
		case kind == "wake":
			c.wakes++
		case !counted:
			c.others++
		}
		names[name] += 1. / requests
	}
	c = calls{c.sends / requests, c.receives / requests, c.waits / requests, c.wakes / requests, c.others / requests}
	// A new connection enters the runtime's poller if what its client sends first comes late, which depends on the machine. Once at most, that takes an fcntl, two epoll_ctl and two
	// receives that find nothing.
	if late := names["fcntl"]; late <= 1.05 && names["epoll_ctl"] <= 2*late+0.05 {
		c.receives -= 2 * late
		c.others -= late + names["epoll_ctl"]
	}
	return c, names
}

// settled returns the length of the log after a pause in which what follows an answer is written, such as the end of a connection. What comes later still is that of a few
// requests among many, for which the bounds have room.
func (w *traced) settled() int64 {
	time.Sleep(300 * time.Millisecond)
	info, err := os.Stat(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	return info.Size()
}

// askHTTP1 returns what makes a request on a connection of its own, by HTTP/1.1.
func (w *traced) askHTTP1(t *testing.T, secure bool, request []byte, size int64) func() {
	c := w.dial(t, secure)
	r := bufio.NewReaderSize(c, 128<<10)
	return func() { ask(t, c, r, request, size) }
}

// askAnew returns what makes a request on a new connection.
func (w *traced) askAnew(t *testing.T, secure bool) func() {
	return func() {
		c := w.dial(t, secure)
		ask(t, c, bufio.NewReader(c), getClosing, origin.SmallBody)
		c.Close()
	}
}

func (w *traced) dial(t *testing.T, secure bool) net.Conn {
	t.Helper()
	addr := w.plain
	if secure {
		addr = w.tls
	}
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if secure {
		c = tls.Client(c, &tls.Config{ServerName: apiHost, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	return c
}

func ask(t *testing.T, c net.Conn, r *bufio.Reader, request []byte, size int64) {
	t.Helper()
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || n != size {
		t.Fatalf("status %d, %d bytes, %v", resp.StatusCode, n, err)
	}
}

// askHTTP2 returns what makes a request, one at a time, on a connection of HTTP/2.
func (w *traced) askHTTP2(t *testing.T, addr netip.AddrPort, text []byte, size int64) func() {
	head, body, _ := strings.Cut(string(text), "\r\n\r\n")
	parsed, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true,
		TLSClientConfig: &tls.Config{ServerName: apiHost, InsecureSkipVerify: true}}
	scheme := "http"
	if addr == w.tls {
		scheme = "https"
		transport.Protocols.SetHTTP2(true)
	} else {
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return func() {
		req, err := http.NewRequestWithContext(t.Context(), parsed.Method, fmt.Sprintf("%s://%s%s", scheme, addr, parsed.RequestURI), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host, req.Header = parsed.Host, parsed.Header
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || n != size {
			t.Fatalf("status %d, %d bytes, %v", resp.StatusCode, n, err)
		}
	}
}
