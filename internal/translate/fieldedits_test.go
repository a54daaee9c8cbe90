package translate_test

// fieldContext is what the objects of fieldSubjects stand beside; one of them takes the place of an object of its name.
const fieldContext = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: moongate
  allowedListeners: {namespaces: {from: Same}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: second}
spec:
  gatewayClassName: moongate
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route}
spec:
  parentRefs: [{name: gw}]
  rules:
  - backendRefs:
    - {name: web, port: 80}
    - {name: other, port: 80}
    - {group: gateway.networking.x-k8s.io, kind: XBackend, name: x}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: auth}
spec: {ports: [{port: 80}, {name: h2c, port: 81, appProtocol: kubernetes.io/h2c}]}
---
apiVersion: v1
kind: Service
metadata: {name: auth2}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: collector}
spec: {ports: [{port: 4317}, {name: other, port: 4318}]}
---
apiVersion: v1
kind: Secret
metadata: {name: cert}
type: kubernetes.io/tls
stringData: {tls.crt: ${example.crt}, tls.key: ${example.key}}
---
apiVersion: v1
kind: Secret
metadata: {name: cert2}
type: kubernetes.io/tls
stringData: {tls.crt: ${other.crt}, tls.key: ${other.key}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ca}
data: {ca.crt: ${authority.crt}}
---
apiVersion: moongate.dev/v1alpha1
kind: HTTPFilter
metadata: {name: mark}
spec: {requestHeaders: {set: [{name: X-Mark, value: "1"}]}}
---
apiVersion: moongate.dev/v1alpha1
kind: HTTPFilter
metadata: {name: mark2}
spec: {requestHeaders: {set: [{name: X-Mark, value: "2"}]}}`

const trafficPolicyOfWeb = `
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackendTrafficPolicy
metadata: {name: policy}
spec:
  targetRefs: [{group: "", kind: Service, name: web}]
  retryConstraint: {}
`

const odd = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: odd}
spec:
  parentRefs: [{name: gw}]
  rules:
  - backendRefs:
    - {group: multicluster.x-k8s.io, kind: Service, name: web, port: 80}
    - {kind: ServiceImport, name: web, port: 80}`

const listenerSetOfGateway = `
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XListenerSet
metadata: {name: set}
spec:
  parentRef: {name: gw}
  listeners:
  - {name: more, port: 81, protocol: HTTP}
  - {name: tls, port: 443, protocol: HTTPS, hostname: a.example.com, tls: {certificateRefs: [{name: cert}]}}
`

const listenerSetRoute = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: of-set}
spec:
  parentRefs: [{group: gateway.networking.x-k8s.io, kind: XListenerSet, name: set}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: v1
kind: Namespace
metadata: {name: blue, labels: {team: blue}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: blue, namespace: blue}
spec:
  parentRefs: [{group: gateway.networking.x-k8s.io, kind: XListenerSet, name: set, namespace: default, sectionName: more}]
  rules: [{}]`

const selectingXBackend = `
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackend
metadata: {name: x}
spec:
  type: EndpointSelector
  port: {number: 8080}
  endpointSelector: {matchLabels: {app: x}}
`

const tlsXBackend = `
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackend
metadata: {name: x}
spec:
  type: ExternalHostname
  port: {number: 443}
  externalHostname: {hostname: x.example.com}
  tls: {mode: ServerOnly, validation: {hostname: x.example.com, wellKnownCACertificates: System}}
`

const clientTLSXBackend = `
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackend
metadata: {name: x}
spec:
  type: ExternalHostname
  port: {number: 443}
  externalHostname: {hostname: x.example.com}
  tls: {mode: ClientAndServer, clientCertificateRef: {name: cert}, validation: {hostname: x.example.com, wellKnownCACertificates: System}}
`

const authorizedRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route}
spec:
  parentRefs: [{name: gw}]
  rules:
  - filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: auth, port: 80}, http: {}}}]
    backendRefs: [{name: web, port: 80}]
`

const plainRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route}
spec:
  parentRefs: [{name: gw}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
`

const callRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls}
spec:
  parentRefs: [{name: gw}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
`

const filteringGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: moongate
  allowedListeners: {namespaces: {from: Same}}
  listeners:
  - name: http
    port: 80
    protocol: HTTP
    filters:
      requests:
      - {type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: auth, port: 80}, http: {}}}
      - {type: ExtensionRef, extensionRef: {group: moongate.dev, kind: HTTPFilter, name: mark}}
`

const filteringListenerSet = `
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: filtering}
spec:
  parentRef: {name: gw}
  listeners:
  - name: more
    port: 81
    protocol: HTTP
    filters:
      requests:
      - {type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: auth, port: 80}, http: {}}}
      - {type: ExtensionRef, extensionRef: {group: moongate.dev, kind: HTTPFilter, name: mark}}
`

const httpFilter = `
apiVersion: moongate.dev/v1alpha1
kind: HTTPFilter
metadata: {name: mark}
spec: {requestHeaders: {remove: [X-Old]}}
`

const httpFilterRoute = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: filtered}
spec:
  parentRefs: [{name: gw}]
  rules:
  - filters: [{type: ExtensionRef, extensionRef: {group: moongate.dev, kind: HTTPFilter, name: mark}}]
    backendRefs: [{name: web, port: 80}]`

const telemetryOfGateway = `
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XTelemetryPolicy
metadata: {name: tracing}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]
  tracing:
    mode: Enabled
    provider: {backendRef: {name: collector, port: 4317}}
`

const telemetryOfRoute = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: telemetry}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: route}]
`

// sessionEdits are those of session persistence at a path, in the form of Gateway API v1.7.0.
func sessionEdits(at string) []fieldEdit {
	return []fieldEdit{
		{field: at, value: "{absoluteTimeout: 12h, cookie: {}}", of: ".absoluteTimeout", want: "absolute_timeout_nanos: 43200000000000"},
		{field: at, value: "{type: Header, header: {name: My-Session}}", of: ".type .header.name", want: "{name: My-Session, header: true"},
		{field: at, value: "{cookie: {name: pin}}", of: ".cookie.name", want: "{name: pin, path: /, source"},
		{field: at, value: "{cookie: {path: /app}}", of: ".cookie.path", want: "path: /app, source"},
		{field: at, value: "{absoluteTimeout: 1h, cookie: {lifetimeType: Permanent}}", of: ".cookie.lifetimeType", want: "permanent: true"},
	}
}

// externalAuthEdits are those of an ExternalAuth filter at a path, of protocol HTTP.
func externalAuthEdits(at string) []fieldEdit {
	return []fieldEdit{
		{field: at + ".protocol", value: "GRPC", want: at + ".http: it is for protocol HTTP, and protocol is GRPC", refused: true},
		{field: at + ".backendRef.group", value: "example.com", want: at + ".backendRef.kind: Service of group \"example.com\" cannot be a backend"},
		{field: at + ".backendRef.kind", value: "Odd", want: at + ".backendRef.kind: Odd of group \"\" cannot be a backend"},
		{field: at + ".backendRef.name", value: "auth2", want: "ExternalAuth: {backend: Service/default/auth2/80}"},
		{field: at + ".backendRef.namespace", value: "elsewhere", want: "False/RefNotPermitted " + at + ".backendRef.namespace: no ReferenceGrant permits the reference to Service elsewhere/auth"},
		{field: at + ".backendRef.port", value: "81", want: "ExternalAuth: {backend: Service/default/auth/81}"},
		{field: at + ".http.path", value: "/check", want: "ExternalAuth: {backend: Service/default/auth/80, path: /check}"},
		{field: at + ".http.allowedHeaders", value: "[X-Tenant]", want: "ExternalAuth: {backend: Service/default/auth/80, request_headers: [x-tenant]}"},
		{field: at + ".http.allowedResponseHeaders", value: "[X-User]", want: "ExternalAuth: {backend: Service/default/auth/80, response_headers: [x-user]}"},
		{field: at + ".forwardBody.maxSize", value: "1024", want: "ExternalAuth: {backend: Service/default/auth/80, max_body_bytes: 1024}"},
		{field: at, value: "{protocol: GRPC, backendRef: {name: auth, port: 81}, grpc: {allowedHeaders: [X-Tenant]}}", of: ".grpc.allowedHeaders",
			want: "ExternalAuth: {backend: Service/default/auth/81, grpc: true, authority: 'auth.default.svc:81', request_headers: [x-tenant]}"},
	}
}

// listenerFilterEdits are those of the filters of the first listener.
func listenerFilterEdits() []fieldEdit {
	const at = "spec.listeners[0].filters.requests"
	return append(externalAuthEdits(at+"[0].externalAuth"), []fieldEdit{
		{field: at + "[0].type", value: "RequestMirror", want: "False/UnsupportedValue " + at + "[0].type: filters of type RequestMirror are not supported", refused: true},
		{field: at + "[1].extensionRef.group", value: "example.com", want: "False/UnsupportedValue " + at + "[1].extensionRef.kind: HTTPFilter of group \"example.com\""},
		{field: at + "[1].extensionRef.kind", value: "Odd", want: "False/UnsupportedValue " + at + "[1].extensionRef.kind: Odd of group \"moongate.dev\""},
		{field: at + "[1].extensionRef.name", value: "mark2", want: "{name: X-Mark, value: \"2\"}"},
	}...)
}

// fieldSubjects are edited by TestFieldsHaveEffects.
var fieldSubjects = []fieldSubject{
	{object: trafficPolicyOfWeb, beside: odd, edits: []fieldEdit{
		{field: "spec.targetRefs[0].group", value: "multicluster.x-k8s.io", want: `False/Invalid spec.targetRefs[0].kind: Service of group "multicluster.x-k8s.io" cannot be a backend`},
		{field: "spec.targetRefs[0].kind", value: "ServiceImport", want: `False/Invalid spec.targetRefs[0].kind: ServiceImport of group "" cannot be a backend`},
		{field: "spec.targetRefs[0].name", value: "other", want: "Backend Service/default/other/80: {namespace: default, name: other, port: 80, retry_budget: {percent: 20"},
		{field: "spec.targetRefs[0].name", value: "gone", gone: "Backend Service/default/web/80: {namespace: default, name: web, port: 80, retry_budget:"},
		{field: "spec.retryConstraint.budget.percent", value: "35", want: "retry_budget: {percent: 35, interval_nanos: 10000000000"},
		{field: "spec.retryConstraint.budget.percent", value: "0", want: "retry_budget: {interval_nanos: 10000000000"},
		{field: "spec.retryConstraint.budget.interval", value: "1m", want: "percent: 20, interval_nanos: 60000000000"},
		{field: "spec.retryConstraint.budget.interval", value: "500ms", want: "False/Invalid spec.retryConstraint.budget.interval", refused: true},
		{field: "spec.retryConstraint.minRetryRate.count", value: "7", want: "min_retries: 7, min_interval_nanos: 1000000000"},
		{field: "spec.retryConstraint.minRetryRate.interval", value: "3s", want: "min_retries: 10, min_interval_nanos: 3000000000"},
		{field: "spec.retryConstraint.minRetryRate.interval", value: "2h", want: "False/Invalid spec.retryConstraint.minRetryRate.interval", refused: true},
		// The form of versions before v1.7.0.
		{field: "spec.sessionPersistence.sessionName", value: "pin", want: "session_persistence: {name: pin, path: /"},
		{field: "spec.sessionPersistence.absoluteTimeout", value: "12h", want: "absolute_timeout_nanos: 43200000000000"},
		{field: "spec.sessionPersistence.idleTimeout", value: "30m", want: "idle_timeout_nanos: 1800000000000"},
		{field: "spec.sessionPersistence.idleTimeout", value: "never", want: "False/Invalid spec.sessionPersistence.idleTimeout", refused: true},
		{field: "spec.sessionPersistence.type", value: "Header", want: "header: true"},
		{field: "spec.sessionPersistence", value: "{absoluteTimeout: 1h, cookieConfig: {lifetimeType: Permanent}}", of: ".cookieConfig.lifetimeType", want: "permanent: true"},
		{field: "spec.sessionPersistence.cookieConfig.lifetimeType", value: "Permanent", want: "False/Invalid spec.sessionPersistence.absoluteTimeout: a cookie of lifetimeType Permanent", refused: true},
		// The form of v1.7.0 has fields of its own, and makes itself known by them.
		{field: "spec.sessionPersistence.cookie.name", value: "pin", want: "session_persistence: {name: pin, path: /"},
		{field: "spec.sessionPersistence.cookie.path", value: "/app", want: "path: /app"},
		{field: "spec.sessionPersistence", value: "{absoluteTimeout: 1h, cookie: {lifetimeType: Permanent}}", of: ".cookie.lifetimeType", want: "permanent: true"},
		{field: "spec.sessionPersistence", value: "{type: Header, header: {name: My-Session}}", of: ".header.name", want: "session_persistence: {name: My-Session, header: true"},
	}},
	{object: listenerSetOfGateway, beside: listenerSetRoute, edits: []fieldEdit{
		{field: "spec.parentRef.group", value: "example.com", gone: "Listener default/gw/XListenerSet/default/set/more"},
		{field: "spec.parentRef.kind", value: "Mesh", gone: "Listener default/gw/XListenerSet/default/set/more"},
		{field: "spec.parentRef.name", value: "second", want: "False/NotAllowed spec.parentRef: Gateway default/second takes no ListenerSets"},
		{field: "spec.parentRef.namespace", value: "elsewhere", gone: "Listener default/gw/XListenerSet/default/set/more"},
		{field: "spec.listeners[0].name", value: "renamed", want: "Listener default/gw/XListenerSet/default/set/renamed"},
		{field: "spec.listeners[0].hostname", value: "h.example.com", want: "{effective: h.example.com}"},
		{field: "spec.listeners[0].port", value: "82", want: "port: 82, protocol: HTTP"},
		{field: "spec.listeners[0].protocol", value: "TCP", want: "port: 81, protocol: TCP"},
		{field: "spec.listeners[0].allowedRoutes.namespaces.from", value: "All", want: "Route HTTPRoute/blue/blue"},
		{field: "spec.listeners[0].allowedRoutes.namespaces", value: "{from: Selector, selector: {matchLabels: {team: blue}}}", of: ".selector.matchLabels", want: "Route HTTPRoute/blue/blue"},
		{field: "spec.listeners[0].allowedRoutes.namespaces", value: "{from: Selector, selector: {matchExpressions: [{key: team, operator: In, values: [blue]}]}}",
			of: ".selector.matchExpressions[].key .selector.matchExpressions[].values", want: "Route HTTPRoute/blue/blue"},
		{field: "spec.listeners[0].allowedRoutes.namespaces", value: "{from: Selector, selector: {matchExpressions: [{key: team, operator: NotIn, values: [red]}]}}",
			of: ".selector.matchExpressions[].operator", want: "Route HTTPRoute/blue/blue"},
		{field: "spec.listeners[0].allowedRoutes.kinds", value: "[{kind: GRPCRoute}]", of: "[].kind", want: "supportedKinds: [gateway.networking.k8s.io/GRPCRoute]"},
		{field: "spec.listeners[0].allowedRoutes.kinds", value: "[{group: example.com, kind: HTTPRoute}]", of: "[].group", want: `False/InvalidRouteKinds spec.listeners[0].allowedRoutes.kinds[0].kind: kind HTTPRoute of group "example.com"`},
		{field: "spec.listeners[1].tls.mode", value: "Passthrough", want: `False/UnsupportedValue spec.listeners[1].tls.mode: mode "Passthrough" cannot be used with protocol HTTPS`, refused: true},
		{field: "spec.listeners[1]", value: "{name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}", of: ".tls.mode", want: "port: 443, protocol: TLS_PASSTHROUGH"},
		{field: "spec.listeners[1].tls.options", value: `{moongate.dev/tls-min-version: "1.3"}`, want: "tls_options: {min_version: 772}"},
		{field: "spec.listeners[1].tls.certificateRefs[0].group", value: "example.com", want: `False/InvalidCertificateRef spec.listeners[1].tls.certificateRefs[0].kind: Secret of group "example.com"`},
		{field: "spec.listeners[1].tls.certificateRefs[0].kind", value: "ConfigMap", want: `False/InvalidCertificateRef spec.listeners[1].tls.certificateRefs[0].kind: ConfigMap of group ""`},
		{field: "spec.listeners[1].tls.certificateRefs[0].name", value: "cert2", want: "certificates: [Secret/default/cert2]"},
		{field: "spec.listeners[1].tls.certificateRefs[0].namespace", value: "elsewhere", want: "False/RefNotPermitted spec.listeners[1].tls.certificateRefs[0].namespace: no ReferenceGrant permits the reference to Secret elsewhere/cert"},
		// Its fields cannot have effects, whatever they name: the listener is not accepted.
		{field: "spec.listeners[1].tls.frontendValidation.caCertificateRefs", value: `[{group: "", kind: ConfigMap, name: ca, namespace: default}]`,
			of: "[].group [].kind [].name [].namespace", want: "False/UnsupportedValue spec.listeners[1].tls.frontendValidation: "},
	}},
	{object: selectingXBackend, edits: append(sessionEdits("spec.sessionPersistence"), []fieldEdit{
		{field: "spec.type", value: "ExternalHostname", want: "False/Invalid spec.externalHostname: there is no name of a host", refused: true},
		{field: "spec.port.number", value: "9090", want: "Backend XBackend/default/x/9090"},
		{field: "spec.endpointSelector.matchLabels", value: "{app: other}", want: `"Labels":{"app":"other"}`},
		{field: "spec.protocol", value: "H2C", want: "port: 8080, protocol: H2C"},
	}...)},
	{object: tlsXBackend, edits: []fieldEdit{
		{field: "spec.externalHostname.hostname", value: "other.example.com", want: "external_hostname: {name: other.example.com}"},
		{field: "spec.externalHostname.hostname", value: "web.default.svc.cluster.local", want: "False/Invalid spec.externalHostname.hostname", refused: true},
		{field: "spec.tls", value: "{mode: None}", of: ".mode", want: "True/Accepted requests to x.example.com are sent in cleartext"},
		{field: "spec.tls.validation.hostname", value: "other.example.com", want: "server_name: other.example.com"},
		{field: "spec.tls.validation.wellKnownCACertificates", value: "example.com/Own", want: "False/Invalid spec.tls.validation.wellKnownCACertificates"},
		{field: "spec.tls.validation", value: `{hostname: x.example.com, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}`, of: ".caCertificateRefs[].name", want: "tls: {server_name: x.example.com, authorities: ['sha256:67c0c01e"},
		{field: "spec.tls.validation", value: `{hostname: x.example.com, caCertificateRefs: [{group: example.com, kind: ConfigMap, name: ca}]}`, of: ".caCertificateRefs[].group", want: `spec.tls.validation.caCertificateRefs[0].kind: ConfigMap of group "example.com"`},
		{field: "spec.tls.validation", value: `{hostname: x.example.com, caCertificateRefs: [{group: "", kind: Service, name: ca}]}`, of: ".caCertificateRefs[].kind", want: `spec.tls.validation.caCertificateRefs[0].kind: Service of group ""`},
		{field: "spec.tls.validation.subjectAltNames", value: "[{type: Hostname, hostname: alt.example.com}]", of: "[].type [].hostname", want: "subject_alt_names: {asked_name: x.example.com, hostnames: [alt.example.com]}"},
		{field: "spec.tls.validation.subjectAltNames", value: `[{type: URI, uri: "spiffe://a/b"}]`, of: "[].type [].uri", want: "subject_alt_names: {asked_name: x.example.com, uris: ['spiffe://a/b']}"},
	}},
	{object: clientTLSXBackend, edits: []fieldEdit{
		{field: "spec.tls.clientCertificateRef.group", value: "example.com", want: `False/InvalidClientCertificateRef spec.tls.clientCertificateRef.kind: Secret of group "example.com"`},
		{field: "spec.tls.clientCertificateRef.kind", value: "ConfigMap", want: `False/InvalidClientCertificateRef spec.tls.clientCertificateRef.kind: ConfigMap of group ""`},
		{field: "spec.tls.clientCertificateRef.name", value: "cert2", want: "certificate: Secret/default/cert2"},
		{field: "spec.tls.clientCertificateRef.namespace", value: "elsewhere", want: "False/RefNotPermitted spec.tls.clientCertificateRef.namespace: no ReferenceGrant permits the reference to Secret elsewhere/cert"},
	}},
	{object: plainRoute, edits: sessionEdits("spec.rules[0].sessionPersistence")},
	{object: callRoute, edits: sessionEdits("spec.rules[0].sessionPersistence")},
	{object: authorizedRoute, edits: externalAuthEdits("spec.rules[0].filters[0].externalAuth")},
	{object: filteringGateway, edits: listenerFilterEdits()},
	{object: filteringListenerSet, edits: listenerFilterEdits()},
	{object: httpFilter, beside: httpFilterRoute, edits: []fieldEdit{
		{field: "spec.requestHeaders.set[0]", value: "{name: X-A, value: a}", of: ".name .value", want: "{name: X-A, value: a}"},
		{field: "spec.requestHeaders.add[0]", value: "{name: X-A, value: a}", of: ".name .value", want: "{name: X-A, value: a}"},
		{field: "spec.requestHeaders.remove", value: "[X-A]", want: "RequestHeaderModifier: {remove: [X-A]}"},
		{field: "spec.responseHeaders.set[0]", value: "{name: X-A, value: a}", of: ".name .value", want: "{name: X-A, value: a}"},
		{field: "spec.responseHeaders.add[0]", value: "{name: X-A, value: a}", of: ".name .value", want: "{name: X-A, value: a}"},
		{field: "spec.responseHeaders.remove", value: "[X-A]", want: "ResponseHeaderModifier: {remove: [X-A]}"},
	}},
	{object: telemetryOfGateway, edits: []fieldEdit{
		{field: "spec.targetRefs[0].group", value: "example.com", gone: "protocol: HTTP, tracing: {"},
		{field: "spec.targetRefs[0].kind", value: "HTTPRoute", gone: "protocol: HTTP, tracing: {"},
		{field: "spec.targetRefs[0].name", value: "second", want: "- ancestorRef: {group: gateway.networking.k8s.io, kind: Gateway, namespace: default, name: second}"},
		{field: "spec.tracing", value: "{mode: Disabled}", of: ".mode", gone: "protocol: HTTP, tracing: {"},
		{field: "spec.tracing.provider.backendRef.group", value: "example.com", want: `False/InvalidKind spec.tracing.provider.backendRef.kind: Service of group "example.com" cannot be a backend`},
		{field: "spec.tracing.provider.backendRef.kind", value: "Odd", want: `False/InvalidKind spec.tracing.provider.backendRef.kind: Odd of group "" cannot be a backend`},
		{field: "spec.tracing.provider.backendRef.name", value: "web", want: "False/BackendNotFound spec.tracing.provider.backendRef.port: Service default/web has no port 4317"},
		{field: "spec.tracing.provider.backendRef.namespace", value: "elsewhere", want: "False/RefNotPermitted spec.tracing.provider.backendRef.namespace: no ReferenceGrant permits the reference to Service elsewhere/collector"},
		{field: "spec.tracing.provider.backendRef.port", value: "4318", want: "tracing: {backend: Service/default/collector/4318/http2"},
		{field: "spec.tracing.provider.headers[0]", value: "{name: Authorization, value: Bearer t}", of: ".name .value", want: "{name: authorization, value: Bearer t}"},
		{field: "spec.tracing.samplingRate.numerator", value: "5", want: "sampling: {numerator: 5, denominator: 100}"},
		{field: "spec.tracing.samplingRate", value: "{numerator: 5, denominator: 1000}", of: ".denominator", want: "sampling: {numerator: 5, denominator: 1000}"},
		{field: "spec.tracing.parentBasedSampling.mode", value: "Disabled", want: "ignore_parent: true"},
		{field: "spec.tracing.parentBasedSampling", value: "{mode: Enabled, samplingRate: {numerator: 50}}", of: ".samplingRate.numerator", want: "sampled_parents: {numerator: 50, denominator: 100}"},
		{field: "spec.tracing.parentBasedSampling", value: "{mode: Enabled, samplingRate: {numerator: 50, denominator: 1000}}", of: ".samplingRate.denominator", want: "sampled_parents: {numerator: 50, denominator: 1000}"},
		{field: "spec.tracing.serviceName", value: "edge", want: "service_name: edge"},
		{field: "spec.tracing.spanName", value: "ingress", want: "span_name: ingress"},
		{field: "spec.tracing.attributes[0]", value: "{name: team, sourceType: Literal, literalValue: a}", of: ".name .sourceType .literalValue", want: "{name: team, literal: a}"},
		{field: "spec.tracing.attributes[0]", value: "{name: user, sourceType: Header, headerName: X-User}", of: ".headerName", want: "{name: user, header: x-user}"},
		{field: "spec.tracing.attributes[0]", value: "{name: verb, sourceType: Attribute, attributeKey: http.request.method}", of: ".attributeKey", want: "{name: verb, attribute: http.request.method}"},
	}},
	{object: telemetryOfRoute, edits: []fieldEdit{
		{field: "spec.telemetry.tracing.samplingFraction.numerator", value: "5", want: "tracing: {sampling: {numerator: 5, denominator: 100}}"},
		{field: "spec.telemetry.tracing.samplingFraction", value: "{numerator: 5, denominator: 1000}", of: ".denominator", want: "tracing: {sampling: {numerator: 5, denominator: 1000}}"},
		{field: "spec.telemetry.tracing.clientSamplingFraction.numerator", value: "5", want: "client_sampling: {numerator: 5, denominator: 100}"},
		{field: "spec.telemetry.tracing.clientSamplingFraction", value: "{numerator: 5, denominator: 1000}", of: ".denominator", want: "client_sampling: {numerator: 5, denominator: 1000}"},
		{field: "spec.telemetry.tracing.overallSamplingFraction.numerator", value: "5", want: "overall_sampling: {numerator: 5, denominator: 100}"},
		{field: "spec.telemetry.tracing.overallSamplingFraction", value: "{numerator: 5, denominator: 1000}", of: ".denominator", want: "overall_sampling: {numerator: 5, denominator: 1000}"},
		{field: "spec.telemetry.tracing.tags", value: `{user: "%REQ(X-User)%"}`, want: "- {request_header: x-user}"},
		{field: "spec.telemetry.tracing.customTags", value: "{team: {type: Literal, literal: {value: a}}}", want: "- {literal: a}"},
		{field: "spec.telemetry.tracing.customTags", value: "{pod: {type: Environment, environment: {name: POD_NAME, defaultValue: none}}}", want: "- {environment: POD_NAME, default_value: none}"},
		{field: "spec.telemetry.tracing.customTags", value: "{user: {type: RequestHeader, requestHeader: {name: X-User, defaultValue: nobody}}}", want: "- {request_header: x-user, default_value: nobody}"},
		{field: "spec.telemetry.tracing.spanName", value: `{client: "%PROTOCOL%", server: ""}`, of: ".client", want: "- {operator: PROTOCOL}"},
		{field: "spec.telemetry.tracing.spanName", value: `{client: "", server: egress}`, of: ".server", want: "spec.telemetry.tracing.spanName.server: it changes nothing"},
		{field: "spec.telemetry.metrics.routeStatName", value: `"%ROUTE_KIND% %ROUTE_NAME%"`, want: "route_stat_name: HTTPRoute route"},
	}},
}
