//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/test/bench/origin"
)

// filtersHost is the host of the rules that are compared with each other.
const filtersHost = "filters.example.test"

// rule is one rule of a route: what a user can ask for, alone.
type rule struct {
	Label string
	Path  string // prefix of the requests' paths
	YAML  string // beside matches and backendRefs, or with these
	// Policy has the settings of a BackendTrafficPolicy for the rule, as entries of a YAML flow mapping; empty is no policy.
	Policy string
}

// rules are those whose cost per request is measured; the first asks for nothing.
var rules = []rule{
	{"none", "/none/", ``, ``},
	{"RequestHeaderModifier", "/request-header/", `filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: a}], add: [{name: x-b, value: b}], remove: [cache-control]}}]`, ``},
	{"ResponseHeaderModifier", "/response-header/", `filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-a, value: a}], add: [{name: x-b, value: b}], remove: [vary]}}]`, ``},
	{"RequestHeaderModifier of the backend", "/backend-header/", `backendRefs: [{name: origin, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: a}]}}]}]`, ``},
	{"URLRewrite of host and prefix", "/rewrite/", `filters: [{type: URLRewrite, urlRewrite: {hostname: api.example.test, path: {type: ReplacePrefixMatch, replacePrefixMatch: /api/v2/}}}]`, ``},
	{"CORS, of an allowed origin", "/cors/", `filters: [{type: CORS, cors: {allowOrigins: ["https://other.example.test", "https://www.example.test"], allowCredentials: true, exposeHeaders: [etag]}}]`, ``},
	{"RequestMirror", "/mirror/", `filters: [{type: RequestMirror, requestMirror: {backendRef: {name: origin, port: 80}}}]`, ``},
	{"timeouts", "/timeouts/", `timeouts: {request: 10s, backendRequest: 5s}`, ``},
	{"retry, not needed", "/retry/", `retry: {codes: [502, 503], attempts: 2}`, ``},
}

// policyRules have a BackendTrafficPolicy each, whose cost per request is measured, but for the first. No limit of theirs is reached.
var policyRules = []rule{
	{"none", "/none/", ``, ``},
	{"RoundRobin", "/round-robin/", ``, `loadBalancer: {type: RoundRobin}`},
	{"LeastRequest, slow start", "/slow-start/", ``, `loadBalancer: {type: LeastRequest, slowStart: {window: 30s}}`},
	{"ConsistentHash of a header", "/hash/", ``, `loadBalancer: {type: ConsistentHash, consistentHash: {type: Headers, headers: [{name: origin}]}}`},
	{"ConsistentHash of the client's address", "/hash-source/", ``, `loadBalancer: {type: ConsistentHash, consistentHash: {type: SourceIP}}`},
	{"BackendUtilization, without reports", "/utilization/", ``, `loadBalancer: {type: BackendUtilization, backendUtilization: {}}`},
	{"endpointOverride, header absent", "/override/", ``, `loadBalancer: {type: RoundRobin, endpointOverride: {extractFrom: [{header: x-endpoint}]}}`},
	{"retry, not needed", "/retry/", ``, `retry: {numRetries: 2, retryOn: {triggers: [5xx, reset]}}`},
	{"circuitBreaker", "/breaker/", ``, `circuitBreaker: {maxParallelRequests: 4096, maxConnections: 4096, maxPendingRequests: 4096}`},
	{"timeout.http.requestTimeout", "/timeout/", ``, `timeout: {http: {requestTimeout: 10s}}`},
	{"timeout.http.streamIdleTimeout", "/idle/", ``, `timeout: {http: {streamIdleTimeout: 10s}}`},
	{"healthCheck.passive", "/passive/", ``, `healthCheck: {passive: {}}`},
	{"tcpKeepalive, connection", "/connection/", ``, `tcpKeepalive: {idleTime: 60s}, connection: {bufferLimit: 64Ki}`},
	{"useClientProtocol", "/client-protocol/", ``, `useClientProtocol: true`},
	{"rateLimit.local", "/rate-limit/", ``, `rateLimit: {local: {rules: [{limit: {requests: 4000000000, unit: Second}}]}}`},
	{"faultInjection, not drawn", "/fault/", ``, `faultInjection: {abort: {httpStatus: 503, percentage: 0}}`},
	{"admissionControl", "/admission/", ``, `admissionControl: {}`},
	{"requestBuffer, no body", "/buffer/", ``, `requestBuffer: {limit: 1Mi}`},
	{"bandwidthLimit", "/bandwidth/", ``, `bandwidthLimit: {response: {limit: {value: 100Gi, unit: Second}}}`},
	{"compressor, not accepted", "/compressor/", ``, `compressor: [{type: Zstd, zstd: {}}]`},
	{"responseOverride, another status", "/response-override/", ``, `responseOverride: [{match: {statusCodes: [{value: 500}]}, response: {body: {inline: sorry}}}]`},
	{"httpUpgrade, not asked for", "/upgrade/", ``, `httpUpgrade: [{type: websocket}]`},
}

// Name is the rule's in its route, and that of its policy.
func (r rule) Name() string { return strings.Trim(r.Path, "/") }

// HasBackends reports whether the rule names its backends itself.
func (r rule) HasBackends() bool { return strings.HasPrefix(r.YAML, "backendRefs:") }

// traffic is a request of workload A, of a script of an allowed origin, that the rule is for.
func (r rule) traffic() *traffic {
	text := string(request("GET", filtersHost, r.Path+"items/42?fields=name,price", ""))
	text = strings.Replace(text, "\r\n\r\n", "\r\nOrigin: https://www.example.test\r\n\r\n", 1)
	return &traffic{request: []byte(text), bodySize: origin.SmallBody}
}

// runFilters compares what rules may ask for.
func (b *bench) runFilters() error {
	return b.runRules("What a rule may ask for: A, Moongate only", "rule", rules)
}

// runPolicies compares what BackendTrafficPolicies may ask for.
func (b *bench) runPolicies() error {
	return b.runRules("What a BackendTrafficPolicy may ask for: A, Moongate only", "policy", policyRules)
}

// runRules compares rules with each other, in one process of Moongate.
func (b *bench) runRules(title, column string, rules []rule) error {
	if !b.hasMoongate() {
		return nil
	}
	c, err := b.start("moongate", variant{Rules: rules})
	if err != nil {
		return err
	}
	if err := b.verify([]*contender{c}); err != nil {
		return err
	}
	var runs []entry
	for _, r := range rules {
		runs = append(runs, entry{r.Label, r.traffic(), c})
	}
	all, err := b.measureInTurns(runs)
	if err != nil {
		return err
	}
	b.printRatios(title, column, all)
	return c.stop()
}

// maxRules is how many rules an HTTPRoute may have.
const maxRules = 16

// writeRules adds routes with the rules to a folder of manifests.
func writeRules(folder string, rules []rule) error {
	n := 0
	for part := range slices.Chunk(rules, maxRules) {
		n++
		name := fmt.Sprintf("rules-%d", n)
		err := render(filepath.Join(folder, name+".yaml"), "rules.yaml.tmpl", struct {
			Name, Host string
			Rules      []rule
		}{name, filtersHost, part})
		if err != nil {
			return err
		}
	}
	return nil
}
