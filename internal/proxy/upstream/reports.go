package upstream

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/orca"
)

// Load reports that are not part of responses are requested by a stream of xds.service.orca.v3.OpenRcaService to each
// endpoint (gRFC A51), over a connection of its own: connections for requests may use HTTP/1.1 or lead to another port.

const (
	// A stream that has ended is opened again after a pause, which grows up to maxReportPause as long as no report
	// arrives.
	minReportPause = time.Second
	maxReportPause = 2 * time.Minute
	// maxReport is the largest message in bytes.
	maxReport = 64 << 10

	grpcPrefix        = 5 // size of a message's prefix: the compressed flag and the length
	grpcUnimplemented = "12"
)

var (
	post            = []byte("POST")
	reportsPath     = []byte("/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics")
	contentTypeName = []byte("content-type")
	grpcContentType = []byte("application/grpc")
)

var (
	errNoReportService = errors.New("the endpoint has no OpenRcaService")
	errReportMessage   = errors.New("the endpoint has sent a malformed load report")
)

// askForReports requests load reports from the endpoint as a load balancer is configured, which may be nil, and ends
// earlier requests for them. Set.mu must be held.
func (e *Endpoint) askForReports(l *Balancing) {
	if u := e.soFar(); u.stopReports != nil {
		u.stopReports()
		u.stopReports = nil
	}
	ask := l.outOfBand()
	if ask == nil || e.transport.unknown || e.Gone() {
		return
	}
	u := e.use()
	var ctx context.Context
	ctx, u.stopReports = context.WithCancel(u.life)
	go e.followReports(ctx, ask)
}

// followReports processes reports until ctx ends.
func (e *Endpoint) followReports(ctx context.Context, ask *config.OutOfBandReports) {
	s := e.backend.set
	defer func() {
		if v := recover(); v != nil {
			s.options.Panicked("load reports", v)
		}
	}()
	least := s.options.reportPause
	if least == 0 {
		least = minReportPause
	}
	for pause, failing := least, false; ; {
		n, err := e.streamReports(ctx, ask)
		if ctx.Err() != nil {
			return
		}
		if n > 0 {
			pause, failing = least, false
		}
		if err != nil && !failing {
			failing = true
			s.options.Logger.Warn("load reports cannot be had", "backend", e.backend.key, "endpoint", e.String(), "error", err)
		}
		if errors.Is(err, errNoReportService) {
			pause = max(pause, maxReportPause)
		}
		wait := time.NewTimer(pause - pause/5 + rand.N(pause/5*2+1)) // so that endpoints whose streams end together are not asked together
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		pause = min(pause+pause*3/5, maxReportPause)
	}
}

// streamReports processes the reports of one stream. When the stream has ended, it returns their number.
func (e *Endpoint) streamReports(ctx context.Context, ask *config.OutOfBandReports) (n int, err error) {
	s := e.backend.set
	at := e.address
	if ask.Port != 0 {
		at = netip.AddrPortFrom(at.Addr(), uint16(ask.Port))
	}
	nc, err := e.dialReports(ctx, at)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	options := s.options.HTTP2
	client := http2.NewClient(nc, options)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				s.options.Panicked("http2", v)
				nc.Close()
			}
		}()
		client.Serve() //nolint:errcheck // the stream returns the error
	}()
	defer client.Close()
	defer context.AfterFunc(ctx, client.Close)()

	request := message.Request{Method: post, Host: []byte(at.String()), Path: reportsPath}
	if ask.Authority != "" {
		request.Host = []byte(ask.Authority)
	}
	request.Header.Add(contentTypeName, grpcContentType)
	msg := orca.AppendRequest(nil, ask.ReportingPeriodNanos)
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg))), msg...)
	head := http2.RequestHead{Request: &request, Scheme: "http", Length: -1, TETrailers: true}
	if e.transport.tls != nil {
		head.Scheme = "https"
	}
	stream, err := client.Open(&http2.ClientRequest{RequestHead: head, Body: body, Last: true})
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	var response message.Response
	for response.Status < 200 {
		if _, err := stream.ReadHead(&response); err != nil {
			return 0, err
		}
	}
	if err := reportStatus(&response, &response.Header); err != nil {
		return 0, err
	}
	for {
		msg, err := readReport(stream)
		if errors.Is(err, io.EOF) {
			return n, reportStatus(&response, stream.Trailers())
		} else if err != nil {
			return n, err
		}
		l := e.backend.Balancing()
		if l == nil {
			return n, nil
		}
		r, err := orca.Unmarshal(msg, l.metrics)
		if err != nil {
			return n, err
		}
		e.Report(&r)
		n++
	}
}

// dialReports makes the connection, with TLS if requests use it. An error does not affect the endpoint's health.
func (e *Endpoint) dialReports(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.backend.set.options.ConnectTimeout)
	defer cancel()
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	nc, err := dialer.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	if err := e.sendProxyHeader(ctx, nc); err != nil || e.transport.tls == nil {
		return nc, err
	}
	settings := e.gatewayTransports()[0].tls.Clone()
	settings.NextProtos = []string{protocolHTTP2}
	secured := tls.Client(nc, settings)
	if err := secured.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	if secured.ConnectionState().NegotiatedProtocol != protocolHTTP2 {
		nc.Close()
		return nil, errNotHTTP2
	}
	return secured, nil
}

// reportStatus returns the error with which a response ends, nil if there is none.
func reportStatus(r *message.Response, section *message.Fields) error {
	contentType, _ := r.Header.Get("content-type")
	code, _ := section.Get("grpc-status")
	switch {
	case r.Status == 404, string(code) == grpcUnimplemented:
		return errNoReportService
	case r.Status != 200 || !strings.HasPrefix(string(contentType), string(grpcContentType)):
		return fmt.Errorf("%w: a response with status %d", errReportMessage, r.Status)
	case len(code) > 0 && string(code) != "0":
		return fmt.Errorf("the endpoint has ended the stream with gRPC status %s", code)
	}
	return nil
}

// readReport waits for a message. It returns io.EOF at the end of the stream.
func readReport(stream io.Reader) ([]byte, error) {
	var prefix [grpcPrefix]byte
	if _, err := io.ReadFull(stream, prefix[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	if prefix[0] != 0 || size > maxReport {
		return nil, errReportMessage
	}
	msg := make([]byte, size)
	if _, err := io.ReadFull(stream, msg); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return msg, nil
}
