package upstream

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// checkConfig is one whose checks follow each other fast.
func checkConfig(change func(*config.ActiveHealthCheck)) *config.HealthCheck {
	c := &config.ActiveHealthCheck{TimeoutNanos: int64(testkit.Patience), IntervalNanos: int64(time.Millisecond), UnhealthyThreshold: 3, HealthyThreshold: 1,
		Check: &config.ActiveHealthCheck_Http{Http: &config.HTTPHealthCheck{Host: "example.com", Path: "/healthz?deep=1"}}}
	if change != nil {
		change(c)
	}
	return &config.HealthCheck{Active: c}
}

// checkedServer is an HTTP server by the protocols that are set, over TLS with settings.
func checkedServer(t testing.TB, settings *tls.Config, set func(*http.Protocols), h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr).AddrPort()
	var protocols http.Protocols
	set(&protocols)
	s := &http.Server{Handler: h, Protocols: &protocols, TLSConfig: settings}
	if settings != nil {
		go s.ServeTLS(l, "", "")
	} else {
		go s.Serve(l)
	}
	t.Cleanup(func() { s.Close() })
	return address
}

func become(t testing.TB, e *Endpoint, want Health) {
	t.Helper()
	testkit.Eventually(t, want.String(), func() bool { return e.Health() == want })
}

// TestChecksSpeakTheBackendsProtocol is that checks go as requests would: by its protocol and over TLS with its settings.
func TestChecksSpeakTheBackendsProtocol(t *testing.T) {
	ca := testkit.NewAuthority(t)
	certificate := testkit.Certificate{Hosts: []string{"example.com"}, Issuer: ca}.TLS(t)
	for _, c := range []struct {
		name     string
		protocol config.BackendProtocol
		secure   bool
		grpc     bool
		set      func(*http.Protocols)
		want     string
	}{
		{"HTTP/1.1", config.BackendProtocol_BACKEND_PROTOCOL_HTTP, false, false, func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/1.1"},
		{"h2c", config.BackendProtocol_BACKEND_PROTOCOL_H2C, false, false, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, "HTTP/2.0"},
		{"TLS, HTTP/1.1", config.BackendProtocol_BACKEND_PROTOCOL_HTTP, true, false, func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/1.1"},
		{"TLS, HTTP/2", config.BackendProtocol_BACKEND_PROTOCOL_HTTP, true, false, func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) }, "HTTP/2.0"},
		{"TLS, WebSocket", config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET, true, false, func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) }, "HTTP/1.1"},
		{"gRPC", config.BackendProtocol_BACKEND_PROTOCOL_HTTP, false, true, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, "HTTP/2.0"},
		{"gRPC over TLS", config.BackendProtocol_BACKEND_PROTOCOL_H2C, true, true, func(p *http.Protocols) { p.SetHTTP2(true) }, "HTTP/2.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var settings *tls.Config
			r := backendResource(key)
			all := []*config.Resource{r}
			if c.secure {
				settings = &tls.Config{Certificates: []tls.Certificate{certificate}}
				r = securedBackend(key, string(ca.PEM))
				all = []*config.Resource{authoritiesResource(string(ca.PEM)), r}
			}
			asked := make(chan string, 100)
			address := checkedServer(t, settings, c.set, func(w http.ResponseWriter, r *http.Request) {
				select {
				case asked <- fmt.Sprintf("%s %s %s %s %s", r.Proto, r.Method, r.Host, r.URL, r.UserAgent()):
				default:
				}
				if c.grpc {
					serveGRPC(w, r, servingAnswer(1), "0")
				}
			})
			r.GetBackend().Protocol = c.protocol
			want := c.want + " GET example.com /healthz?deep=1 " + checkAgent
			r.GetBackend().Traffic = &config.BackendTraffic{HealthCheck: checkConfig(func(a *config.ActiveHealthCheck) {
				if c.grpc {
					a.Check = &config.ActiveHealthCheck_Grpc{Grpc: &config.GRPCHealthCheck{Service: "shop", Authority: "example.com"}}
					want = c.want + " POST example.com /grpc.health.v1.Health/Check " + checkAgent
				}
			})}
			s := NewSet(Options{})
			t.Cleanup(s.Close)
			apply(t, s, append(all, endpointsResource(key, endpoint(address)))...)
			become(t, s.Get(key).Endpoints()[0], Healthy)
			if got := <-asked; got != want {
				t.Errorf("asked by %q, want %q", got, want)
			}
		})
	}
}

// TestChecksBeginWithThePROXYHeader: a backend that wants one takes no connection without, so those of checks and load reports have it too. It names no client.
func TestChecksBeginWithThePROXYHeader(t *testing.T) {
	for name, c := range map[string]struct {
		version config.ProxyHeader
		want    string
	}{
		"v1": {config.ProxyHeader_PROXY_HEADER_V1, "PROXY UNKNOWN\r\n"},
		"v2": {config.ProxyHeader_PROXY_HEADER_V2, "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			heads := make(chan string, 100)
			server := listenTo(t, func(conn net.Conn) {
				head := make([]byte, len(c.want))
				if n, err := io.ReadFull(conn, head); err != nil {
					head = head[:n]
				}
				select {
				case heads <- string(head):
				default:
				}
				if string(head) == c.want {
					io.WriteString(conn, "welcome") //nolint:errcheck // the check tells
				}
				io.Copy(io.Discard, conn) //nolint:errcheck // until it is closed
			})
			s, b := newSet(t, Options{}, endpoint(server.addrPort()))
			r := withHealth(checkConfig(func(a *config.ActiveHealthCheck) {
				a.Check = &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Receive: []byte("welcome")}}
			}))
			r.GetBackend().Traffic.Connections = &config.BackendConnections{ProxyHeader: c.version}
			apply(t, s, r)
			become(t, b.Endpoints()[0], Healthy)
			if got := <-heads; got != c.want {
				t.Errorf("a check begins with %q", got)
			}
			r.GetBackend().Traffic = &config.BackendTraffic{Connections: r.GetBackend().Traffic.Connections, LoadBalancer: &config.LoadBalancer{
				Type: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION, BackendUtilization: &config.BackendUtilization{OutOfBand: &config.OutOfBandReports{}}}}
			apply(t, s, proto.Clone(r).(*config.Resource))
			for len(heads) > 0 {
				<-heads
			}
			if got := <-heads; got != c.want {
				t.Errorf("a connection for load reports begins with %q", got)
			}
		})
	}
}

func serveGRPC(w http.ResponseWriter, r *http.Request, answer []byte, status string) {
	request, _ := io.ReadAll(r.Body)
	if !bytes.Equal(request, []byte("\x00\x00\x00\x00\x06\x0a\x04shop")) || r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	w.Write(answer)
	w.Header().Set("Grpc-Status", status)
}

// servingAnswer is a grpc.health.v1.HealthCheckResponse in its frame.
func servingAnswer(status byte) []byte { return []byte{0, 0, 0, 0, 2, 8, status} }

func TestCheckResults(t *testing.T) {
	type http1 = config.HTTPHealthCheck
	status := func(n int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(n)
			io.WriteString(w, body)
		}
	}
	posted := func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); r.Method != "POST" || string(b) != "ping" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}
	grpc := func(answer []byte, status string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { serveGRPC(w, r, answer, status) }
	}
	for _, c := range []struct {
		name  string
		serve http.HandlerFunc
		check *http1
		grpc  bool
		want  checkResult
	}{
		{"200", status(200, ""), &http1{}, false, checkResult{}},
		{"204 is not 200", status(204, ""), &http1{}, false, checkResult{failure: "status 204", atOnce: true}},
		{"302 is not followed", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, &http1{}, false, checkResult{failure: "status 302", atOnce: true}},
		{"expected", status(204, ""), &http1{ExpectedStatuses: []uint32{200, 204}}, false, checkResult{}},
		{"200 is not expected", status(200, ""), &http1{ExpectedStatuses: []uint32{204}}, false, checkResult{failure: "status 200", atOnce: true}},
		{"retriable", status(503, ""), &http1{RetriableStatuses: []uint32{503}}, false, checkResult{failure: "status 503", atOnce: false}},
		{"body", status(200, "all is well here"), &http1{ExpectedResponse: []byte("well")}, false, checkResult{}},
		{"another body", status(200, "all is ill"), &http1{ExpectedResponse: []byte("well")}, false, checkResult{failure: "the body does not contain what is expected", atOnce: true}},
		{"request body", posted, &http1{Method: "POST", RequestBody: []byte("ping")}, false, checkResult{}},
		{"serving", grpc(servingAnswer(1), "0"), &http1{}, true, checkResult{}},
		{"not serving", grpc(servingAnswer(2), "0"), &http1{}, true, checkResult{failure: "serving status 2", atOnce: true}},
		{"unknown", grpc([]byte{0, 0, 0, 0, 0}, "0"), &http1{}, true, checkResult{failure: "serving status 0", atOnce: true}},
		{"malformed", grpc([]byte{0, 0, 0, 0, 9, 8}, "0"), &http1{}, true, checkResult{failure: "serving status 0", atOnce: true}},
		{"unknown service", grpc(nil, "5"), &http1{}, true, checkResult{failure: `grpc-status "5"`, atOnce: true}},
		{"not gRPC", status(404, ""), &http1{}, true, checkResult{failure: "status 404", atOnce: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := checkedServer(t, nil, func(p *http.Protocols) { p.SetHTTP1(true); p.SetUnencryptedHTTP2(true) }, c.serve)
			_, b := newSet(t, Options{}, endpoint(address))
			a, err := parseActive(key, checkConfig(func(a *config.ActiveHealthCheck) {
				check := c.check
				check.Host, check.Path = "example.com", "/"
				a.Check = &config.ActiveHealthCheck_Http{Http: check}
				if c.grpc {
					a.Check = &config.ActiveHealthCheck_Grpc{Grpc: &config.GRPCHealthCheck{Service: "shop", Authority: "example.com"}}
				}
			}).Active)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.check(t.Context(), b.Endpoints()[0], b.Endpoints()[0].transport); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestTCPChecks(t *testing.T) {
	ca := testkit.NewAuthority(t)
	settings := &tls.Config{Certificates: []tls.Certificate{testkit.Certificate{Hosts: []string{"example.com"}, Issuer: ca}.TLS(t)}}
	closes := func(net.Conn) {}
	for _, c := range []struct {
		name          string
		secure        bool
		serve         func(net.Conn)
		send, receive string
		ok            bool
	}{
		{"connect", false, closes, "", "", true},
		{"echo", false, echoAll, "hello", "ello", true},
		{"another answer", false, func(c net.Conn) { io.WriteString(c, "no") }, "", "yes", false},
		{"in pieces", false, func(c net.Conn) { io.WriteString(c, "y"); io.WriteString(c, "es") }, "", "yes", true},
		{"much", false, func(c net.Conn) { c.Write(make([]byte, 2*maxChecked)) }, "", "yes", false},
		{"over TLS", true, func(c net.Conn) { echoAll(tls.Server(c, settings)) }, "hello", "hello", true},
		{"without TLS", true, closes, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := listenTo(t, c.serve)
			s, b := newSet(t, Options{}, endpoint(server.addrPort()))
			if c.secure {
				apply(t, s, authoritiesResource(string(ca.PEM)), securedBackend(key, string(ca.PEM)))
			}
			a, err := parseActive(key, checkConfig(func(a *config.ActiveHealthCheck) {
				a.Check = &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Send: []byte(c.send), Receive: []byte(c.receive)}}
			}).Active)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.check(t.Context(), b.Endpoints()[0], b.Endpoints()[0].transport); (got.failure == "") != c.ok || got.atOnce {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestChecksShowCertificates: an endpoint that asks for a client certificate is checked with those of the Gateways, as soon as they are known, and that it does not
// take one of them says nothing of the others.
func TestChecksShowCertificates(t *testing.T) {
	s := NewSet(Options{})
	t.Cleanup(s.Close)
	taken := testkit.NewAuthority(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(taken.PEM)
	ca := testkit.NewAuthority(t)
	settings := &tls.Config{Certificates: []tls.Certificate{testkit.Certificate{Hosts: []string{"example.com"}, Issuer: ca}.TLS(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server := listenTo(t, func(c net.Conn) { echoAll(tls.Server(c, settings)) })
	secured := securedBackend(key, string(ca.PEM))
	secured.GetBackend().Traffic = &config.BackendTraffic{HealthCheck: checkConfig(func(a *config.ActiveHealthCheck) {
		a.IntervalNanos, a.TimeoutNanos, a.UnhealthyThreshold, a.HealthyThreshold = int64(time.Hour), int64(testkit.Patience), 2, 2
		a.Check = &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Send: []byte("hello"), Receive: []byte("hello")}}
	})}
	apply(t, s, authoritiesResource(string(ca.PEM)), secured, endpointsResource(key, endpoint(server.addrPort())))
	e := s.Get(key).Endpoints()[0]
	checked := func() (failing, known bool) {
		e.health.mu.Lock()
		defer e.health.mu.Unlock()
		return e.health.checker.failing, e.health.checker.known
	}
	testkit.Eventually(t, "without a certificate it is not healthy", func() bool { failing, known := checked(); return failing && known })
	other, own := testkit.Certificate{Name: "other"}.TLS(t), testkit.Certificate{Name: "own", Issuer: taken}.TLS(t)
	first, second := s.Identity("default/a", "Secret/default/other", &other), s.Identity("default/b", "Secret/default/own", &own)
	if transports := e.gatewayTransports(); len(transports) != 1 || transports[0] != e.transport {
		t.Errorf("%d transports, or another one than without a certificate, to an endpoint that no request has used", len(transports))
	}
	s.Get(key).As(first)
	if transports := e.gatewayTransports(); len(transports) != 1 || transports[0] == e.transport {
		t.Errorf("%d transports to an endpoint that requests of one Gateway have used", len(transports))
	}
	s.Get(key).As(second)
	testkit.Eventually(t, "one of the certificates is taken", func() bool { failing, known := checked(); return !failing && known })
	if transports := e.gatewayTransports(); len(transports) != 2 {
		t.Errorf("%d transports to an endpoint that requests of two Gateways have used", len(transports))
	}
	third := s.Identity("default/c", "Secret/default/other", &other)
	s.Get(key).As(third)
	if failing, known := checked(); failing || !known {
		t.Error("what is known of a healthy endpoint is forgotten for another certificate")
	}
}

// TestNoHealthChecks: a Set that is to send nothing has no endpoint checked, and waits for no result.
func TestNoHealthChecks(t *testing.T) {
	server := listenTo(t, func(net.Conn) {})
	for _, without := range []bool{false, true} {
		s, b := newSet(t, Options{NoHealthChecks: without}, endpoint(server.addrPort()))
		apply(t, s, withHealth(checkConfig(func(a *config.ActiveHealthCheck) { a.IntervalNanos = int64(time.Hour) })))
		if got := b.Endpoints()[0].health.unchecked(); got != without {
			t.Errorf("without checks: %v, unchecked: %v", without, got)
		}
	}
}

// TestChecksHaveProxyHeaders: where connections begin with a PROXY header those of checks do, and it says that they are the proxy's own.
func TestChecksHaveProxyHeaders(t *testing.T) {
	for header, want := range map[config.ProxyHeader]string{
		config.ProxyHeader_PROXY_HEADER_NONE: "",
		config.ProxyHeader_PROXY_HEADER_V1:   "PROXY UNKNOWN\r\n",
		config.ProxyHeader_PROXY_HEADER_V2:   "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
	} {
		server := listenTo(t, echoAll)
		s, b := newSet(t, Options{}, endpoint(server.addrPort()))
		apply(t, s, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Traffic: &config.BackendTraffic{Connections: &config.BackendConnections{ProxyHeader: header}}}}})
		a, err := parseActive(key, checkConfig(func(a *config.ActiveHealthCheck) {
			a.Check = &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Send: []byte("hello"), Receive: []byte(want + "hello")}}
		}).Active)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.check(t.Context(), b.Endpoints()[0], b.Endpoints()[0].transport); got.failure != "" {
			t.Errorf("%v: %+v", header, got)
		}
	}
}

// TestCheckTimeout is that a server which does not answer fails a check by its timeout, whatever the protocol.
func TestCheckTimeout(t *testing.T) {
	server := listenTo(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	for _, check := range []func(*config.ActiveHealthCheck){
		nil,
		func(a *config.ActiveHealthCheck) {
			a.Check = &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Receive: []byte("x")}}
		},
		func(a *config.ActiveHealthCheck) {
			a.Check = &config.ActiveHealthCheck_Grpc{Grpc: &config.GRPCHealthCheck{Authority: "example.com"}}
		},
	} {
		c := checkConfig(check)
		c.Active.TimeoutNanos = int64(10 * time.Millisecond)
		s, b := newSet(t, Options{}, endpoint(server.addrPort()))
		apply(t, s, withHealth(c))
		become(t, b.Endpoints()[0], Unhealthy)
	}
}

// checkerOf is one whose results the test gives itself.
func checkerOf(t testing.TB, change func(*config.ActiveHealthCheck)) (*Backend, *checker) {
	t.Helper()
	b := made(t, 3)
	apply(t, b.set, withHealth(checkConfig(func(a *config.ActiveHealthCheck) {
		a.InitialJitterNanos, a.IntervalNanos = int64(1000*time.Hour), int64(time.Hour)
		if change != nil {
			change(a)
		}
	})))
	return b, b.Endpoints()[0].health.checker
}

func TestThresholds(t *testing.T) {
	_, c := checkerOf(t, func(a *config.ActiveHealthCheck) { a.UnhealthyThreshold, a.HealthyThreshold = 3, 2 })
	e := c.endpoint
	bad, worse, good := checkResult{failure: "x"}, checkResult{failure: "x", atOnce: true}, checkResult{}
	for i, step := range []struct {
		result checkResult
		want   Health
	}{
		{good, Healthy}, // the first decides alone
		{bad, Healthy}, {bad, Healthy}, {good, Healthy}, {bad, Healthy}, {bad, Healthy}, {bad, Unhealthy}, {bad, Unhealthy},
		{good, Unhealthy}, {bad, Unhealthy}, {good, Unhealthy}, {good, Healthy},
		{worse, Unhealthy}, {good, Unhealthy}, {good, Healthy},
	} {
		if c.done(step.result); e.Health() != step.want {
			t.Fatalf("step %d: %v, want %v", i, e.Health(), step.want)
		}
	}
	if b := e.Backend(); b.totals().checksPassed.Load() != 7 || b.totals().checksFailed.Load() != 8 {
		t.Errorf("%d passed, %d failed", b.totals().checksPassed.Load(), b.totals().checksFailed.Load())
	}
	_, c = checkerOf(t, nil)
	if c.done(bad); c.endpoint.Health() != Unhealthy {
		t.Error("the first failure does not decide alone")
	}
}

// TestUnknownEndpoints is that an endpoint is not chosen before its first check, but where that is so of most.
func TestUnknownEndpoints(t *testing.T) {
	b, c := checkerOf(t, nil)
	for _, e := range b.Endpoints() {
		if e.Health() != Unknown || !e.fit() {
			t.Fatalf("%v is %v, fit: %v", e, e.Health(), e.fit())
		}
	}
	c.done(checkResult{})
	b.Endpoints()[1].health.checker.done(checkResult{})
	if e := b.Endpoints()[2]; e.fit() || picks(b, e) {
		t.Error("an unknown endpoint is chosen beside healthy ones")
	}
}

func TestPassingCheckEndsAnEjection(t *testing.T) {
	b := made(t, 3)
	h := checkConfig(func(a *config.ActiveHealthCheck) {
		a.InitialJitterNanos, a.IntervalNanos = int64(1000*time.Hour), int64(time.Hour)
	})
	h.Passive = passiveConfig()
	apply(t, b.set, withHealth(h))
	e := b.Endpoints()[0]
	for range 5 {
		e.Responded(500)
	}
	if e.Health() != Ejected {
		t.Fatal("not ejected")
	}
	e.health.checker.done(checkResult{failure: "x"})
	if e.Health() != Ejected {
		t.Error("a failed check ended the ejection")
	}
	e.health.checker.done(checkResult{})
	if e.Health() != Healthy || b.health.outliers != 0 {
		t.Errorf("%v", e.Health())
	}
}

// TestChecksAreEdited is that a policy changes and goes, and endpoints too.
func TestChecksAreEdited(t *testing.T) {
	b, c := checkerOf(t, nil)
	s, e := b.set, c.endpoint
	c.done(checkResult{failure: "x", atOnce: true})
	apply(t, s, withHealth(checkConfig(func(a *config.ActiveHealthCheck) {
		a.InitialJitterNanos, a.IntervalNanos, a.Port = int64(1000*time.Hour), int64(time.Hour), 81
	})))
	if e.health.checker == c || e.Health() != Unhealthy {
		t.Errorf("after a change: %v", e.Health())
	}
	c.done(checkResult{}) // by the old policy
	if e.Health() != Unhealthy {
		t.Error("a result of the old policy counts")
	}
	if n := len(s.taskQueue.tasks); n != 3 {
		t.Errorf("%d tasks for 3 endpoints", n)
	}
	apply(t, s, endpointsResource(key, endpoint(address(0)), endpoint(address(7))))
	if n := len(s.taskQueue.tasks); n != 2 || b.Endpoints()[1].Health() != Unknown {
		t.Errorf("%d tasks for 2 endpoints", n)
	}
	apply(t, s, withHealth(nil))
	if n := len(s.taskQueue.tasks); n != 0 || e.Health() != Healthy || b.health.unfit.Load() != 0 {
		t.Errorf("without a policy: %d tasks, %v", n, e.Health())
	}
}

// TestCheckIsStopped is that an endpoint, its policy or all goes while the endpoint is being checked: the check ends, and none follows.
func TestCheckIsStopped(t *testing.T) {
	for name, stop := range map[string]func(*Set){
		"endpoint": func(s *Set) { s.Apply([]*config.Resource{endpointsResource(key)}, nil) },
		"policy":   func(s *Set) { s.Apply([]*config.Resource{withHealth(nil)}, nil) },
		"backend": func(s *Set) {
			s.Apply(nil, []config.ID{{Kind: config.KindBackend, Key: key}, {Kind: config.KindEndpoints, Key: key}})
		},
		"set": (*Set).Close,
	} {
		t.Run(name, func(t *testing.T) {
			accepted, ended := make(chan struct{}, 100), make(chan struct{}, 100)
			server := listenTo(t, func(c net.Conn) {
				accepted <- struct{}{}
				io.Copy(io.Discard, c)
				ended <- struct{}{}
			})
			s, b := newSet(t, Options{}, endpoint(server.addrPort()))
			timeout := int64(testkit.Patience)
			if name == "policy" || name == "backend" { // the check ends by itself
				timeout = int64(200 * time.Millisecond)
			}
			apply(t, s, withHealth(checkConfig(func(a *config.ActiveHealthCheck) { a.TimeoutNanos = timeout })))
			<-accepted
			stop(s)
			<-ended
			testkit.Eventually(t, "no check is left", func() bool {
				s.checks.mu.Lock()
				defer s.checks.mu.Unlock()
				s.taskQueue.mu.Lock()
				defer s.taskQueue.mu.Unlock()
				return s.checks.running == 0 && len(s.taskQueue.tasks) == 0 && !s.taskQueue.running
			})
			if unfit := b.health.unfit.Load(); unfit != 0 {
				t.Errorf("%d unfit", unfit)
			}
		})
	}
}

func TestOverriddenPort(t *testing.T) {
	var asked atomic.Int64
	address := checkedServer(t, nil, func(p *http.Protocols) { p.SetHTTP1(true) }, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	s, b := newSet(t, Options{}, endpoint(netip.AddrPortFrom(address.Addr(), 1)))
	apply(t, s, withHealth(checkConfig(func(a *config.ActiveHealthCheck) { a.Port = uint32(address.Port()) })))
	become(t, b.Endpoints()[0], Healthy)
}

func TestChecksOfManyEndpoints(t *testing.T) {
	const n = 10_000
	var q checkQueue
	begin := time.Now()
	at := map[int64]int{}
	var last time.Time
	for range n {
		last = q.first(begin, 0)
		at[last.UnixMilli()]++
	}
	for ms, count := range at {
		if count > 6 {
			t.Fatalf("%d are checked in millisecond %d", count, ms-begin.UnixMilli())
		}
	}
	if last.Sub(begin) > 2100*time.Millisecond {
		t.Errorf("the last is checked after %v", last.Sub(begin))
	}
	for range 10 * n { // an edit now and then, each of which begins the checks of all
		if at := q.first(begin, 0); at.Sub(begin) > firstChecksWithin {
			t.Fatalf("one is checked for the first time after %v", at.Sub(begin))
		}
	}
	if at := q.first(last.Add(time.Hour), time.Minute); at.Before(last.Add(time.Hour)) || at.After(last.Add(time.Hour+time.Minute)) {
		t.Errorf("with jitter after %v", at.Sub(last))
	}
}

// TestChecksAreBounded is that checks of one namespace which last long leave room for others, and that none waits any more when its endpoint is not checked.
func TestChecksAreBounded(t *testing.T) {
	s := NewSet(Options{})
	t.Cleanup(s.Close)
	var listeners []net.Listener // where connections are made, and nobody answers
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	backendOf := func(namespace string, health *config.HealthCheck) *config.Resource {
		r := backendResource("Service/" + namespace + "/s/80")
		r.GetBackend().Namespace, r.GetBackend().Traffic = namespace, &config.BackendTraffic{HealthCheck: health}
		return r
	}
	begin := func(namespace string, n int) {
		var list []*config.Endpoint
		for range n {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			listeners = append(listeners, l)
			list = append(list, endpoint(l.Addr().(*net.TCPAddr).AddrPort()))
		}
		silent := checkConfig(func(a *config.ActiveHealthCheck) {
			a.TimeoutNanos, a.InitialJitterNanos = int64(24*time.Hour), int64(1000*time.Hour)
			a.Check = &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Receive: []byte("x")}}
		})
		r := backendOf(namespace, silent)
		apply(t, s, r, endpointsResource(r.GetBackend().Key, list...))
		for _, e := range s.Get(r.GetBackend().Key).Endpoints() {
			if took := e.health.checker.active.timeout; took != longestCheck {
				t.Fatalf("a check may take %v", took)
			}
			s.checks.begin(e.health.checker)
		}
	}
	state := func() (running, greedy, late, waiting int) {
		s.checks.mu.Lock()
		defer s.checks.mu.Unlock()
		for _, n := range s.checks.of {
			waiting += n.waiting.Len()
			if n.namespace == "greedy" {
				greedy = n.running
			} else {
				late = n.running
			}
		}
		return s.checks.running, greedy, late, waiting
	}
	begin("greedy", maxChecks)
	begin("late", maxChecks/2+2*ownChecks)
	// The second one has what is left as long as that is more than it has, and its own in any case.
	if running, greedy, late, waiting := state(); running != greedy+late || greedy != maxChecks/2 || late != maxChecks/4 || waiting != maxChecks/2+maxChecks/4+2*ownChecks {
		t.Errorf("%d checks are under way, %d and %d by namespace, and %d wait", running, greedy, late, waiting)
	}
	for i := range maxChecks {
		begin(fmt.Sprintf("namespace-%d", i), 1)
	}
	if running, greedy, late, waiting := state(); running != greedy+maxChecks/4+maxChecks || waiting != maxChecks/2+maxChecks/4+2*ownChecks {
		t.Errorf("with those of many namespaces %d checks are under way, %d and %d of the first two, and %d wait", running, greedy, late, waiting)
	}
	apply(t, s, backendOf("greedy", nil))
	if _, _, _, waiting := state(); waiting != maxChecks/4+2*ownChecks {
		t.Errorf("%d wait where %d are still to be checked", waiting, maxChecks/4+2*ownChecks)
	}
	apply(t, s, backendOf("late", nil))
	for _, l := range listeners {
		l.Close()
	}
	testkit.Eventually(t, "no check is left", func() bool {
		s.checks.mu.Lock()
		defer s.checks.mu.Unlock()
		return s.checks.running == 0 && len(s.checks.of) == 0 && s.checks.turns.Len() == 0
	})
}

func TestActiveIsRefused(t *testing.T) {
	b := made(t, 1)
	for name, change := range map[string]func(*config.ActiveHealthCheck){
		"timeout":  func(a *config.ActiveHealthCheck) { a.TimeoutNanos = 0 },
		"interval": func(a *config.ActiveHealthCheck) { a.IntervalNanos = -1 },
		"jitter":   func(a *config.ActiveHealthCheck) { a.InitialJitterNanos = -1 },
		"port":     func(a *config.ActiveHealthCheck) { a.Port = 65536 },
		"check":    func(a *config.ActiveHealthCheck) { a.Check = nil },
		"path":     func(a *config.ActiveHealthCheck) { a.GetHttp().Path = "healthz" },
		"host":     func(a *config.ActiveHealthCheck) { a.GetHttp().Host = "" },
	} {
		if err := b.set.Apply([]*config.Resource{withHealth(checkConfig(change))}, nil); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestCheckLog(t *testing.T) {
	const failure, start, success, transition = config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE, config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE_SERIES_START,
		config.HealthCheckEvent_HEALTH_CHECK_EVENT_SUCCESS, config.HealthCheckEvent_HEALTH_CHECK_EVENT_HEALTHY_TRANSITION
	bad, good := checkResult{failure: "timeout"}, checkResult{}
	for name, c := range map[string]struct {
		events []config.HealthCheckEvent
		want   string
	}{
		"all":                 {nil, "HealthyTransition Success FailureSeriesStart Failure HealthyTransition"},
		"failures":            {[]config.HealthCheckEvent{failure}, "Failure Failure"},
		"starts, transitions": {[]config.HealthCheckEvent{start, transition}, "HealthyTransition FailureSeriesStart HealthyTransition"},
		"failures, successes": {[]config.HealthCheckEvent{failure, success}, "Success Success Failure Failure Success"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "checks.log")
			b, checker := checkerOf(t, func(a *config.ActiveHealthCheck) {
				a.UnhealthyThreshold = 2
				a.Log = &config.HealthCheckLog{Path: path, Events: c.events}
			})
			for _, r := range []checkResult{good, good, bad, bad, good} {
				checker.done(r)
			}
			want := len(strings.Fields(c.want))
			var text []byte
			testkit.Eventually(t, "the lines are there", func() bool {
				text, _ = os.ReadFile(path)
				return bytes.Count(text, []byte("\n")) >= want
			})
			var got []string
			for line := range strings.Lines(string(text)) {
				var e checkEvent
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				_, err := time.Parse(time.RFC3339, e.Timestamp)
				failed := strings.HasPrefix(e.Event, "Failure")
				if err != nil || e.Backend != key || e.Endpoint != "192.0.2.0:8080" || e.Check != "http" || (e.Reason == "timeout") != failed {
					t.Errorf("%s", line)
				}
				got = append(got, e.Event)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("logged %v, want %s", got, c.want)
			}
			apply(t, b.set, withHealth(nil))
			if len(b.set.eventLogs.logs) != 0 {
				t.Error("the log is open though nobody uses it")
			}
		})
	}
}

func TestCheckLogToOutput(t *testing.T) {
	var out testkit.Log
	s, _ := newSet(t, Options{Output: &out}, endpoint(address(0)))
	apply(t, s, withHealth(checkConfig(func(a *config.ActiveHealthCheck) {
		a.InitialJitterNanos, a.Log = int64(1000*time.Hour), &config.HealthCheckLog{}
	})))
	s.Get(key).Endpoints()[0].health.checker.done(checkResult{})
	testkit.Eventually(t, "the line is there", func() bool { return out.Count("HealthyTransition") == 1 })
}

// TestCheckLogIsOpenedAnew is that a file which cannot be written is opened again.
func TestCheckLogIsOpenedAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checks.log")
	f := eventFile{path: path}
	defer f.close()
	f.write([]byte("one\n"))
	f.file.Close() // writes fail from now on
	f.write([]byte("two\n"))
	if text, _ := os.ReadFile(path); string(text) != "one\ntwo\n" {
		t.Errorf("%q", text)
	}
	missing := filepath.Join(t.TempDir(), "missing", "checks.log")
	f = eventFile{path: missing}
	f.write([]byte("lost\n"))
	if err := os.Mkdir(filepath.Dir(missing), 0o755); err != nil {
		t.Fatal(err)
	}
	f.write([]byte("lost\n")) // it is not tried for each line
	f.failed = f.failed.Add(-reopenAfter)
	f.write([]byte("three\n"))
	if text, _ := os.ReadFile(missing); string(text) != "three\n" {
		t.Errorf("%q", text)
	}
}

// TestCheckLogNeverWaits is that lines are dropped and counted where nobody takes them.
func TestCheckLogNeverWaits(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	s, b := newSet(t, Options{Output: w}, endpoint(address(0)))
	apply(t, s, withHealth(checkConfig(func(a *config.ActiveHealthCheck) {
		a.InitialJitterNanos, a.Log = int64(1000*time.Hour), &config.HealthCheckLog{}
	})))
	c := b.Endpoints()[0].health.checker
	for range maxEvents + 10 {
		c.done(checkResult{})
	}
	if n := b.totals().eventsDropped.Load(); n < 9 || n > 10 { // one is being written, or not yet
		t.Errorf("%d lines dropped", n)
	}
}

func TestTaskQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue taskQueue
		var got []string
		begin := time.Now()
		named := func(name string) *task {
			return &task{run: func(now time.Time) { got = append(got, fmt.Sprint(name, now.Sub(begin))) }}
		}
		stopped, twice := named("stopped"), named("c")
		queue.add(named("b"), begin.Add(2*time.Second))
		queue.add(stopped, begin.Add(1500*time.Millisecond))
		queue.add(twice, begin.Add(3*time.Second))
		queue.add(twice, begin.Add(time.Second)) // it waits already
		time.Sleep(500 * time.Millisecond)
		queue.add(named("a"), begin.Add(time.Second)) // before all others
		queue.add(named("late"), begin)
		queue.stop(stopped)
		queue.add(stopped, begin.Add(time.Second))
		queue.panicked = func(string, any) { got = append(got, "panic") }
		queue.add(&task{}, begin.Add(2500*time.Millisecond)) // run is nil
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := "[late500ms a1s b2s panic c3s]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
		if queue.running {
			t.Error("it runs though nothing waits")
		}
		got = nil
		queue.add(named("again"), time.Now().Add(time.Second))
		queue.add(named("never"), time.Now().Add(time.Hour))
		time.Sleep(time.Minute)
		synctest.Wait()
		queue.close()
		queue.add(named("closed"), time.Now())
		synctest.Wait()
		if len(got) != 1 || queue.running {
			t.Errorf("%v, running: %v", got, queue.running)
		}
	})
}
