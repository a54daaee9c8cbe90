{{/* Rules for what is in no namespace. */}}
{{- define "moongate.clusterRules" -}}
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses/status]
  verbs: [patch]
# The finalizer of a GatewayClass that a Gateway uses.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses]
  verbs: [patch]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
# The zones of the nodes that proxies run on.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
- apiGroups: [certificates.k8s.io]
  resources: [clustertrustbundles]
  verbs: [list, watch]
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
# The keys that the tokens of proxies are verified with.
- nonResourceURLs: [/.well-known/openid-configuration, /openid/v1/jwks]
  verbs: [get]
{{- end }}

{{/* Rules for what is in the namespaces that are watched. */}}
{{- define "moongate.namespaceRules" -}}
# What is translated. An object is read by itself where the write of its status met
# another's. Of Secrets only those are fetched that a listener or a policy refers to,
# but which these are is known at run time only.
- apiGroups: [gateway.networking.k8s.io]
  resources:
    - backendtlspolicies
    - gateways
    - grpcroutes
    - httproutes
    - listenersets
    - tcproutes
    - tlsroutes
    - udproutes
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [referencegrants]
  verbs: [list, watch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackends, xbackendtrafficpolicies, xlistenersets, xtelemetrypolicies]
  verbs: [get, list, watch]
- apiGroups: [gateway.envoyproxy.io]
  resources: [backendtrafficpolicies]
  verbs: [get, list, watch]
- apiGroups: [moongate.dev]
  resources: [gatewayparameters]
  verbs: [get, list, watch]
- apiGroups: [moongate.dev]
  resources: [httpfilters]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
# What is said of it.
- apiGroups: [gateway.networking.k8s.io]
  resources:
    - backendtlspolicies/status
    - gateways/status
    - grpcroutes/status
    - httproutes/status
    - listenersets/status
    - tcproutes/status
    - tlsroutes/status
    - udproutes/status
  verbs: [patch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackends/status, xbackendtrafficpolicies/status, xlistenersets/status, xtelemetrypolicies/status]
  verbs: [patch]
- apiGroups: [gateway.envoyproxy.io]
  resources: [backendtrafficpolicies/status]
  verbs: [patch]
- apiGroups: [moongate.dev]
  resources: [gatewayparameters/status]
  verbs: [patch]
# What runs a Gateway, in the Gateway's namespace, and Services of XBackends.
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments, daemonsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# What has become of these objects, for people; a repetition is written into the Event that there is.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# To own these objects in the Gateway's name, where owner references are guarded.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways/finalizers]
  verbs: [update]
{{- end }}

{{/* The namespaces that are watched, as JSON; none for all. The class's GatewayParameters are in the release's. */}}
{{- define "moongate.watched" -}}
{{- $all := .Values.watchNamespaces | default list }}
{{- if and $all .Values.gatewayClass.enabled .Values.gatewayClass.parameters }}
{{- $all = append $all .Release.Namespace }}
{{- end }}
{{- $all | uniq | sortAlpha | toJson }}
{{- end }}
