package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHTTP2LengthOfNothing: a head that says Content-Length: 0 is all of a request to a backend by HTTP/1, so it is not
// sent before the client has ended the stream.
func TestHTTP2LengthOfNothing(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var mu sync.Mutex
	var heard []string
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			head, err := readHead(r)
			if err != nil {
				return
			}
			mu.Lock()
			line, _, _ := strings.Cut(head, " HTTP/")
			heard = append(heard, line)
			mu.Unlock()
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	r := g.rawHTTP2()
	expect := func(stream uint32, want string) {
		t.Helper()
		if got := r.outcome(stream); got != want {
			t.Errorf("stream %d: %q, want %q", stream, got, want)
		}
	}
	r.head(1, false, request2("POST", "/1", [2]string{"content-length", "0"})...)
	r.head(3, true, request2("GET", "/3")...)
	expect(3, "200 end")
	r.fr.WriteData(1, true, []byte("evil"))
	expect(1, "reset")
	r.head(5, false, request2("POST", "/5", [2]string{"content-length", "0"})...)
	r.head(7, true, request2("GET", "/7")...)
	expect(7, "200 end")
	r.fr.WriteData(5, true, nil)
	expect(5, "200 end")
	r.c.Close()
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(heard, ", "); got != "GET /3, GET /7, POST /5" {
		t.Errorf("the backend hears %q", got)
	}
}

// TestHTTP2NothingAfterGRPC: a request may not wait for ever because its stream has carried a gRPC call before.
func TestHTTP2NothingAfterGRPC(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{BodyIdle: 300 * time.Millisecond})
	g.serve(refusedAddr(t), nil)
	r := g.rawHTTP2()
	for i := range uint32(8) { // objects are pooled for each core
		stream := 4*i + 1
		r.head(stream, true, request2("POST", "/a.B/C", [2]string{"content-type", "application/grpc"}, [2]string{"te", "trailers"})...)
		r.outcome(stream)
		r.head(stream+2, false, request2("POST", "/", [2]string{"content-length", "0"})...)
		if got := r.outcome(stream + 2); !strings.HasPrefix(got, "408 ") {
			t.Fatalf("after %d calls: %s", i+1, got)
		}
	}
}
