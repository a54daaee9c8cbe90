package backendtraffic

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

// Defaults of the API. The CRD does not set them: a merge must not take them for what a policy says.
const (
	defaultCheckTimeout       = time.Second
	defaultCheckInterval      = 3 * time.Second
	defaultUnhealthyThreshold = 3
	defaultHealthyThreshold   = 1
	defaultEjectionInterval   = 3 * time.Second
	defaultEjectionTime       = 30 * time.Second
	defaultEjectionPercent    = 10
	defaultConsecutive        = 5
)

func (r *reader) healthCheck(h *eg.HealthCheck) *config.HealthCheck {
	if h == nil {
		return nil
	}
	out := &config.HealthCheck{Active: r.active(h.Active), Passive: r.passive(h.Passive)}
	if h.PanicThreshold != nil {
		out.PanicThresholdPercent = new(r.percentage(h.PanicThreshold, 0, "healthCheck.panicThreshold"))
	}
	return out
}

func (r *reader) passive(p *eg.PassiveHealthCheck) *config.PassiveHealthCheck {
	if p == nil {
		return nil
	}
	const at = "healthCheck.passive"
	return &config.PassiveHealthCheck{
		IntervalNanos:                  r.or(p.Interval, defaultEjectionInterval, time.Millisecond, at+".interval"),
		Consecutive_5XxErrors:          new(r.positive(p.Consecutive5xxErrors, defaultConsecutive, at+".consecutive5XxErrors")),
		ConsecutiveGatewayErrors:       r.positive(p.ConsecutiveGatewayErrors, 0, at+".consecutiveGatewayErrors"),
		ConsecutiveLocalOriginFailures: new(r.positive(p.ConsecutiveLocalOriginFailures, defaultConsecutive, at+".consecutiveLocalOriginFailures")),
		SplitLocalOriginErrors:         ptr.Deref(p.SplitExternalLocalOriginErrors, false),
		BaseEjectionTimeNanos:          r.or(p.BaseEjectionTime, defaultEjectionTime, time.Millisecond, at+".baseEjectionTime"),
		MaxEjectionPercent:             r.percentage(p.MaxEjectionPercent, defaultEjectionPercent, at+".maxEjectionPercent"),
		FailurePercentageThreshold:     r.percentage(p.FailurePercentageThreshold, 0, at+".failurePercentageThreshold"),
		AlwaysEjectOneEndpoint:         ptr.Deref(p.AlwaysEjectOneEndpoint, false),
	}
}

func (r *reader) active(a *eg.ActiveHealthCheck) *config.ActiveHealthCheck {
	if a == nil {
		return nil
	}
	const at = "healthCheck.active"
	out := &config.ActiveHealthCheck{
		TimeoutNanos:       r.or(a.Timeout, defaultCheckTimeout, time.Millisecond, at+".timeout"),
		IntervalNanos:      r.or(a.Interval, defaultCheckInterval, time.Millisecond, at+".interval"),
		InitialJitterNanos: r.duration(a.InitialJitter, 0, at+".initialJitter"),
		UnhealthyThreshold: r.positive(a.UnhealthyThreshold, defaultUnhealthyThreshold, at+".unhealthyThreshold"),
		HealthyThreshold:   r.positive(a.HealthyThreshold, defaultHealthyThreshold, at+".healthyThreshold"),
	}
	if a.Overrides != nil {
		out.Port = uint32(ptr.Deref(a.Overrides.Port, 0))
	}
	switch {
	case a.Type == "HTTP" && a.HTTP != nil:
		out.Check = &config.ActiveHealthCheck_Http{Http: r.httpCheck(a.HTTP, at+".http")}
	case a.Type == "TCP" && a.TCP != nil:
		out.Check = &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Send: r.payload(a.TCP.Send), Receive: r.payload(a.TCP.Receive)}}
	case a.Type == "GRPC":
		check := &config.GRPCHealthCheck{}
		if a.GRPC != nil {
			check.Service = ptr.Deref(a.GRPC.Service, "")
		}
		out.Check = &config.ActiveHealthCheck_Grpc{Grpc: check}
	default:
		r.invalid(at+".type", "use HTTP or TCP and set the field of that name, or GRPC", "there is no check of type %q", a.Type)
	}
	out.Log = r.log(a.HealthCheckLog, at+".healthCheckLog")
	return out
}

func (r *reader) httpCheck(h *eg.HTTPActiveHealthCheck, at string) *config.HTTPHealthCheck {
	out := &config.HTTPHealthCheck{
		Host: ptr.Deref(h.Hostname, ""), Path: h.Path, Method: strings.ToUpper(ptr.Deref(h.Method, "")),
		ExpectedResponse: r.payload(h.ExpectedResponse), RequestBody: r.payload(h.RequestBody),
		ExpectedStatuses: r.statuses(h.ExpectedStatuses, at+".expectedStatuses"), RetriableStatuses: r.statuses(h.RetriableStatuses, at+".retriableStatuses"),
	}
	if !strings.HasPrefix(h.Path, "/") || strings.ContainsFunc(h.Path, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		r.invalid(at+".path", "let it begin with / and encode other characters", "%q is not a path", h.Path)
	}
	if out.Method != "" && !config.IsToken(out.Method) {
		r.invalid(at+".method", "correct it", "%q is not a method", out.Method)
	}
	if out.RequestBody != nil && !hasBody(out.Method) {
		r.invalid(at+".requestBody", "use method POST or PUT", "a request of method %q has no body", cmp.Or(out.Method, "GET"))
	}
	return out
}

// hasBody reports whether checks with a method may have a body.
func hasBody(method string) bool {
	method = strings.ToUpper(method)
	return method == "POST" || method == "PUT"
}

func (r *reader) statuses(list []eg.HTTPStatus, field string) (out []uint32) {
	for i, s := range list {
		if s < 100 || s > 599 {
			r.invalid(fmt.Sprintf("%s[%d]", field, i), "use codes from 100 to 599", "%d is not a status code", s)
		}
		out = append(out, uint32(s))
	}
	return out
}

func (r *reader) payload(p *eg.ActiveHealthCheckPayload) []byte {
	switch {
	case p == nil:
		return nil
	case p.Text != nil:
		return []byte(*p.Text)
	}
	return p.Binary
}

var checkEvents = map[eg.HealthCheckLogMatch]config.HealthCheckEvent{
	"Failure":            config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE,
	"FailureSeriesStart": config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE_SERIES_START,
	"Success":            config.HealthCheckEvent_HEALTH_CHECK_EVENT_SUCCESS,
	"HealthyTransition":  config.HealthCheckEvent_HEALTH_CHECK_EVENT_HEALTHY_TRANSITION,
}

// stdout is the path of the standard output in manifests.
const stdout = "/dev/stdout"

func (r *reader) log(l *eg.HealthCheckLog, at string) *config.HealthCheckLog {
	if l == nil {
		return nil
	}
	out := &config.HealthCheckLog{}
	for i, s := range l.Sinks {
		if s.Type != "File" || s.File == nil {
			r.invalid(fmt.Sprintf("%s.sinks[%d].type", at, i), "use File, and set file", "%q is not known", s.Type)
			continue
		}
		// Any other path would let the authors of policies write files on the proxy's host.
		if s.File.Path != stdout {
			r.invalid(fmt.Sprintf("%s.sinks[%d].file.path", at, i), "use "+stdout, "proxies write to no other file than their standard output")
		}
	}
	for i, m := range l.Matches {
		event, known := checkEvents[m]
		if !known {
			r.invalid(fmt.Sprintf("%s.matches[%d]", at, i), "correct it", "%q is not known", m)
		}
		out.Events = append(out.Events, event)
	}
	return out
}
