package http2

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestOverTLS checks what TLS could make different: reads that are woken, pieces that come
// without a read of the network, and the end.
func TestOverTLS(t *testing.T) {
	config := &tls.Config{Certificates: []tls.Certificate{testkit.Certificate{}.TLS(t)}, NextProtos: []string{"h2"}}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conns, ended := make(chan *Conn, 1), make(chan error, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		c := New(nc, Options{}, func(s *Stream) {
			n, _ := io.Copy(io.Discard, s)
			s.WriteHead(200, nil, n, false)
			s.Write(make([]byte, n), true)
		})
		conns <- c
		ended <- c.Serve(nil)
	}()
	tr := &http.Transport{
		Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, l.Addr().String())
		}}
	tr.Protocols.SetHTTP2(true)
	client := &http.Client{Timeout: patience, Transport: tr}
	for _, size := range []int64{0, 1, 100_000, 3 << 20} {
		resp, err := client.Post("https://a.test/", "", io.LimitReader(zeros{}, size))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if n != size || err != nil {
			t.Errorf("%d bytes of %d: %v", n, size, err)
		}
		resp.Body.Close()
	}
	c := <-conns
	c.Drain()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Serve returned %v", err)
		}
	case <-time.After(patience):
		t.Error("draining does not end")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
