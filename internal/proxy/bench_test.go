package proxy

import (
	"net"
	"testing"
	"time"
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
