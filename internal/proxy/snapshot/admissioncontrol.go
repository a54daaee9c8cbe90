package snapshot

import (
	"fmt"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/admission"
)

const percent = 100

// admission compiles the admission control of a rule. All rules of a route under one policy share a window, which an
// edit of either does not reset unless it changes the length.
func (p *Compiler) admission(route string, t *config.RuleTraffic) (c *admission.Control, release func(), err error) {
	a := t.GetAdmissionControl()
	if a == nil {
		return nil, nil, nil
	}
	length := time.Duration(a.SamplingWindowNanos)
	if length < time.Second || a.MinSuccessPercent < 1 || a.MinSuccessPercent > percent || a.Aggression < 1 || a.MaxRejectionPercent > percent {
		return nil, nil, fmt.Errorf("admission control: a setting is out of bounds: %v", a)
	}
	s := admission.Settings{
		MinSuccess:   float64(a.MinSuccessPercent) / percent,
		Aggression:   float64(a.Aggression),
		MinRate:      float64(a.MinRequestsPerSecond),
		MaxRejection: float64(a.MaxRejectionPercent) / percent,
	}
	for _, status := range a.HttpSuccesses {
		s.HTTP = append(s.HTTP, int(status))
	}
	for _, code := range a.GrpcSuccesses {
		s.GRPC = append(s.GRPC, int(code))
	}
	key := fmt.Sprintf("%s\n%s\n%s", t.Policy, config.WholeRouteKey(route), length)
	window, release := p.windows.Take(key, func() *admission.Window { return admission.NewWindow(length) })
	return admission.New(s, window), release, nil
}

// Windows returns the number of windows of admission control.
func (p *Compiler) Windows() int { return p.windows.Len() }
