package testkit

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// FullListener returns a listener whose queue is full: until it accepts, connections to it are neither established nor refused.
// Those that fill it are open until the test ends.
func FullListener(t testing.TB) *net.TCPListener {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil { // because the net package uses the longest queue
		t.Fatal(err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for range 8 {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 300*time.Millisecond)
		if err != nil {
			return l.(*net.TCPListener)
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue takes every connection")
	return nil
}
