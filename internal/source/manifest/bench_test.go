package manifest

import "testing"

// webRoute is an HTTPRoute of two rules, as people write them.
const webRoute = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: web
  namespace: team
spec:
  parentRefs:
  - name: gateway
    namespace: infra
  hostnames:
  - web.example.com
  rules:
  - matches:
    - path: {type: PathPrefix, value: /api}
      headers:
      - {name: x-version, value: "2"}
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier:
        set: [{name: x-route, value: web}]
    backendRefs:
    - {name: service, port: 8080, weight: 9}
    - {name: service-canary, port: 8080, weight: 1}
    timeouts: {request: 10s}
  - backendRefs:
    - {name: service, port: 8080}
`

func BenchmarkDecode(b *testing.B) {
	text := []byte(webRoute)
	if d := Decode(text); len(d.Problems)+len(d.Entries[0].Problems) > 0 { // compiles the schema
		b.Fatal(d.Problems, d.Entries[0].Problems)
	}
	b.ReportAllocs()
	for b.Loop() {
		Decode(text)
	}
}
