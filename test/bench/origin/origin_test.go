//go:build linux

package origin

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/test/bench/epoll"
	"github.com/moongate-dev/moongate/test/bench/frame"
)

// start serves until the test process ends: a server ends with its process.
func start(t *testing.T) net.Conn { return startServer(t, (*Server).HTTP1) }

func startServer(t *testing.T, serve func(s *Server, listener int) error) net.Conn {
	t.Helper()
	listener, addr, err := epoll.Listen()
	if err != nil {
		t.Fatal(err)
	}
	server, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(server, listener); err != nil {
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

// A connection ends behind the answer to a request that asks for it, however large, and not before.
func TestConnectionClose(t *testing.T) {
	c := start(t)
	r := bufio.NewReader(c)
	if _, err := io.WriteString(c, get+"GET /huge HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	expect(t, r, SmallBody)
	expect(t, r, HugeBody)
	if b, err := r.ReadByte(); err != io.EOF {
		t.Errorf("behind the last answer %q, %v; want the end", b, err)
	}
}

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

func TestAnswersOverTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS() // for its certificate
	config := s.TLS
	s.Close()
	c := tls.Client(startServer(t, func(s *Server, listener int) error { return s.TLS(listener, config) }),
		&tls.Config{InsecureSkipVerify: true})
	r := bufio.NewReader(c)
	for _, exchange := range []struct {
		request string
		size    int
	}{{get, SmallBody}, {big, BigBody}, {fmt.Sprintf(post, 100_000, strings.Repeat("x", 100_000)), SmallBody}, {get, SmallBody}} {
		if _, err := io.WriteString(c, exchange.request); err != nil {
			t.Fatal(err)
		}
		expect(t, r, exchange.size)
	}
}

// The key is the example of RFC 6455 section 1.3.
func TestWebSocket(t *testing.T) {
	c := start(t)
	r := bufio.NewReader(c)
	request := "GET /socket HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	if _, err := io.WriteString(c, request+"with the request"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("answer %+v, %v", resp, err)
	}
	want := "with the request"
	for range 3 {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		want = strings.Repeat("later", 10_000)
		go io.WriteString(c, want)
	}
}

// A call's whole response goes through windows of any size.
func TestCallsThroughSmallWindows(t *testing.T) {
	c := startServer(t, (*Server).HTTP2)
	out := frame.AppendSettings([]byte(frame.Preface), [2]uint32{frame.SettingInitialWindow, 10})
	for id := uint32(1); id <= 3; id += 2 {
		out = frame.Append(out, frame.Headers, frame.EndHeaders, id, []byte{0x83})
		out = frame.Append(out, frame.Data, frame.EndStream, id, append([]byte{0, 0, 0, 0, 95, Unary}, make([]byte, 94)...))
	}
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	var in []byte
	got, ended := map[uint32]int{}, 0
	buf := make([]byte, 4096)
	for ended < 2 {
		f, rest, ok, err := frame.Next(in)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			n, err := c.Read(buf)
			if err != nil {
				t.Fatalf("%v after %v bytes", err, got)
			}
			in = append(in, buf[:n]...)
			continue
		}
		if f.Type == frame.Data {
			if got[f.Stream] += len(f.Payload); len(f.Payload) > 10 {
				t.Errorf("%d bytes in a window of 10", len(f.Payload))
			}
			if _, err := c.Write(frame.AppendWindowUpdate(nil, f.Stream, len(f.Payload))); err != nil {
				t.Fatal(err)
			}
		}
		if f.Type == frame.Headers && f.Has(frame.EndStream) {
			ended++
		}
		in = rest
	}
	if got[1] != 100 || got[3] != 100 {
		t.Errorf("bytes by stream: %v, want 100 of each", got)
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
