package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func logTo(l *testkit.Log) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func ptr(c tls.Certificate) *tls.Certificate { return &c }

// bytesCodec has messages be their bytes.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}
func (bytesCodec) Name() string { return "proto" }

// reportServer is a gRPC server with OpenRcaService.
type reportServer struct {
	addr    netip.AddrPort
	open    atomic.Int64 // streams
	begun   atomic.Int64 // streams since the start
	report  atomic.Pointer[[]byte]
	send    chan struct{} // each has a stream send the report again
	end     chan error    // each ends a stream
	request atomic.Pointer[[]byte]
	host    atomic.Pointer[string]
}

// orcaReport is a report of a CPU at its half, that weighs w.
func orcaReport(w float64) *[]byte {
	b := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(.5))
	b = protowire.AppendFixed64(protowire.AppendTag(b, 6, protowire.Fixed64Type), math.Float64bits(w/2))
	return &b
}

func newReportServer(t testing.TB, o ...grpc.ServerOption) *reportServer {
	t.Helper()
	r := &reportServer{send: make(chan struct{}), end: make(chan error)}
	r.report.Store(orcaReport(100))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().(*net.TCPAddr).AddrPort()
	s := grpc.NewServer(append(o, grpc.ForceServerCodec(bytesCodec{}))...)
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "xds.service.orca.v3.OpenRcaService", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "StreamCoreMetrics", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error { return r.handle(stream) }}}}, nil)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return r
}

func (r *reportServer) handle(stream grpc.ServerStream) error {
	r.open.Add(1)
	r.begun.Add(1)
	defer r.open.Add(-1)
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	r.request.Store(&request)
	if md, _ := metadata.FromIncomingContext(stream.Context()); len(md.Get(":authority")) == 1 {
		r.host.Store(&md.Get(":authority")[0])
	}
	for {
		if err := stream.SendMsg(r.report.Load()); err != nil {
			return err
		}
		select {
		case <-r.send:
		case err := <-r.end:
			return err
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func outOfBand() *config.LoadBalancer {
	l := utilized()
	l.BackendUtilization.BlackoutPeriodNanos = 0
	l.BackendUtilization.OutOfBand = &config.OutOfBandReports{ReportingPeriodNanos: 1_500_000_000}
	return l
}

// asked is a Set with one backend, whose endpoints are asked for reports.
func asked(t testing.TB, o Options, b *config.Resource, list ...netip.AddrPort) (*Set, *Backend) {
	t.Helper()
	o.reportPause = time.Millisecond
	s := NewSet(o)
	t.Cleanup(s.Close)
	var endpoints []*config.Endpoint
	for _, a := range list {
		endpoints = append(endpoints, endpoint(a))
	}
	apply(t, s, b, endpointsResource(key, endpoints...))
	return s, s.Get(key)
}

func weighs(t testing.TB, e *Endpoint, want float64) {
	t.Helper()
	testkit.Eventually(t, "the report has come", func() bool { return e.Weight() == want })
}

// TestReportsOutOfBand: an endpoint is asked by one stream, which is begun again when it ends, and ends with the endpoint and the wish for reports.
func TestReportsOutOfBand(t *testing.T) {
	r := newReportServer(t)
	l := outOfBand()
	s, b := asked(t, Options{}, balancedResource(l), r.addr)
	e := b.Endpoints()[0]
	weighs(t, e, 100)
	request := *r.request.Load()
	if d, n := protowire.ConsumeBytes(request[1:]); n < 0 || string(d) != "\x08\x01\x10\x80\xca\xb5\xee\x01" { // 1 s and 500 ms
		t.Errorf("it was asked by %x", request)
	}
	if host := *r.host.Load(); host != r.addr.String() {
		t.Errorf("the authority is %q", host)
	}
	r.report.Store(orcaReport(300))
	r.send <- struct{}{}
	weighs(t, e, 300)
	for i, err := range []error{nil, status.Error(codes.Unavailable, "later"), errors.New("x")} {
		r.report.Store(orcaReport(float64(i + 1)))
		r.end <- err
		weighs(t, e, float64(i+1))
	}
	if n := r.begun.Load(); n != 4 {
		t.Errorf("%d streams, want 4", n)
	}
	l = outOfBand()
	l.BackendUtilization.OutOfBand.Authority = "reports.test"
	apply(t, s, balancedResource(l))
	testkit.Eventually(t, "it is asked by another name", func() bool { return *r.host.Load() == "reports.test" && r.open.Load() == 1 })
	apply(t, s, balancedResource(utilized()))
	testkit.Eventually(t, "the stream ends without the wish", func() bool { return r.open.Load() == 0 })
	apply(t, s, balancedResource(l))
	testkit.Eventually(t, "it is asked again", func() bool { return r.open.Load() == 1 })
	apply(t, s, endpointsResource(key))
	testkit.Eventually(t, "the stream ends with the endpoint", func() bool { return r.open.Load() == 0 })
	apply(t, s, endpointsResource(key, endpoint(r.addr)))
	testkit.Eventually(t, "the endpoint is back", func() bool { return r.open.Load() == 1 })
	pod := endpoint(r.addr)
	pod.Identity = 1
	begun := r.begun.Load()
	apply(t, s, endpointsResource(key, pod))
	testkit.Eventually(t, "another pod at the address is asked", func() bool { return r.begun.Load() == begun+1 && r.open.Load() == 1 })
	s.Close()
	testkit.Eventually(t, "the stream ends with the Set", func() bool { return r.open.Load() == 0 })
}

// TestReportsFromAnotherPort: reports come from a port of their own, and that one is refused says nothing of the endpoint.
func TestReportsFromAnotherPort(t *testing.T) {
	r, refused := newReportServer(t), listen(t)
	l := outOfBand()
	l.BackendUtilization.OutOfBand.Port = uint32(r.addr.Port())
	app := listen(t)
	_, b := asked(t, Options{}, balancedResource(l), app.addrPort())
	weighs(t, b.Endpoints()[0], 100)

	at := refused.addrPort()
	refused.stop()
	l = outOfBand()
	l.BackendUtilization.OutOfBand.Port = uint32(at.Port())
	log := &testkit.Log{}
	_, b = asked(t, Options{Logger: logTo(log)}, balancedResource(l), app.addrPort())
	testkit.Eventually(t, "it is logged", func() bool { return log.Count("load reports cannot be had") == 1 })
	if e := b.Endpoints()[0]; e.avoided() || e.Stats().Failures != 0 {
		t.Error("the endpoint is passed over")
	}
}

// TestReportsOverTLS: reports are asked for by TLS where requests are sent by it, and a server that cannot prove who it is is not believed.
func TestReportsOverTLS(t *testing.T) {
	authority, other := testkit.NewAuthority(t), testkit.NewAuthority(t)
	r := newReportServer(t, grpc.Creds(credentials.NewServerTLSFromCert(ptr(testkit.Certificate{Hosts: []string{"backend.test"}, Issuer: authority}.TLS(t)))))
	for name, tc := range map[string]struct {
		by *testkit.Authority
		ok bool
	}{"trusted": {authority, true}, "not trusted": {other, false}} {
		b := balancedResource(outOfBand())
		pem := string(tc.by.PEM)
		b.GetBackend().Tls = &config.BackendTLS{ServerName: "backend.test", Authorities: []string{config.AuthoritiesKey(pem)}}
		log := &testkit.Log{}
		s := NewSet(Options{reportPause: time.Millisecond, Logger: logTo(log)})
		t.Cleanup(s.Close)
		apply(t, s, authoritiesResource(pem), b, endpointsResource(key, endpoint(r.addr)))
		if tc.ok {
			weighs(t, s.Get(key).Endpoints()[0], 100)
			continue
		}
		testkit.Eventually(t, name+": it is logged", func() bool { return log.Count("load reports cannot be had") == 1 })
		if s.Get(key).Endpoints()[0].Weight() != 0 {
			t.Error("a report of a server that is not trusted counts")
		}
	}
}

// TestNoReportService: an endpoint that has no such service is asked again after long only.
func TestNoReportService(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asks atomic.Int64
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		asks.Add(1)
		return status.Error(codes.Unimplemented, "no")
	}))
	go s.Serve(l)
	t.Cleanup(s.Stop)
	log := &testkit.Log{}
	set, b := asked(t, Options{Logger: logTo(log)}, balancedResource(outOfBand()), l.Addr().(*net.TCPAddr).AddrPort())
	testkit.Eventually(t, "it is logged", func() bool { return log.Count("has no OpenRcaService") == 1 })
	set.Close() // in the pause
	if n := asks.Load(); n != 1 || b.Balancing() == nil {
		t.Errorf("it was asked %d times", n)
	}
}

// TestReportStreamsThatAreNone: whatever an endpoint sends in the place of reports, it is asked again, and nothing of it counts.
func TestReportStreamsThatAreNone(t *testing.T) {
	for name, sent := range map[string]string{"malformed": "\xff", "too long": strings.Repeat("\x7a\x00", maxReport/2+1)} {
		r := newReportServer(t)
		bad := []byte(sent)
		r.report.Store(&bad)
		_, b := asked(t, Options{}, balancedResource(outOfBand()), r.addr)
		testkit.Eventually(t, name+": it is asked again", func() bool { return r.begun.Load() >= 3 })
		if b.Endpoints()[0].Weight() != 0 {
			t.Errorf("%s: it counts", name)
		}
		r.report.Store(orcaReport(5))
		weighs(t, b.Endpoints()[0], 5)
	}
	for name, sent := range map[string]string{"compressed": "\x01\x00\x00\x00\x00", "cut in the prefix": "\x00\x00", "cut": "\x00\x00\x00\x00\x05x"} {
		if _, err := readReport(strings.NewReader(sent)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	notHTTP2 := listenTo(t, func(c net.Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	log := &testkit.Log{}
	asked(t, Options{Logger: logTo(log)}, balancedResource(outOfBand()), notHTTP2.addrPort())
	notHTTP2.accepted(t, 3)
	if log.Count("load reports cannot be had") != 1 {
		t.Errorf("of failures in a row one is logged: %s", log.String())
	}
}

// TestReportsOfSilentEndpoint: a stream that brings nothing ends with the endpoint all the same.
func TestReportsOfSilentEndpoint(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	silent := listenTo(t, func(c net.Conn) { <-ctx.Done() })
	s, _ := asked(t, Options{}, balancedResource(outOfBand()), silent.addrPort())
	conn := silent.accepted(t, 1)[0]
	apply(t, s, endpointsResource(key))
	conn.SetReadDeadline(time.Now().Add(testkit.Patience))
	var b [4096]byte
	for {
		if _, err := conn.Read(b[:]); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("the connection stays open")
			}
			break
		}
	}
	cancel()
}
