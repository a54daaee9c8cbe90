package upstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moongate-dev/moongate/internal/config"
)

// maxChecked is the largest number of bytes of a check's response that are read.
const maxChecked = 64 << 10

// checkAgent is the User-Agent of checks.
const checkAgent = "moongate-health-check"

// httpCheck is the check that sends an HTTP request.
type httpCheck struct {
	config *config.HTTPHealthCheck
	url    *url.URL // only path and query
	method string
}

func newHTTPCheck(c *config.HTTPHealthCheck) (*httpCheck, error) {
	path, err := url.ParseRequestURI(c.Path)
	if err != nil || !strings.HasPrefix(c.Path, "/") {
		return nil, fmt.Errorf("path %q is not absolute: give one that begins with /", c.Path)
	}
	if c.Host == "" {
		return nil, errors.New("host is empty: give the value of the Host field")
	}
	return &httpCheck{config: c, url: path, method: cmp.Or(c.Method, http.MethodGet)}, nil
}

func (h *httpCheck) check(ctx context.Context, a *active, e *Endpoint, secured *transport) checkResult {
	t := e.transport
	var protocols http.Protocols
	switch {
	case t.http2:
		protocols.SetHTTP2(t.tls != nil)
		protocols.SetUnencryptedHTTP2(t.tls == nil)
	default:
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(t.tls != nil && t.upgrade == "")
	}
	r := (&http.Request{Method: h.method, Host: h.config.Host, Header: http.Header{"User-Agent": {checkAgent}}}).WithContext(ctx)
	target := *h.url
	r.URL = &target
	if body := h.config.RequestBody; len(body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	response, end, err := a.roundTrip(e, secured, protocols, r)
	defer end()
	if err != nil {
		return checkResult{failure: failureText(ctx, err), unanswered: true}
	}
	if status := uint32(response.StatusCode); !h.expects(status) {
		return checkResult{failure: fmt.Sprintf("status %d", status), atOnce: !slices.Contains(h.config.RetriableStatuses, status)}
	}
	if want := h.config.ExpectedResponse; len(want) > 0 {
		body, err := io.ReadAll(io.LimitReader(response.Body, maxChecked))
		switch {
		case bytes.Contains(body, want):
		case err != nil:
			return checkResult{failure: failureText(ctx, err)}
		default:
			return checkResult{failure: "the body does not contain what is expected", atOnce: true}
		}
	}
	return checkResult{}
}

func (h *httpCheck) expects(status uint32) bool {
	if len(h.config.ExpectedStatuses) == 0 {
		return status == http.StatusOK
	}
	return slices.Contains(h.config.ExpectedStatuses, status)
}

// roundTrip sends a request on a new connection, which end closes. The connection uses the backend's TLS settings, as
// those of clients' requests do.
func (a *active) roundTrip(e *Endpoint, secured *transport, protocols http.Protocols, r *http.Request) (response *http.Response, end func(), err error) {
	var mu sync.Mutex // the transport may dial on another goroutine, even after RoundTrip has returned
	var conn net.Conn
	ended := false
	t := &http.Transport{
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxChecked,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := a.dial(ctx, e)
			mu.Lock()
			defer mu.Unlock()
			if conn = c; ended && c != nil {
				c.Close()
			}
			return c, err
		},
	}
	r.URL.Scheme, r.URL.Host = "http", a.address(e)
	if settings := secured.tls; settings != nil {
		r.URL.Scheme = "https"
		t.TLSClientConfig = settings.Clone()
	}
	response, err = t.RoundTrip(r)
	return response, func() {
		if response != nil {
			response.Body.Close()
		}
		t.CloseIdleConnections()
		mu.Lock()
		defer mu.Unlock()
		if ended = true; conn != nil {
			conn.Close()
		}
	}, err
}

// failureText returns a short text of why a check has failed.
func failureText(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "timeout"
	}
	return err.Error()
}

// checkTCP connects, and exchanges bytes if any are configured.
func checkTCP(ctx context.Context, a *active, e *Endpoint, secured *transport, c *config.TCPHealthCheck) checkResult {
	conn, err := a.dial(ctx, e)
	if err != nil {
		return checkResult{failure: failureText(ctx, err), unanswered: true}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if settings := secured.tunnel; settings != nil {
		secure := tls.Client(conn, settings)
		if err := secure.HandshakeContext(ctx); err != nil {
			return checkResult{failure: failureText(ctx, err), unanswered: true}
		}
		conn = secure
	}
	if len(c.Send) > 0 {
		if _, err := conn.Write(c.Send); err != nil {
			return checkResult{failure: failureText(ctx, err), unanswered: true}
		}
	}
	var got []byte
	for b := make([]byte, 4<<10); !bytes.Contains(got, c.Receive); {
		if len(got) >= maxChecked {
			return checkResult{failure: "what came does not contain what is expected"}
		}
		n, err := conn.Read(b)
		got = append(got, b[:n]...)
		if err != nil && !bytes.Contains(got, c.Receive) {
			return checkResult{failure: failureText(ctx, err), unanswered: true}
		}
	}
	return checkResult{}
}

// grpcServing is the only status of grpc.health.v1 that is healthy.
const grpcServing = 1

// checkGRPC calls grpc.health.v1.Health/Check.
func checkGRPC(ctx context.Context, a *active, e *Endpoint, secured *transport, c *config.GRPCHealthCheck) checkResult {
	var request []byte
	if c.Service != "" {
		request = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), c.Service)
	}
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	r := (&http.Request{Method: http.MethodPost, Host: c.Authority, URL: &url.URL{Path: "/grpc.health.v1.Health/Check"},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {checkAgent}}}).WithContext(ctx)
	var protocols http.Protocols
	protocols.SetHTTP2(e.transport.tls != nil)
	protocols.SetUnencryptedHTTP2(e.transport.tls == nil)
	response, end, err := a.roundTrip(e, secured, protocols, r)
	defer end()
	if err != nil {
		return checkResult{failure: failureText(ctx, err), unanswered: true}
	}
	if response.StatusCode != http.StatusOK {
		return checkResult{failure: fmt.Sprintf("status %d", response.StatusCode), atOnce: true}
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxChecked))
	if err != nil {
		return checkResult{failure: failureText(ctx, err)}
	}
	if status := cmp.Or(response.Trailer.Get("Grpc-Status"), response.Header.Get("Grpc-Status")); status != "0" {
		return checkResult{failure: fmt.Sprintf("grpc-status %q", status), atOnce: true}
	}
	if serving := servingStatus(answer); serving != grpcServing {
		return checkResult{failure: fmt.Sprintf("serving status %d", serving), atOnce: true}
	}
	return checkResult{}
}

// servingStatus parses a grpc.health.v1.HealthCheckResponse message. It returns 0 (unknown) if it is malformed.
func servingStatus(b []byte) (status uint64) {
	if len(b) < 5 || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-5) {
		return 0
	}
	for b = b[5:]; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0
		}
		b = b[n:]
		if number == 1 && kind == protowire.VarintType {
			if status, n = protowire.ConsumeVarint(b); n < 0 {
				return 0
			}
		} else if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return 0
		}
		b = b[n:]
	}
	return status
}
