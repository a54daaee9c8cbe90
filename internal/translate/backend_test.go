package translate_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestKeyWordsAsNames: objects and namespaces may have the names that keys of Backends have a meaning for.
func TestKeyWordsAsNames(t *testing.T) {
	const manifest = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: NAME}
spec:
  gatewayClassName: moongate
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: tcp, port: 5432, protocol: TCP}
  - {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}
  - {name: udp, port: 53, protocol: UDP}
---
kind: Infrastructure
gateway: NAME/gw
addresses: [{type: IPAddress, value: 203.0.113.7}]
ready: true
---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NAME}
spec: {ports: [{name: tcp, port: 80}, {name: udp, port: 80, protocol: UDP}]}
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackend
metadata: {name: NAME, namespace: NAME}
spec: {type: ExternalHostname, externalHostname: {hostname: back.example.com}, port: {number: 443}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: http, namespace: NAME}
spec:
  parentRefs: [{name: gw, sectionName: http}]
  rules: [{backendRefs: [{name: NAME, port: 80}, {group: gateway.networking.x-k8s.io, kind: XBackend, name: NAME}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: grpc, namespace: NAME}
spec:
  parentRefs: [{name: gw, sectionName: http}]
  rules: [{backendRefs: [{name: NAME, port: 80}, {group: gateway.networking.x-k8s.io, kind: XBackend, name: NAME}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: tcp, namespace: NAME}
spec:
  parentRefs: [{name: gw, sectionName: tcp}]
  rules: [{backendRefs: [{name: NAME, port: 80}, {group: gateway.networking.x-k8s.io, kind: XBackend, name: NAME}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: tls, namespace: NAME}
spec:
  parentRefs: [{name: gw, sectionName: tls}]
  hostnames: [a.example.com]
  rules: [{backendRefs: [{name: NAME, port: 80}, {group: gateway.networking.x-k8s.io, kind: XBackend, name: NAME}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: udp, namespace: NAME}
spec:
  parentRefs: [{name: gw, sectionName: udp}]
  rules: [{backendRefs: [{name: NAME, port: 80}]}]
`
	const policy = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: NAME, namespace: NAME}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]
  loadBalancer: {type: Random}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: child, namespace: NAME}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: TLSRoute, name: tls}]
  mergeType: StrategicMerge
  timeout: {tcp: {connectTimeout: 3s}}
`
	// summary is what of the config depends on keys, with the name in question written as plain.
	summary := func(t *testing.T, word string, documents string) (lines []string) {
		w := newWorldWith(clusterOptions)
		class := "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: moongate}\nspec: {controllerName: " + controllerName + "}\n"
		for _, doc := range append(strings.Split(documents, "\n---\n"), class) {
			w.upsert(decode(t, word, strings.NewReplacer("NAME/", word+"/", "NAME", strconv.Quote(word)).Replace(doc)))
		}
		policyNames := strings.NewReplacer(word+"/"+word, "plain/plain", word+"/child", "plain/child")
		w.commit(t) // which checks the references
		for _, r := range w.config {
			b := r.GetBackend()
			if b == nil {
				continue
			}
			key := "/" + b.Key + " "
			key = strings.Replace(key, "/"+word+"/"+word+"/", "/plain/plain/", 1) // of the Backend
			for _, policy := range []string{"/by/" + word + "/" + word + " ", "+" + word + "/" + word + " "} {
				key = strings.Replace(key, policy, strings.ReplaceAll(policy, word+"/"+word+" ", "plain/plain "), 1)
			}
			key = strings.Replace(key, "/by/"+word+"/child", "/by/plain/child", 1)
			lines = append(lines, key+b.Protocol.String()+" "+policyNames.Replace(b.GetTraffic().GetPolicy())+" "+strings.Join(b.GetExternalHostname().GetDenied(), " "))
		}
		slices.Sort(lines)
		return lines
	}
	for _, policies := range []string{"", "\n---\n" + policy} {
		want := summary(t, "plain", manifest+policies)
		for _, word := range []string{"by", "http2", "udp", "passthrough", "service", "xbackend", "80", "443"} {
			got := summary(t, word, manifest+policies)
			if !slices.Equal(got, want) {
				t.Errorf("where everything is named %s, there are the Backends\n%s\nwant\n%s", word, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		for _, line := range want {
			if strings.Contains(line, "XBackend") && !strings.Contains(line, "203.0.113.7/32") && !strings.Contains(line, "/http2") {
				t.Errorf("connections may lead back to the Gateway: %s", line)
			}
		}
	}
}
