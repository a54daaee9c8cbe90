package backendtraffic

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// Merge returns the settings of parent with those of child merged onto them, as child's mergeType requires: RFC 7386, or a strategic
// merge of Kubernetes, which merges lists by their keys. The result has no targets. Limits that rateLimit.type excludes in one of
// the policies are not merged, nor is the type itself: it would exclude limits of the other. Settings of parent that child's settings
// exclude are not merged either.
func Merge(child, parent *eg.BackendTrafficPolicySpec) (*eg.BackendTrafficPolicySpec, error) {
	own, above := mergeable(child), mergeable(parent)
	above.Settings = *above.Settings.DeepCopy()
	exclude(&above, &own)
	patch, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	base, err := json.Marshal(above)
	if err != nil {
		return nil, err
	}
	var merged []byte
	if ptr.Deref(child.MergeType, "") == eg.JSONMerge {
		merged, err = jsonpatch.MergePatch(base, patch)
	} else {
		merged, err = strategicpatch.StrategicMergePatch(base, patch, settings{})
	}
	if err != nil {
		return nil, err
	}
	var s settings
	if err := json.Unmarshal(merged, &s); err != nil {
		return nil, err
	}
	return &eg.BackendTrafficPolicySpec{Settings: s.Settings, Protocols: s.Protocols}, nil
}

// settings are the parts of a spec that are merged.
type settings struct {
	eg.Settings `json:",inline"`
	Protocols   *eg.Protocols `json:"protocols,omitempty"`
}

func settingsOf(spec *eg.BackendTrafficPolicySpec) settings {
	return settings{spec.Settings, spec.Protocols}
}

// mergeable returns the settings of a spec that would be in force without a merge.
func mergeable(spec *eg.BackendTrafficPolicySpec) settings {
	s := settingsOf(spec)
	s.RateLimit = selected(s.RateLimit)
	s.HTTPUpgrade = slices.Clone(s.HTTPUpgrade)
	for i := range s.HTTPUpgrade { // the key by which entries are merged; it is case-insensitive (RFC 9110 section 7.8)
		s.HTTPUpgrade[i].Type = strings.ToLower(s.HTTPUpgrade[i].Type)
	}
	return s
}

// exclude removes from above what own excludes, where one policy must not have both or only one of both would have an effect: the
// choice of the more specific policy is in force, instead of making the merged settings invalid.
func exclude(above, own *settings) {
	if above.LoadBalancer != nil && own.LoadBalancer != nil {
		excludeBalancing(above.LoadBalancer, own.LoadBalancer)
	}
	if above.HealthCheck != nil && above.HealthCheck.Active != nil && own.HealthCheck != nil && own.HealthCheck.Active != nil {
		excludeCheck(above.HealthCheck.Active, own.HealthCheck.Active)
	}
	excludeIntervals(&above.Settings, &own.Settings)
	if a, o := above.CircuitBreaker, own.CircuitBreaker; a != nil && o != nil && o.MaxParallelRetries != nil && o.RetryBudget == nil {
		a.RetryBudget = nil
	}
	if above.DNS != nil && own.Protocols != nil && own.Protocols.EnableIPv6 != nil {
		above.DNS.LookupFamily = nil
	}
	if a, o := tracing(above), tracing(own); a != nil && o != nil {
		for name := range o.CustomTags {
			delete(a.Tags, name)
		}
	}
	if len(own.HTTPUpgrade) > 0 {
		above.RequestBuffer = nil
	}
	if own.RequestBuffer != nil {
		above.HTTPUpgrade = nil
	}
	if len(own.Compressor) > 0 {
		above.Compression = nil
	}
	if len(own.Compression) > 0 {
		above.Compressor = nil
	}
	if a, o := above.FaultInjection, own.FaultInjection; a != nil && a.Abort != nil && o != nil && o.Abort != nil {
		if o.Abort.HTTPStatus != nil {
			a.Abort.GrpcStatus = nil
		}
		if o.Abort.GrpcStatus != nil {
			a.Abort.HTTPStatus = nil
		}
	}
}

// excludeIntervals removes the durations of above that are not in order with those of own.
func excludeIntervals(above, own *eg.Settings) {
	if a, o := backOff(above), backOff(own); a != nil && o != nil {
		if first, most, ok := durations(o.BaseInterval, a.MaxInterval); ok && first > most {
			a.MaxInterval = nil
		}
		if first, most, ok := durations(a.BaseInterval, o.MaxInterval); ok && first > most {
			a.BaseInterval = nil
		}
	}
	if a, o := keepalive(above), keepalive(own); a != nil && o != nil {
		if timeout, interval, ok := durations(a.Timeout, o.Interval); ok && timeout >= interval {
			a.Timeout = nil
		}
		if timeout, interval, ok := durations(o.Timeout, a.Interval); ok && timeout >= interval {
			a.Interval = nil
		}
	}
}

func backOff(s *eg.Settings) *eg.BackOffPolicy {
	if s.Retry == nil || s.Retry.PerRetry == nil {
		return nil
	}
	return s.Retry.PerRetry.BackOff
}

func keepalive(s *eg.Settings) *eg.HTTP2ConnectionKeepalive {
	if s.HTTP2 == nil {
		return nil
	}
	return s.HTTP2.ConnectionKeepalive
}

func tracing(s *settings) *eg.Tracing {
	if s.Telemetry == nil {
		return nil
	}
	return s.Telemetry.Tracing
}

// durations parses two durations; ok is false if one of them is absent or malformed.
func durations(a, b *gwv1.Duration) (x, y time.Duration, ok bool) {
	if a == nil || b == nil {
		return 0, 0, false
	}
	x, xErr := time.ParseDuration(string(*a))
	y, yErr := time.ParseDuration(string(*b))
	return x, y, xErr == nil && yErr == nil
}

func excludeBalancing(above, own *eg.LoadBalancer) {
	if own.Type != eg.ConsistentHashLoadBalancer {
		above.ConsistentHash = nil
	}
	if own.Type != eg.BackendUtilizationLoadBalancer {
		above.BackendUtilization = nil
	}
	if !startsSlowly(own.Type) {
		above.SlowStart = nil
	}
	if a, o := above.ConsistentHash, own.ConsistentHash; a != nil && o != nil && a.Type != o.Type {
		above.ConsistentHash = &eg.ConsistentHash{Type: o.Type, TableSize: a.TableSize}
	}
	if above.ZoneAware == nil {
		return
	}
	if !prefersZones(own.Type) || own.ZoneAware != nil && len(own.ZoneAware.WeightedZones) > 0 {
		above.ZoneAware.PreferLocal = nil
	}
	if own.ZoneAware != nil && own.ZoneAware.PreferLocal != nil {
		above.ZoneAware.WeightedZones = nil
	}
	if above.ZoneAware.PreferLocal == nil && len(above.ZoneAware.WeightedZones) == 0 {
		above.ZoneAware = nil
	}
}

func excludeCheck(above, own *eg.ActiveHealthCheck) {
	if above.Type != own.Type {
		above.HTTP, above.TCP, above.GRPC = nil, nil, nil
	}
	payload := func(above **eg.ActiveHealthCheckPayload, own *eg.ActiveHealthCheckPayload) {
		if own != nil { // else the text of one and the bytes of the other would be merged
			*above = nil
		}
	}
	if a, o := above.HTTP, own.HTTP; a != nil && o != nil {
		payload(&a.ExpectedResponse, o.ExpectedResponse)
		payload(&a.RequestBody, o.RequestBody)
		if o.Method != nil && !hasBody(*o.Method) {
			a.RequestBody = nil
		}
	}
	if a, o := above.TCP, own.TCP; a != nil && o != nil {
		payload(&a.Send, o.Send)
		payload(&a.Receive, o.Receive)
	}
}
