//go:build linux

package main

import (
	"path/filepath"
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
}

// rules are those whose cost per request is measured; the first asks for nothing.
var rules = []rule{
	{"none", "/none/", ``},
	{"RequestHeaderModifier", "/request-header/", `filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: a}], add: [{name: x-b, value: b}], remove: [cache-control]}}]`},
	{"ResponseHeaderModifier", "/response-header/", `filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-a, value: a}], add: [{name: x-b, value: b}], remove: [vary]}}]`},
	{"RequestHeaderModifier of the backend", "/backend-header/", `backendRefs: [{name: origin, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: a}]}}]}]`},
	{"URLRewrite of host and prefix", "/rewrite/", `filters: [{type: URLRewrite, urlRewrite: {hostname: api.example.test, path: {type: ReplacePrefixMatch, replacePrefixMatch: /api/v2/}}}]`},
	{"CORS, of an allowed origin", "/cors/", `filters: [{type: CORS, cors: {allowOrigins: ["https://other.example.test", "https://www.example.test"], allowCredentials: true, exposeHeaders: [etag]}}]`},
	{"RequestMirror", "/mirror/", `filters: [{type: RequestMirror, requestMirror: {backendRef: {name: origin, port: 80}}}]`},
	{"timeouts", "/timeouts/", `timeouts: {request: 10s, backendRequest: 5s}`},
	{"retry, not needed", "/retry/", `retry: {codes: [502, 503], attempts: 2}`},
}

// HasBackends reports whether the rule names its backends itself.
func (r rule) HasBackends() bool { return strings.HasPrefix(r.YAML, "backendRefs:") }

// traffic is a request of workload A, of a script of an allowed origin, that the rule is for.
func (r rule) traffic() *traffic {
	text := string(request("GET", filtersHost, r.Path+"items/42?fields=name,price", ""))
	text = strings.Replace(text, "\r\n\r\n", "\r\nOrigin: https://www.example.test\r\n\r\n", 1)
	return &traffic{request: []byte(text), bodySize: origin.SmallBody}
}

// runFilters compares rules with each other, in one process of Moongate.
func (b *bench) runFilters() error {
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
	all, err := b.rounds(runs)
	if err != nil {
		return err
	}
	b.printRatios("What a rule may ask for: A, Moongate only", "rule", all)
	return c.stop()
}

// writeRules adds a route with the rules to a folder of manifests.
func writeRules(folder string, rules []rule) error {
	if len(rules) == 0 {
		return nil
	}
	return render(filepath.Join(folder, "rules.yaml"), "rules.yaml.tmpl", struct {
		Host  string
		Rules []rule
	}{filtersHost, rules})
}
