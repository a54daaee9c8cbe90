// Package backendtraffic reads the settings of BackendTrafficPolicies (gateway.envoyproxy.io) into config, and merges the settings
// of one policy onto another's. It is separate from translate because it is pure functions of one spec: it does not know the targets
// of a policy, nor which of several is in force.
//
// It must never import translate, nor anything that translate must not.
package backendtraffic

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// Compiled is the result of compiling settings.
type Compiled struct {
	Backend *config.BackendTraffic // nil if no setting concerns connections to backends
	Rule    Rule
	// ByService is set if requests are sent to the addresses of Services instead of their endpoints.
	ByService bool
	// IPv4Only excludes endpoints with an IPv6 address.
	IPv4Only bool
	Notes    []*condition.Problem // fields without effect, and why
	// Expressions is the total size of the regular expressions, as returned by rule.CheckExpression.
	Expressions int
	// LongDistinct is the number of global rate limits of each route that count values separately for longer than an hour,
	// SharedLongDistinct the number of those that all routes share.
	LongDistinct, SharedLongDistinct int
}

// Rule contains the settings for the requests of a rule.
type Rule struct {
	Retry          *config.Retry       // if the rule itself has none
	RequestTimeout int64               // in nanoseconds, if the rule itself has none; 0 means none
	Traffic        *config.RuleTraffic // never nil
}

// Backends reports whether the settings change how a backend is reached.
func (c *Compiled) Backends() bool { return c.Backend != nil || c.ByService || c.IPv4Only }

// Compile compiles settings. The problem names the first field that cannot be applied. source names the policies in text, and
// limitsOf the policy, as "<namespace>/<name>", whose local rate limits are in force. configMap returns the ConfigMaps that the
// settings refer to, nil if one does not exist.
func Compile(spec *eg.BackendTrafficPolicySpec, source, limitsOf string, configMap func(name string) *corev1.ConfigMap) (*Compiled, *condition.Problem) {
	r := &reader{out: &Compiled{}, merges: spec.MergeType != nil}
	s := &spec.Settings
	r.unsupported(s)
	backend := &config.BackendTraffic{
		LoadBalancer:   r.loadBalancer(s.LoadBalancer),
		CircuitBreaker: r.circuitBreaker(s.CircuitBreaker),
		HealthCheck:    r.healthCheck(s.HealthCheck),
		Connections:    r.connections(s, spec.Protocols),
	}
	r.out.Rule = r.rule(s)
	r.out.Rule.Traffic.RateLimits = r.rateLimit(s.RateLimit, limitsOf)
	r.out.Rule.Traffic.ResponseOverrides = r.responseOverrides(s.ResponseOverride, configMap)
	r.out.ByService = s.RoutingType != nil && *s.RoutingType == eg.RoutingTypeService
	if r.out.ByService {
		const why = "no effect on Services with a clusterIP, which choose among endpoints themselves (routingType Service)"
		if backend.LoadBalancer != nil {
			r.note("loadBalancer", why)
		}
		if backend.HealthCheck != nil {
			r.note("healthCheck", why)
		}
	}
	if r.problem != nil {
		return nil, r.problem
	}
	if !proto.Equal(backend, &config.BackendTraffic{}) {
		backend.Policy = source
		r.out.Backend = backend
	}
	r.out.Rule.Traffic.Policy = source
	r.out.Expressions = r.expressions
	r.out.LongDistinct, r.out.SharedLongDistinct = longDistinct(r.out.Rule.Traffic.RateLimits.GetGlobal())
	return r.out, nil
}

// reader records the first problem only: one is enough to act on.
type reader struct {
	out     *Compiled
	problem *condition.Problem
	// merges is set if settings of another policy will be added.
	merges bool
	// expressions is the size of the regular expressions so far, and conditions the number of conditions of rate limits.
	expressions, conditions int
}

func (r *reader) invalid(field, remedy, format string, args ...any) {
	if r.problem == nil {
		r.problem = condition.NewProblem(gwv1.PolicyReasonInvalid, "spec."+field, remedy, format, args...)
	}
}

func (r *reader) note(field, format string, args ...any) {
	r.out.Notes = append(r.out.Notes, condition.NewProblem("", "spec."+field, "", format, args...))
}

// unsupported rejects settings that Moongate does not support: no setting is ignored silently.
func (r *reader) unsupported(s *eg.Settings) {
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"loadBalancer.dynamicModule", s.LoadBalancer != nil && s.LoadBalancer.DynamicModule != nil},
		{"connection.preconnect.predictivePercent", s.Connection != nil && s.Connection.Preconnect != nil && s.Connection.Preconnect.PredictivePercent != nil},
		{"http2.onInvalidMessage", s.HTTP2 != nil && s.HTTP2.OnInvalidMessage != nil},
	} {
		if f.set {
			r.invalid(f.field, "remove it", "it is not supported")
		}
	}
}

// forever stands for no limit: a hundred years leave room for arithmetic.
const forever = int64(100 * 365 * 24 * time.Hour)

// duration reads a duration that must be at least least; it returns 0 if the field is absent.
func (r *reader) duration(d *gwv1.Duration, least time.Duration, field string) int64 {
	if d == nil {
		return 0
	}
	length, err := time.ParseDuration(string(*d))
	if err != nil || length < least || int64(length) > forever {
		r.invalid(field, fmt.Sprintf("write a duration of at least %s, such as 10s", least), "%q is not a duration that can be used", *d)
		return 0
	}
	return int64(length)
}

// limit reads a duration of which 0s means no limit; it returns 0, which means the default in config, if the field is absent.
func (r *reader) limit(d *gwv1.Duration, field string) int64 {
	n := r.duration(d, 0, field)
	if d != nil && n == 0 {
		return forever
	}
	return n
}

// or reads a duration in nanoseconds; it returns absent if the field is absent.
func (r *reader) or(d *gwv1.Duration, absent, least time.Duration, field string) int64 {
	if d == nil {
		return int64(absent)
	}
	return r.duration(d, least, field)
}

// seconds reads a duration in whole seconds; it returns 0 if the field is absent.
func (r *reader) seconds(d *gwv1.Duration, field string) uint32 {
	n := r.duration(d, time.Second, field)
	if n%int64(time.Second) != 0 {
		r.invalid(field, "write whole seconds", "%s is not a number of whole seconds", time.Duration(n))
	}
	if n/int64(time.Second) > math.MaxInt16 { // the maximum of TCP_KEEPIDLE and TCP_KEEPINTVL
		r.invalid(field, fmt.Sprintf("write at most %ds", math.MaxInt16), "%s is too long", time.Duration(n))
		return 0
	}
	return uint32(n / int64(time.Second))
}

// size reads a number of bytes; it returns 0 if the field is absent.
func (r *reader) size(q *resource.Quantity, most int64, field string) uint32 {
	if q == nil {
		return 0
	}
	n := q.Value()
	if n < 1 || n > most {
		r.invalid(field, fmt.Sprintf("use a size from 1 to %d bytes", most), "%s is not a size that can be used", q.String())
		return 0
	}
	return uint32(n)
}

// count reads an unsigned 32-bit number.
func (r *reader) count(n *int64, field string) *uint32 {
	if n == nil {
		return nil
	}
	if *n < 0 || *n > math.MaxUint32 {
		r.invalid(field, "use a number from 0 to 4294967295", "%d is not a number that can be used", *n)
		return nil
	}
	return new(uint32(*n))
}

// percentage reads a number from 0 to 100.
func (r *reader) percentage(n *int32, absent uint32, field string) uint32 {
	if n == nil {
		return absent
	}
	if *n < 0 || *n > 100 {
		r.invalid(field, "use a number from 0 to 100", "%d is not a percentage", *n)
		return absent
	}
	return uint32(*n)
}

// positive reads a number that must not be negative.
func (r *reader) positive(n *int32, absent uint32, field string) uint32 {
	if n == nil {
		return absent
	}
	if *n < 0 {
		r.invalid(field, "use 0 or more", "%d is negative", *n)
		return absent
	}
	return uint32(*n)
}
