package files

import "strings"

// unserved returns the remedy for a kind that routes or protects traffic and that Moongate does not read, "" for other kinds. Users
// who migrate from another gateway must not assume that its policies still protect them.
func unserved(apiVersion, kind string) (remedy string) {
	group, version, _ := strings.Cut(apiVersion, "/")
	if kind == "Ingress" && group == "networking.k8s.io" && version != "v1" {
		return oldIngress
	}
	if remedy = unservedKinds[kind+"."+group]; remedy != "" {
		return remedy
	}
	for _, suffix := range foreignGroups {
		if group == suffix || strings.HasSuffix(group, "."+suffix) {
			return "express the same with Gateway API objects and their policies"
		}
	}
	return ""
}

// replaced returns the remedy for a kind that is not applied to a cluster, but read by a tool that generates manifests from it, or
// from which a cluster creates objects that are read; "" for any other kind.
func replaced(apiVersion, kind string) (remedy string) {
	if apiVersion == "v1" && kind == "Endpoints" {
		return "the addresses of a Service are read from EndpointSlices, which a cluster makes of Endpoints; in files, write an EndpointSlice"
	}
	if group, _, _ := strings.Cut(apiVersion, "/"); kind == "Kustomization" && group == "kustomize.config.k8s.io" {
		return "to check what it makes: kubectl kustomize FOLDER | moongate check -"
	}
	return ""
}

// oldIngress is the remedy for an Ingress of a version that no supported cluster has, and that moongate migrate does not read.
const oldIngress = "write it as networking.k8s.io/v1 has it, of which moongate migrate translates those of ingress-nginx, else write a Gateway and an HTTPRoute instead"

// unservedKinds are those with a remedy of their own.
var unservedKinds = map[string]string{
	"ReferencePolicy.gateway.networking.k8s.io": "write apiVersion: gateway.networking.k8s.io/v1 and kind: ReferenceGrant; the fields are the same",
	"Ingress.networking.k8s.io":                 "moongate migrate translates those of ingress-nginx, else write a Gateway and an HTTPRoute instead",
	"Ingress.extensions":                        oldIngress,
	"HTTPRouteFilter.gateway.envoyproxy.io":     "use the filters of HTTPRoute rules, or an HTTPFilter of moongate.dev",
	"SecurityPolicy.gateway.envoyproxy.io": "use the ExternalAuth and CORS filters of HTTPRoute rules, or a GatewayListenerFilters filter for a whole listener; for what these do not have (JWT, OIDC, " +
		"API keys, basic authentication) the authorization server",
	"ClientTrafficPolicy.gateway.envoyproxy.io": "set timeouts, limits, PROXY protocol and trusted proxies of listeners in GatewayParameters",
	"EnvoyProxy.gateway.envoyproxy.io":          "configure the infrastructure of Gateways with GatewayParameters",
	"Backend.gateway.envoyproxy.io":             "use an XBackend of type ExternalHostname for a host, or a Service with an EndpointSlice for addresses",
	"CiliumEnvoyConfig.cilium.io":               "express the same with Gateway API objects and their policies",
	"CiliumClusterwideEnvoyConfig.cilium.io":    "express the same with Gateway API objects and their policies",
	"CiliumGatewayClassConfig.cilium.io":        "configure the infrastructure of Gateways with GatewayParameters",
	"VirtualService.networking.istio.io":        "write an HTTPRoute, a TLSRoute or a TCPRoute instead",
	"Gateway.networking.istio.io":               "write a Gateway of gateway.networking.k8s.io instead",
	"IngressRoute.traefik.io":                   "write an HTTPRoute instead",
	"HTTPProxy.projectcontour.io":               "write an HTTPRoute instead",
}

// foreignGroups are the API groups, including subdomains, whose kinds are for other gateways.
var foreignGroups = []string{
	"gateway.envoyproxy.io", "gateway.nginx.org", "k8s.nginx.org", "traefik.io", "traefik.containo.us", "networking.istio.io", "security.istio.io", "projectcontour.io",
	"configuration.konghq.com", "gateway-operator.konghq.com", "getambassador.io", "gateway.kgateway.dev", "agentgateway.dev", "solo.io", "apisix.apache.org", "kuadrant.io",
	"policy.linkerd.io", "networking.gke.io", "gateway.k8s.aws", "alb.networking.azure.io", "haproxy.org",
}
