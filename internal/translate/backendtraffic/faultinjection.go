package backendtraffic

import (
	"math"
	"time"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

const (
	million = 1_000_000

	leastAbortStatus, mostAbortStatus = 200, 600
	mostGRPCStatus                    = 16
)

func (r *reader) faultInjection(f *eg.FaultInjection) *config.FaultInjection {
	if f == nil {
		return nil
	}
	out := &config.FaultInjection{}
	if d := f.Delay; d != nil {
		if d.FixedDelay == nil {
			r.invalid("faultInjection.delay.fixedDelay", "set it, for example to 2s", "it is missing")
		}
		out.Delay = &config.FaultDelay{
			DelayNanos: r.duration(d.FixedDelay, time.Millisecond, "faultInjection.delay.fixedDelay"),
			PerMillion: r.perMillion(d.Percentage, "faultInjection.delay.percentage"),
		}
	}
	if a := f.Abort; a != nil {
		out.Abort = &config.FaultAbort{PerMillion: r.perMillion(a.Percentage, "faultInjection.abort.percentage")}
		switch {
		case (a.HTTPStatus == nil) == (a.GrpcStatus == nil):
			r.invalid("faultInjection.abort", "set httpStatus or grpcStatus", "it must have exactly one of both")
		case a.HTTPStatus != nil:
			if out.Abort.HttpStatus = uint32(*a.HTTPStatus); *a.HTTPStatus < leastAbortStatus || *a.HTTPStatus > mostAbortStatus {
				r.invalid("faultInjection.abort.httpStatus", "use a status from 200 to 600", "%d is not in that range", *a.HTTPStatus)
			}
		default:
			if out.Abort.GrpcStatus = new(uint32(*a.GrpcStatus)); *a.GrpcStatus < 0 || *a.GrpcStatus > mostGRPCStatus {
				r.invalid("faultInjection.abort.grpcStatus", "use a status code of gRPC, from 0 to 16", "%d is not in that range", *a.GrpcStatus)
			}
		}
	}
	if out.Delay == nil && out.Abort == nil {
		r.invalid("faultInjection", "set delay or abort", "it has neither")
	}
	return out
}

// perMillion reads a percentage with four decimal places; absent means 100%.
func (r *reader) perMillion(percentage *float32, field string) uint32 {
	if percentage == nil {
		return million
	}
	if p := float64(*percentage); !(p >= 0 && p <= 100) { // also false for NaN
		r.invalid(field, "use a number from 0 to 100", "%v is not a percentage", p)
		return 0
	}
	n := uint32(math.Round(float64(*percentage) * million / 100))
	if n == 0 && *percentage > 0 {
		r.invalid(field, "use 0.0001 or more, or 0", "%v is less than the least percentage", *percentage)
	}
	return n
}
