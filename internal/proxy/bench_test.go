package proxy

import (
	"net"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter/externalauth/extauthz"
)

// BenchmarkRequest measures whole requests through loopback sockets, client and backend included: for
// comparing two versions of the engine, not for absolute figures.
func BenchmarkRequest(b *testing.B) {
	for _, bc := range []struct {
		name       string
		method     string
		body, resp int
	}{
		{"GET1KiB", "GET", 0, 1 << 10},
		{"GET64KiB", "GET", 0, 64 << 10},
		{"POST16KiB", "POST", 16 << 10, 1 << 10},
	} {
		b.Run(bc.name, func(b *testing.B) {
			g := startGateway(b, Timeouts{})
			g.serve(cannedBackend(b, cannedResponse(bc.resp), bc.body), nil)
			c, err := net.Dial("tcp", g.addr())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			request, buf := cannedRequest(bc.method, bc.body), make([]byte, 256<<10)
			size := responseSize(b, c, request, buf, bc.resp)
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, c, request, buf, size)
			}
		})
	}
}

// BenchmarkPolicies measures what policies add to a GET of 1 KiB: a server that is asked first, and spans.
func BenchmarkPolicies(b *testing.B) {
	for _, bc := range []struct {
		name string
		set  func(b *testing.B, g *gateway, addr string)
	}{
		{"none", func(_ *testing.B, g *gateway, addr string) { g.serve(addr, nil) }},
		{"ExternalAuthHTTP", func(b *testing.B, g *gateway, addr string) {
			g.apply(backend(authKey, cannedBackend(b, cannedResponse(0), 0)))
			g.serve(addr, guardedBy(b, &config.ExternalAuth{Backend: authKey}))
		}},
		{"ExternalAuthGRPC", func(b *testing.B, g *gateway, addr string) {
			g.apply(backend(authKeyGRPC, serveChecks(b, func(*extauthz.CheckRequest) (*extauthz.CheckResponse, error) {
				return &extauthz.CheckResponse{Status: &extauthz.Status{}}, nil
			})))
			g.apply([]*config.Resource{h2c(authKeyGRPC)})
			g.serve(addr, guardedBy(b, &config.ExternalAuth{Backend: authKeyGRPC, Grpc: true, Authority: "auth"}))
		}},
		{"TracingNotSampled", func(b *testing.B, g *gateway, addr string) {
			_, collector := serveCollector(b)
			g.serve(addr, nil)
			g.traced(collector, &config.Tracing{Sampling: &config.Share{Numerator: 0, Denominator: 100}})
		}},
		{"TracingSampled", func(b *testing.B, g *gateway, addr string) {
			_, collector := serveCollector(b)
			g.serve(addr, nil)
			g.traced(collector, &config.Tracing{})
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			g := startGateway(b, Timeouts{})
			bc.set(b, g, cannedBackend(b, cannedResponse(1<<10), 0))
			c, err := net.Dial("tcp", g.addr())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			request, buf := cannedRequest("GET", 0), make([]byte, 256<<10)
			size := responseSize(b, c, request, buf, 1<<10)
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, c, request, buf, size)
			}
		})
	}
}
