package backendtraffic

import (
	"slices"
	"strings"
	"testing"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// TestMergedUpgrades: a protocol is the same in any case of its name.
func TestMergedUpgrades(t *testing.T) {
	child, parent := specOf(t, "mergeType: StrategicMerge\nhttpUpgrade: [{type: WebSocket}]"), specOf(t, "httpUpgrade: [{type: websocket}, {type: spdy/3.1}]")
	merged, err := Merge(child, parent)
	if err != nil {
		t.Fatal(err)
	}
	compiled, p := Compile(merged, "", "n/p", nil)
	if p != nil {
		t.Fatal(p)
	}
	if got := compiled.Rule.Traffic.Upgrades; len(got) != 2 || got[0].Type != "spdy/3.1" || got[1].Type != "websocket" {
		t.Errorf("merged into %v", got)
	}
	if child.HTTPUpgrade[0].Type != "WebSocket" || len(parent.HTTPUpgrade) != 2 {
		t.Error("the policies have changed")
	}
	var none eg.BackendTrafficPolicySpec
	if merged, err := Merge(&none, &none); err != nil || merged.HTTPUpgrade != nil {
		t.Errorf("of none: %v, %v", merged, err)
	}
}

// TestMergedChoices: what a policy excludes of the one that it is merged onto does not make both invalid, nor stay in force.
func TestMergedChoices(t *testing.T) {
	for name, test := range map[string]struct{ parent, child, want string }{
		"no slow start":           {"loadBalancer: {type: LeastRequest, slowStart: {window: 1s}}", "loadBalancer: {type: Random}", "loadBalancer.type"},
		"slow start":              {"loadBalancer: {type: LeastRequest, slowStart: {window: 1s}}", "loadBalancer: {type: RoundRobin}", "loadBalancer.slowStart.window loadBalancer.type"},
		"no zone is preferred":    {"loadBalancer: {type: Random, zoneAware: {preferLocal: {percentageEnabled: 50}}}", "loadBalancer: {type: ConsistentHash, consistentHash: {type: SourceIP}}", "loadBalancer.consistentHash.type loadBalancer.type"},
		"a zone is preferred":     {"loadBalancer: {type: Random, zoneAware: {preferLocal: {percentageEnabled: 50}}}", "loadBalancer: {type: LeastRequest}", "loadBalancer.type loadBalancer.zoneAware.preferLocal.percentageEnabled"},
		"weights of zones":        {"loadBalancer: {type: Random, zoneAware: {preferLocal: {}}}", "loadBalancer: {type: Random, zoneAware: {weightedZones: [{zone: a, weight: 2}]}}", "loadBalancer.type loadBalancer.zoneAware.weightedZones"},
		"no weights of zones":     {"loadBalancer: {type: Random, zoneAware: {weightedZones: [{zone: a, weight: 2}]}}", "loadBalancer: {type: Random, zoneAware: {preferLocal: {}}}", "loadBalancer.type loadBalancer.zoneAware.preferLocal"},
		"no hash":                 {"loadBalancer: {type: ConsistentHash, consistentHash: {type: SourceIP}}", "loadBalancer: {type: Random}", "loadBalancer.type"},
		"another hash":            {"loadBalancer: {type: ConsistentHash, consistentHash: {type: Cookie, cookie: {name: a}, tableSize: 101}}", "loadBalancer: {type: ConsistentHash, consistentHash: {type: SourceIP}}", "loadBalancer.consistentHash.tableSize loadBalancer.consistentHash.type loadBalancer.type"},
		"no utilization":          {"loadBalancer: {type: BackendUtilization, backendUtilization: {blackoutPeriod: 1s}}", "loadBalancer: {type: Random}", "loadBalancer.type"},
		"no upgrade":              {"httpUpgrade: [{type: websocket}]", "requestBuffer: {limit: 4Ki}", "requestBuffer.limit"},
		"no buffer":               {"requestBuffer: {limit: 4Ki}", "httpUpgrade: [{type: websocket}]", "httpUpgrade"},
		"compressor":              {"compression: [{type: Gzip, gzip: {}}]", "compressor: [{type: Zstd, zstd: {}}]", "compressor"},
		"compression":             {"compressor: [{type: Gzip, gzip: {}}]", "compression: [{type: Zstd, zstd: {}}]", "compression"},
		"an error of gRPC":        {"faultInjection: {abort: {httpStatus: 500, percentage: 5}}", "faultInjection: {abort: {grpcStatus: 14}}", "faultInjection.abort.grpcStatus faultInjection.abort.percentage"},
		"an error of HTTP":        {"faultInjection: {abort: {grpcStatus: 14, percentage: 5}}", "faultInjection: {abort: {httpStatus: 500}}", "faultInjection.abort.httpStatus faultInjection.abort.percentage"},
		"another check":           {"healthCheck: {active: {type: HTTP, http: {path: /}, timeout: 2s}}", "healthCheck: {active: {type: TCP, tcp: {send: {type: Text, text: a}}}}", "healthCheck.active.tcp.send.text healthCheck.active.tcp.send.type healthCheck.active.timeout healthCheck.active.type"},
		"bytes in place of text":  {"healthCheck: {active: {type: TCP, tcp: {receive: {type: Text, text: a}}}}", "healthCheck: {active: {type: TCP, tcp: {receive: {type: Binary, binary: AA==}}}}", "healthCheck.active.tcp.receive.binary healthCheck.active.tcp.receive.type healthCheck.active.type"},
		"no body of a GET":        {"healthCheck: {active: {type: HTTP, http: {path: /, method: POST, requestBody: {type: Text, text: a}}}}", "healthCheck: {active: {type: HTTP, http: {path: /, method: GET}}}", "healthCheck.active.http.method healthCheck.active.http.path healthCheck.active.type"},
		"a longer first wait":     {"retry: {perRetry: {backOff: {baseInterval: 100ms, maxInterval: 1s}}}", "retry: {perRetry: {backOff: {baseInterval: 2s}}}", "retry.perRetry.backOff.baseInterval"},
		"a shorter longest wait":  {"retry: {perRetry: {backOff: {baseInterval: 2s, maxInterval: 9s}}}", "retry: {perRetry: {backOff: {maxInterval: 1s}}}", "retry.perRetry.backOff.maxInterval"},
		"more frequent pings":     {"http2: {connectionKeepalive: {interval: 30s, timeout: 10s}}", "http2: {connectionKeepalive: {interval: 10s}}", "http2.connectionKeepalive.interval"},
		"a longer wait for pongs": {"http2: {connectionKeepalive: {interval: 30s, timeout: 10s}}", "http2: {connectionKeepalive: {timeout: 30s}}", "http2.connectionKeepalive.timeout"},
		"no budget for retries":   {"circuitBreaker: {maxConnections: 9, retryBudget: {percent: {numerator: 20}}}", "circuitBreaker: {maxParallelRetries: 3}", "circuitBreaker.maxConnections circuitBreaker.maxParallelRetries"},
		"no family of addresses":  {"dns: {lookupFamily: IPv6, dnsRefreshRate: 9s}", "protocols: {enableIPv6: false}", "dns.dnsRefreshRate protocols.enableIPv6"},
		"a custom tag":            {"telemetry: {tracing: {tags: {a: above, b: above}}}", "telemetry: {tracing: {customTags: {a: {type: Literal, literal: {value: own}}}}}", "telemetry.tracing.customTags.a.literal.value telemetry.tracing.customTags.a.type telemetry.tracing.tags.b"},
	} {
		for _, mergeType := range []eg.MergeType{eg.StrategicMerge, eg.JSONMerge} {
			child, parent := specOf(t, test.child), specOf(t, test.parent)
			child.MergeType = &mergeType
			before := Fields(parent)
			merged, err := Merge(child, parent)
			if err != nil {
				t.Fatal(err)
			}
			if _, p := Compile(merged, "", "n/p", nil); p != nil {
				t.Errorf("%s, %s: %v", name, mergeType, p)
			}
			if got := strings.ReplaceAll(strings.Join(Fields(merged), " "), "spec.", ""); got != test.want {
				t.Errorf("%s, %s: merged into %s, want %s", name, mergeType, got, test.want)
			}
			if !slices.Equal(Fields(parent), before) {
				t.Errorf("%s: the policy above has changed", name)
			}
		}
	}
}
