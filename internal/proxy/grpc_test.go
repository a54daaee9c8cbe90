package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// grpcEcho is a gRPC service without generated code. Echo answers one message, Chat each of a stream, Fail
// with a status alone, Sleep never; Told says in its header what it was told of the trace.
var grpcEcho = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Echo", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in wrapperspb.BytesValue
			if err := decode(&in); err != nil {
				return nil, err
			}
			grpc.SetTrailer(ctx, metadata.Pairs("x-size", fmt.Sprint(len(in.Value))))
			return &in, nil
		}},
		{MethodName: "Fail", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			decode(&emptypb.Empty{})
			return nil, status.Error(codes.FailedPrecondition, "not now: 100%")
		}},
		{MethodName: "Told", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			told, _ := metadata.FromIncomingContext(ctx)
			grpc.SetHeader(ctx, metadata.MD{"traceparent": told["traceparent"]})
			return &emptypb.Empty{}, decode(&emptypb.Empty{})
		}},
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "Chat", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				var m wrapperspb.BytesValue
				if err := s.RecvMsg(&m); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if string(m.Value) == "enough" {
					return status.Error(codes.ResourceExhausted, "enough")
				}
				if err := s.SendMsg(&m); err != nil {
					return err
				}
			}
		}},
		{StreamName: "Sleep", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			<-s.Context().Done()
			return s.Context().Err()
		}},
	},
}

// grpcPair is a gRPC client to a server by way of the gateway. The server's handlers have ended at the test's end.
func (g *gateway) grpcPair() *grpc.ClientConn {
	g.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&grpcEcho, nil)
	go s.Serve(l)
	g.t.Cleanup(s.Stop)
	g.serveH2C(l.Addr().String(), nil)
	cc, err := grpc.NewClient("passthrough:///"+g.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { cc.Close() })
	return cc
}

// TestGRPC has gRPC's own client and server speak through the gateway, which knows nothing of gRPC.
func TestGRPC(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	cc := g.grpcPair()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	t.Run("unary", func(t *testing.T) {
		for _, size := range []int{0, 10, 1 << 20} {
			in, out := wrapperspb.Bytes([]byte(strings.Repeat("x", size))), &wrapperspb.BytesValue{}
			var trailer metadata.MD
			if err := cc.Invoke(ctx, "/test.Echo/Echo", in, out, grpc.Trailer(&trailer), grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			if len(out.Value) != size || fmt.Sprint(trailer["x-size"]) != fmt.Sprintf("[%d]", size) {
				t.Errorf("%d bytes, trailer %v, want %d", len(out.Value), trailer, size)
			}
		}
	})
	t.Run("trailers only", func(t *testing.T) {
		err := cc.Invoke(ctx, "/test.Echo/Fail", &emptypb.Empty{}, &emptypb.Empty{})
		if s := status.Convert(err); s.Code() != codes.FailedPrecondition || s.Message() != "not now: 100%" {
			t.Error(err)
		}
		err = cc.Invoke(ctx, "/test.Nobody/Echo", &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
	})
	t.Run("both ways", func(t *testing.T) {
		s, err := cc.NewStream(ctx, &grpcEcho.Streams[0], "/test.Echo/Chat")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 { // each waits for the answer to the one before
			var out wrapperspb.BytesValue
			if err := s.SendMsg(wrapperspb.Bytes(fmt.Append(nil, i))); err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(&out); err != nil || string(out.Value) != fmt.Sprint(i) {
				t.Fatalf("%q %v, want %d", out.Value, err, i)
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&wrapperspb.BytesValue{}); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	t.Run("the server ends first", func(t *testing.T) {
		s, err := cc.NewStream(ctx, &grpcEcho.Streams[0], "/test.Echo/Chat")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(wrapperspb.Bytes([]byte("enough"))); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&wrapperspb.BytesValue{}); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
	})
	t.Run("the client cancels", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		s, err := cc.NewStream(ctx, &grpcEcho.Streams[1], "/test.Echo/Sleep")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(&emptypb.Empty{}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Millisecond, cancel)
		if err := s.RecvMsg(&emptypb.Empty{}); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
	// Three, two, one and one that were answered, and one that was given up.
	reasons := g.reasonsLogged(8)
	slices.Sort(reasons)
	if got, want := strings.Join(reasons, " "), "client_closed"+strings.Repeat(" ok", 7); got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
}

// TestGRPCSilentClient: a client may wait for messages without sending any for as long as it wants.
func TestGRPCSilentClient(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const idle = 100 * time.Millisecond
	g := startGateway(t, Timeouts{BodyIdle: idle})
	conn := g.grpcPair()
	for name, answers := range map[string]bool{"Chat": true, "Sleep": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Echo/"+name)
			if err != nil {
				t.Fatal(err)
			}
			var m wrapperspb.BytesValue
			for range 2 {
				if err := s.SendMsg(&wrapperspb.BytesValue{Value: []byte("a")}); err != nil {
					t.Fatal(err)
				}
				if answers {
					if err := s.RecvMsg(&m); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(4 * idle)
			}
			cancel()
			if err := s.RecvMsg(&m); status.Code(err) != codes.Canceled {
				t.Errorf("before it was cancelled, the call ended with %v", err)
			}
		})
	}
}

// TestGRPCSilentClientIsBuffered: a call whose whole body is awaited before anybody can answer it may not be silent for ever.
func TestGRPCSilentClientIsBuffered(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{BodyIdle: 200 * time.Millisecond})
	g.serve(refusedAddr(t), withBuffer(100))
	r := g.rawHTTP2()
	r.head(1, false, request2("POST", "/a.B/C", [2]string{"content-type", "application/grpc"}, [2]string{"te", "trailers"})...)
	r.fr.WriteData(1, false, []byte("abc"))
	r.outcome(1)
	if got := g.reasonsLogged(1); got[0] != "client_timeout" {
		t.Errorf("logged %q", got)
	}
}
