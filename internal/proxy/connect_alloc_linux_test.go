//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import (
	"bytes"
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNewConnectionAllocatesLittle: a client that opens a connection for each request does not keep the collector busy, since most of what
// a connection needs is used again for the next one.
func TestNewConnectionAllocatesLittle(t *testing.T) {
	g := startGateway(t, Timeouts{})
	g.serve(cannedBackend(t, cannedResponse(1<<10), 0), nil)
	to := &unix.SockaddrInet4{Port: int(g.port), Addr: [4]byte{127, 0, 0, 1}}
	request, buf := []byte("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), make([]byte, 8<<10)
	visit := func() { // without package net, which allocates more than the gateway
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, to); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, request); err != nil {
			t.Fatal(err)
		}
		got := 0
		for {
			n, err := unix.Read(fd, buf[got:])
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				break
			}
			got += n
		}
		if !bytes.HasPrefix(buf[:got], []byte("HTTP/1.1 200 ")) {
			t.Fatalf("%q", buf[:got])
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties pools
	const batches, batch, most = 20, 100, 4          // 2, and 5 without reuse
	least := math.Inf(1)                             // more where requests come after their connections were accepted, which then wait
	for range batches {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range batch {
			visit()
		}
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/batch)
	}
	t.Logf("%.1f allocations", least)
	if least > most {
		t.Errorf("%.1f allocations for a new connection with a request, want at most %d", least, most)
	}
}
