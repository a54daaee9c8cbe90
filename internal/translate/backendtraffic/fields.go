package backendtraffic

import (
	"encoding/json"
	"slices"
	"strings"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// Fields returns the paths of the settings that are set, such as "spec.timeout.http.requestTimeout"; sorted. A list is one path, and
// so is an object without fields.
func Fields(spec *eg.BackendTrafficPolicySpec) (paths []string) {
	text, err := json.Marshal(settingsOf(spec))
	if err != nil {
		return nil // cannot happen with a value from a manifest
	}
	var all map[string]any
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		fields, ok := v.(map[string]any)
		if !ok || len(fields) == 0 {
			paths = append(paths, at)
			return
		}
		for name, field := range fields {
			walk(at+"."+name, field)
		}
	}
	for name, v := range all {
		walk("spec."+name, v)
	}
	slices.Sort(paths)
	return paths
}

// ofRequests are the settings without effect on L4 routes, ofConnections those that also have no effect on routes of datagrams;
// sorted.
var (
	ofRequests = []string{
		"spec.admissionControl", "spec.bandwidthLimit", "spec.circuitBreaker.maxParallelRequests", "spec.circuitBreaker.maxParallelRetries", "spec.circuitBreaker.maxRequestsPerConnection", "spec.circuitBreaker.retryBudget",
		"spec.compression", "spec.compressor", "spec.connection.bufferLimit", "spec.connection.preconnect", "spec.faultInjection", "spec.http2", "spec.httpUpgrade", "spec.loadBalancer.endpointOverride", "spec.rateLimit", "spec.requestBuffer",
		"spec.responseOverride", "spec.retry", "spec.telemetry", "spec.timeout.http", "spec.useClientProtocol",
	}
	ofConnections = []string{"spec.circuitBreaker", "spec.connection", "spec.dns", "spec.healthCheck", "spec.proxyProtocol", "spec.tcpKeepalive", "spec.timeout.tcp"}
)

// WithoutEffect returns those of fields, see Fields, that have no effect on L4 routes of connections, or of datagrams; sorted.
func WithoutEffect(spec *eg.BackendTrafficPolicySpec, fields []string, datagrams bool) (none []string) {
	settings := ofRequests
	if datagrams {
		settings = append(slices.Clone(ofConnections), ofRequests...)
	}
	for _, f := range fields {
		within := func(setting string) bool { return f == setting || strings.HasPrefix(f, setting+".") }
		if i := slices.IndexFunc(settings, within); i >= 0 {
			none = append(none, settings[i])
		}
	}
	if lb := spec.LoadBalancer; lb != nil && lb.ConsistentHash != nil && lb.ConsistentHash.Type != "SourceIP" {
		none = append(none, "spec.loadBalancer.consistentHash")
	}
	if lb := spec.LoadBalancer; lb != nil && lb.BackendUtilization != nil {
		// Reports are in responses, or have a connection of their own, which the port of datagrams does not accept.
		if o := lb.BackendUtilization.OutOfBand; o == nil || datagrams && o.Port == nil {
			none = append(none, "spec.loadBalancer.backendUtilization")
		}
	}
	slices.Sort(none)
	return slices.Compact(none)
}
