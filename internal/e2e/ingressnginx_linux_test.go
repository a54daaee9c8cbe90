package e2e

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// ingressNginx writes the configuration that ingress-nginx's template (rootfs/etc/nginx/template/nginx.tmpl) makes of Ingresses, as far as the cases need it, for an nginx
// without Lua. It knows nothing of package migrate. What is Lua there stands here as follows:
//
//	balancer.lua, canary             map of header and cookie, and split_clients for the weight
//	lua_ingress.lua, ssl redirect    return 308 after the directives of the rewrite module but before rewrite ... break, as Lua runs last in that phase
//	lua_ingress.lua, HSTS            add_header on https
//	more_set_headers                 add_header ... always
//	default backend                  a server that answers 404
type ingressNginx struct {
	ingresses   []*networkingv1.Ingress // by age
	upstreams   map[string]int          // the port of each namespace/service
	ports       map[string]int          // the number of each namespace/service:port-name
	http, https int
	notFound    int    // port of the default backend
	certificate string // files
	key         string

	services      map[string]*serviceOf
	config        map[string]string // of the controller's ConfigMap
	arguments     map[string]string // of the controller
	classes       map[string]*networkingv1.IngressClass
	maps, servers strings.Builder
	n             int
}

const annotationPrefix = "nginx.ingress.kubernetes.io/"

func annotation(ing *networkingv1.Ingress, name string) string {
	return ing.Annotations[annotationPrefix+name]
}

func isOn(ing *networkingv1.Ingress, name string, byDefault bool) bool {
	on, err := strconv.ParseBool(annotation(ing, name))
	if err != nil {
		return byDefault
	}
	return on
}

type nginxLocation struct {
	path     string
	exact    bool
	ing      *networkingv1.Ingress
	service  string // namespace/name; "" is the default backend
	fallback bool
}

type nginxServer struct {
	host      string
	locations []nginxLocation
	tls       bool
	names     []string // of its certificate
	aliases   []string
	// clientCertificates says that requests by HTTPS need one.
	clientCertificates bool
}

func pathOf(p networkingv1.HTTPIngressPath) string {
	if p.Path == "" {
		return "/"
	}
	return p.Path
}

func isExact(p networkingv1.HTTPIngressPath) bool {
	return p.PathType != nil && *p.PathType == networkingv1.PathTypeExact
}

// certificateOf is extractTLSSecretName; a certificate has the names that stand beside its Secret.
func certificateOf(ing *networkingv1.Ingress, host string) []string {
	for _, exact := range []bool{true, false} {
		for _, t := range ing.Spec.TLS {
			if slices.Contains(t.Hosts, host) || (!exact && t.SecretName != "" && coveredBy(host, t.Hosts)) {
				return t.Hosts
			}
		}
	}
	return nil
}

func coveredBy(host string, names []string) bool {
	_, parent, _ := strings.Cut(host, ".")
	return slices.Contains(names, host) || slices.Contains(names, "*."+parent)
}

// serviceOf is what the controller knows of a Service: the first Ingress that names it, and the canaries that it has.
type serviceOf struct {
	first  *networkingv1.Ingress
	canary []string
}

func (c *ingressNginx) isCanary(service string) bool {
	s := c.services[service]
	return s != nil && isOn(s.first, "canary", false)
}

// configure gives an Ingress the defaults of the ConfigMap.
func (c *ingressNginx) configure(ing *networkingv1.Ingress) {
	if ing.Annotations == nil {
		ing.Annotations = map[string]string{}
	}
	set := func(name, value string) {
		if _, ok := ing.Annotations[annotationPrefix+name]; !ok && value != "" {
			ing.Annotations[annotationPrefix+name] = value
		}
	}
	for _, name := range []string{"proxy-body-size", "ssl-redirect", "force-ssl-redirect", "preserve-trailing-slash", "whitelist-source-range", "denylist-source-range", "proxy-read-timeout"} {
		set(name, c.config[name])
	}
	if annotation(ing, "auth-url") == "" && isOn(ing, "enable-global-auth", true) {
		set("auth-url", c.config["global-auth-url"])
		set("auth-response-headers", c.config["global-auth-response-headers"])
	}
}

// takes is GetIngressClass of the controller's store, and what its informers leave out.
func (c *ingressNginx) takes(ing *networkingv1.Ingress) bool {
	if ns := c.arguments["watch-namespace"]; ns != "" && ns != ing.Namespace {
		return false
	}
	if c.arguments["disable-catch-all"] != "" && ing.Spec.DefaultBackend != nil {
		return false
	}
	if ing.Spec.IngressClassName == nil { // admission plugin DefaultIngressClass
		for name, class := range c.classes {
			if _, annotated := ing.Annotations["kubernetes.io/ingress.class"]; !annotated && class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
				ing.Spec.IngressClassName = &name
			}
		}
	}
	if name := ing.Spec.IngressClassName; name != nil {
		if len(c.classes) == 0 {
			return *name == "nginx"
		}
		return c.classes[*name] != nil && c.classes[*name].Spec.Controller == "k8s.io/ingress-nginx"
	}
	if class, ok := ing.Annotations["kubernetes.io/ingress.class"]; ok {
		return class == "" || class == "nginx"
	}
	return c.arguments["watch-ingress-without-class"] != ""
}

// build is createUpstreams, createServers, getBackendServers, mergeAlternativeBackends and updateServerLocations of the controller.
func (c *ingressNginx) build() []*nginxServer {
	slices.SortStableFunc(c.ingresses, func(a, b *networkingv1.Ingress) int { // sortIngressSlice
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(b.Namespace+"/"+b.Name, a.Namespace+"/"+a.Name))
	})
	c.ingresses = slices.DeleteFunc(c.ingresses, func(ing *networkingv1.Ingress) bool { return !c.takes(ing) })
	for _, ing := range c.ingresses {
		if other := c.arguments["annotations-prefix"]; other != "" {
			renamed := map[string]string{}
			for name, value := range ing.Annotations {
				if short, ok := strings.CutPrefix(name, other+"/"); ok {
					renamed[annotationPrefix+short] = value
				}
			}
			ing.Annotations = renamed
		}
		c.configure(ing)
	}
	c.services = map[string]*serviceOf{}
	for _, ing := range c.ingresses {
		if b := ing.Spec.DefaultBackend; b != nil {
			c.services[ing.Namespace+"/"+b.Service.Name] = &serviceOf{first: ing}
		}
		for _, rule := range ing.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			for _, p := range rule.HTTP.Paths {
				if name := ing.Namespace + "/" + p.Backend.Service.Name; c.services[name] == nil {
					c.services[name] = &serviceOf{first: ing}
				}
			}
		}
	}
	defaultServer := &nginxServer{host: "", locations: []nginxLocation{{path: "/", fallback: true}}}
	servers := []*nginxServer{defaultServer}
	find := func(host string) *nginxServer {
		for _, s := range servers {
			if s.host == host {
				return s
			}
		}
		return nil
	}
	for _, ing := range c.ingresses {
		if isOn(ing, "canary", false) {
			continue
		}
		fallback := ""
		if ing.Spec.DefaultBackend != nil {
			fallback = ing.Namespace + "/" + ing.Spec.DefaultBackend.Service.Name
			if len(ing.Spec.Rules) == 0 && defaultServer.locations[0].fallback {
				only := ing.DeepCopy() // without its redirects and rewrites
				for _, name := range []string{"rewrite-target", "use-regex", "app-root", "permanent-redirect", "temporal-redirect", "force-ssl-redirect", "from-to-www-redirect"} {
					delete(only.Annotations, annotationPrefix+name)
				}
				defaultServer.locations[0] = nginxLocation{path: "/", ing: only, service: fallback}
			}
		}
		for _, rule := range ing.Spec.Rules {
			s := find(rule.Host)
			if s == nil {
				s = &nginxServer{host: rule.Host, locations: []nginxLocation{{path: "/", ing: ing, service: fallback, fallback: true}}}
				servers = append(servers, s)
			}
			if rule.Host != "" && len(ing.Spec.TLS) > 0 && !s.tls {
				s.tls, s.names = true, certificateOf(ing, rule.Host)
			}
			if len(s.aliases) == 0 && annotation(ing, "server-alias") != "" {
				s.aliases = strings.FieldsFunc(annotation(ing, "server-alias"), func(r rune) bool { return r == ',' || r == ' ' })
			}
		}
	}
	for _, s := range servers {
		s.aliases = slices.DeleteFunc(s.aliases, func(alias string) bool { return find(alias) != nil })
	}
	for _, ing := range c.ingresses {
		for _, rule := range ing.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			s := find(rule.Host)
			if s == nil {
				s = defaultServer
			}
			if annotation(ing, "auth-tls-secret") != "" {
				s.clientCertificates = true
			}
			for _, p := range rule.HTTP.Paths {
				if p.Backend.Service == nil || c.isCanary(ing.Namespace+"/"+p.Backend.Service.Name) {
					continue
				}
				l := nginxLocation{path: pathOf(p), exact: isExact(p), ing: ing, service: ing.Namespace + "/" + p.Backend.Service.Name}
				i := slices.IndexFunc(s.locations, func(o nginxLocation) bool { return o.path == l.path && o.exact == l.exact })
				if i < 0 {
					s.locations = append(s.locations, l)
				} else if s.locations[i].fallback {
					s.locations[i] = l
				}
			}
		}
	}
	for _, ing := range c.ingresses {
		if !isOn(ing, "canary", false) {
			continue
		}
		for _, rule := range ing.Spec.Rules {
			s := find(rule.Host)
			for _, p := range rule.HTTP.Paths {
				name := ing.Namespace + "/" + p.Backend.Service.Name
				if s == nil || c.services[name] == nil {
					continue
				}
				merged, same := false, false
				for _, l := range s.locations {
					if same = l.service == name; same {
						break
					}
					if l.service != "" && c.services[l.service] != nil && !c.isCanary(l.service) && l.path == p.Path && l.exact == isExact(p) {
						merged = true
						c.services[l.service].canary = append(c.services[l.service].canary, name)
					}
				}
				if !merged && !same {
					delete(c.services, name)
				}
			}
		}
	}
	for _, s := range servers {
		slices.SortStableFunc(s.locations, func(a, b nginxLocation) int { return strings.Compare(b.path, a.path) })
		slices.SortStableFunc(s.locations, func(a, b nginxLocation) int { return len(b.path) - len(a.path) })
		var split []nginxLocation
		for _, l := range s.locations {
			if l.path == "/" || l.exact || (l.ing != nil && (needsRewrite(l) || isOn(l.ing, "use-regex", false))) {
				split = append(split, l)
				continue
			}
			prefix, exact := l, l
			prefix.path = strings.TrimSuffix(l.path, "/") + "/"
			exact.exact = true
			split = append(split, prefix)
			if !slices.ContainsFunc(s.locations, func(o nginxLocation) bool { return o.exact && o.path == l.path }) {
				split = append(split, exact)
			}
		}
		s.locations = split
	}
	return servers
}

func needsRewrite(l nginxLocation) bool {
	target := annotation(l.ing, "rewrite-target")
	return target != "" && target != l.path
}

// upstreamOf is a variable or name for proxy_pass: the location's Service, or the canary that takes a part of its requests.
func (c *ingressNginx) upstreamOf(l nginxLocation) string {
	name := func(service string) string { return strings.NewReplacer("/", "_", "-", "_").Replace("up_" + service) }
	if l.service == "" {
		return "default_backend"
	}
	if known := c.services[l.service]; known != nil && len(known.canary) > 0 {
		if canary := known.canary[0]; c.services[canary] != nil && c.isCanary(canary) {
			return c.canaryMap(c.services[canary].first, name(l.service), name(canary))
		}
	}
	return name(l.service)
}

func (c *ingressNginx) canaryMap(ing *networkingv1.Ingress, primary, canary string) string {
	c.n++
	variable := func(kind string) string { return fmt.Sprintf("$canary_%s_%d", kind, c.n) }
	total := 100
	if n, err := strconv.Atoi(annotation(ing, "canary-weight-total")); err == nil && n > 100 {
		total = n
	}
	weight, _ := strconv.Atoi(annotation(ing, "canary-weight"))
	switch share := float64(weight) * 100 / float64(total); {
	case share >= 100:
		fmt.Fprintf(&c.maps, "map $host %s { default %s; }\n", variable("weight"), canary)
	case share <= 0:
		fmt.Fprintf(&c.maps, "map $host %s { default %s; }\n", variable("weight"), primary)
	default:
		fmt.Fprintf(&c.maps, "split_clients $request_id %s { %.2f%% %s; * %s; }\n", variable("weight"), share, canary, primary)
	}
	next := variable("weight")
	if cookie := annotation(ing, "canary-by-cookie"); cookie != "" {
		fmt.Fprintf(&c.maps, "map $cookie_%s %s { always %s; never %s; default %s; }\n", cookie, variable("cookie"), canary, primary, next)
		next = variable("cookie")
	}
	if header := annotation(ing, "canary-by-header"); header != "" {
		h := strings.ToLower(strings.ReplaceAll(header, "-", "_"))
		choices := fmt.Sprintf("always %s; never %s;", canary, primary)
		if v := annotation(ing, "canary-by-header-value"); v != "" {
			choices = fmt.Sprintf("%q %s;", "~^"+regexp.QuoteMeta(v)+"$", canary)
		} else if v := annotation(ing, "canary-by-header-pattern"); v != "" {
			choices = fmt.Sprintf("%q %s;", "~"+v, canary)
		}
		fmt.Fprintf(&c.maps, "map $http_%s %s { %s default %s; }\n", h, variable("header"), choices, next)
		next = variable("header")
	}
	return next
}

func (c *ingressNginx) server(s *nginxServer) {
	w := &c.servers
	name := s.host
	if strings.HasPrefix(name, "*.") { // buildServerName
		name = `~^(?<subdomain>[\w-]+)\.` + strings.ReplaceAll(name[2:], ".", `\.`) + "$"
	}
	defaults := ""
	if s.host == "" {
		name, defaults = "_", " default_server"
	}
	fmt.Fprintf(w, "server {\n server_name %q", name)
	for _, alias := range s.aliases {
		fmt.Fprintf(w, " %q", strings.TrimSpace(alias))
	}
	fmt.Fprintf(w, ";\n listen 127.0.0.1:%d%s;\n", c.http, defaults)
	// buildHTTPSListener: by HTTPS, too, whether it has a certificate or not
	fmt.Fprintf(w, " listen 127.0.0.1:%d ssl%s;\n ssl_certificate %s;\n ssl_certificate_key %s;\n", c.https, defaults, c.certificate, c.key)
	if s.clientCertificates {
		fmt.Fprintf(w, " ssl_client_certificate %s;\n ssl_verify_client on;\n", c.certificate)
	}
	if s.host == "" {
		w.WriteString(" location /healthz { return 200; }\n")
	}
	fmt.Fprintf(w, " %s\n", c.config["server-snippet"])
	regex := slices.ContainsFunc(s.locations, func(l nginxLocation) bool {
		return l.ing != nil && (needsRewrite(l) || isOn(l.ing, "use-regex", false))
	})
	appRoot := ""
	for _, l := range s.locations {
		if l.ing != nil && annotation(l.ing, "app-root") != "" && appRoot == "" {
			appRoot = annotation(l.ing, "app-root")
			fmt.Fprintf(w, " if ($uri = /) { return 302 $scheme://$http_host%s; }\n", appRoot)
		}
	}
	for _, l := range s.locations {
		c.location(s, l, regex)
	}
	w.WriteString("}\n")
	if !slices.ContainsFunc(s.locations, func(l nginxLocation) bool { return l.ing != nil && isOn(l.ing, "from-to-www-redirect", false) }) {
		return
	}
	from, ok := strings.CutPrefix(s.host, "www.") // ngx_srv_redirect.lua
	if !ok {
		from = "www." + s.host
	}
	fmt.Fprintf(w, "server {\n server_name %q;\n listen 127.0.0.1:%d;\n listen 127.0.0.1:%d ssl;\n ssl_certificate %s;\n ssl_certificate_key %s;\n return 308 $scheme://%s:$server_port$uri_without_slash;\n}\n", from, c.http, c.https, c.certificate, c.key, s.host)
}

// location is the block of the template, in its order.
func (c *ingressNginx) location(s *nginxServer, l nginxLocation, regex bool) {
	ing := l.ing
	if ing == nil {
		ing = new(networkingv1.Ingress)
	}
	w := &c.servers
	c.n++
	challenge := strings.HasPrefix(l.path, "/.well-known/acme-challenge")
	authPath := ""
	if u := annotation(ing, "auth-url"); u != "" && !challenge {
		authPath = fmt.Sprintf("/_external-auth-%d", c.n)
		parsed, _ := url.Parse(u)
		parts := strings.Split(parsed.Hostname(), ".")
		fmt.Fprintf(w, " location = %s { internal; proxy_pass_request_body off; proxy_set_header Content-Length \"\"; proxy_set_header X-Forwarded-Proto \"\"; proxy_set_header Host %s; "+
			"proxy_set_header X-Original-URL $scheme://$http_host$request_uri; proxy_set_header X-Original-Method $request_method; proxy_pass http://up_%s_%s%s; }\n", authPath, parsed.Hostname(), parts[1], parts[0], parsed.Path)
	}
	quoted := strconv.Quote(l.path)
	switch { // buildLocation
	case regex:
		quoted = `~* "^` + l.path + `"`
	case l.exact:
		quoted = `= ` + quoted
	}
	fmt.Fprintf(w, " location %s {\n", quoted)
	for _, deny := range strings.FieldsFunc(annotation(ing, "denylist-source-range"), func(r rune) bool { return r == ',' }) {
		fmt.Fprintf(w, "  deny %s;\n", strings.TrimSpace(deny))
	}
	if allow := annotation(ing, "whitelist-source-range") + annotation(ing, "allowlist-source-range"); allow != "" {
		for a := range strings.SplitSeq(allow, ",") {
			fmt.Fprintf(w, "  allow %s;\n", strings.TrimSpace(a))
		}
		w.WriteString("  deny all;\n")
	}
	if isOn(ing, "enable-cors", false) {
		c.cors(ing)
	}
	if authPath != "" {
		fmt.Fprintf(w, "  auth_request %s;\n  auth_request_set $auth_cookie $upstream_http_set_cookie;\n  add_header Set-Cookie $auth_cookie;\n", authPath)
		for i, h := range strings.FieldsFunc(annotation(ing, "auth-response-headers"), func(r rune) bool { return r == ',' || r == ' ' }) {
			fmt.Fprintf(w, "  auth_request_set $authHeader%d_%d $upstream_http_%s;\n  proxy_set_header %s $authHeader%d_%d;\n", c.n, i, strings.ToLower(strings.ReplaceAll(h, "-", "_")), h, c.n, i)
		}
	}
	if annotation(ing, "auth-type") == "basic" && !challenge {
		w.WriteString("  auth_basic realm;\n  auth_basic_user_file /dev/null;\n")
	}
	for name, rate := range map[string]string{"limit-rps": "r/s", "limit-rpm": "r/m"} {
		if n, err := strconv.Atoi(annotation(ing, name)); err == nil && n > 0 {
			burst := 5
			if m, err := strconv.Atoi(annotation(ing, "limit-burst-multiplier")); err == nil {
				burst = m
			}
			fmt.Fprintf(&c.maps, "limit_req_zone $binary_remote_addr zone=limit%d%s:1m rate=%d%s;\n", c.n, name, n, rate)
			fmt.Fprintf(w, "  limit_req zone=limit%d%s burst=%d nodelay;\n  limit_req_status 503;\n", c.n, name, n*burst)
		}
	}
	size := "1m"
	if v := annotation(ing, "proxy-body-size"); v != "" {
		size = v
	}
	fmt.Fprintf(w, "  client_max_body_size %s;\n", size)
	host := "$http_host"
	if v := annotation(ing, "upstream-vhost"); v != "" {
		host = strconv.Quote(v)
	}
	fmt.Fprintf(w, "  proxy_set_header Host %s;\n  proxy_set_header Upgrade $http_upgrade;\n  proxy_set_header Connection $connection_upgrade;\n  proxy_set_header X-Forwarded-For $remote_addr;\n"+
		"  proxy_set_header X-Forwarded-Host $http_host;\n  proxy_set_header X-Forwarded-Proto $scheme;\n  proxy_set_header X-Real-IP $remote_addr;\n  proxy_set_header Proxy \"\";\n  proxy_http_version 1.1;\n  proxy_redirect off;\n  proxy_buffering off;\n  port_in_redirect off;\n", host)
	if n, err := strconv.Atoi(annotation(ing, "proxy-read-timeout")); err == nil {
		fmt.Fprintf(w, "  proxy_read_timeout %ds;\n", n)
	}
	if v := annotation(ing, "proxy-next-upstream"); v != "" {
		fmt.Fprintf(w, "  proxy_next_upstream %s;\n", v)
	}
	w.WriteString("  add_header Strict-Transport-Security $hsts always;\n")
	fmt.Fprintf(w, "  %s\n", c.config["location-snippet"])
	if v := annotation(ing, "configuration-snippet"); v != "" {
		fmt.Fprintf(w, "  %s\n", v)
	}
	redirected := false
	if v := annotation(ing, "temporal-redirect"); v != "" {
		fmt.Fprintf(w, "  return %s %s;\n", orDefault(annotation(ing, "temporal-redirect-code"), "302"), v)
		redirected = true
	} else if v := annotation(ing, "permanent-redirect"); v != "" {
		fmt.Fprintf(w, "  return %s %s;\n", orDefault(annotation(ing, "permanent-redirect-code"), "301"), v)
		redirected = true
	}
	if force := isOn(ing, "force-ssl-redirect", false); !redirected && !challenge && l.ing != nil && (force || (isOn(ing, "ssl-redirect", true) && len(ing.Spec.Rules) > 0)) {
		uri := "$uri_without_slash"
		if isOn(ing, "preserve-trailing-slash", false) {
			uri = "$request_uri"
		}
		when := "$http_with_certificate"
		if force {
			when = "$http_only"
		}
		fmt.Fprintf(w, "  if (%s) { return %s https://$host%s; }\n", when, orDefault(c.config["http-redirect-code"], "308"), uri)
	}
	if l.ing != nil && needsRewrite(l) {
		fmt.Fprintf(w, "  rewrite \"(?i)%s\" %s break;\n", l.path, annotation(ing, "rewrite-target"))
		if v := annotation(ing, "x-forwarded-prefix"); v != "" {
			fmt.Fprintf(w, "  proxy_set_header X-Forwarded-Prefix %q;\n", v)
		}
	}
	if strings.HasSuffix(l.service, "/empty") { // balancer.lua, of a Service without endpoints
		w.WriteString("  return 503;\n")
	}
	fmt.Fprintf(w, "  proxy_pass http://%s;\n }\n", c.upstreamOf(l))
}

func orDefault(s, byDefault string) string {
	if s == "" {
		return byDefault
	}
	return s
}

// cors is the template CORS. A variable takes the place of what more_set_headers does within "if".
func (c *ingressNginx) cors(ing *networkingv1.Ingress) {
	w := &c.servers
	fmt.Fprintf(w, "  set $cors ''; set $acao ''; set $acac ''; set $acam ''; set $acah ''; set $aceh ''; set $acma '';\n")
	origins := orDefault(annotation(ing, "cors-allow-origin"), "*")
	acao := "$http_origin"
	if origins == "*" {
		acao = "*"
		w.WriteString("  set $cors true;\n")
	} else {
		var any []string
		for o := range strings.SplitSeq(origins, ",") {
			any = append(any, "("+strings.Replace(regexp.QuoteMeta(strings.TrimSpace(o)), `\*`, `[A-Za-z0-9\-]+`, 1)+")")
		}
		fmt.Fprintf(w, "  if ($http_origin ~* (%s)$ ) { set $cors true; }\n", strings.Join(any, "|"))
	}
	credentials := orDefault(annotation(ing, "cors-allow-credentials"), "true")
	if credentials != "true" {
		credentials = ""
	}
	methods := orDefault(annotation(ing, "cors-allow-methods"), "GET, PUT, POST, DELETE, PATCH, OPTIONS")
	headers := orDefault(annotation(ing, "cors-allow-headers"), "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization")
	expose, age := annotation(ing, "cors-expose-headers"), orDefault(annotation(ing, "cors-max-age"), "1728000")
	fmt.Fprintf(w, "  if ($cors = true) { set $acao %s; set $acac '%s'; set $acam '%s'; set $acah '%s'; set $aceh '%s'; set $acma '%s'; }\n", acao, credentials, methods, headers, expose, age)
	w.WriteString("  if ($request_method = OPTIONS) { set $cors ${cors}options; }\n")
	add := "add_header Access-Control-Allow-Origin $acao always; add_header Access-Control-Allow-Credentials $acac always; add_header Access-Control-Allow-Methods $acam always; " +
		"add_header Access-Control-Allow-Headers $acah always; add_header Access-Control-Expose-Headers $aceh always; add_header Access-Control-Max-Age $acma always;"
	fmt.Fprintf(w, "  %s\n  if ($cors = trueoptions) { %s return 204; }\n", add, add)
}

// start writes the configuration and runs nginx with it until the test ends.
func (c *ingressNginx) start(t *testing.T) {
	t.Helper()
	binary, err := exec.LookPath("nginx")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatalf("%v: install Debian's package nginx (make nginx)", err)
		}
	}
	servers := c.build()
	slices.SortFunc(servers, func(a, b *nginxServer) int { return strings.Compare(a.host, b.host) })
	for _, s := range servers {
		c.server(s)
	}
	dir := t.TempDir()
	var conf strings.Builder
	fmt.Fprintf(&conf, "daemon off;\nworker_processes 1;\npid %[1]s/pid;\nerror_log stderr crit;\nevents { worker_connections 256; }\nhttp {\naccess_log off;\nclient_body_buffer_size 8m; # so that nothing is written to files, which workers of another user cannot\nclient_body_temp_path %[1]s/body;\nproxy_temp_path %[1]s/proxy;\n"+
		"fastcgi_temp_path %[1]s/f;\nuwsgi_temp_path %[1]s/u;\nscgi_temp_path %[1]s/s;\nmap_hash_bucket_size 512;\nserver_names_hash_bucket_size 512;\nvariables_hash_max_size 4096;\n", dir)
	hsts := "max-age=" + orDefault(c.config["hsts-max-age"], "31536000")
	if c.config["hsts-include-subdomains"] != "false" {
		hsts += "; includeSubDomains"
	}
	if c.config["hsts"] == "false" {
		hsts = ""
	}
	for cidr := range strings.FieldsFuncSeq(c.config["block-cidrs"], func(r rune) bool { return r == ',' }) {
		fmt.Fprintf(&conf, "deny %s;\n", cidr)
	}
	fmt.Fprintf(&conf, "%s\n", c.config["http-snippet"])
	fmt.Fprintf(&conf, "map $scheme $hsts { https '%s'; default ''; }\n", hsts)
	conf.WriteString("map $request_uri $uri_without_slash { ~^(?<u>.*)/$ $u; default $request_uri; }\nmap $http_upgrade $connection_upgrade { default upgrade; '' ''; }\n")
	conf.WriteString("map $host $has_certificate {\n default '';\n") // certificate.lua: configured_for_current_request
	for _, s := range servers {
		if parent, ok := strings.CutPrefix(s.host, "*"); ok && s.tls {
			fmt.Fprintf(&conf, " \"~^[^.]+%s$\" 1;\n", regexp.QuoteMeta(parent))
		} else if s.tls {
			fmt.Fprintf(&conf, " %q 1;\n", s.host)
		}
		for _, alias := range s.aliases {
			if s.tls && coveredBy(alias, s.names) {
				fmt.Fprintf(&conf, " %q 1;\n", alias)
			}
		}
	}
	conf.WriteString("}\nmap $scheme $http_only { http 1; default ''; }\nmap $scheme$has_certificate $http_with_certificate { http1 1; default ''; }\n")
	for service, port := range c.upstreams {
		fmt.Fprintf(&conf, "upstream %s { server 127.0.0.1:%d; }\n", strings.NewReplacer("/", "_", "-", "_").Replace("up_"+service), port)
	}
	fmt.Fprintf(&conf, "upstream default_backend { server 127.0.0.1:%d; }\nserver { listen 127.0.0.1:%d; location / { return 404; } }\n", c.notFound, c.notFound)
	conf.WriteString(c.maps.String() + c.servers.String() + "}\n")
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary, "-t", "-q", "-c", path, "-p", dir, "-e", "stderr").CombinedOutput(); err != nil {
		t.Fatalf("nginx refuses the configuration: %v\n%s\n%s", err, out, conf.String())
	}
	log := &testkit.Log{}
	cmd := exec.Command(binary, "-c", path, "-p", dir, "-e", "stderr")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended
		cmd.Wait()                       //nolint:errcheck // that it was ended is known
	})
	testkit.Eventually(t, "nginx answers", func() bool {
		_, err := ask{url: local(c.notFound, "/")}.try()
		return err == nil
	})
}
