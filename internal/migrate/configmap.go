package migrate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// configMap is a ConfigMap of the input.
type configMap struct {
	*corev1.ConfigMap
	at    manifest.Position
	lines map[string]int // lines of keys
}

func (m *configMap) String() string { return "ConfigMap " + m.Namespace + "/" + m.Name }

// ofController reports whether the controller of ingress-nginx reads a ConfigMap with that name by default, as named by the chart
// and older manifests.
func (m *configMap) ofController() bool {
	return m.Name == "ingress-nginx-controller" || m.Name == "nginx-configuration" || (m.Labels["app.kubernetes.io/name"] == "ingress-nginx" && strings.HasSuffix(m.Name, "-controller"))
}

// global is what the controller's ConfigMap configures for all Ingresses. The zero value is not usable; see newGlobal.
type global struct {
	from       *configMap // nil if the input has none
	hsts       string     // the value of Strict-Transport-Security; "" if none
	redirect   int        // the status of redirects to HTTPS
	noAuth     []string   // path prefixes without authentication
	noRedirect []string   // path prefixes that are not redirected to HTTPS
	// defaults are the annotations for Ingresses without them, and the keys of the ConfigMap that set them.
	defaults map[string]string
	keys     map[string]string
	blocked  string // block-cidrs
	withheld string // why no backend may receive requests; "" if one may
	streams  string // why ports for TCP and UDP must not be open; "" if they may
	// forwarded is set if X-Forwarded-For contains the client when a proxy sends it, and trusted are the address ranges of these
	// proxies; empty if they are not known.
	forwarded bool
	trusted   []string
}

const challengePath = "/.well-known/acme-challenge"

func newGlobal() *global {
	return &global{hsts: "max-age=31536000; includeSubDomains", redirect: 308, noAuth: []string{challengePath}, noRedirect: []string{challengePath}, defaults: map[string]string{}, keys: map[string]string{}}
}

// annotationDefaults are the annotations for which keys of the ConfigMap set the default.
var annotationDefaults = func() map[string]string {
	all := map[string]string{"enable-owasp-modsecurity-crs": "enable-owasp-core-rules"}
	for name := range strings.FieldsSeq("url method signin signin-redirect-param response-headers request-redirect snippet cache-key cache-duration always-set-cookie") {
		all["global-auth-"+name] = "auth-" + name
	}
	for name := range strings.FieldsSeq(`proxy-body-size proxy-connect-timeout proxy-read-timeout proxy-send-timeout proxy-next-upstream proxy-next-upstream-timeout proxy-next-upstream-tries ssl-redirect
		force-ssl-redirect preserve-trailing-slash load-balance whitelist-source-range denylist-source-range use-port-in-redirects relative-redirects custom-http-errors upstream-hash-by upstream-hash-by-subset
		upstream-hash-by-subset-size service-upstream limit-rate limit-rate-after enable-modsecurity proxy-cookie-domain proxy-cookie-path proxy-redirect-from proxy-redirect-to proxy-request-buffering
		disable-proxy-intercept-errors`) {
		all[name] = name
	}
	return all
}()

// configWithoutEffect are the keys that do not change responses.
var configWithoutEffect = strings.Fields(`access-log-params access-log-path http-access-log-path stream-access-log-path enable-access-log-for-default-backend enable-auth-access-log error-log-path error-log-level
	disable-access-log disable-http-access-log disable-stream-access-log log-format-escape-none log-format-escape-json log-format-upstream log-format-stream skip-access-log-urls enable-syslog syslog-host syslog-port
	worker-cpu-affinity worker-processes worker-shutdown-timeout enable-serial-reloads enable-multi-accept max-worker-connections max-worker-open-files reuse-port enable-aio-write map-hash-bucket-size
	server-name-hash-max-size server-name-hash-bucket-size proxy-headers-hash-max-size proxy-headers-hash-bucket-size variables-hash-bucket-size variables-hash-max-size lua-shared-dicts debug-connections
	nginx-status-ipv4-whitelist nginx-status-ipv6-whitelist client-body-buffer-size proxy-buffering proxy-buffers-number proxy-buffer-size proxy-busy-buffers-size proxy-max-temp-file-size ssl-buffer-size
	upstream-keepalive-connections upstream-keepalive-time upstream-keepalive-timeout upstream-keepalive-requests disable-ipv6-dns enable-ocsp ssl-session-cache ssl-session-cache-size ssl-session-timeout
	limit-conn-zone-variable geoip2-autoreload-in-minutes grpc-buffer-size-kb`)

// configVerdicts are the keys that change responses and are not translated.
var configVerdicts = func() map[string]verdict {
	all := map[string]verdict{}
	for _, group := range []struct{ keys, message, remedy string }{
		{"use-forwarded-headers compute-full-forwarded-for forwarded-for-header forwarded-host-header forwarded-for-proxy-protocol-header enable-real-ip proxy-real-ip-cidr",
			"X-Forwarded-* fields of requests are believed of trusted proxies only, and the client's address is that of the connection else; limits and lists of addresses go by it. Where TLS ends at such a proxy, requests that came to it by HTTPS are redirected to HTTPS again and again, which nginx does not do that reads X-Forwarded-Proto", "name the ranges of the proxies before it in trustedProxies of GatewayParameters; where TLS ends there, set ssl-redirect to false and have the proxy redirect"},
		{"use-proxy-protocol proxy-protocol-header-timeout", "listeners expect no PROXY protocol, and answer connections that begin with it 400", "set ports[].proxyProtocol of GatewayParameters, and trustedProxies, before the load balancer leads to the Gateway"},
		{"block-user-agents block-referers", "requests are not refused by these fields, and reach backends: to answer all of them 500 would close the whole gateway", "refuse them in the application, or by an authorization server behind an ExternalAuth filter"},
		{"add-headers", "the ConfigMap that it names is not read, and responses have none of its fields", "write a ResponseHeaderModifier filter, or an HTTPFilter for several routes"},
		{"proxy-set-headers", "the ConfigMap that it names is not read, and requests have none of its fields", "write a RequestHeaderModifier filter, or an HTTPFilter for several routes"},
		{"hide-headers global-allowed-response-headers", "fields of responses are passed on as they are", "remove them by a ResponseHeaderModifier filter"},
		{"server-tokens allow-backend-server-header", "the field Server is that of the backend, if it has one", "set or remove it by a ResponseHeaderModifier filter"},
		{"main-snippet http-snippet server-snippet location-snippet stream-snippet modsecurity-snippet", snippet + ", and requests reach backends without what they do", "express what it does with filters and policies before requests come"},
		{"limit-req-status-code limit-conn-status-code", "what is over a limit is answered 429", "nothing, unless clients depend on the status"},
		{"use-gzip gzip-level gzip-types gzip-min-length gzip-disable enable-brotli brotli-level brotli-types brotli-min-length", "responses are not compressed by the gateway", "set compression in a BackendTrafficPolicy"},
		{"ssl-protocols ssl-ciphers ssl-ecdh-curve ssl-dh-param ssl-early-data ssl-session-tickets ssl-session-ticket-key", "settings of TLS are Moongate's", "set moongate.dev/tls-min-version and moongate.dev/tls-cipher-suites in tls.options of the listeners"},
		{"use-http2", "HTTP/2 is spoken by HTTPS", "set moongate.dev/alpn in tls.options of the listeners"},
		{"client-header-timeout client-body-timeout keep-alive", "timeouts of clients are Moongate's", "set requestHeadTimeout, requestBodyIdleTimeout and idleTimeout in ports of GatewayParameters"},
		{"keep-alive-requests client-header-buffer-size large-client-header-buffers http2-max-field-size http2-max-header-size http2-max-requests http2-max-concurrent-streams", "limits on connections and heads are Moongate's", "compare with docs/defaults.md"},
		{"enable-underscores-in-headers ignore-invalid-headers", "header fields with underscores are forwarded", "remove those that backends must not believe with a RequestHeaderModifier"},
		{"retry-non-idempotent", "retries are those of a BackendTrafficPolicy", "see docs/tasks/backend-retries.md"},
		{"proxy-add-original-uri-header", "backends do not get X-Original-URI", "see docs/tasks/headers.md"},
		{"generate-request-id", "each request gets a new X-Request-ID, in the place of that of a client", "set requestIDs: preserve in GatewayParameters, or --request-ids preserve of moongate run, to keep those of clients (docs/tasks/headers.md)"},
		{"app-root default-type", "has no counterpart for all hosts", "write it for each Ingress"},
		{"proxy-http-version", "backends are asked by HTTP/1.1", ""},
		{"proxy-stream-timeout proxy-stream-next-upstream proxy-stream-next-upstream-timeout proxy-stream-next-upstream-tries proxy-stream-responses", "connections by TCP and UDP have timeouts of Moongate's own, and are not retried elsewhere once they stand", "compare with docs/tasks/tcp.md and docs/tasks/udp.md"},
		{"disable-ipv6 bind-address-ipv4 bind-address-ipv6", "addresses are those of the Gateway", "set spec.addresses of the Gateway"},
		{"use-geoip2", "there is no GeoIP", "ask an authorization server, or have the application do it"},
		{"proxy-ssl-location-only", "TLS to backends is a matter of a BackendTLSPolicy", "docs/tasks/backend-tls.md"},
		{"enable-opentelemetry opentelemetry-config opentelemetry-operation-name opentelemetry-trust-incoming-span otlp-collector-host otlp-collector-port otel-service-name otel-sampler otel-sampler-ratio otel-sampler-parent-based otel-max-queuesize otel-schedule-delay-millis otel-max-export-batch-size",
			"tracing is set for a Gateway", "docs/tasks/tracing.md"},
		{"allow-snippet-annotations allow-cross-namespace-resources annotations-risk-level annotation-value-word-blocklist strict-validate-path-type", "which Ingresses or annotations the controller refuses is not considered: all are translated", "leave out those that it refuses, which its log names"},
	} {
		for key := range strings.FieldsSeq(group.keys) {
			all[key] = verdict{group.message, group.remedy}
		}
	}
	return all
}()

// readConfig finds the controller's ConfigMap, reads it, and reports all its keys.
func (c *converter) readConfig() {
	c.global = newGlobal()
	all := slices.Clone(c.input.configMaps)
	slices.SortStableFunc(all, func(a, b *configMap) int { return strings.Compare(a.String(), b.String()) })
	overlooked := false
	for _, m := range all {
		whole := Entry{Position: m.at, Object: m.String(), Field: "data", Outcome: NotTranslated}
		switch {
		case c.options.ConfigMap == "" && m.ofController() && !c.input.mayBeRead(m, c.options):
			whole.Message, whole.Remedy = "is not read, though it looks like that of the controller: "+c.whyUnread(), "name it by --configmap where the controller reads it"
			overlooked = true
			c.report = append(c.report, whole)
		case c.options.ConfigMap != "" && c.options.ConfigMap != m.Namespace+"/"+m.Name, c.options.ConfigMap == "" && !m.ofController():
		case c.global.from != nil:
			whole.Message, whole.Remedy = "is not read, since "+c.global.from.String()+" looks like that of the controller, too", "name the one by --configmap"
			c.report = append(c.report, whole)
		default:
			c.global.from = m
			if c.options.ConfigMap == "" {
				c.report = append(c.report, Entry{Position: m.at, Object: m.String(), Field: "metadata.name", Outcome: Approximated, Message: "is taken for that of the controller by its name, so that what it says holds for all Ingresses",
					Remedy: "make sure that the controller reads it; --configmap names one"})
			}
		}
	}
	if c.input.Unlisted != "" {
		c.report = append(c.report, Entry{Object: "ConfigMaps", Outcome: NotTranslated, Message: "cannot be read (" + c.input.Unlisted + "), so that what the controller's demands of all requests, such as global-auth-url, is not known", Remedy: "ask for the verb list on configmaps, or give the ConfigMap as input"})
	}
	if c.global.from == nil {
		const closed = "; so that nothing is open, all paths of all hosts are answered 500, and all ports for TCP and UDP are left out"
		if name := c.options.ConfigMap; slices.Contains(c.input.Asked, name) {
			c.report = append(c.report, Entry{Object: "ConfigMap " + name, Outcome: Approximated, Message: "does not exist in the cluster, so that defaults hold", Remedy: "make sure that the name is the one that the controller reads"})
		} else if name != "" {
			why := "what ConfigMap " + name + " demands of all requests is not known"
			c.global.withheld, c.global.streams = why, why
			c.report = append(c.report, Entry{Object: "ConfigMap " + name, Outcome: NotTranslated, Message: "is not in the input, and what it demands of all requests is not known" + closed, Remedy: "give it as input, too"})
		} else if c.controller == nil && (c.unread != nil || overlooked) {
			why := "which ConfigMap the controller reads is not known, nor what it demands of all requests"
			c.global.withheld, c.global.streams = why, why
			c.report = append(c.report, Entry{Object: "ConfigMaps", Field: "--configmap", Outcome: NotTranslated, Message: why + closed, Remedy: "name the ConfigMap by --configmap"})
		}
		return
	}
	c.global.trust()
	for _, key := range slices.Sorted(maps.Keys(c.global.from.Data)) {
		c.global.take(c, key, strings.TrimSpace(c.global.from.Data[key]))
	}
	if !boolean(c.global.from.Data["hsts"], true) {
		c.global.hsts = ""
	} else {
		c.global.hsts = "max-age=" + cmp.Or(strings.TrimSpace(c.global.from.Data["hsts-max-age"]), "31536000")
		if boolean(c.global.from.Data["hsts-include-subdomains"], true) {
			c.global.hsts += "; includeSubDomains"
		}
		if boolean(c.global.from.Data["hsts-preload"], false) {
			c.global.hsts += "; preload"
		}
	}
}

// trust determines whether X-Forwarded-For contains the client, and which proxies may set it. By default nginx trusts all clients.
// This is not translated, because any client could claim any address.
func (g *global) trust() {
	g.forwarded = boolean(g.from.Data["use-forwarded-headers"], false) || boolean(g.from.Data["enable-real-ip"], false)
	if !g.forwarded || strings.TrimSpace(g.from.Data["forwarded-for-header"]) != "" && !strings.EqualFold(strings.TrimSpace(g.from.Data["forwarded-for-header"]), "X-Forwarded-For") {
		return
	}
	ranges, bad := cidrs(g.from.Data["proxy-real-ip-cidr"])
	everybody := func(r string) bool { return strings.HasSuffix(r, "/0") }
	if bad == "" && !slices.ContainsFunc(ranges, everybody) && len(ranges) <= maxTrusted {
		g.trusted = distinct(ranges)
	}
}

// whyUnread returns why no ConfigMap is used as the controller's by its name alone.
func (c *converter) whyUnread() string {
	switch {
	case c.controller != nil:
		return c.controller.String() + " has no --configmap, and reads none"
	case c.unread != nil:
		return "it is not in the namespace of " + c.unread.String() + ", whose arguments are not known"
	}
	return "which controller serves the class is not known"
}

// take reads one key.
func (g *global) take(c *converter, key, value string) {
	say := func(outcome Outcome, message, remedy string) {
		c.report = append(c.report, Entry{Position: manifest.Position{File: g.from.at.File, Line: cmp.Or(g.from.lines[key], g.from.at.Line)}, Object: g.from.String(), Field: key, Outcome: outcome, Message: message, Remedy: remedy})
	}
	if annotation, ok := annotationDefaults[key]; ok {
		if value == "" {
			say(Translated, "is empty, and has no effect in ingress-nginx either", "")
			return
		}
		g.defaults[annotation], g.keys[annotation] = value, key
		say(Translated, "is the default of the annotation "+annotation+"; see the entries of Ingresses", "")
		return
	}
	switch key {
	case "hsts", "hsts-max-age", "hsts-include-subdomains", "hsts-preload":
		say(Translated, "Strict-Transport-Security is as it says", "")
	case "http-redirect-code":
		if code, err := strconv.Atoi(value); err == nil && slices.Contains([]int{301, 302, 307, 308}, code) {
			g.redirect = code
			say(Translated, "redirects to HTTPS have this status", "")
		} else {
			say(Translated, value+" is no status of redirects, and has no effect in ingress-nginx either", "")
		}
	case "no-auth-locations":
		g.noAuth = list(value)
		say(Translated, "these paths have no authentication", "")
	case "no-tls-redirect-locations":
		g.noRedirect = list(value)
		say(Translated, "these paths are not redirected to HTTPS", "")
	case "block-cidrs":
		g.blocked = value
		say(Translated, "these ranges are denylist-source-range of each Ingress without lists of addresses; see the entries of Ingresses", "")
	case "main-snippet", "http-snippet", "server-snippet", "location-snippet":
		context := httpSnippet
		if key == "main-snippet" {
			context = mainSnippet
		}
		if mayRefuse(value, context) {
			g.withheld = g.from.String() + ": a " + key + " that may refuse requests cannot be translated"
			left := ""
			if context == mainSnippet {
				g.streams, left = g.from.String()+" has a main-snippet that may refuse connections", ", and all ports for TCP and UDP are left out"
			}
			say(NotTranslated, "a snippet that may refuse requests cannot be translated; so that nothing is open, all paths of all hosts are answered 500"+left, "express what it does with filters and policies, then leave the key out")
			return
		}
		say(NotTranslated, configVerdicts[key].message, configVerdicts[key].remedy)
	case "stream-snippet":
		if mayRefuse(value, streamSnippet) {
			g.streams = g.from.String() + " has a stream-snippet that may refuse connections"
			say(NotTranslated, "a snippet that may refuse connections cannot be translated; so that nothing is open, all ports for TCP and UDP are left out", "have a firewall or NetworkPolicy do what it does, then leave the key out")
			return
		}
		say(NotTranslated, configVerdicts[key].message, configVerdicts[key].remedy)
	case "use-forwarded-headers", "enable-real-ip", "proxy-real-ip-cidr":
		v := configVerdicts[key]
		switch {
		case key != "proxy-real-ip-cidr" && !boolean(value, false):
			say(Translated, "as by default", "")
		case len(g.trusted) > 0:
			say(Approximated, "the ranges of proxy-real-ip-cidr are trustedProxies of GatewayParameters: X-Forwarded-* fields are believed of these proxies, and the client is the last address in X-Forwarded-For that is none of them. "+
				"Where TLS ends at such a proxy, requests that came to it by HTTPS are redirected to HTTPS again and again, which nginx does not do that reads X-Forwarded-Proto", "where TLS ends at the proxies, set ssl-redirect to false and have them redirect")
		default:
			say(NotTranslated, v.message, v.remedy)
		}
	case "ssl-reject-handshake":
		say(Translated, "handshakes for hosts without a certificate are ended anyway", "")
	default:
		v, known := configVerdicts[key]
		switch {
		case known:
			say(NotTranslated, v.message, v.remedy)
		case slices.Contains(configWithoutEffect, key):
			say(Translated, noEffect, "")
		default:
			say(NotTranslated, "is not a key documented for ingress-nginx 1.14", "check what it does")
		}
	}
}

// protects reports whether the ConfigMap keeps requests from backends.
func (g *global) protects() bool {
	return g.blocked != "" || g.defaults["auth-url"] != "" || g.defaults["whitelist-source-range"] != "" || g.defaults["denylist-source-range"] != ""
}

// withDefaults returns an Ingress with the annotations that the ConfigMap sets as defaults.
func (c *converter) withDefaults(ing *ingress) *ingress {
	g := c.global
	if g.from == nil || c.enabled(ing, "canary") {
		return ing
	}
	out := *ing
	out.Ingress = ing.DeepCopy()
	out.defaults = map[string]bool{}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	has := func(name string) bool { _, ok := ing.Annotations[prefix+name]; return ok }
	global := !has("auth-url") && g.defaults["auth-url"] != ""
	if !boolean(c.value(ing, "enable-global-auth"), true) {
		global = false
	}
	for name, value := range g.defaults {
		switch {
		case strings.HasPrefix(name, "auth-") && global: // these are used together, and only if the Ingress has none of them
		case has(name), name == "whitelist-source-range" && has("allowlist-source-range"):
			continue
		case strings.HasPrefix(name, "auth-"):
			continue
		}
		out.Annotations[prefix+name] = value
		out.defaults[name] = true
	}
	lists := []string{"denylist-source-range", "allowlist-source-range", "whitelist-source-range"}
	if g.blocked != "" && !slices.ContainsFunc(lists, func(name string) bool { return c.value(&out, name) != "" }) { // nginx applies it to all locations without such directives
		out.Annotations[prefix+"denylist-source-range"] = g.blocked
		out.defaults["denylist-source-range"] = true
	}
	return &out
}

func begins(path string, with []string) bool {
	return slices.ContainsFunc(with, func(p string) bool { return strings.HasPrefix(path, p) })
}
