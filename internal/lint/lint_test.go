package lint_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/lint"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/translate"
)

// objectsOf are those of manifests, all of which must be valid.
func objectsOf(t *testing.T, text string) (objects []metav1.Object) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	source, err := files.New([]string{path}, files.Options{})
	if err != nil {
		t.Fatal(err)
	}
	loaded := source.Load()
	for _, p := range loaded.Problems {
		t.Fatal(p)
	}
	for _, o := range loaded.Objects {
		objects = append(objects, o.Object)
	}
	return objects
}

func linted(t *testing.T, objects []metav1.Object, now time.Time) (lines []string) {
	t.Helper()
	translator := translate.New(translate.Options{ControllerName: "moongate.dev/gateway-controller"})
	for _, o := range objects {
		translator.Upsert(o)
	}
	for _, f := range lint.Lint(objects, nil, translator.Commit().Config.Upserts, now) {
		if f.Remedy == "" {
			t.Errorf("%s %s has no remedy", f.Object, f.Message)
		}
		lines = append(lines, strings.Join([]string{f.Object.String(), f.Field, f.Message}, ": "))
	}
	return lines
}

const (
	selects  = "---\n{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: BackendTrafficPolicy, metadata: {name: p}, spec: {targetSelectors: [{group: gateway.networking.k8s.io, kind: HTTPRoute, %smatchLabels: %s}]}}\n"
	labelled = "---\n{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: labelled, namespace: other, labels: {a: b}}, spec: {rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: x.test}}]}]}}\n"
	granted  = "---\n{apiVersion: gateway.networking.k8s.io/v1, kind: ReferenceGrant, metadata: {name: g, namespace: other}, " +
		"spec: {from: [{group: gateway.envoyproxy.io, kind: BackendTrafficPolicy, namespace: default}], to: [{group: gateway.networking.k8s.io, kind: HTTPRoute}]}}\n"
	service = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{name: http, port: 80}]}}\n---\n"
	slice   = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s-1, labels: {kubernetes.io/service-name: %s}}, addressType: IPv4, ports: [{name: %s, port: 8080}], endpoints: [{addresses: [192.0.2.1]%s}]}\n---\n"
	route   = "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s}, spec: {parentRefs: [{name: g%s}], hostnames: [%s], rules: [%s]}}\n---\n"
	toS     = "{backendRefs: [{name: s, port: 80}]}"
	class   = "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: c}, spec: {controllerName: moongate.dev/gateway-controller}}\n---\n"
	gateway = class + "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: g}, spec: {gatewayClassName: c, listeners: [{name: http, port: 80, protocol: HTTP}]}}\n---\n"
)

func TestLint(t *testing.T) {
	selecting := strings.Replace(service, "spec: {", "spec: {selector: {app: s}, ", 1)
	to := fmt.Sprintf(route, "r", "", "", toS)
	matching := func(match string) string { return "{matches: [" + match + "], backendRefs: [{name: s, port: 80}]}" }
	good := service + fmt.Sprintf(slice, "s", "http", "")
	served := gateway + good
	sameOf := func(other string) string {
		return "it is the same as spec.rules[0].matches[0] of HTTPRoute " + other + ", which takes precedence, so it never matches a request"
	}
	elsewhere := strings.NewReplacer("{name: a}", "{name: a, namespace: a}", "{name: g}", "{name: g, namespace: default}").Replace(fmt.Sprintf(route, "a", "", "", toS))
	overUDP := func(text string) string { return strings.Replace(text, "ports: [{", "ports: [{protocol: UDP, ", 1) }
	dns := strings.Replace(service, "{name: http, port: 80}", "{name: tcp, port: 80}, {name: udp, port: 80, protocol: UDP}", 1)
	const l4 = "{apiVersion: gateway.networking.k8s.io/v1, kind: %s, metadata: {name: r}, spec: {parentRefs: [{name: g}], rules: [{backendRefs: [{name: s, port: 80}]}]}}\n---\n"
	const same = "it is the same as spec.rules[0].matches[0], which takes precedence, so it never matches a request"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"good":                         {good + to, nil},
		"nothing":                      {"", nil},
		"no slice":                     {service + to + fmt.Sprintf(route, "r2", "", "b.test", toS), []string{"Service default/s: : no EndpointSlice is for this Service, so requests to it are answered 503"}},
		"for clusters":                 {selecting + to, nil},
		"for clusters, beside a slice": {selecting + to + strings.ReplaceAll(good, "name: s", "name: o"), nil},
		"not used":                     {service, nil},
		"not ready":                    {service + to + fmt.Sprintf(slice, "s", "http", ", conditions: {ready: false}"), []string{"Service default/s: : no endpoint of this Service is ready, so requests to it are answered 503"}},
		"other port":                   {service + to + fmt.Sprintf(slice, "s", "web", ""), []string{`Service default/s: spec.ports[0].name: no EndpointSlice of this Service has a port named "http" (they have "web"), so requests to port 80 are answered 503`}},
		"no pods": {service + to + "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s-1, labels: {kubernetes.io/service-name: s}}, addressType: IPv4, endpoints: []}\n",
			[]string{"Service default/s: : this Service has no endpoints, so requests to it are answered 503"}},
		"selected":           {good + strings.ReplaceAll(labelled, "namespace: other, ", "") + fmt.Sprintf(selects, "", "{a: b}"), nil},
		"no labels":          {good + fmt.Sprintf(selects, "", "{a: c}") + labelled, []string{"BackendTrafficPolicy default/p: spec.targetSelectors[0]: it selects nothing: no HTTPRoute has these labels"}},
		"in another":         {good + fmt.Sprintf(selects, "", "{a: b}") + labelled, []string{"BackendTrafficPolicy default/p: spec.targetSelectors[0]: it selects nothing: no HTTPRoute with these labels is in its namespaces"}},
		"in another, chosen": {good + fmt.Sprintf(selects, "namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: other}}}, ", "{a: b}") + labelled + granted, nil},
		"in another, not chosen": {good + fmt.Sprintf(selects, "namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: o}}}, ", "{a: b}") + labelled + granted,
			[]string{"BackendTrafficPolicy default/p: spec.targetSelectors[0]: it selects nothing: no HTTPRoute with these labels is in its namespaces"}},
		"not granted": {good + fmt.Sprintf(selects, "namespaces: {from: All}, ", "{a: b}") + labelled,
			[]string{"BackendTrafficPolicy default/p: spec.targetSelectors[0]: it selects nothing: of other namespaces it may select what a ReferenceGrant there permits, and none permits HTTPRoute other/labelled"}},
		"other label": {good + to + strings.Replace(fmt.Sprintf(slice, "ss", "http", ""), "s-1", "s-2", 1), []string{"EndpointSlice default/s-2: metadata.labels: its label names Service default/ss, which does not exist"}},
		"no label": {good + to +
			"{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s-2}, addressType: IPv4, endpoints: [{addresses: [192.0.2.1]}]}\n",
			[]string{"EndpointSlice default/s-2: metadata.labels: it does not have the label kubernetes.io/service-name, so it belongs to no Service"}},
		"of an XBackend": {"{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s-2, labels: {moongate.dev/xbackend: b}}, addressType: IPv4, endpoints: [{addresses: [192.0.2.1]}]}\n", nil},
		"twice in a route": {served + fmt.Sprintf(route, "r", "", "", matching("{path: {value: /a}}")+", "+matching("{path: {value: /b}}, {path: {value: /a/}}")),
			[]string{"HTTPRoute default/r: spec.rules[1].matches[1]: it is the same as spec.rules[0].matches[0], which takes precedence, so it never matches a request"}},
		"twice in a rule": {served + fmt.Sprintf(route, "r", "", "", matching("{path: {value: /a}}, {path: {value: /a}}")), nil},
		"two routes": {served + fmt.Sprintf(route, "b", "", "a.test", toS) + fmt.Sprintf(route, "a", "", "a.test", toS),
			[]string{"HTTPRoute default/b: spec.rules[0].matches[0]: it is the same as spec.rules[0].matches[0] of HTTPRoute default/a, which takes precedence, so it never matches a request"}},
		"other hostname": {served + fmt.Sprintf(route, "b", "", "a.test, b.test", toS) + fmt.Sprintf(route, "a", "", "a.test", toS), nil},
		"one listener, and all": {served + fmt.Sprintf(route, "b", ", sectionName: http", "a.test", toS) + fmt.Sprintf(route, "a", "", "a.test", toS),
			[]string{"HTTPRoute default/b: spec.rules[0].matches[0]: " + sameOf("default/a")}},
		"all listeners, and one":                   {strings.Replace(served, "protocol: HTTP}]", "protocol: HTTP}, {name: other, port: 81, protocol: HTTP}]", 1) + fmt.Sprintf(route, "b", "", "a.test", toS) + fmt.Sprintf(route, "a", ", sectionName: http", "a.test", toS), nil},
		"no Gateway":                               {good + fmt.Sprintf(route, "b", "", "a.test", toS) + fmt.Sprintf(route, "a", "", "a.test", toS), nil},
		"a route that the Gateway does not accept": {served + fmt.Sprintf(route, "b", "", "", toS) + elsewhere, nil},
		"a route of another namespace": {strings.Replace(served, "protocol: HTTP}]", "protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]", 1) + fmt.Sprintf(route, "b", "", "", toS) + elsewhere,
			[]string{"HTTPRoute default/b: spec.rules[0].matches[0]: " + sameOf("a/a")}},
		"a rule that is dropped": {served + fmt.Sprintf(route, "r", "", "", matching("{path: {value: /y}}, {path: {type: RegularExpression, value: '/(y'}}")+", "+matching("{path: {value: /y}}")), nil},
		"a rule that is invalid and has filters": {served + fmt.Sprintf(route, "r", "", "", "{matches: [{path: {value: /z}}, {path: {value: /y}}], filters: [{type: ExtensionRef, extensionRef: {group: moongate.dev, kind: HTTPFilter, name: none}}], backendRefs: [{name: s, port: 80}]}, "+matching("{path: {value: /y}}")),
			[]string{"HTTPRoute default/r: spec.rules[1].matches[0]: it is the same as spec.rules[0].matches[1], which takes precedence, so it never matches a request"}},
		"a header twice, and once": {served + fmt.Sprintf(route, "r", "", "", matching("{headers: [{name: A, value: x}, {name: a, value: z}]}")+", "+matching("{headers: [{name: A, value: x}]}")),
			[]string{"HTTPRoute default/r: spec.rules[0].matches[0].headers[1].name: a is the name of headers[0], too, because case does not count, so this one is ignored",
				"HTTPRoute default/r: spec.rules[1].matches[0]: " + same}},
		"calls": {strings.Replace(served+fmt.Sprintf(route, "r", "", "", matching("{method: {service: x.Y}}")+", "+matching("{method: {service: x.Z}}")+", "+matching("{method: {service: x.Y}}")), "HTTPRoute", "GRPCRoute", 1),
			[]string{"GRPCRoute default/r: spec.rules[2].matches[0]: " + same}},
		"all calls":           {strings.Replace(served+fmt.Sprintf(route, "r", "", "", toS+", "+toS), "HTTPRoute", "GRPCRoute", 1), []string{"GRPCRoute default/r: spec.rules[1]: it is the same as spec.rules[0], which takes precedence, so it never matches a request"}},
		"requests, and calls": {served + fmt.Sprintf(route, "r", "", "", toS) + strings.Replace(fmt.Sprintf(route, "r", "", "", toS), "HTTPRoute", "GRPCRoute", 1), nil},
		"a field of the connection": {good + fmt.Sprintf(route, "r", "", "", matching("{headers: [{name: X-a, value: b}, {name: Transfer-Encoding, value: chunked}]}")),
			[]string{"HTTPRoute default/r: spec.rules[0].matches[0].headers[1].name: no request matches, because Transfer-Encoding belongs to the connection, not to the message, and is removed before requests are matched"}},
		"a field that the gateway sets": {served + fmt.Sprintf(route, "r", "", "", matching("{headers: [{name: X-Forwarded-Proto, value: https}, {name: X-Request-Id, value: a}]}")),
			[]string{"HTTPRoute default/r: spec.rules[0].matches[0].headers[0].name: it is not matched against what clients send: the gateway sets or removes X-Forwarded-Proto itself before requests are matched"}},
		"a field that the gateway sets, of trusted proxies": {strings.Replace(served, "gatewayClassName: c", "gatewayClassName: c, infrastructure: {parametersRef: {group: moongate.dev, kind: GatewayParameters, name: p}}", 1) +
			"{apiVersion: moongate.dev/v1alpha1, kind: GatewayParameters, metadata: {name: p}, spec: {trustedProxies: [192.0.2.0/24]}}\n---\n" +
			fmt.Sprintf(route, "r", "", "", matching("{headers: [{name: X-Forwarded-Proto, value: https}]}")), nil},
		"terminating, and still serving": {service + to + fmt.Sprintf(slice, "s", "http", ", conditions: {ready: false, serving: true, terminating: true}"), nil},
		"terminating":                    {service + to + fmt.Sprintf(slice, "s", "http", ", conditions: {ready: false, serving: false, terminating: true}"), []string{"Service default/s: : no endpoint of this Service is ready, so requests to it are answered 503"}},
		"no slice for connections":       {service + fmt.Sprintf(l4, "TCPRoute"), []string{"Service default/s: : no EndpointSlice is for this Service, so connections to it are reset"}},
		"no slice for calls":             {service + fmt.Sprintf(l4, "GRPCRoute"), []string{"Service default/s: : no EndpointSlice is for this Service, so calls to it are answered UNAVAILABLE"}},
		"no slice for datagrams":         {overUDP(service) + fmt.Sprintf(l4, "UDPRoute"), []string{"Service default/s: : no EndpointSlice is for this Service, so datagrams to it are dropped"}},
		"datagrams to a TCP port":        {service + fmt.Sprintf(l4, "UDPRoute"), nil}, // a condition reports it
		"one number for TCP and UDP":     {dns + fmt.Sprintf(slice, "s", "tcp", "") + fmt.Sprintf(l4, "TCPRoute") + fmt.Sprintf(l4, "UDPRoute"), []string{`Service default/s: spec.ports[1].name: no EndpointSlice of this Service has a UDP port named "udp" (they have no UDP ports), so datagrams to port 80 are dropped`}},
		"TCP alone of one number":        {dns + fmt.Sprintf(slice, "s", "tcp", "") + fmt.Sprintf(l4, "TCPRoute"), nil},
		"UDP alone of one number":        {dns + overUDP(fmt.Sprintf(slice, "s", "udp", "")) + fmt.Sprintf(l4, "UDPRoute"), nil},
		"the name with another protocol": {service + overUDP(fmt.Sprintf(slice, "s", "http", "")) + fmt.Sprintf(l4, "TCPRoute"), []string{`Service default/s: spec.ports[0].name: no EndpointSlice of this Service has a TCP port named "http" (they have no TCP ports), so connections to port 80 are reset`}},
		"other port of connections":      {service + fmt.Sprintf(l4, "TCPRoute") + fmt.Sprintf(slice, "s", "web", ""), []string{`Service default/s: spec.ports[0].name: no EndpointSlice of this Service has a port named "http" (they have "web"), so connections to port 80 are reset`}},
		"backends of filters": {strings.ReplaceAll(good, "name: s", "name: t") + service + strings.ReplaceAll(service, "name: s", "name: auth") +
			fmt.Sprintf(route, "r", "", "", "{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: s, port: 80}}}, {type: ExternalAuth, externalAuth: {protocol: HTTP, http: {}, backendRef: {name: auth, port: 80}}}], backendRefs: [{name: t, port: 80}]}"),
			[]string{"Service default/auth: : no EndpointSlice is for this Service, so requests that it must authorize are answered 503",
				"Service default/s: : no EndpointSlice is for this Service, so no request is mirrored to it"}},
		"headers in any case": {served + fmt.Sprintf(route, "r", "", "", matching("{headers: [{name: X-a, value: b}, {name: c, value: d}]}")+", "+matching("{headers: [{name: c, value: d}, {name: x-A, value: b}]}")), []string{"HTTPRoute default/r: spec.rules[1].matches[0]: it is the same as spec.rules[0].matches[0], which takes precedence, so it never matches a request"}},
		"other method":        {served + fmt.Sprintf(route, "r", "", "", matching("{method: GET}")+", "+matching("{method: POST}")+", "+matching("{queryParams: [{name: a, value: b}]}")), nil},
		"addresses are names": {service + to + strings.NewReplacer("IPv4", "FQDN", "192.0.2.1", "a.test").Replace(fmt.Sprintf(slice, "s", "http", "")),
			[]string{"Service default/s: : its EndpointSlices have addressType FQDN, which is not supported, so requests to it are answered 503"}},
		"addresses are names, beside others": {good + to + strings.NewReplacer("IPv4", "FQDN", "192.0.2.1", "a.test", "s-1", "s-2").Replace(fmt.Sprintf(slice, "s", "http", "")), nil},
		"an address as a hostname": {good + fmt.Sprintf(route, "r", "", "a.test, 192.0.2.7", toS),
			[]string{`HTTPRoute default/r: spec.hostnames[1]: "192.0.2.7" is an IP address, which the Gateway API does not allow as a hostname, so other versions and implementations may refuse it`}},
		"an address as a listener's hostname": {"{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: g}, spec: {gatewayClassName: c, listeners: [{name: l, port: 80, protocol: HTTP, hostname: 192.0.2.7}]}}\n",
			[]string{`Gateway default/g: spec.listeners[0].hostname: "192.0.2.7" is an IP address, which the Gateway API does not allow as a hostname, so other versions and implementations may refuse it`}},
		"a header twice in other case": {good + fmt.Sprintf(route, "r", "", "", matching("{headers: [{name: x-a, value: b}, {name: z, value: b}, {name: X-A, value: c}]}")),
			[]string{"HTTPRoute default/r: spec.rules[0].matches[0].headers[2].name: X-A is the name of headers[0], too, because case does not count, so this one is ignored"}},
		"only weight 0": {good + fmt.Sprintf(route, "r", "", "", "{backendRefs: [{name: s, port: 80, weight: 0}]}"),
			[]string{"HTTPRoute default/r: spec.rules[0].backendRefs[0].weight: the only backendRef of the rule has weight 0, so every request of the rule is answered 500 unless a policy or a filter of the listener answers it"}},
		"all of weight 0": {good + fmt.Sprintf(route, "r", "", "", "{backendRefs: [{name: s, port: 80, weight: 0}, {name: s, port: 80, weight: 0}]}"),
			[]string{"HTTPRoute default/r: spec.rules[0].backendRefs: all of them have weight 0, so every request of the rule is answered 500 unless a policy or a filter of the listener answers it"}},
		"one of weight 0": {good + fmt.Sprintf(route, "r", "", "", "{backendRefs: [{name: s, port: 80, weight: 0}, {name: s, port: 80}]}"), nil},
		"no backend": {fmt.Sprintf(route, "r", "", "", "{filters: [{type: CORS, cors: {allowOrigins: ['*']}}]}"),
			[]string{"HTTPRoute default/r: spec.rules[0]: it has neither backendRefs nor a RequestRedirect filter, so every request but preflight requests of the rule is answered 500 unless a policy or a filter of the listener answers it"}},
		"a redirect":                         {fmt.Sprintf(route, "r", "", "", "{filters: [{type: RequestRedirect, requestRedirect: {hostname: a.test}}]}"), nil},
		"a filter of another kind":           {fmt.Sprintf(route, "r", "", "", "{filters: [{type: ExtensionRef, extensionRef: {group: gateway.envoyproxy.io, kind: HTTPRouteFilter, name: f}}]}"), nil},
		"a filter of another kind for calls": {strings.Replace(fmt.Sprintf(route, "r", "", "", "{filters: [{type: ExtensionRef, extensionRef: {group: moongate.dev, kind: HTTPFilter, name: f}}], backendRefs: [{name: s, port: 80, weight: 0}]}"), "HTTPRoute", "GRPCRoute", 1), nil},
		"no backend of calls": {strings.Replace(fmt.Sprintf(route, "r", "", "", "{matches: [{method: {service: s}}]}"), "HTTPRoute", "GRPCRoute", 1),
			[]string{"GRPCRoute default/r: spec.rules[0]: it has no backendRefs, so every call of the rule is answered UNAVAILABLE unless a policy or a filter of the listener answers it"}},
		"connections of weight 0": {good + "{apiVersion: gateway.networking.k8s.io/v1, kind: TCPRoute, metadata: {name: r}, spec: {parentRefs: [{name: g}], rules: [{backendRefs: [{name: s, port: 80, weight: 0}]}]}}\n",
			[]string{"TCPRoute default/r: spec.rules[0].backendRefs[0].weight: the only backendRef of the rule has weight 0, so every connection of the rule is reset"}},
		"a backend of a listener's filter": {strings.Replace(gateway, "protocol: HTTP}]", "protocol: HTTP, filters: {requests: [{type: ExternalAuth, externalAuth: {protocol: HTTP, http: {}, backendRef: {name: s, port: 80}}}]}}]", 1) + service,
			[]string{"Service default/s: : no EndpointSlice is for this Service, so requests that it must authorize are answered 503"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := linted(t, objectsOf(t, c.text), time.Now()); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestProtections has an HTTPRoute and a GRPCRoute to one backend, one of which is protected.
func TestProtections(t *testing.T) {
	const (
		asks    = "filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, http: {}, backendRef: {name: s, port: 80}}}], "
		limits  = "---\n{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: BackendTrafficPolicy, metadata: {name: p}, spec: {rateLimit: {type: Local, local: {rules: [{limit: {requests: 1, unit: Second}}]}}, %s}}\n"
		targets = "targetRefs: [{group: gateway.networking.k8s.io, kind: %s, name: %s}]"
		both    = "targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: h}, {group: gateway.networking.k8s.io, kind: GRPCRoute, name: c}]"

		unasked    = "GRPCRoute default/c: spec.rules[0]: gRPC calls reach Service default/s port 80 through this rule without the ExternalAuth filter of HTTPRoute default/h spec.rules[0]; a client can choose this rule by sending application/grpc as the content type"
		unlimited  = "GRPCRoute default/c: spec.rules[0]: gRPC calls reach Service default/s port 80 through this rule without the rate limit of HTTPRoute default/h spec.rules[0]; a client can choose this rule by sending application/grpc as the content type"
		unlimited2 = "HTTPRoute default/h: spec.rules[0]: requests reach Service default/s port 80 through this rule without the rate limit of GRPCRoute default/c spec.rules[0]; a client can choose this rule by sending anything but application/grpc as the content type"
		replaces   = "---\n{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: BackendTrafficPolicy, metadata: {name: q}, spec: {%stimeout: {http: {requestTimeout: 1s}}, targetRefs: [{group: gateway.networking.k8s.io, kind: GRPCRoute, name: c}]}}\n"
		set        = "---\n{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {name: ls}, spec: {parentRef: {name: g}, listeners: [{name: l, port: 80, protocol: HTTP}]}}\n"
	)
	good := service + fmt.Sprintf(slice, "s", "http", "")
	of := func(parent, hostname, rule string) string {
		return fmt.Sprintf(route, "h", parent, hostname, strings.Replace(rule, "backendRefs", asks+"backendRefs", 1))
	}
	calls := func(parent, hostname, match string) string {
		return strings.Replace(fmt.Sprintf(route, "c", parent, hostname, "{"+match+"backendRefs: [{name: s, port: 80}]}"), "HTTPRoute", "GRPCRoute", 1)
	}
	plain := fmt.Sprintf(route, "h", "", "a.test", toS)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"asked, and calls are not":                     {of("", "a.test", toS) + calls("", "a.test", ""), []string{unasked}},
		"on a section of the Gateway":                  {of("", "a.test", toS) + calls(", sectionName: l", "a.test", ""), []string{unasked}},
		"on two sections":                              {of(", sectionName: m", "a.test", toS) + calls(", sectionName: l", "a.test", ""), nil},
		"on two hostnames":                             {of("", "a.test", toS) + calls("", "b.test", ""), nil},
		"at one path":                                  {of("", "a.test", "{matches: [{path: {value: /x.Y/}}], backendRefs: [{name: s, port: 80}]}") + calls("", "a.test", "matches: [{method: {service: x.Y, method: Z}}], "), []string{unasked}},
		"at two paths":                                 {of("", "a.test", "{matches: [{path: {value: /admin}}], backendRefs: [{name: s, port: 80}]}") + calls("", "a.test", "matches: [{method: {service: x.Y}}], "), nil},
		"a path and another one":                       {of("", "a.test", "{matches: [{path: {value: /x}}], backendRefs: [{name: s, port: 80}]}") + calls("", "a.test", "matches: [{method: {service: x.Y}}], "), nil},
		"an exact path":                                {of("", "a.test", "{matches: [{path: {type: Exact, value: /x.Y/GetAll}}], backendRefs: [{name: s, port: 80}]}") + calls("", "a.test", "matches: [{method: {service: x.Y, method: Get}}], "), nil},
		"by GET alone":                                 {of("", "a.test", "{matches: [{method: GET}], backendRefs: [{name: s, port: 80}]}") + calls("", "a.test", ""), nil},
		"asked for one backend":                        {fmt.Sprintf(route, "h", "", "a.test", "{backendRefs: [{name: s, port: 80, "+strings.TrimSuffix(asks, ", ")+"}]}") + calls("", "a.test", ""), []string{unasked}},
		"of weight 0":                                  {of("", "a.test", toS) + strings.ReplaceAll(calls("", "a.test", ""), "port: 80}]", "port: 80, weight: 0}, {name: t, port: 80}]"), nil},
		"without the Gateway's limit":                  {plain + calls("", "a.test", "") + fmt.Sprintf(limits, fmt.Sprintf(targets, "Gateway", "g")) + fmt.Sprintf(replaces, ""), []string{unlimited}},
		"merged with the Gateway's":                    {plain + calls("", "a.test", "") + fmt.Sprintf(limits, fmt.Sprintf(targets, "Gateway", "g")) + fmt.Sprintf(replaces, "mergeType: StrategicMerge, "), nil},
		"a rule's policy, not merged with its route's": {plain + calls("", "a.test", "name: one, ") + fmt.Sprintf(limits, both) + strings.Replace(fmt.Sprintf(replaces, "mergeType: StrategicMerge, "), "name: c}", "name: c, sectionName: one}", 1), []string{unlimited}},
		"a ListenerSet's Gateway":                      {strings.ReplaceAll(plain+calls("", "a.test", ""), "{name: g}", "{kind: ListenerSet, group: gateway.networking.k8s.io, name: ls}") + fmt.Sprintf(limits, fmt.Sprintf(targets, "Gateway", "g")) + set, nil},
		"a listener is limited":                        {strings.Replace(plain, "{name: g}", "{name: g, sectionName: a}, {name: g, sectionName: b}", 1) + calls(", sectionName: b", "a.test", "") + fmt.Sprintf(limits, "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g, sectionName: a}]"), nil},
		"the one listener is limited":                  {plain + calls(", sectionName: a", "a.test", "") + fmt.Sprintf(limits, "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g, sectionName: a}]"), nil},
		"two backends":                                 {strings.ReplaceAll(of("", "a.test", toS), "port: 80", "port: 81") + calls("", "a.test", ""), nil},
		"neither":                                      {plain + calls("", "a.test", ""), nil},
		"requests are limited":                         {plain + calls("", "a.test", "") + fmt.Sprintf(limits, fmt.Sprintf(targets, "HTTPRoute", "h")), []string{unlimited}},
		"calls are limited":                            {plain + calls("", "a.test", "") + fmt.Sprintf(limits, fmt.Sprintf(targets, "GRPCRoute", "c")), []string{unlimited2}},
		"both are limited":                             {plain + calls("", "a.test", "") + fmt.Sprintf(limits, both), nil},
		"the Gateway is limited":                       {plain + calls("", "a.test", "") + fmt.Sprintf(limits, fmt.Sprintf(targets, "Gateway", "g")), nil},
		"requests are limited by labels":               {strings.Replace(plain, "name: h", "name: h, labels: {a: b}", 1) + calls("", "a.test", "") + fmt.Sprintf(limits, "targetSelectors: [{kind: HTTPRoute, matchLabels: {a: b}}]"), []string{unlimited}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := linted(t, objectsOf(t, good+c.text), time.Now()); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// secret has a certificate of some names and validity.
func secret(t *testing.T, names []string, begin, end time.Time) *corev1.Secret {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: begin, NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}}
}

func TestCertificates(t *testing.T) {
	now := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	ref := []gwv1.SecretObjectReference{{Name: "c"}}
	for name, c := range map[string]struct {
		names      []string
		begin, end time.Duration
		hostname   string
		mode       gwv1.TLSModeType
		want       []string
	}{
		"good":                        {[]string{"a.test"}, -day, 90 * day, "a.test", "", nil},
		"no hostname":                 {nil, -day, 90 * day, "", "", nil},
		"a wildcard for a name":       {[]string{"*.test"}, -day, 90 * day, "a.test", "", nil},
		"a wildcard for the same":     {[]string{"*.TEST"}, -day, 90 * day, "*.test", "", nil},
		"a name for a wildcard":       {[]string{"a.test"}, -day, 90 * day, "*.test", "", []string{"spec.listeners[0].hostname: no certificate of the listener is for *.test (they are for a.test), so clients will reject it"}},
		"another name":                {[]string{"b.test", "c.test"}, -day, 90 * day, "a.test", "", []string{"spec.listeners[0].hostname: no certificate of the listener is for a.test (they are for b.test, c.test), so clients will reject it"}},
		"expired":                     {[]string{"a.test"}, -90 * day, -day, "a.test", "", []string{"spec.listeners[0].tls.certificateRefs[0]: the certificate in Secret default/c expired on 2026-01-14, so clients will reject it"}},
		"not yet valid":               {[]string{"a.test"}, day, 90 * day, "a.test", "", []string{"spec.listeners[0].tls.certificateRefs[0]: the certificate in Secret default/c is not valid before 2026-01-16, so clients will reject it"}},
		"expires soon":                {[]string{"a.test"}, -80 * day, 10 * day, "a.test", "", []string{"spec.listeners[0].tls.certificateRefs[0]: the certificate in Secret default/c expires on 2026-01-25, in 10 days"}},
		"short-lived":                 {[]string{"a.test"}, -day, 6 * day, "a.test", "", nil},
		"not terminated by a Gateway": {[]string{"b.test"}, -90 * day, -day, "a.test", gwv1.TLSModePassthrough, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tls := &gwv1.ListenerTLSConfig{CertificateRefs: ref}
			if c.mode != "" {
				tls.Mode = new(c.mode)
			}
			gateway := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g"}}
			gateway.Spec.Listeners = []gwv1.Listener{{Name: "l", Hostname: new(gwv1.Hostname(c.hostname)), TLS: tls}}
			var want []string
			for _, line := range c.want {
				want = append(want, "Gateway default/g: "+line)
			}
			objects := []metav1.Object{gateway, secret(t, c.names, now.Add(c.begin), now.Add(c.end))}
			if got := linted(t, objects, now); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if got := linted(t, objects[:1], now); len(got) > 0 {
				t.Errorf("without the Secret: %q", got)
			}
		})
	}
}

// TestCertificatesInUse: only certificates that a listener shows are looked at.
func TestCertificatesInUse(t *testing.T) {
	now := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	other := func(namespace string) *corev1.Secret {
		s := secret(t, []string{"b.test"}, now.Add(-time.Hour), now.Add(time.Hour))
		s.Namespace = namespace
		return s
	}
	mismatch := other("default")
	mismatch.Data[corev1.TLSPrivateKeyKey] = other("default").Data[corev1.TLSPrivateKeyKey]
	opaque := other("default")
	opaque.Type = corev1.SecretTypeOpaque
	grant := func(from, name string) *gwv1.ReferenceGrant {
		g := &gwv1.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "certs", Name: "g"}}
		g.Spec.From = []gwv1.ReferenceGrantFrom{{Group: gwv1.GroupName, Kind: "Gateway", Namespace: gwv1.Namespace(from)}}
		g.Spec.To = []gwv1.ReferenceGrantTo{{Kind: "Secret", Name: new(gwv1.ObjectName(name))}}
		return g
	}
	damaged := other("default")
	damaged.Data[corev1.TLSCertKey] = append(damaged.Data[corev1.TLSCertKey], "-----BEGIN CERTIFICATE-----\nMII!\n-----END CERTIFICATE-----\n"...)
	own := gwv1.SecretObjectReference{Name: "c"}
	foreign := gwv1.SecretObjectReference{Name: "c", Namespace: new(gwv1.Namespace("certs"))}
	const wrong = "Gateway default/g: spec.listeners[0].hostname: no certificate of the listener is for a.test (they are for b.test), so clients will reject it"
	const skipped = "Gateway default/g: spec.listeners[0].tls.certificateRefs[0]: the chain in Secret default/c is presented without a part of it: " +
		"PEM block 2 of tls.crt: its BEGIN and END are not on lines of their own, or what is between them is not base64"
	for name, c := range map[string]struct {
		refs    []gwv1.SecretObjectReference
		objects []metav1.Object
		want    []string
	}{
		"without a grant":            {[]gwv1.SecretObjectReference{foreign}, []metav1.Object{other("certs")}, nil},
		"with a grant":               {[]gwv1.SecretObjectReference{foreign}, []metav1.Object{other("certs"), grant("default", "c")}, []string{wrong}},
		"with a grant for others":    {[]gwv1.SecretObjectReference{foreign}, []metav1.Object{other("certs"), grant("web", "c")}, nil},
		"with a grant of another":    {[]gwv1.SecretObjectReference{foreign}, []metav1.Object{other("certs"), grant("default", "d")}, nil},
		"with a key of another":      {[]gwv1.SecretObjectReference{own}, []metav1.Object{mismatch}, nil},
		"with a damaged block":       {[]gwv1.SecretObjectReference{own}, []metav1.Object{damaged}, []string{wrong, skipped}},
		"of another type":            {[]gwv1.SecretObjectReference{own}, []metav1.Object{opaque}, nil},
		"beside one that is missing": {[]gwv1.SecretObjectReference{own, {Name: "d"}}, []metav1.Object{other("default")}, []string{wrong}},
		"behind one that is missing": {[]gwv1.SecretObjectReference{{Name: "d"}, own}, []metav1.Object{other("default")}, []string{wrong}},
		"beside one without a grant": {[]gwv1.SecretObjectReference{own, foreign}, []metav1.Object{other("default"), other("certs")}, []string{wrong}},
	} {
		t.Run(name, func(t *testing.T) {
			gateway := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g"}}
			gateway.Spec.Listeners = []gwv1.Listener{{Name: "l", Hostname: new(gwv1.Hostname("a.test")), TLS: &gwv1.ListenerTLSConfig{CertificateRefs: c.refs}}}
			if got := linted(t, append(c.objects, gateway), now); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestEscapes has regular expressions with escapes, some of which no path has.
func TestEscapes(t *testing.T) {
	for value, want := range map[string][]string{
		"/a%c3%A9": {`no path has "%c3", because paths are matched in the form that RFC 3986 calls normalized`},
		"/a%41":    {`no path has "%41", because paths are matched in the form that RFC 3986 calls normalized`},
		"/a%2e":    {`no path has "%2e", because paths are matched in the form that RFC 3986 calls normalized`},
		"/a%C3%A9": nil, "/100%": nil, "/[%c3]": nil, "(?i)/a%c3": nil, "/[a-z]%2F": nil,
	} {
		path := gwv1.PathMatchRegularExpression
		route := &gwv1.HTTPRoute{TypeMeta: metav1.TypeMeta{APIVersion: "gateway.networking.k8s.io/v1", Kind: "HTTPRoute"}, ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default"}}
		route.Spec.Rules = []gwv1.HTTPRouteRule{{
			Matches: []gwv1.HTTPRouteMatch{{Path: &gwv1.HTTPPathMatch{Type: &path, Value: &value}}},
			Filters: []gwv1.HTTPRouteFilter{{Type: gwv1.HTTPRouteFilterRequestRedirect}},
		}}
		var got []string
		for _, f := range lint.Lint([]metav1.Object{route}, nil, nil, time.Now()) {
			got = append(got, f.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", value, got)
		}
	}
}

// TestRelative has regular expressions, some of which match no path.
func TestRelative(t *testing.T) {
	for value, none := range map[string]bool{
		"api/v[0-9]+": true, "^api": true, "a+/b": true, "(?:a|b)/c": true, "[a-z]/x": true, "$": true, "a*": true, "a{2,3}/": true,
		"/api": false, "^/api": false, ".*api": false, "(/|a)b": false, "^foo|/bar": false, "[^a]x": false, "a?/b": false, `\Q/a\E`: false, "a{0,2}/": false,
		"(?i)api": false, `\b/a`: false, "(?=a)": false, "a*/b": false,
	} {
		route := &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default"}}
		route.Spec.Rules = []gwv1.HTTPRouteRule{{
			Matches: []gwv1.HTTPRouteMatch{{Path: &gwv1.HTTPPathMatch{Type: new(gwv1.PathMatchRegularExpression), Value: &value}}},
			Filters: []gwv1.HTTPRouteFilter{{Type: gwv1.HTTPRouteFilterRequestRedirect}},
		}}
		got := linted(t, []metav1.Object{route}, time.Now())
		if want := fmt.Sprintf("HTTPRoute default/r: spec.rules[0].matches[0].path.value: %q matches no path, because every path begins with \"/\", and the whole path must match", value); none != slices.Equal(got, []string{want}) || !none && got != nil {
			t.Errorf("%s: %q", value, got)
		}
	}
}

// TestRedirects has redirects to where the request came from, and others.
func TestRedirects(t *testing.T) {
	both := strings.Replace(gateway, "protocol: HTTP}]", "protocol: HTTP}, {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]", 1) + service + fmt.Sprintf(slice, "s", "http", "")
	named := strings.Replace(both, "protocol: HTTPS", "protocol: HTTPS, hostname: a.test", 1)
	to := func(parent, hostnames, match, redirect string) string {
		return fmt.Sprintf(route, "r", parent, hostnames, "{"+match+"filters: [{type: RequestRedirect, requestRedirect: {"+redirect+"}}]}")
	}
	app := func(name, hostnames string) string {
		return fmt.Sprintf(route, name, ", sectionName: https", hostnames, toS)
	}
	const loops = "HTTPRoute default/r: spec.rules[0].filters[0].requestRedirect: it redirects requests to listener default/g/%s to the same URL, so clients never reach anything else"
	for name, c := range map[string]struct{ text, at string }{
		"to HTTPS from every listener":         {both + to("", "", "", "scheme: https, statusCode: 301"), "https"},
		"to HTTPS from the HTTP listener":      {both + to(", sectionName: http", "", "", "scheme: https, statusCode: 301"), ""},
		"a status code alone":                  {both + to("", "", "", "statusCode: 301"), "http"},
		"to another port":                      {both + to("", "", "", "scheme: https, port: 8443"), ""},
		"to the port":                          {both + to("", "", "", "port: 80"), "http"},
		"to another host":                      {both + to("", "a.test", "", "hostname: b.test"), ""},
		"to one of its hosts":                  {both + to("", "a.test, b.test", "", "hostname: b.test"), "http"},
		"beside a later route":                 {both + to("", "", "matches: [{path: {value: /x}}], ", "scheme: https") + app("z", ""), "https"},
		"beside a route that precedes":         {both + to("", "", "", "scheme: https") + app("a", ""), ""},
		"beside a route for some hosts":        {both + to("", "", "", "scheme: https") + app("a", "a.test"), "https"},
		"beside one for the listener's host":   {named + to("", "", "", "scheme: https") + app("z", "a.test"), ""},
		"to the same prefix":                   {both + to("", "", "matches: [{path: {value: /x/}}], ", "path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}"), "http"},
		"to another prefix":                    {both + to("", "", "matches: [{path: {value: /x}}], ", "path: {type: ReplacePrefixMatch, replacePrefixMatch: /x/y}"), ""},
		"to a path":                            {both + to("", "", "matches: [{path: {value: /x}}], ", "path: {type: ReplaceFullPath, replaceFullPath: /x}"), ""},
		"to its path":                          {both + to("", "", "matches: [{path: {type: Exact, value: /x}}], ", "path: {type: ReplaceFullPath, replaceFullPath: /x}"), "http"},
		"of a method that a redirect replaces": {both + to("", "", "matches: [{method: POST}], ", "statusCode: 301"), ""},
		"of a header":                          {both + to("", "", "matches: [{headers: [{name: a, value: b}]}], ", "statusCode: 301"), ""},
	} {
		var want []string
		if c.at != "" {
			want = []string{fmt.Sprintf(loops, c.at)}
		}
		if got := linted(t, objectsOf(t, c.text), time.Now()); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, want)
		}
	}
}
