package testkit

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"
)

// Redis is a server of Debian's package redis-server without persistence.
type Redis struct {
	Address string // host:port, the same after Start
	port    int
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has ended
}

// StartRedis starts a server that ends with the test.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	r := &Redis{}
	t.Cleanup(r.Kill)
	for range 10 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		r.Address, r.port = l.Addr().String(), l.Addr().(*net.TCPAddr).Port
		l.Close()
		if r.start(t) {
			return r
		}
	}
	t.Fatal("no port for Redis is left alone by others")
	return nil
}

// Start starts the server again after Kill, and waits until it answers.
func (r *Redis) Start(t testing.TB) {
	t.Helper()
	Eventually(t, "the port is free again", func() bool { return r.start(t) })
}

// start starts the server and waits until it answers; it returns false if the server has ended because its port is in use.
func (r *Redis) start(t testing.TB) bool {
	t.Helper()
	cmd, ended := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", fmt.Sprint(r.port), "--save", "", "--appendonly", "no", "--dir", t.TempDir()), make(chan struct{})
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: install Debian's package redis-server (make redis-server)", err)
	}
	go func() {
		cmd.Wait() //nolint:errcheck // the reason does not matter
		close(ended)
	}()
	r.cmd, r.ended = cmd, ended
	gone := false
	Eventually(t, "Redis answers", func() bool {
		select {
		case <-ended:
			gone = true
		default:
		}
		return gone || r.answers()
	})
	if gone {
		r.cmd = nil
	}
	return !gone
}

// answers reports whether this server answers, and not another one on its port.
func (r *Redis) answers() bool {
	c, err := net.DialTimeout("tcp", r.Address, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("INFO server\r\n")); err != nil {
		return false
	}
	want := fmt.Appendf(nil, "\r\nprocess_id:%d\r\n", r.cmd.Process.Pid)
	for got := make([]byte, 0, 64<<10); len(got) < cap(got); {
		n, err := c.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		if bytes.Contains(got, want) {
			return true
		}
		if err != nil {
			break
		}
	}
	return false
}

// Kill kills the server.
func (r *Redis) Kill() {
	if r.cmd != nil {
		r.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-r.ended
		r.cmd = nil
	}
}
