package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// shownBackend answers over TLS with the subject of the certificate that it was shown, "none" for none, and whether the session was resumed.
func shownBackend(t testing.TB, cert *config.Resource, protocol string) (addr string, connections *atomic.Int64) {
	t.Helper()
	c := cert.GetCertificate()
	pair, err := tls.X509KeyPair(c.ChainPem, c.KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = &atomic.Int64{}
	s := &http.Server{
		Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := "none"
			if len(r.TLS.PeerCertificates) > 0 {
				name = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			fmt.Fprintf(w, "shown=%s resumed=%v", name, r.TLS.DidResume)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		},
	}
	s.Protocols.SetHTTP2(protocol == "h2")
	s.Protocols.SetHTTP1(protocol == "http/1.1")
	go s.ServeTLS(l, "", "")
	t.Cleanup(func() { s.Close() })
	return l.Addr().String(), connections
}

// identified is the HTTP listener of a Gateway of the listener's name, which shows a certificate: "-" is none that could be used, "" nothing.
func (g *gateway) identified(name, certificate string) *config.Resource {
	r := g.httpListener(name, name+".example")
	l := r.GetListener()
	l.Gateway = "default/" + name
	switch certificate {
	case "":
	case "-":
		l.Identity = &config.Identity{}
	default:
		l.Identity = &config.Identity{Certificate: certificate}
	}
	return r
}

// refRule sends everything to a backend.
func refRule(backend string) *config.Rule {
	return &config.Rule{
		Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: backend, Weight: 1}},
	}
}

// get returns the response to a request by way of the listener.
func (g *gateway) get(listener string) string {
	return g.roundTrip("GET / HTTP/1.1\r\nHost: " + listener + ".example\r\nConnection: close\r\n\r\n")
}

// TestIdentities: Gateways that share a backend show it their own certificates and nobody else's, on whatever connection a request comes.
func TestIdentities(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	server := certificate(t, "server", newECDSA(t), "backend.example")
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			addr, connections := shownBackend(t, server, protocol)
			g := startGateway(t, Timeouts{})
			listeners := map[string]string{"a": "ca", "b": "cb", "same": "cb", "none": "", "unusable": "-", "missing": "nowhere"}
			all := []*config.Resource{certificate(t, "ca", newECDSA(t), "ca"), certificate(t, "cb", newECDSA(t), "cb")}
			for name, c := range listeners {
				all = append(all, g.identified(name, c), routeOf(name, "default/gw/"+name, name+".example", refRule("Service/default/b/80")))
			}
			all = append(all, backend("Service/default/b/80", addr)...)
			g.apply(append(all, overTLS("Service/default/b/80", "backend.example", server.GetCertificate().ChainPem, 0)...))
			want := map[string]string{"a": "shown=ca", "b": "shown=cb", "same": "shown=cb", "none": "shown=none",
				"unusable": "gateway_certificate_invalid", "missing": "gateway_certificate_invalid"}
			for range 3 {
				for name := range listeners {
					if got := g.get(name); !strings.Contains(got, want[name]) {
						t.Errorf("%s: want %s, got %s", name, want[name], got)
					}
				}
			}
			if n := connections.Load(); n != 4 {
				t.Errorf("%d connections, want one for each Gateway with its own certificate, and one for none", n)
			}
			var work sync.WaitGroup
			for range 8 {
				work.Go(func() {
					for range 20 {
						for name := range listeners {
							if got := g.get(name); !strings.Contains(got, want[name]) {
								t.Errorf("%s: want %s, got %s", name, want[name], got)
							}
						}
					}
				})
			}
			work.Wait()

			// A session that is resumed stands for the certificate that it began with.
			for range 3 {
				g.apply(backend("Service/default/b/80", "127.0.0.1:1")[1:])
				g.apply(backend("Service/default/b/80", addr)[1:])
				for name := range listeners {
					if got := g.get(name); !strings.Contains(got, want[name]) {
						t.Errorf("%s on new connections: want %s, got %s", name, want[name], got)
					}
				}
			}

			// In cleartext nothing is shown, and what cannot be used is not missed.
			clear := httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "in clear") })
			g.apply(backend("Service/default/b/80", clear))
			for name := range listeners {
				if got := g.get(name); !strings.Contains(got, "in clear") {
					t.Errorf("%s in cleartext: %s", name, got)
				}
			}
		})
	}
}

// TestIdentityChanges: another certificate is shown from the next request on, and no connection or session that stands for an earlier one is used.
func TestIdentityChanges(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	server := certificate(t, "server", newECDSA(t), "backend.example")
	renewed := func(subject string) *config.Resource {
		r := certificate(t, subject, newECDSA(t), subject)
		r.GetCertificate().Key = "c"
		return r
	}
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			addr, connections := shownBackend(t, server, protocol)
			g := startGateway(t, Timeouts{})
			g.apply(append(backend("Service/default/b/80", addr), routeOf("a", "default/gw/a", "a.example", refRule("Service/default/b/80"))))
			g.apply(overTLS("Service/default/b/80", "backend.example", server.GetCertificate().ChainPem, 0))
			first := renewed("first")
			for _, step := range []struct {
				name    string
				upserts []*config.Resource
				remove  []config.ID
				want    string
			}{
				{"nothing", []*config.Resource{g.identified("a", "")}, nil, "shown=none"},
				{"a certificate", []*config.Resource{first, g.identified("a", "c")}, nil, "shown=first"},
				{"renewed", []*config.Resource{renewed("second")}, nil, "shown=second"},
				{"another Secret", []*config.Resource{certificate(t, "d", newECDSA(t), "d"), g.identified("a", "d")}, nil, "shown=d"},
				{"unusable", []*config.Resource{g.identified("a", "-")}, nil, "gateway_certificate_invalid"},
				{"the first again", []*config.Resource{first, g.identified("a", "c")}, nil, "shown=first"},
				{"removed", nil, []config.ID{first.ID()}, "gateway_certificate_invalid"},
				{"nothing again", []*config.Resource{g.identified("a", "")}, nil, "shown=none"},
			} {
				g.apply(step.upserts, step.remove...)
				for range 3 {
					if got := g.get("a"); !strings.Contains(got, step.want) || strings.Contains(got, "resumed=true") && step.want != "shown=none" {
						t.Errorf("%s: want %s, got %s", step.name, step.want, got)
					}
				}
				before := connections.Load()
				g.apply(step.upserts, step.remove...)
				if got := g.get("a"); !strings.Contains(got, step.want) || connections.Load() != before {
					t.Errorf("%s: the same again has cost the connection: %s", step.name, got)
				}
			}
			if n := len(g.upstreams.Get("Service/default/b/80").Endpoints()); n != 1 {
				t.Errorf("%d endpoints", n)
			}
		})
	}
}

// TestIdentityOfTunnels: connections of a TCPRoute show what those of requests do.
func TestIdentityOfTunnels(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	server := certificate(t, "server", newECDSA(t), "backend.example")
	addr, connections := shownBackend(t, server, "http/1.1")
	g := startGateway(t, Timeouts{})
	tcp := func(identity string) *config.Resource {
		r := g.identified("a", identity)
		r.GetListener().Protocol, r.GetListener().Hostname = config.Protocol_PROTOCOL_TCP, ""
		return r
	}
	route := l4RouteOf("a", "default/gw/a", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})
	g.apply(append(backend("Service/default/b/80", addr), certificate(t, "ca", newECDSA(t), "ca"), tcp("ca"), route))
	g.apply(overTLS("Service/default/b/80", "backend.example", server.GetCertificate().ChainPem, 0))
	const request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	if got := g.roundTrip(request); !strings.Contains(got, "shown=ca") {
		t.Error(got)
	}
	g.apply([]*config.Resource{tcp("-")})
	before := connections.Load()
	var got []byte
	if c, err := net.Dial("tcp", g.addr()); err == nil { // else it was reset already
		defer c.Close()
		c.SetDeadline(time.Now().Add(testkit.Patience))
		got, _ = io.ReadAll(c)
	}
	r := g.reasonsLogged(2) // the other one is the end of the first tunnel
	if len(got) > 0 || connections.Load() != before {
		t.Errorf("without a certificate that can be used: %q, %d connections", got, connections.Load()-before)
	}
	if !slices.Contains(r, "gateway_certificate_invalid") {
		t.Errorf("logged %q", r)
	}
}

// TestIdentityOfMirrors: copies of requests show what the requests do, and are not sent where these would not be.
func TestIdentityOfMirrors(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	server := certificate(t, "server", newECDSA(t), "backend.example")
	shown := make(chan string, 10)
	c := server.GetCertificate()
	pair, err := tls.X509KeyPair(c.ChainPem, c.KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert})
		if s.Handshake() == nil {
			for _, cert := range s.ConnectionState().PeerCertificates {
				shown <- cert.Subject.CommonName
			}
		}
	})
	plain := httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	g := startGateway(t, Timeouts{})
	rule := refRule("Service/default/plain/80")
	rule.Filters = []*anypb.Any{filterOf(t, &config.RequestMirror{Backend: "Service/default/b/80", Numerator: 1, Denominator: 1})}
	all := append(backend("Service/default/b/80", addr), backend("Service/default/plain/80", plain)...)
	all = append(all, certificate(t, "ca", newECDSA(t), "ca"))
	for name, identity := range map[string]string{"a": "ca", "unusable": "-"} {
		all = append(all, g.identified(name, identity), routeOf(name, "default/gw/"+name, name+".example", rule))
	}
	g.apply(all)
	g.apply(overTLS("Service/default/b/80", "backend.example", c.ChainPem, 0))
	for _, name := range []string{"unusable", "a"} {
		if got := g.get(name); !strings.Contains(got, "ok") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := <-shown; got != "ca" {
		t.Errorf("shown %q", got)
	}
	testkit.Eventually(t, "the copy that could not be sent is counted", func() bool {
		return g.upstreams.Get("Service/default/b/80").Stats().MirrorsFailed > 0
	})
}

// TestOwnCertificate: a Backend with a certificate of its own shows that one, whosever requests it gets, and a new one on new connections. Without it nothing is sent.
func TestOwnCertificate(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	server := certificate(t, "server", newECDSA(t), "backend.example")
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			addr, connections := shownBackend(t, server, protocol)
			g := startGateway(t, Timeouts{})
			all := []*config.Resource{certificate(t, "ca", newECDSA(t), "ca")}
			listeners := map[string]string{"a": "ca", "none": "", "unusable": "-"}
			for name, c := range listeners {
				all = append(all, g.identified(name, c), routeOf(name, "default/gw/"+name, name+".example", refRule("Service/default/b/80")))
			}
			own := func(key string) []*config.Resource {
				over := overTLS("Service/default/b/80", "backend.example", server.GetCertificate().ChainPem, 0)
				over[0].GetBackend().Tls.Certificate = key
				return over
			}
			all = append(all, backend("Service/default/b/80", addr)...)
			g.apply(append(all, own("own")...))
			shown := func(name string) []*config.Resource {
				c := certificate(t, name, newECDSA(t), name)
				c.GetCertificate().Key = "own"
				return []*config.Resource{c}
			}
			shows := func(what, want string) {
				t.Helper()
				for name := range listeners {
					if got := g.get(name); !strings.Contains(got, want) {
						t.Errorf("%s, %s: want %s, got %s", what, name, want, got)
					}
				}
			}
			shows("it is not there", "HTTP/1.1 502 ")
			if n := connections.Load(); n != 0 {
				t.Errorf("%d connections without the certificate", n)
			}
			g.apply(shown("first"))
			shows("it has come", "shown=first")
			if n := connections.Load(); n != 1 {
				t.Errorf("%d connections, want one for all Gateways", n)
			}
			g.apply(shown("second"))
			shows("another one", "shown=second")
			g.apply(own("ca"))
			shows("the Gateway's", "shown=ca")
			g.apply(own(""))
			for name, want := range map[string]string{"a": "shown=ca", "none": "shown=none", "unusable": "gateway_certificate_invalid"} {
				if got := g.get(name); !strings.Contains(got, want) {
					t.Errorf("none of its own, %s: want %s, got %s", name, want, got)
				}
			}
		})
	}
}

// TestUnknownFieldOutlivesRotation: to a Backend with a field that is unknown here nothing is sent, also when the certificate that it shows is replaced.
func TestUnknownFieldOutlivesRotation(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	server := certificate(t, "server", newECDSA(t), "backend.example")
	addr, connections := shownBackend(t, server, "http/1.1")
	g := startGateway(t, Timeouts{})
	own := func() []*config.Resource {
		over := overTLS("Service/default/b/80", "backend.example", server.GetCertificate().ChainPem, 0)
		over[0].GetBackend().Tls.Certificate = "own"
		return over
	}
	rotate := func(name string) {
		t.Helper()
		c := certificate(t, name, newECDSA(t), name)
		c.GetCertificate().Key = "own"
		g.apply([]*config.Resource{c})
	}
	g.serve(addr, nil)
	rotate("first")
	unread := own()
	addUnknown(t, unread[0].GetBackend().Tls)
	g.generation++
	g.Apply(&config.Update{Generation: g.generation, Upserts: unread})
	for _, name := range []string{"second", "third"} {
		if got := g.get("h"); !strings.Contains(got, "HTTP/1.1 502 ") {
			t.Errorf("before the certificate %s: %s", name, got)
		}
		rotate(name)
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
	g.apply(own())
	if got := g.get("h"); !strings.Contains(got, "shown=third") {
		t.Errorf("without the field: %s", got)
	}
}
