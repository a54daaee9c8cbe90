//go:build !race

// Without the race detector, with which functions need more of their stacks.

package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// TestStackOfRequest: the goroutine of a connection needs no more than 4 KiB of stack for a request. With more, it would copy its stack once more for each new connection
// (a tenth of what one costs), and hold 8 KiB while it is in use. The compiler decides what to inline by the profile of cmd/moongate, and what it inlines adds to the stack.
func TestStackOfRequest(t *testing.T) {
	const name, alone = "TestStackOfRequest", "MOONGATE_STACK_OF_REQUEST"
	if os.Getenv(alone) == "" { // the runtime must not begin with larger stacks because those of other tests were
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$", "-test.v", "-test.timeout=2m")
		cmd.Env = append(os.Environ(), alone+"=1", "GODEBUG=adaptivestackstart=0,gcshrinkstackoff=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const n, most = 200, 5 << 10
	goOn := make(chan struct{})
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
			<-goOn
			io.WriteString(c, "world")
		}
	})
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", addr), g.httpListener("l", ""), routeOf("r", "default/gw/l", "", anyRule())))
	// Each request stays within its response, so that its goroutine exists.
	begin := func() (clients []net.Conn) {
		for range n {
			c, err := net.Dial("tcp", g.addr())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			expect(t, c, "hello")
			clients = append(clients, c)
		}
		return clients
	}
	end := func(clients []net.Conn) {
		for range clients {
			goOn <- struct{}{}
		}
		for _, c := range clients {
			expect(t, c, "world")
			c.Close()
		}
	}
	others := runtime.NumGoroutine()
	end(begin()) // the connections to the backend, which take more stack to make, are there from now on
	goroutinesWithin(t, others+n)
	runtime.GC() // stacks that are free would be used again
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := stacks()
	clients := begin()
	each := (int64(stacks()) - int64(before)) / n
	end(clients)
	if each > most {
		t.Errorf("a request takes %d bytes of stack, want at most %d: has something large become part of a function that calls others, in internal/proxy/exchange above all? See Exchange.handle", each, most)
	} else {
		t.Logf("%d bytes", each)
	}
}

// expect reads until a text has arrived.
func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	var got []byte
	for b := make([]byte, 1024); !bytes.HasSuffix(got, []byte(text)); {
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b[:n]...)
	}
}

// stacks returns how many bytes the stacks of goroutines take.
func stacks() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
