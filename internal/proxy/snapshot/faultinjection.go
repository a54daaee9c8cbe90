package snapshot

import (
	"fmt"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const million = 1_000_000

// FaultInjection decides which requests are delayed, and which are answered without a backend.
type FaultInjection struct {
	Delay                                time.Duration // 0 means none
	delayedPerMillion, abortedPerMillion uint64
	HTTPStatus                           int
	GRPCStatus                           int // -1 if HTTPStatus is the answer
}

func compileFaultInjection(c *config.FaultInjection) (*FaultInjection, error) {
	if c == nil {
		return nil, nil
	}
	f := &FaultInjection{
		Delay:             time.Duration(c.GetDelay().GetDelayNanos()),
		delayedPerMillion: uint64(c.GetDelay().GetPerMillion()),
		abortedPerMillion: uint64(c.GetAbort().GetPerMillion()),
		HTTPStatus:        int(c.GetAbort().GetHttpStatus()),
		GRPCStatus:        -1,
	}
	if a := c.Abort; a != nil {
		if a.GrpcStatus != nil {
			f.GRPCStatus = int(*a.GrpcStatus)
		}
		if f.GRPCStatus > 16 || f.GRPCStatus < 0 && (f.HTTPStatus < 200 || f.HTTPStatus > 600) {
			return nil, fmt.Errorf("fault injection: no request can be answered with HTTP status %d and gRPC status %d", f.HTTPStatus, f.GRPCStatus)
		}
	}
	return f, nil
}

// Delays decides at random whether a request is delayed.
func (f *FaultInjection) Delays(seed *uint64) bool {
	return f.Delay > 0 && drawn(f.delayedPerMillion, seed)
}

// Aborts decides at random whether a request is answered without a backend.
func (f *FaultInjection) Aborts(seed *uint64) bool { return drawn(f.abortedPerMillion, seed) }

func drawn(perMillion uint64, seed *uint64) bool {
	return perMillion > 0 && upstream.Random(seed)%million < perMillion
}
