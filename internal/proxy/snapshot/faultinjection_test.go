package snapshot

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestFaultShares: as many requests are drawn as the percentages say, within five standard deviations, and each fault by a draw of its own.
func TestFaultShares(t *testing.T) {
	const n = 200_000
	for _, c := range []struct{ delayed, aborted uint32 }{{0, 0}, {1_000_000, 1_000_000}, {250_000, 500_000}, {10, 999_999}} {
		f, err := compileFaultInjection(&config.FaultInjection{Delay: &config.FaultDelay{DelayNanos: 1, PerMillion: c.delayed},
			Abort: &config.FaultAbort{HttpStatus: 503, PerMillion: c.aborted}})
		if err != nil {
			t.Fatal(err)
		}
		seed := uint64(1)
		delays, aborts, both := 0, 0, 0
		for range n {
			d, a := f.Delays(&seed), f.Aborts(&seed)
			if d {
				delays++
			}
			if a {
				aborts++
			}
			if d && a {
				both++
			}
		}
		p, q := float64(c.delayed)/million, float64(c.aborted)/million
		for _, s := range []struct {
			what string
			got  int
			want float64
		}{{"delays", delays, p}, {"aborts", aborts, q}, {"both", both, p * q}} {
			if off := math.Abs(float64(s.got) - n*s.want); off > 5*math.Sqrt(n*s.want*(1-s.want))+1e-9 {
				t.Errorf("%+v: %d %s of %d, want %.0f", c, s.got, s.what, n, n*s.want)
			}
		}
	}
}

// TestFaultRefused: what no controller of this version sends is refused.
func TestFaultRefused(t *testing.T) {
	for _, a := range []*config.FaultAbort{{}, {HttpStatus: 199}, {HttpStatus: 601}, {GrpcStatus: proto.Uint32(17)}} {
		if _, err := compileFaultInjection(&config.FaultInjection{Abort: a}); err == nil {
			t.Errorf("%v is taken", a)
		}
	}
}
