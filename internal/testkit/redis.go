package testkit

import (
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"
)

// Redis is a server of Debian's package redis-server, which keeps nothing on a disk.
type Redis struct {
	Address string // host:port, the same after Start
	port    int
	cmd     *exec.Cmd
}

// StartRedis starts a server that ends with the test.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Redis{Address: l.Addr().String(), port: l.Addr().(*net.TCPAddr).Port}
	l.Close()
	t.Cleanup(r.Kill)
	r.Start(t)
	return r
}

// Start starts the server again after Kill, and waits until it answers.
func (r *Redis) Start(t testing.TB) {
	t.Helper()
	r.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", fmt.Sprint(r.port), "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("%v: install Debian's package redis-server (make redis-server)", err)
	}
	Eventually(t, "Redis answers", func() bool {
		c, err := net.DialTimeout("tcp", r.Address, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// Kill ends the server at once.
func (r *Redis) Kill() {
	if r.cmd != nil && r.cmd.Process != nil {
		r.cmd.Process.Kill() //nolint:errcheck // it may have ended
		r.cmd.Wait()         //nolint:errcheck // that it was killed is known
		r.cmd = nil
	}
}
