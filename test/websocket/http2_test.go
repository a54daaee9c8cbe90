package websocket

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// extendedConnect opens WebSockets by extended CONNECT (RFC 8441): it makes that of the handshake that the library sends, and of the answer what the library
// expects of HTTP/1.1, so that the library speaks WebSocket on a stream. All of them share one connection.
type extendedConnect struct {
	conn  *http2.ClientConn
	opens atomic.Int32
}

// dialHTTP2 makes the connection, over TLS unless config is nil. The version of golang.org/x/net does not hand requests to net/http, which refuses :protocol.
func dialHTTP2(addr string, config *tls.Config) (*extendedConnect, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2"}
		c = tls.Client(c, config)
	}
	conn, err := (&http2.Transport{DisableCompression: true}).NewClientConn(c)
	return &extendedConnect{conn: conn}, err
}

// RoundTrip implements http.RoundTripper.
func (e *extendedConnect) RoundTrip(r *http.Request) (*http.Response, error) {
	key := r.Header.Get("Sec-WebSocket-Key")
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // the stream lives longer than the handshake
	pr, pw := io.Pipe()
	request := r.Clone(ctx)
	request.Method, request.Body, request.ContentLength = http.MethodConnect, pr, -1
	for _, name := range []string{"Connection", "Upgrade", "Sec-WebSocket-Key"} {
		request.Header.Del(name)
	}
	request.Header[":protocol"] = []string{"websocket"}
	resp, err := e.conn.RoundTrip(request)
	if err != nil {
		cancel()
		return nil, err
	}
	e.opens.Add(1)
	resp.Body = &stream{resp.Body, pw, cancel}
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	resp.StatusCode = http.StatusSwitchingProtocols
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	resp.Header.Set("Connection", "Upgrade")
	resp.Header.Set("Upgrade", "websocket")
	resp.Header.Set("Sec-WebSocket-Accept", base64.StdEncoding.EncodeToString(sum[:]))
	return resp, nil
}

// stream is both directions of a stream.
type stream struct {
	io.ReadCloser
	*io.PipeWriter
	cancel context.CancelFunc
}

func (s *stream) Read(b []byte) (int, error)  { return s.ReadCloser.Read(b) }
func (s *stream) Write(b []byte) (int, error) { return s.PipeWriter.Write(b) }

// Close ends the stream.
func (s *stream) Close() error {
	s.PipeWriter.Close()
	s.cancel()
	return s.ReadCloser.Close()
}
