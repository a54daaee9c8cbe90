package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const healthBackend = "Service/default/b/80"

func (g *gateway) endpoint(i int) *upstream.Endpoint {
	return g.upstreams.Get(healthBackend).Endpoints()[i]
}

// twoEndpoints has a gateway with two endpoints, to the first of which connections idle.
func twoEndpoints(t *testing.T) (g *gateway, first, second *ailing, client *http.Client) {
	g = startGateway(t, Timeouts{})
	first, second = newAiling(t), newAiling(t)
	g.serve(first.address, nil)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client = &http.Client{Transport: transport, Timeout: testkit.Patience}
	if status := askBy(t, client, g, "GET"); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	g.apply(backend(healthBackend, first.address, second.address))
	return g, first, second, client
}

func askBy(t *testing.T, client *http.Client, g *gateway, method string) int {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+g.addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// TestUnacknowledgedGet is that a request which may be sent again goes to another endpoint where the first does not acknowledge it.
func TestUnacknowledgedGet(t *testing.T) {
	t.Parallel()
	g, first, second, client := twoEndpoints(t)
	served := first.served.Load()
	first.dropAll(true)
	for n := 0; g.endpoint(0).Health() != upstream.Avoided; n++ {
		if status := askBy(t, client, g, "GET"); status != http.StatusOK || n > 100 {
			t.Fatalf("request %d: status %d", n, status)
		}
	}
	if first.served.Load() != served || second.served.Load() == 0 {
		t.Error("the wrong endpoint has answered")
	}
}

// TestUnacknowledgedPost is that a request which may not be sent again waits for the endpoint, and others go elsewhere.
func TestUnacknowledgedPost(t *testing.T) {
	t.Parallel()
	g, first, second, client := twoEndpoints(t)
	before := first.served.Load()
	first.dropAll(true)
	var posts sync.WaitGroup
	defer posts.Wait()
	// So many that the first endpoint gets one by its idle connection, or is found out by a connect.
	answered := make(chan int, 8)
	for range cap(answered) {
		posts.Go(func() { answered <- askBy(t, client, g, "POST") })
	}
	testkit.Eventually(t, "the endpoint is avoided", func() bool { return g.endpoint(0).Health() == upstream.Avoided })
	if status := askBy(t, client, g, "POST"); status != http.StatusOK {
		t.Errorf("status %d while the endpoint is avoided", status)
	}
	first.dropAll(false)
	for range cap(answered) {
		if status := <-answered; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	if n := first.served.Load() - before + second.served.Load(); n != int64(cap(answered))+1 {
		t.Errorf("%d requests came to endpoints, %d were sent", n, cap(answered)+1)
	}
}

// TestUnacknowledgedByHTTP2 is that an endpoint which acknowledges nothing is found out when a client that speaks HTTP/2 gives up.
func TestUnacknowledgedByHTTP2(t *testing.T) {
	t.Parallel()
	g, first, _, _ := twoEndpoints(t)
	first.dropAll(true)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: 3 * time.Second}
	for n := 0; ; n++ {
		r, err := client.Get("http://" + g.addr())
		if err != nil {
			break
		}
		if r.Body.Close(); n > 100 {
			t.Fatal("no request was sent to the endpoint")
		}
	}
	testkit.Eventually(t, "the endpoint is avoided", func() bool { return g.endpoint(0).Health() == upstream.Avoided })
}

// TestGRPCStatusesCount is that outlier detection takes a gRPC call for what its grpc-status says, in the head of the response or behind it.
func TestGRPCStatusesCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		head    bool
		ejected bool
	}{{14, true, true}, {14, false, true}, {13, false, true}, {0, false, false}, {5, true, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/grpc")
				if !c.head {
					w.Header().Set("Trailer", "Grpc-Status")
					w.Write([]byte{0, 0, 0, 0, 0})
				}
				w.Header().Set("Grpc-Status", fmt.Sprint(c.status))
			})
			g.serveH2C(addr, nil)
			b := h2c(healthBackend)
			b.GetBackend().Traffic = &config.BackendTraffic{HealthCheck: &config.HealthCheck{Passive: &config.PassiveHealthCheck{
				IntervalNanos: int64(time.Hour), BaseEjectionTimeNanos: int64(time.Hour), MaxEjectionPercent: 100, Consecutive_5XxErrors: proto.Uint32(2)}}}
			g.apply([]*config.Resource{b})
			cc, err := grpc.NewClient("passthrough:///"+g.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer cc.Close()
			for range 2 {
				err := cc.Invoke(context.Background(), "/test.Echo/Any", &emptypb.Empty{}, &emptypb.Empty{})
				if (err == nil) != (c.status == 0) {
					t.Fatal(err)
				}
			}
			if c.ejected { // what follows a response is counted when the client has it
				testkit.Eventually(t, "it is ejected", func() bool { return g.endpoint(0).Health() == upstream.Ejected })
			} else if h := g.endpoint(0).Health(); h != upstream.Healthy {
				t.Errorf("%v", h)
			}
		})
	}
}

// TestGRPCTruncated is that an endpoint which resets every call behind the head of its response is ejected.
func TestGRPCTruncated(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	arrived := make(chan struct{}) // the head at the client: it is relayed, and not the end of an attempt
	addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.(http.Flusher).Flush()
		<-arrived
		panic(http.ErrAbortHandler)
	})
	g.serveH2C(addr, nil)
	b := h2c(healthBackend)
	b.GetBackend().Traffic = ejecting(2)
	g.apply([]*config.Resource{b})
	cc, err := grpc.NewClient("passthrough:///"+g.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	for range 2 {
		stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/Any")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(&emptypb.Empty{}); err != nil {
			t.Fatal(err)
		}
		stream.CloseSend()
		if _, err := stream.Header(); err != nil {
			t.Fatal(err)
		}
		arrived <- struct{}{}
		if stream.RecvMsg(&emptypb.Empty{}) == nil {
			t.Fatal("a call without a status succeeds")
		}
	}
	testkit.Eventually(t, "it is ejected", func() bool { return g.endpoint(0).Health() == upstream.Ejected })
}

// ejecting ejects an endpoint for an hour after so many failures.
func ejecting(failures uint32) *config.BackendTraffic {
	return &config.BackendTraffic{HealthCheck: &config.HealthCheck{Passive: &config.PassiveHealthCheck{
		IntervalNanos: int64(time.Hour), BaseEjectionTimeNanos: int64(time.Hour), MaxEjectionPercent: 100, Consecutive_5XxErrors: proto.Uint32(failures)}}}
}

// begunUpload sends the head of a POST with a body of two bytes, and one of these.
func (g *gateway) begunUpload() (net.Conn, *bufio.Reader) {
	c := g.dial()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx"); err != nil {
		g.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func wantStatus(t *testing.T, r *bufio.Reader, want int) {
	t.Helper()
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	if response.StatusCode != want {
		t.Fatalf("status %d, want %d", response.StatusCode, want)
	}
}

// TestSlowUploads is that a request which runs out of time while its client sends the body says nothing of the endpoint, and one that the endpoint has and does not answer does.
func TestSlowUploads(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer server.Close()
	g.serve(server.Listener.Addr().String(), func(r *config.Rule) { r.RequestTimeoutNanos = int64(200 * time.Millisecond) })
	b := backend(healthBackend, server.Listener.Addr().String())[0]
	b.GetBackend().Traffic = ejecting(1)
	g.apply([]*config.Resource{b})
	_, r := g.begunUpload()
	wantStatus(t, r, http.StatusGatewayTimeout)
	if h := g.endpoint(0).Health(); h != upstream.Healthy {
		t.Fatalf("%v though it was not sent the request", h)
	}
	c, r := g.begunUpload()
	if _, err := io.WriteString(c, "y"); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, r, http.StatusGatewayTimeout)
	testkit.Eventually(t, "it is ejected", func() bool { return g.endpoint(0).Health() == upstream.Ejected })
}

// TestPerTryTimeoutOfUpload is that the timeout of a try begins when the backend has been sent the request.
func TestPerTryTimeoutOfUpload(t *testing.T) {
	t.Parallel()
	const try = time.Second
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, Timeouts{})
			var asked atomic.Int64
			handler := func(w http.ResponseWriter, r *http.Request) {
				n := asked.Add(1)
				io.Copy(io.Discard, r.Body)
				if n == 2 {
					<-r.Context().Done()
				}
			}
			change := func(r *config.Rule) {
				r.Retry = &config.Retry{Attempts: 1, BackoffNanos: int64(time.Millisecond), PerTryTimeoutNanos: int64(try), Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_RESET}}
			}
			if h2 {
				addr, _ := h2cBackend(t, 0, handler)
				g.serveH2C(addr, change)
			} else {
				server := httptest.NewServer(http.HandlerFunc(handler))
				t.Cleanup(server.Close)
				g.serve(server.Listener.Addr().String(), change)
			}
			for i, want := range []int64{1, 3} { // the second upload is answered at its second try
				c, r := g.begunUpload()
				if i == 0 {
					<-time.After(try + try/4)
				}
				if _, err := io.WriteString(c, "y"); err != nil {
					t.Fatal(err)
				}
				wantStatus(t, r, http.StatusOK)
				if got := asked.Load(); got != want {
					t.Fatalf("the backend was asked %d times, want %d", got, want)
				}
			}
		})
	}
}
