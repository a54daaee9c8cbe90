//go:build linux

package origin

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// start serves until the test process ends: a server ends with its process.
func start(t *testing.T) net.Conn {
	t.Helper()
	listener, addr, err := epoll.Listen()
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(listener)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func expect(t *testing.T, r *bufio.Reader, size int) []byte {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || len(body) != size || resp.StatusCode != 200 {
		t.Fatalf("status %d, %d bytes, error %v; want 200 and %d bytes", resp.StatusCode, len(body), err, size)
	}
	return body
}

const (
	get  = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
	big  = "GET /big HTTP/1.1\r\nHost: h\r\n\r\n"
	post = "POST /a HTTP/1.1\r\nHost: h\r\ncontent-length: %d\r\n\r\n%s"
)

func TestAnswers(t *testing.T) {
	c := start(t)
	r := bufio.NewReader(c)
	inspect := "GET /inspect HTTP/1.1\r\nHost: h\r\nX-A: 1\r\n\r\n"
	for _, exchange := range []struct {
		request string
		size    int
	}{
		{get, SmallBody}, {big, BigBody}, {inspect, len(inspect)},
		{fmt.Sprintf(post, 100_000, strings.Repeat("x", 100_000)), SmallBody},
		{fmt.Sprintf(post, 0, ""), SmallBody},
	} {
		if _, err := io.WriteString(c, exchange.request); err != nil {
			t.Fatal(err)
		}
		body := expect(t, r, exchange.size)
		if exchange.request == inspect && string(body) != inspect {
			t.Errorf("inspect shows %q, want %q", body, inspect)
		}
	}
}

func TestAnswersPipelinedRequests(t *testing.T) {
	c := start(t)
	r := bufio.NewReader(c)
	body := strings.Repeat("GET / HTTP/1.1\r\n\r\n", 5) // must not be taken for requests
	if _, err := io.WriteString(c, get+fmt.Sprintf(post, len(body), body)+big+big+big+get); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{SmallBody, SmallBody, BigBody, BigBody, BigBody, SmallBody} {
		expect(t, r, size)
	}
}

func TestAnswersARequestInSingleBytes(t *testing.T) {
	c := start(t)
	for _, b := range []byte(fmt.Sprintf(post, 3, "abc")) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, bufio.NewReader(c), SmallBody)
}

func TestClosesOnWhatItCannotFrame(t *testing.T) {
	for _, request := range []string{
		"POST /a HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST /a HTTP/1.1\r\nContent-Length: x\r\n\r\n",
		"GET /" + strings.Repeat("a", maxHead) + " HTTP/1.1\r\n\r\n",
	} {
		c := start(t)
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c); len(got) != 0 {
			t.Errorf("%.40q was answered with %.40q", request, got)
		}
	}
}

func TestContentLengthAllocatesNothing(t *testing.T) {
	head := []byte("POST /a HTTP/1.1\r\nHost: h\r\nCookie: c\r\ncontent-length: 16384\r\n\r\n")
	if n, ok := contentLength(head); n != 16384 || !ok {
		t.Fatalf("contentLength = %d, %v", n, ok)
	}
	if n := testing.AllocsPerRun(100, func() { contentLength(head) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestFillerShowsShifts(t *testing.T) {
	b := filler(BigBody)
	if bytes.Equal(b[:1000], b[1:1001]) {
		t.Error("a shifted body looks the same")
	}
}
