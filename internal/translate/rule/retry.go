package rule

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

const (
	defaultAttempts = 1 // that of the CRD
	// maxAttempts limits the cost of one request for backends and the gateway: the API has no limit.
	maxAttempts = 16
)

// retry compiles spec.retry. Support for codes other than 500, 502, 503 and 504 is optional; here all are treated alike.
func (s *scope) retry() *condition.Problem {
	spec := s.spec.Retry
	if spec == nil {
		return nil
	}
	attempts := ptr.Deref(spec.Attempts, defaultAttempts)
	if attempts < 0 || attempts > math.MaxInt32 {
		return s.unsupported(".retry.attempts", "use 0 or more", "%d is not a number of attempts", attempts)
	}
	if attempts > maxAttempts {
		s.notes = append(s.notes, condition.NewProblem("", s.field+".retry.attempts", fmt.Sprintf("use %d or less", maxAttempts),
			"more than %d attempts are not made", maxAttempts))
		attempts = maxAttempts
	}
	out := &config.Retry{Attempts: uint32(attempts)}
	for i, code := range spec.Codes {
		if code < 400 || code > 599 {
			return s.unsupported(fmt.Sprintf(".retry.codes[%d]", i), "use codes from 400 to 599", "%d is not the status code of a failure", code)
		}
		out.Codes = append(out.Codes, uint32(code))
	}
	slices.Sort(out.Codes)
	out.Codes = slices.Compact(out.Codes)
	backoff, p := s.duration(spec.Backoff, ".retry.backoff")
	if p != nil {
		return p
	}
	if spec.Backoff != nil && backoff == 0 {
		return s.unsupported(".retry.backoff", "use a longer duration, or leave it out", "%s is no interval", *spec.Backoff)
	}
	out.BackoffNanos = backoff
	s.rule.Retry = out
	return nil
}
