package backendtraffic

import (
	"fmt"
	"slices"
	"time"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

// Defaults of Envoy's filter for fields without a default in the CRD.
const (
	defaultSamplingWindow = 30 * time.Second
	defaultMinSuccessRate = 95
	defaultAggression     = 1
	defaultMaxRejection   = 80
)

var grpcCodes = map[eg.GRPCStatus]uint32{
	"Ok": 0, "Cancelled": 1, "Unknown": 2, "InvalidArgument": 3, "DeadlineExceeded": 4, "NotFound": 5, "AlreadyExists": 6, "PermissionDenied": 7, "ResourceExhausted": 8,
	"FailedPrecondition": 9, "Aborted": 10, "OutOfRange": 11, "Unimplemented": 12, "Internal": 13, "Unavailable": 14, "DataLoss": 15, "Unauthenticated": 16,
}

func (r *reader) admissionControl(a *eg.AdmissionControl) *config.AdmissionControl {
	if a == nil {
		return nil
	}
	const at = "admissionControl"
	out := &config.AdmissionControl{
		SamplingWindowNanos:  r.or(a.SamplingWindow, defaultSamplingWindow, time.Second, at+".samplingWindow"),
		MinSuccessPercent:    r.percentage(a.MinSuccessRate, defaultMinSuccessRate, at+".minSuccessRate"),
		Aggression:           r.positive(a.RejectionAggression, defaultAggression, at+".rejectionAggression"),
		MinRequestsPerSecond: r.positive(a.MinRequestRate, 0, at+".minRequestRate"),
		MaxRejectionPercent:  r.percentage(a.MaxRejectionPercent, defaultMaxRejection, at+".maxRejectionPercent"),
	}
	if out.MinSuccessPercent == 0 {
		r.invalid(at+".minSuccessRate", "use a number from 1 to 100", "0 is not in that range")
	}
	if out.Aggression == 0 {
		r.invalid(at+".rejectionAggression", "use 1 or more", "0 is too little")
	}
	if s := a.SuccessCriteria; s != nil {
		if s.HTTP != nil {
			out.HttpSuccesses = r.statuses(s.HTTP.StatusCodes, at+".successCriteria.http.statusCodes")
			slices.Sort(out.HttpSuccesses)
			out.HttpSuccesses = slices.Compact(out.HttpSuccesses)
		}
		if s.GRPC != nil {
			for i, name := range s.GRPC.StatusCodes {
				code, known := grpcCodes[name]
				if !known {
					r.invalid(fmt.Sprintf("%s.successCriteria.grpc.statusCodes[%d]", at, i), "use a status of gRPC, such as Unavailable", "%q is not known", name)
				}
				out.GrpcSuccesses = append(out.GrpcSuccesses, code)
			}
			slices.Sort(out.GrpcSuccesses)
			out.GrpcSuccesses = slices.Compact(out.GrpcSuccesses)
		}
	}
	return out
}
