package manifest

import (
	"slices"
	"strings"
	"testing"
)

// TestInvalidDocuments holds the exact words of what people get to read.
func TestInvalidDocuments(t *testing.T) {
	const route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: web\nspec:\n"
	for _, test := range []struct{ name, text, want string }{
		{"tab", "kind: HTTPRoute\n\tapiVersion: v1\n",
			"f.yaml:2: HTTPRoute: not valid YAML: found a tab character that violates indentation; indent with spaces, not tabs, and put a value that begins with a special character in quotes"},
		{"colon in value", "a: b: c\n",
			`f.yaml:1: not valid YAML: mapping values are not allowed in this context; check the indentation, and put a value that contains ": " in quotes`},
		{"half a document", route + "  rules:\n  - matches: [{path\n",
			"f.yaml:7: HTTPRoute default/web: not valid YAML: did not find expected ',' or '}'; check the indentation of this and the previous line"},
		{"wrong indentation", route + "  hostnames:\n  - a.b\n rules: []\n",
			"f.yaml:8: HTTPRoute default/web: not valid YAML: did not find expected key; check the indentation of this and the previous line"},
		{"open quote", "apiVersion: v1\nkind: \"Service\nmetadata: {name: s}\n",
			"f.yaml:2: Service: not valid YAML: found unexpected end of stream; close the quote or bracket that begins here"},
		{"not an object", "- a\n- b\n", `f.yaml:1: is a list, not an object; put it under "items:" of a "kind: List" with "apiVersion: v1"`},
		{"a text", "hello\n", `f.yaml:1: is not an object; begin with "apiVersion:", "kind:" and "metadata:"`},
		{"no apiVersion", "kind: HTTPRoute\nmetadata: {name: web}\n", `f.yaml:1: HTTPRoute web: apiVersion: required field is missing or not a string; add "apiVersion"`},
		{"kind is a number", "apiVersion: v1\nkind: 5\n", `f.yaml:2: 5: kind: required field is missing or not a string; add "kind"`},
		{"no name", "apiVersion: v1\nkind: Service\nmetadata: {labels: {a: b}}\n", `f.yaml:3: Service: metadata.name: required field is missing; add "name" under "metadata"; names are not generated here`},
		{"name without indentation", "apiVersion: v1\nkind: Service\nmetadata:\nname: web\n", `f.yaml:3: Service: metadata.name: required field is missing; indent "name", so that it is under "metadata"`},
		{"kind misspelt", "apiVersion: gateway.networking.k8s.io/v1\nkind: HttpRoute\nmetadata: {name: web}\n",
			"f.yaml:2: HttpRoute web: kind: HttpRoute is not a kind of this API group; write apiVersion: gateway.networking.k8s.io/v1 and kind: HTTPRoute"},
		{"kind in the wrong group", "apiVersion: networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: gw}\n",
			"f.yaml:2: Gateway gw: kind: Gateway is not in this API group; write apiVersion: gateway.networking.k8s.io/v1 and kind: Gateway"},
		{"kind in Moongate's own group", "apiVersion: moongate.dev/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: {name: p}\n",
			"f.yaml:2: BackendTrafficPolicy p: kind: BackendTrafficPolicy is not in this API group; write apiVersion: gateway.envoyproxy.io/v1alpha1 and kind: BackendTrafficPolicy"},
		{"unknown kind of Moongate's own group", "apiVersion: moongate.dev/v1alpha1\nkind: RateLimit\nmetadata: {name: p}\n",
			"f.yaml:2: RateLimit p: kind: RateLimit is not a kind of this API group; its kinds are GatewayParameters and HTTPFilter"},
		{"version not served", "apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: HTTPRoute\nmetadata: {name: web}\n",
			"f.yaml:1: HTTPRoute default/web: apiVersion: version v1alpha2 of HTTPRoute is not served; write apiVersion: gateway.networking.k8s.io/v1"},
		{"parameters with an unknown field", "apiVersion: moongate.dev/v1alpha1\nkind: GatewayParameters\nmetadata: {name: p}\nspec: {replica: 2}\n",
			`f.yaml:4: GatewayParameters default/p: spec.replica: unknown field; did you mean "replicas"?`},
		{"field twice", route + "  rules: []\n  rules: []\n", `f.yaml:7: HTTPRoute default/web: field "rules" is there twice; remove one of the two`},
		{"infinite number", route + "  rules: .inf\n", `f.yaml:6: HTTPRoute default/web: ".inf" is not a value that JSON has; put it in quotes if it is a string`},
		{"unknown field", route + "  rules:\n  - matches:\n    - path: {value: /}\n    backendRef:\n    - name: a\n",
			`f.yaml:9: HTTPRoute default/web: spec.rules[0].backendRef: unknown field; did you mean "backendRefs"?`},
		{"unknown metadata", strings.Replace(route, "  name: web", "  name: web\n  label: {a: b}", 1) + "  hostnames: [a.b]\n",
			`f.yaml:5: HTTPRoute default/web: metadata.label: unknown field; did you mean "labels"?`},
		{"bad name", strings.Replace(route, "web", "Web_1", 1) + "  hostnames: [a.b]\n",
			`f.yaml:4: HTTPRoute default/Web_1: metadata.name: "Web_1" is not valid: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character; rename it, for example to web-1`},
		{"yes is a boolean", strings.Replace(route, "  name: web", "  name: web\n  labels: {public: yes}", 1) + "  hostnames: [a.b]\n",
			`f.yaml:5: HTTPRoute default/web: metadata.labels[public]: is the boolean true, must be a string; put it in quotes: "yes"`},
		{"time", strings.Replace(route, "  name: web", "  name: web\n  creationTimestamp: yesterday", 1) + "  hostnames: [a.b]\n",
			`f.yaml:5: HTTPRoute default/web: metadata.creationTimestamp: "yesterday" is not a time; write it as 2006-01-02T15:04:05Z`},
		{"number as it is written", strings.Replace(route, "  name: web", "  name: web\n  labels: {version: 1.10}", 1) + "  hostnames: [a.b]\n",
			`f.yaml:5: HTTPRoute default/web: metadata.labels[version]: is the number 1.1, must be a string; put it in quotes: "1.10"`},
		{"port in quotes", route + "  rules:\n  - backendRefs:\n    - name: a\n      port: \"80\"\n",
			`f.yaml:9: HTTPRoute default/web: spec.rules[0].backendRefs[0].port: is the string "80", must be an integer; write a number without quotes`},
		{"missing port", route + "  rules:\n  - backendRefs:\n    - name: a\n",
			`f.yaml:8: HTTPRoute default/web: spec.rules[0].backendRefs[0]: Must have port for Service reference; add "port" with a port of that Service`},
		{"unknown enum value", route + "  rules:\n  - matches:\n    - path:\n        type: Prefix\n        value: /x\n",
			`f.yaml:9: HTTPRoute default/web: spec.rules[0].matches[0].path.type: unsupported value "Prefix"; did you mean PathPrefix? Use one of Exact, PathPrefix, RegularExpression`},
		{"relative path", route + "  rules:\n  - matches:\n    - path:\n        value: x\n",
			`f.yaml:8: HTTPRoute default/web: spec.rules[0].matches[0].path: value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']; let the path begin with "/"`},
		{"service port", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  ports:\n  - port: 70000\n    targetPort: 80\n",
			"f.yaml:6: Service default/s: spec.ports[0].port: 70000 is not a port; use a number between 1 and 65535"},
		{"service without ports", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {}\n",
			`f.yaml:4: Service default/s: spec.ports: required field is missing; add "ports"`},
		{"service ports without names", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  ports:\n  - {name: a, port: 1}\n  - port: 2\n",
			`f.yaml:7: Service default/s: spec.ports[1].name: required field is missing; add "name": with several ports each needs one`},
		{"service protocol", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  ports:\n  - {port: 1, protocol: tcp}\n",
			`f.yaml:6: Service default/s: spec.ports[0].protocol: unsupported value "tcp"; did you mean TCP? Use one of SCTP, TCP, UDP`},
		{"service name", "apiVersion: v1\nkind: Service\nmetadata: {name: 1s}\nspec: {ports: [{port: 1}]}\n",
			`f.yaml:3: Service default/1s: metadata.name: "1s" is not valid: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character; rename it, for example to my-name`},
		{"base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  tls.crt: \"%%\"\n",
			"f.yaml:5: Secret default/s: data[tls.crt]: is not base64; encode the value with base64, or put it under stringData as it is"},
		{"tls secret without key", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ntype: kubernetes.io/tls\nstringData: {tls.crt: x}\n",
			`f.yaml:1: Secret default/s: data[tls.key]: required field is missing; add "tls.key": a Secret of type kubernetes.io/tls needs it`},
		{"endpoint of the wrong type", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: e}\naddressType: IPv4\nendpoints:\n- addresses: [\"::1\"]\n",
			`f.yaml:6: EndpointSlice default/e: endpoints[0].addresses[0]: "::1" is not an address of type IPv4; write such an address, or change addressType`},
		{"address type", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: e}\naddressType: IPv5\nendpoints: []\n",
			`f.yaml:4: EndpointSlice default/e: addressType: unsupported value "IPv5"; did you mean IPv4? Use one of FQDN, IPv4, IPv6`},
		{"trust bundle without certificates", "apiVersion: certificates.k8s.io/v1\nkind: ClusterTrustBundle\nmetadata: {name: b}\nspec: {}\n",
			`f.yaml:4: ClusterTrustBundle b: spec.trustBundle: required field is missing; add "trustBundle"`},
		{"trust bundle of another signer", "apiVersion: certificates.k8s.io/v1beta1\nkind: ClusterTrustBundle\nmetadata: {name: b}\nspec: {signerName: example.com/web, trustBundle: x}\n",
			`f.yaml:3: ClusterTrustBundle b: metadata.name: is not that of a bundle of spec.signerName; begin it with "example.com:web:", and use no other ':'`},
		{"trust bundle with a signer in its name", "apiVersion: certificates.k8s.io/v1beta1\nkind: ClusterTrustBundle\nmetadata: {name: \"a:b\"}\nspec: {trustBundle: x}\n",
			`f.yaml:3: ClusterTrustBundle a:b: metadata.name: has a ':' and there is no spec.signerName; use no ':', or name the signer`},
		{"config map key", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {\"a b\": c}\n",
			"f.yaml:4: ConfigMap default/c: data[a b]: is not a valid key; use letters, digits, '-', '_' and '.' only"},
		{"item of a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: good}\n- apiVersion: v1\n  kind: Service\n  metadata: {name: bad}\n  spec:\n    ports: [{port: 0}]\n",
			"f.yaml:11: Service default/bad: spec.ports[0].port: 0 is not a port; use a number between 1 and 65535"},
		{"JSON", "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Service\",\n  \"metadata\": {\"name\": \"s\"},\n  \"spec\": {\n    \"ports\": [{\"port\": 1.5}]\n  }\n}\n",
			"f.yaml:6: Service default/s: spec.ports[0].port: is the number 1.5, must be an integer; write a number"},
		{"half of JSON", "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Service\",\n", "f.yaml:4: not valid JSON: the value is not complete; complete or correct it near this line"},
		{"aliases", "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e]\n",
			"f.yaml:1: aliases repeat too much; write the values out; aliases may stand for at most 100000 values in a document"},
		{"deep", "a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "\n", "f.yaml:1: nested too deeply; use at most 100 levels"},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The neighbour shows that only this document is concerned.
			d := read(test.text + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: neighbour}\n")
			if len(d.Problems) != 1 || d.Problems[0].String() != test.want {
				t.Errorf("got  %v\nwant %s", d.Problems, test.want)
			}
			if d.Problems[0].Remedy == "" || d.Problems[0].Message == "" {
				t.Error("a problem without message or remedy")
			}
			if !slices.Contains(d.names(), "ConfigMap default/neighbour") {
				t.Errorf("the neighbour is missing: %v", d.names())
			}
		})
	}
}
