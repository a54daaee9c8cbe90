package h2spec

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"

	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// TestConformance fails if any case of the tool fails, strict ones included. The tool prints which.
func TestConformance(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	var conns []*http2.Conn // the tool leaves some open
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := http2.New(nc, http2.Options{}, answer)
			conns = append(conns, c)
			served.Go(func() { c.Serve(nil) })
		}
	}()
	c := &config.Config{
		Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Path: "/",
		Timeout: 5 * time.Second, MaxHeaderLen: 4000, Strict: true,
	}
	ok, err := h2spec.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Error("cases failed")
	}
	l.Close()
	<-accepted
	for _, c := range conns {
		c.Close()
	}
	served.Wait()
}

// answer reads the request, as only then all of it is judged, and sends a body.
func answer(s *http2.Stream) {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return
	}
	var fields message.Fields
	fields.Add([]byte("content-type"), []byte("text/plain"))
	body := []byte("seven!\n")
	if string(s.Head.Method) == "HEAD" {
		s.WriteHead(200, &fields, int64(len(body)), true)
		return
	}
	s.WriteHead(200, &fields, int64(len(body)), false)
	s.Write(body, true)
}
