package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// grpcService answers with its name in the header and in the trailer.
type grpcService struct {
	grpc_testing.UnimplementedTestServiceServer
	name string
}

func (s *grpcService) sign(ctx context.Context) error {
	saw, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SetHeader(ctx, metadata.Pairs("x-backend", s.name, "x-saw", strings.Join(saw.Get("x-added"), ","))); err != nil {
		return err
	}
	return grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", s.name))
}

// UnaryCall answers with the request's payload, or fails as it is asked to.
func (s *grpcService) UnaryCall(ctx context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	if err := s.sign(ctx); err != nil {
		return nil, err
	}
	if want := r.ResponseStatus; want != nil {
		return nil, status.Error(codes.Code(want.Code), want.Message)
	}
	return &grpc_testing.SimpleResponse{Payload: r.Payload}, nil
}

// EmptyCall answers.
func (s *grpcService) EmptyCall(ctx context.Context, _ *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return &grpc_testing.Empty{}, s.sign(ctx)
}

// StreamingInputCall answers with how many bytes came.
func (s *grpcService) StreamingInputCall(stream grpc_testing.TestService_StreamingInputCallServer) error {
	if err := s.sign(stream.Context()); err != nil {
		return err
	}
	sum := 0
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: int32(sum)})
		}
		if err != nil {
			return err
		}
		sum += len(r.Payload.Body)
	}
}

// StreamingOutputCall sends payloads of the sizes that are asked for.
func (s *grpcService) StreamingOutputCall(r *grpc_testing.StreamingOutputCallRequest, stream grpc_testing.TestService_StreamingOutputCallServer) error {
	if err := s.sign(stream.Context()); err != nil {
		return err
	}
	for _, p := range r.ResponseParameters {
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: make([]byte, p.Size)}}); err != nil {
			return err
		}
	}
	return nil
}

// FullDuplexCall answers each message as it comes.
func (s *grpcService) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	if err := s.sign(stream.Context()); err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: r.Payload}); err != nil {
			return err
		}
	}
}

// newGRPCBackend starts a gRPC server; it speaks HTTP/2 alone.
func newGRPCBackend(t testing.TB, name string) *backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(s, &grpcService{name: name})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return &backend{name: name, port: l.Addr().(*net.TCPAddr).Port}
}

// dialGRPC is a client of a port of the gateway, for a host.
func dialGRPC(t testing.TB, port int, host string, secure bool) grpc_testing.TestServiceClient {
	t.Helper()
	c := insecure.NewCredentials()
	if secure {
		c = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, ServerName: host})
	}
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port), grpc.WithTransportCredentials(c), grpc.WithAuthority(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpc_testing.NewTestServiceClient(conn)
}

// grpcRoute is a GRPCRoute on Gateway "gw"; spec is what stands under spec besides.
func grpcRoute(name, spec string) string {
	return strings.Replace(route(name, spec), "kind: HTTPRoute", "kind: GRPCRoute", 1)
}

// TestGRPC checks unary calls and every kind of stream, from the client to the server and back, in the clear and over TLS; and that
// methods, headers and hostnames choose the backend.
func TestGRPC(t *testing.T) {
	t.Parallel()
	plain, secure := freePort(t), freePort(t)
	a, b, web := newGRPCBackend(t, "a"), newGRPCBackend(t, "b"), newBackend(t, "web", nil)
	manifests := gatewayWith(httpListener("http", plain, ""), httpsListener("https", secure, "", "{name: cert}")) + secret(t, "default", "cert", "a.test") +
		service("default", "a", a) + service("default", "b", b) + service("default", "none") + service("default", "web", web) +
		grpcRoute("same", `  hostnames: [a.test]
  rules:
  - name: named
    matches: [{method: {service: grpc.testing.TestService}}]
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Added, value: by-filter}]}}
    - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Rule, value: service}]}}
    backendRefs: [{name: a, port: 80}]
  - matches: [{method: {service: grpc.testing.TestService, method: EmptyCall}}]
    backendRefs: [{name: b, port: 80}]
  - matches: [{method: {method: UnaryCall}}]
    backendRefs: [{name: none, port: 80}]
  - matches: [{method: {service: grpc.testing.TestService}, headers: [{name: version, value: "2"}]}]
    backendRefs: [{name: b, port: 80}]
  - matches: [{method: {service: grpc.testing.TestService}, headers: [{name: version, value: none}]}]
    backendRefs: [{name: none, port: 80}]
  - matches: [{method: {service: grpc.testing.TestService}, headers: [{name: version, value: missing}]}]
    backendRefs: [{name: missing, port: 80}]
  - matches: [{method: {type: RegularExpression, service: '^grpc\.testing\..*$', method: ^Streaming.*}, headers: [{name: version, value: expression}]}]
    backendRefs: [{name: b, port: 80}]
  - matches: [{method: {type: RegularExpression, method: '^(FullDuplexCall|UnaryCall)$'}}]
    backendRefs: [{name: none, port: 80}]
`) + route("same", `  hostnames: [a.test]
  rules: [{matches: [{path: {value: /web}}], backendRefs: [{name: web, port: 80}]}, {matches: [{path: {value: /a}}], backendRefs: [{name: a, port: 80}]}]
`)
	g := start(t, map[string]string{"all.yaml": manifests})
	g.waitCondition("GRPCRoute", "same", "ResolvedRefs=False/BackendNotFound")

	for name, client := range map[string]grpc_testing.TestServiceClient{
		"h2c": dialGRPC(t, plain, "a.test", false), "TLS": dialGRPC(t, secure, "a.test", true),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			checkGRPC(t, ctx, client)
		})
	}
	t.Run("elsewhere", func(t *testing.T) {
		_, err := dialGRPC(t, plain, "b.test", false).EmptyCall(t.Context(), &grpc_testing.Empty{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("a host without a route: %v, want Unimplemented", err)
		}
	})
	t.Run("beside HTTP", func(t *testing.T) {
		got := ask{url: local(plain, "/web"), host: "a.test"}.do(t)
		if got.StatusCode != 200 || got.echo.Backend != "web" {
			t.Errorf("the HTTPRoute of the same name: %d from %q", got.StatusCode, got.echo.Backend)
		}
	})
}

// TestGRPCBesideHTTP checks that a GRPCRoute and an HTTPRoute for everything on one hostname share it: calls are the one's, other requests the other's, whichever is
// older and more specific.
func TestGRPCBesideHTTP(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	calls, web := newGRPCBackend(t, "calls"), newBackend(t, "web", nil)
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "calls", calls) + service("default", "web", web) +
		grpcRoute("b", "  hostnames: [a.test]\n  rules: [{backendRefs: [{name: calls, port: 80}]}]\n") +
		grpcRoute("alone", "  hostnames: [calls.test]\n  rules: [{backendRefs: [{name: calls, port: 80}]}]\n") +
		route("a", "  hostnames: [a.test]\n  rules: [{backendRefs: [{name: web, port: 80}]}]\n") +
		route("c", "  hostnames: [a.test]\n  rules: [{matches: [{path: {type: Exact, value: /grpc.testing.TestService/EmptyCall}}], backendRefs: [{name: web, port: 80}]}]\n")})
	g.waitCondition("GRPCRoute", "b", "ResolvedRefs=True/ResolvedRefs")
	for _, host := range []string{"a.test", "calls.test"} {
		var header metadata.MD
		if _, err := dialGRPC(t, port, host, false).EmptyCall(t.Context(), &grpc_testing.Empty{}, grpc.Header(&header)); err != nil || strings.Join(header.Get("x-backend"), "") != "calls" {
			t.Errorf("a call to %s: %v, %v", host, header, err)
		}
	}
	for _, path := range []string{"/", "/grpc.testing.TestService/EmptyCall"} {
		if got := (ask{url: local(port, path), host: "a.test"}).do(t); got.StatusCode != 200 || got.echo.Backend != "web" {
			t.Errorf("GET %s: %d from %q", path, got.StatusCode, got.echo.Backend)
		}
	}
}

// checkGRPC makes every kind of call.
func checkGRPC(t *testing.T, ctx context.Context, client grpc_testing.TestServiceClient) {
	version := func(v string) context.Context { return metadata.AppendToOutgoingContext(ctx, "version", v) }
	var header, trailer metadata.MD
	signed := func(what, want string) {
		t.Helper()
		if got := strings.Join(header.Get("x-backend"), ","); got != want || strings.Join(trailer.Get("x-trailer"), ",") != want {
			t.Errorf("%s: header %v, trailer %v, want backend %s", what, header, trailer, want)
		}
	}

	body := []byte(strings.Repeat("payload ", 100_000)) // larger than any window
	r, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: body}}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || string(r.Payload.Body) != string(body) {
		t.Fatalf("a unary call: %v", err)
	}
	// The service is matched before the method, though that rule's is the longer name.
	signed("a unary call", "a")
	if got := header.Get("x-saw"); len(got) != 1 || got[0] != "by-filter" || len(header.Get("x-rule")) != 1 {
		t.Errorf("the rule's filters made %v", header)
	}
	_, err = client.UnaryCall(ctx, &grpc_testing.SimpleRequest{ResponseStatus: &grpc_testing.EchoStatus{Code: int32(codes.FailedPrecondition), Message: "not now"}}, grpc.Trailer(&trailer))
	if s := status.Convert(err); s.Code() != codes.FailedPrecondition || s.Message() != "not now" {
		t.Errorf("a failed call: %v", err)
	}
	if _, err = client.EmptyCall(ctx, &grpc_testing.Empty{}, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	signed("the method of a rule", "b")
	if _, err = client.UnaryCall(version("2"), &grpc_testing.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	signed("the header of a rule", "b")
	for _, v := range []string{"none", "missing"} {
		if _, err = client.UnaryCall(version(v), &grpc_testing.SimpleRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("version %s: %v, want Unavailable", v, err)
		}
	}

	in, err := client.StreamingInputCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := in.Send(&grpc_testing.StreamingInputCallRequest{Payload: &grpc_testing.Payload{Body: body[:20_000]}}); err != nil {
			t.Fatal(err)
		}
	}
	if sum, err := in.CloseAndRecv(); err != nil || sum.AggregatedPayloadSize != 50*20_000 {
		t.Errorf("a stream of requests: %v, %v", sum, err)
	}

	asked := &grpc_testing.StreamingOutputCallRequest{}
	for i := range 50 {
		asked.ResponseParameters = append(asked.ResponseParameters, &grpc_testing.ResponseParameters{Size: int32(i * 1000)})
	}
	for _, v := range []string{"1", "expression"} {
		out, err := client.StreamingOutputCall(version(v), asked)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; ; n++ {
			m, err := out.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(m.Payload.Body) != n*1000 {
				t.Fatalf("message %d: %v", n, err)
			}
		}
		if n != len(asked.ResponseParameters) {
			t.Errorf("%d messages", n)
		}
		header, _ = out.Header()
		trailer = out.Trailer()
		signed("a stream of responses", map[string]string{"1": "a", "expression": "b"}[v])
	}

	// Each message is answered before the next one is sent, so nothing may be held back on the way.
	both, err := client.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := both.Send(&grpc_testing.StreamingOutputCallRequest{Payload: &grpc_testing.Payload{Body: body[:i*100]}}); err != nil {
			t.Fatal(err)
		}
		m, err := both.Recv()
		if err != nil || len(m.Payload.GetBody()) != i*100 {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	if err := both.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := both.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of both streams: %v", err)
	}
	trailer = both.Trailer()
	header, _ = both.Header()
	signed("both streams", "a")
}

// TestTaskGRPC does what the page says, and makes the call that it is about.
func TestTaskGRPC(t *testing.T) {
	t.Parallel()
	g := runTask(t, "grpc", map[int]*backend{50051: newGRPCBackend(t, "orders"), 50052: newGRPCBackend(t, "reports")})
	manifest, err := os.ReadFile(filepath.Join(g.dir, "grpc.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(listenerPort.FindStringSubmatch(string(manifest))[1])
	if err != nil {
		t.Fatal(err)
	}
	client := dialGRPC(t, port, "grpc.example.com", false)
	for _, c := range []struct {
		call func(opts ...grpc.CallOption) error
		want string
	}{
		{func(opts ...grpc.CallOption) error {
			_, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}, opts...)
			return err
		}, "orders"},
		{func(opts ...grpc.CallOption) error {
			_, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{}, opts...)
			return err
		}, "reports"},
	} {
		var header metadata.MD
		if err := c.call(grpc.Header(&header)); err != nil || strings.Join(header.Get("x-backend"), ",") != c.want {
			t.Errorf("%v, from %v, want %s", err, header, c.want)
		}
	}
}
