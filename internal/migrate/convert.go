package migrate

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Options configures the conversion. The zero value is not usable: GatewayClass and Class must be set.
type Options struct {
	// Class is the IngressClass of the Ingresses that are converted.
	Class string
	// WithoutClass also converts Ingresses without a class, like the controller's argument --watch-ingress-without-class.
	WithoutClass bool
	// GatewayClass is that of the Gateway.
	GatewayClass string
	// ControllerName is that of the GatewayClass.
	ControllerName string
	// Namespace is that of the Gateway; "" means that of the Ingresses, or the first of several.
	Namespace string
	// Name is that of the Gateway; "" means ingress.
	Name string
	// Controller is namespace/name of the controller's Deployment or DaemonSet; "" means the one of the input that serves the class.
	Controller string
	// ConfigMap is namespace/name of the controller's ConfigMap; "" means the one that the controller's arguments name, or the one
	// of the input with a default name.
	ConfigMap string
	// TCPServices and UDPServices are namespace/name of the ConfigMaps with ports for TCP and UDP; "" means those that the
	// controller's arguments name, or none.
	TCPServices, UDPServices string
	// DefaultCertificate is namespace/name of the Secret for hosts without a certificate; "" means the one that the controller's
	// arguments name.
	DefaultCertificate string
	// Passthrough enables ssl-passthrough, like the controller's argument --enable-ssl-passthrough.
	Passthrough bool
	// HTTPPort and HTTPSPort are the ports of listeners; 0 means 80 and 443.
	HTTPPort, HTTPSPort int
}

// Output is the result of a conversion.
type Output struct {
	documents []*document
	// Report has an entry for each annotation and field.
	Report Report
}

// Documents returns the number of objects.
func (o *Output) Documents() int { return len(o.documents) }

// YAML returns the objects as one manifest.
func (o *Output) YAML() []byte {
	var b bytes.Buffer
	for _, d := range o.documents {
		d.write(&b)
	}
	return b.Bytes()
}

// Files returns the objects as one manifest for each namespace, by file name.
func (o *Output) Files() map[string][]byte {
	buffers := map[string]*bytes.Buffer{}
	for _, d := range o.documents {
		name := cmp.Or(d.namespace, "cluster") + ".yaml"
		if d.namespace == "cluster" { // the file name of objects without a namespace
			name = "namespace-cluster.yaml"
		}
		if buffers[name] == nil {
			buffers[name] = new(bytes.Buffer)
		}
		d.write(buffers[name])
	}
	files := map[string][]byte{}
	for name, b := range buffers {
		files[name] = b.Bytes()
	}
	return files
}

type converter struct {
	options   Options
	input     *Input
	report    Report
	settings  map[*ingress]*settings
	listeners []object
	limits    []object // of listeners, for GatewayParameters
	routes    []*route
	names     map[string]bool   // of HTTPRoutes, by namespace/name
	hosts     map[string]string // of listeners, by name
	serving   map[*ingress]bool // canaries that have their own paths
	grants    map[grant]map[string]bool
	secure    []secured
	global    *global
	// controller is the one of the input; nil if there is none, then its defaults are assumed.
	controller *controller
	unread     *controller          // instead, one whose arguments are not known
	streams    []*document          // TCPRoutes, UDPRoutes and TLSRoutes
	ports      []object             // listeners for TCP and UDP
	entries    map[[2]string]bool   // entries that exist, by Ingress and field
	claims     map[*ingress][]claim // of canaries
	canaries   map[*ingress]bool    // canaries of locations that are converted, and whether a rule has their backend
}

// claim is the entry of an annotation that is only reported if its result is in the output, which is known later.
type claim struct{ name, message, remedy string }

// secured is an HTTPS listener.
type secured struct {
	host, secret string
	server       *server
}

// grant is a permission that a ReferenceGrant must contain, without the names of objects.
type grant struct{ kind, namespace, toKind, toNamespace string }

// allow records that a ReferenceGrant must allow references to an object, for a field of an Ingress. A grant applies to all objects
// of a namespace, including later ones, so the owners of the other namespace should know that all users who may write these can use
// the named object.
func (c *converter) allow(g grant, name string, from *ingress, field string) {
	if c.grants[g] == nil {
		c.grants[g] = map[string]bool{}
	}
	c.grants[g][name] = true
	c.reportApproximated(from, field, g.kind+"s of namespace "+g.namespace+" refer to "+g.toKind+" "+g.toNamespace+"/"+name+", which a ReferenceGrant in namespace "+g.toNamespace+" permits to all "+g.kind+"s there; ingress-nginx asks nobody",
		"have the owners of namespace "+g.toNamespace+" agree to the grant, or leave it out: this is not served then")
}

// route is an HTTPRoute under construction.
type route struct {
	namespace, name string
	hosts           []string
	listeners       []string
	rules           []*rule
	sources         []*ingress
	notes           []string // why rules have no backends
	shared          bool     // by several Ingresses, so policies target rules
}

// rule is a rule of a route.
type rule struct {
	name    string
	from    *ingress
	field   string   // of the Ingress, for the report; "" if it has none
	canary  *ingress // requests for it only, selected by a header; nil means all
	body    object
	backend bool // it has backends, or users may add some, so policies apply to it
}

// Maximums of an API server: rules and hostnames of an HTTPRoute, listeners of a Gateway and of GatewayParameters, items of a
// ReferenceGrant, trusted proxies of GatewayParameters, and characters of a name.
const (
	maxRules     = 16
	maxHostnames = 16
	maxListeners = 64
	maxLimited   = 64
	maxGranted   = 16
	maxTrusted   = 64
	maxName      = 253
)

// Convert converts Ingresses to Gateway API objects. It is deterministic.
func Convert(in *Input, options Options) *Output {
	c := &converter{options: options, input: in, settings: map[*ingress]*settings{}, names: map[string]bool{}, hosts: map[string]string{}, serving: map[*ingress]bool{}, grants: map[grant]map[string]bool{}, entries: map[[2]string]bool{}, claims: map[*ingress][]claim{}, canaries: map[*ingress]bool{}}
	c.readController()
	c.readConfig()
	taken := c.taken()
	servers := c.plan(taken)
	for _, ing := range taken {
		c.settingsOf(ing)
		if mayRefuse(c.value(ing, "stream-snippet"), streamSnippet) { // it applies to all ports
			c.global.streams = cmp.Or(c.global.streams, ing.String()+" has a stream-snippet that may refuse connections")
		}
	}
	out := &Output{}
	streams := c.readStreams()
	if len(servers) > 0 || len(streams) > 0 {
		if c.options.Namespace == "" {
			var all []string
			for _, ing := range taken {
				all = append(all, ing.Namespace)
			}
			for _, s := range streams {
				if len(taken) == 0 {
					all = append(all, s.namespace)
				}
			}
			c.options.Namespace = slices.Min(all)
		}
		c.options.Name = cmp.Or(c.options.Name, "ingress")
		c.defaultCertificate(servers)
		c.cover(servers)
		for _, s := range servers {
			c.server(s, servers)
		}
		c.www(servers)
		c.anyHost(servers)
		c.sharedCertificates()
		c.forward(streams)
		out.documents = c.documents()
		for _, e := range everywhere {
			switch {
			case e.Field == configEntry && (c.global.from != nil || c.controller != nil || c.options.ConfigMap != "" || c.input.Unlisted != ""), e.Field == argumentsEntry && c.controller != nil, e.Field == certificateEntry && c.options.DefaultCertificate != "":
				continue
			}
			c.report = append(c.report, e)
		}
	}
	c.claimed(taken)
	c.silent(taken)
	for _, p := range in.policies {
		c.report = append(c.report, p.describe()...)
	}
	out.Report = c.report.sorted()
	return out
}

// claimed reports the annotations of canaries.
func (c *converter) claimed(taken []*ingress) {
	for _, ing := range taken {
		some, asked := c.canaries[ing]
		for _, one := range c.claims[ing] {
			switch {
			case some || !asked:
				c.reportTranslated(ing, one.name, one.message)
			case one.name != "canary": // reported by unserved
				c.reportNotTranslated(ing, one.name, "see canary", "")
			}
		}
	}
}

// silent reports the annotations that have no entry because they have no effect.
func (c *converter) silent(taken []*ingress) {
	for _, ing := range taken {
		for name := range ing.Annotations {
			if short, ok := strings.CutPrefix(name, prefix); ok && !c.entries[[2]string{ing.String(), short}] {
				c.reportTranslated(ing, short, "has no effect with this value, or without the annotations that it belongs to")
			}
		}
	}
}

// listen adds an HTTP listener, or an HTTPS listener with the certificate of a Secret, and returns its name; ok is false if the
// limit is reached.
func (c *converter) listen(s *server, host, secret string) (name string, ok bool) {
	from := s.locations[0].from
	scheme := "http"
	if secret != "" {
		scheme = "https"
	}
	name = c.listenerName(scheme, host)
	if len(c.listeners)+len(c.ports) >= maxListeners {
		c.reportNotTranslated(from, "spec.rules", "a Gateway has "+itoa(maxListeners)+" listeners at most; "+name+" is left out", "migrate the Ingresses in parts, or add the listener by a ListenerSet")
		return "", false
	}
	l := fields("name", name, "hostname", nonEmpty(host))
	if secret != "" {
		c.secure = append(c.secure, secured{host, secret, s})
		namespace, secret, _ := strings.Cut(secret, "/")
		ref := fields("name", secret)
		if namespace != c.options.Namespace {
			ref = ref.with("namespace", namespace)
			c.allow(grant{"Gateway", c.options.Namespace, "Secret", namespace}, secret, s.certified(), "spec.tls")
		}
		l = append(l, field{"port", cmp.Or(c.options.HTTPSPort, 443)}, field{"protocol", "HTTPS"}, field{"tls", fields("certificateRefs", []object{ref})})
	} else {
		l = append(l, field{"port", cmp.Or(c.options.HTTPPort, 80)}, field{"protocol", "HTTP"})
	}
	c.listeners = append(c.listeners, l)
	return name, true
}

// listenerName returns a name that no listener for another host has.
func (c *converter) listenerName(scheme, host string) string {
	name := scheme
	if host != "" {
		name = shorten(scheme + "-" + strings.Replace(host, "*", "wildcard", 1))
	}
	free := name
	for n := 2; ; n++ {
		if other, taken := c.hosts[free]; !taken || other == host {
			c.hosts[free] = host
			return free
		}
		free = shorten(name + "-" + itoa(n))
	}
}

// shorten returns a name, or a truncated name with a suffix that distinguishes it from others with the same beginning.
func shorten(name string) string {
	if len(name) <= maxName-4 { // a number may be appended
		return name
	}
	sum := fnv.New32a()
	sum.Write([]byte(name))
	return strings.TrimRight(name[:maxName-4-9], "-.") + fmt.Sprintf("-%08x", sum.Sum32())
}

// wildcardOf returns the server with a certificate whose HTTPS listener would get requests for a host without a listener; nil if
// there is none.
func wildcardOf(host string, servers []*server) *server {
	var found *server
	for _, s := range servers {
		if parent, ok := strings.CutPrefix(s.host, "*"); ok && s.secret != "" && strings.HasSuffix(host, parent) && host != s.host && (found == nil || len(s.host) > len(found.host)) {
			found = s
		}
	}
	return found
}

// cover uses the certificate of a wildcard host for hosts for which nginx uses its default certificate, if requests would reach the
// listener of the wildcard when they had no listener of their own.
func (c *converter) cover(servers []*server) {
	for _, s := range servers {
		if wild := wildcardOf(s.host, servers); s.secret == "" && s.host != "" && wild != nil {
			s.secret = wild.secret
			c.reportApproximated(s.locations[0].from, "spec.rules", "by HTTPS "+s.host+" has the certificate of "+wild.host+", in nginx the default one; so its requests do not reach the paths of "+wild.host, "name a Secret for it in spec.tls")
			if s.tlsFrom == nil {
				s.tlsFrom = s.locations[0].from
			}
		}
	}
}

// secretOf returns the Secret with the certificate for a host of a server, an alias or one that is redirected to it; "" if there is
// none.
func (c *converter) secretOf(s *server, host string, servers []*server) string {
	if host == s.host || (s.secret != "" && covers(c.certificateNames(s.secret), host)) {
		return s.secret
	}
	if c.options.DefaultCertificate != "" {
		for _, o := range servers {
			if o.host != "" && o.host == parentWildcard(host) && o.tls {
				return o.secret
			}
		}
		return c.options.DefaultCertificate
	}
	if wild := wildcardOf(host, servers); wild != nil {
		return wild.secret
	}
	if s.secret != "" {
		c.reportApproximated(s.certified(), "spec.tls", "by HTTPS "+host+" has the certificate of "+s.host+", in nginx the default one unless the certificate is for it, which spec.tls does not say", "name "+host+" in spec.tls where the certificate is for it, or give it a certificate")
	}
	return s.secret
}

// server makes the listeners and routes of a host.
func (c *converter) server(s *server, servers []*server) {
	hosts := []string{s.host}
	if strings.HasPrefix(s.host, "*.") {
		c.reportApproximated(s.locations[0].from, "spec.rules", "the host "+s.host+" stands for names with any number of further labels, in nginx for one", "nothing, unless deeper names must be refused")
	}
	for _, alias := range s.aliases {
		if !hostname.MatchString(strings.TrimPrefix(alias, "*.")) {
			c.reportNotTranslated(s.locations[0].from, "server-alias", alias+" is no host name", "name the hosts")
			continue
		}
		hosts = append(hosts, alias)
		for _, l := range s.locations {
			if c.value(l.from, "server-alias") != "" {
				c.reportTranslated(l.from, "server-alias", "aliases are hosts of the routes, with listeners of their own")
			}
		}
	}
	if s.tls && s.secret == "" {
		c.reportNotTranslated(s.tlsFrom, "spec.tls", "the certificate of "+s.host+" is the default one of ingress-nginx, which is not in the Ingress; there is no listener for HTTPS", "name a Secret in spec.tls")
	}
	if s.host == "" && s.secret == "" {
		for _, l := range s.locations {
			if len(l.from.Spec.TLS) > 0 {
				c.reportNotTranslated(l.from, "spec.tls", "a rule without host has the default certificate of ingress-nginx; there is no listener for HTTPS", "add a listener with a certificate")
			}
		}
	}
	// Whether requests are redirected to HTTPS depends on the certificate for their host, not on that of the server.
	with, without := *s, *s
	with.tls, without.tls = true, false
	var redirected, others []string
	for _, h := range hosts {
		if c.hasCertificate(s, h, servers) {
			redirected = append(redirected, h)
		} else {
			others = append(others, h)
		}
	}
	c.listenersAndRoutes(&with, redirected, servers)
	c.listenersAndRoutes(&without, others, servers)
}

// hasCertificate reports whether ingress-nginx has a certificate for a host of a server.
func (c *converter) hasCertificate(s *server, host string, servers []*server) bool {
	if host == s.host {
		return s.tls
	}
	if s.tls && s.secret != "" && covers(c.certificateNames(s.secret), host) {
		return true
	}
	return slices.ContainsFunc(servers, func(o *server) bool { return o.host != "" && o.host == parentWildcard(host) && o.tls })
}

// certificateNames returns the hosts that Ingresses list for a Secret, which are assumed to be those of its certificate.
func (c *converter) certificateNames(secret string) []string {
	var names []string
	for _, ing := range c.input.ingresses {
		for _, t := range ing.Spec.TLS {
			if ing.Namespace+"/"+t.SecretName == secret {
				names = append(names, t.Hosts...)
			}
		}
	}
	return names
}

// covers reports whether a certificate with the names is valid for a host.
func covers(names []string, host string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) || strings.EqualFold(n, parentWildcard(host)) })
}

func (c *converter) listenersAndRoutes(s *server, hosts []string, servers []*server) {
	for some := range slices.Chunk(hosts, maxHostnames) {
		var plain, tls, tlsHosts []string
		for _, h := range some {
			if name, ok := c.listen(s, h, ""); ok {
				plain = append(plain, name)
			}
			if l := c.passthrough(s); l != nil && h == s.host {
				c.passTLS(s, l)
				continue
			}
			secret := c.secretOf(s, h, servers)
			if secret == "" {
				continue
			}
			if name, ok := c.listen(s, h, secret); ok {
				tls, tlsHosts = append(tls, name), append(tlsHosts, h)
			}
		}
		c.bodies(s, append(slices.Clone(plain), tls...))
		if s.host == "" {
			some, tlsHosts = nil, nil
		}
		c.route(s, tlsHosts, tls, "https")
		c.route(s, some, plain, "http")
	}
}

// bodies limits the size of request bodies. In nginx the limit belongs to a location, in Moongate to a listener.
func (c *converter) bodies(s *server, listeners []string) {
	largest := int64(1)
	for _, l := range s.locations {
		if n := c.settingsOf(l.from).body; n == 0 || largest == 0 {
			largest = 0
		} else {
			largest = max(largest, n)
		}
	}
	for _, l := range s.locations {
		n := c.settingsOf(l.from).body
		given := c.value(l.from, "proxy-body-size") != ""
		switch {
		case n != largest:
			c.reportApproximated(l.from, "proxy-body-size", fmt.Sprintf("limits are set by host: for %s bodies may have %s, since another Ingress of the host asks for it, and not %s", cmp.Or(s.host, "all hosts"), size(largest), size(n)),
				"set requestBuffer in a BackendTrafficPolicy for these rules")
		case given:
			c.reportTranslated(l.from, "proxy-body-size", "maxRequestBodyBytes of the host's listeners in GatewayParameters")
		}
	}
	if largest == 1<<20 {
		return // the entry "*" sets the same
	}
	for _, name := range listeners {
		if len(c.limits) == maxLimited-1 { // one is left for all others
			c.reportNotTranslated(s.locations[0].from, "proxy-body-size", "GatewayParameters have "+itoa(maxLimited)+" listeners at most; for "+name+" bodies may have 1 MiB", "migrate the Ingresses in parts")
			continue
		}
		limit := fields("name", name)
		if largest > 0 {
			limit = append(limit, field{"maxRequestBodyBytes", largest})
		}
		c.limits = append(c.limits, limit)
	}
}

func size(n int64) string {
	if n == 0 {
		return "any length"
	}
	return fmt.Sprintf("%d bytes", n)
}

// newRoute adds a route with an unused name.
func (c *converter) newRoute(namespace, name string, hosts, listeners []string) *route {
	name = shorten(name)
	free := name
	for n := 2; c.names[namespace+"/"+free]; n++ {
		free = fmt.Sprintf("%s-%02d", name, n) // two digits, because of routes with the same age the first by name takes precedence
	}
	c.names[namespace+"/"+free] = true
	r := &route{namespace: namespace, name: free, hosts: hosts, listeners: listeners}
	c.routes = append(c.routes, r)
	return r
}

// route makes the HTTPRoutes of a host for one scheme.
func (c *converter) route(s *server, hosts, listeners []string, scheme string) {
	if len(listeners) == 0 {
		return
	}
	suffix := ""
	if scheme == "http" && (s.tls || s.secret != "") {
		suffix = "-http"
	}
	byIngress := map[*ingress]*route{}
	routeOf := func(from *ingress) *route {
		key := from
		if s.regex {
			key = s.oldest()
		}
		if r := byIngress[key]; r != nil && len(r.rules) < maxRules {
			return r
		}
		name := key.Name
		if hostsOf(key) > 1 {
			name += "-" + strings.Replace(cmp.Or(s.host, "all-hosts"), "*", "wildcard", 1)
		}
		byIngress[key] = c.newRoute(key.Namespace, name+suffix, hosts, listeners)
		byIngress[key].shared = s.regex
		return byIngress[key]
	}
	rewrites := c.rewrites(s)
	if scheme == "http" && !slices.ContainsFunc(s.locations, func(l *location) bool { return !c.toHTTPS(s, l) }) && !slices.ContainsFunc(s.locations, func(l *location) bool { return c.settingsOf(l.from).appRoot != "" }) {
		r := routeOf(s.locations[0].from)
		r.add(&rule{name: "https", from: s.locations[0].from, body: fields("filters", []object{c.httpsRedirect()})})
		for _, l := range s.locations {
			r.source(l.from)
			c.slashNote(l)
			if rw := rewrites[l]; rw.slash != "" {
				routeOf(l.from).add(c.slashRule(rw, l, scheme))
			}
		}
		return
	}
	for n, l := range s.locations {
		set := c.settingsOf(l.from)
		if set.appRoot != "" && !slices.ContainsFunc(s.locations[:n], func(o *location) bool { return c.settingsOf(o.from).appRoot != "" }) {
			root := &rule{from: l.from, body: fields("matches", []object{pathMatch("Exact", "/")})}
			if !set.appRootWithheld {
				root.body = root.body.with("filters", []object{(&redirect{path: set.appRoot, code: 302}).filter()})
			}
			routeOf(l.from).add(root)
		}
		c.location(s, l, scheme, rewrites[l], routeOf)
	}
	for _, r := range byIngress {
		for _, l := range s.locations {
			if s.regex || byIngress[l.from] == r {
				r.source(l.from)
			}
		}
	}
}

func hostsOf(ing *ingress) int {
	hosts := map[string]bool{}
	for _, r := range ing.Spec.Rules {
		hosts[r.Host] = true
	}
	return len(hosts)
}

func (r *route) source(ing *ingress) {
	if !slices.Contains(r.sources, ing) {
		r.sources = append(r.sources, ing)
	}
}

func (r *route) add(one *rule) {
	if one.name == "" {
		one.name = "rule-" + itoa(len(r.rules)+1)
	}
	r.source(one.from)
	r.rules = append(r.rules, one)
}

// toHTTPS reports whether nginx redirects HTTP requests for a location to HTTPS. A redirect of the location itself takes precedence.
func (c *converter) toHTTPS(s *server, l *location) bool {
	set := c.settingsOf(l.from)
	return !catchAll(l.from) && (set.forceSSL || (set.sslRedirect && s.tls)) && set.redirect == nil && !begins(l.path, c.global.noRedirect)
}

// open reports whether ingress-nginx requires no authentication for a location, as for ACME challenges.
func (c *converter) open(l *location) bool { return begins(l.path, c.global.noAuth) }

// slashNote reports that redirects to HTTPS keep a slash at the end.
func (c *converter) slashNote(l *location) {
	if c.settingsOf(l.from).preserveSlash {
		return
	}
	name := "ssl-redirect"
	if c.settingsOf(l.from).forceSSL {
		name = "force-ssl-redirect"
	}
	c.reportApproximated(l.from, name, "redirects to HTTPS with 308, and keeps a slash at the end of Location, which ingress-nginx removes", "nothing, unless clients depend on it")
}

func (c *converter) httpsRedirect() object {
	return fields("type", "RequestRedirect", "requestRedirect", fields("scheme", "https", "statusCode", c.global.redirect))
}

func pathMatch(kind, value string) object {
	return fields("path", fields("type", kind, "value", value))
}

// location makes the rules of a location.
func (c *converter) location(s *server, l *location, scheme string, rw *rewrite, routeOf func(*ingress) *route) {
	if l.fallback && l.backend == nil && !(scheme == "http" && c.toHTTPS(s, l)) && c.settingsOf(l.from).redirect == nil {
		return // 404, as without a rule
	}
	if l.exact && l.path == "/" && slices.ContainsFunc(s.locations, func(o *location) bool { return c.settingsOf(o.from).appRoot != "" }) {
		c.reportTranslated(l.from, l.field, "left out: app-root of the host redirects all requests of this path")
		return
	}
	set := c.settingsOf(l.from)
	r := routeOf(l.from)
	for _, m := range rw.matches {
		add := func(one *rule) {
			one.from, one.field = l.from, l.field
			routeOf(l.from).add(one)
		}
		switch {
		case set.redirect != nil:
			add(&rule{body: fields("matches", []object{m}, "filters", append(c.security(scheme), set.redirect.filter()))})
			continue
		case scheme == "http" && c.toHTTPS(s, l):
			c.slashNote(l)
			add(&rule{body: fields("matches", []object{m}, "filters", []object{c.httpsRedirect()})})
			continue
		case rw.withheld || c.withheld(s, l) != "":
			routeOf(l.from).note(c.withheld(s, l))
			c.unserved(s, l, m, rw, r, scheme, add)
			continue
		}
		primary, ok := c.backendRef(r, l.from, l.field, l.backend)
		if !ok {
			c.unserved(s, l, m, rw, r, scheme, add)
			continue
		}
		c.backends(l, m, primary, rw, r, scheme, add)
	}
	if guards := c.guards(s, l, rw); len(guards) > 0 {
		one := &rule{from: l.from, field: l.field, body: fields("matches", guards)}
		if scheme == "http" && c.toHTTPS(s, l) {
			one.body = append(one.body, field{"filters", []object{c.httpsRedirect()}})
		} else if rw.withheld || c.withheld(s, l) != "" { // users who add backendRefs to the route may add them here too
			one.backend, one.body = true, one.body.with("filters", c.filters(l, r, &rewrite{}, nil, scheme))
		}
		routeOf(l.from).add(one)
	}
	if rw.slash != "" {
		routeOf(l.from).add(c.slashRule(rw, l, scheme))
	}
}

// withheld returns why a location has no backend, in text; "" if it may have one.
func (c *converter) withheld(s *server, l *location) string {
	set := c.settingsOf(l.from)
	switch {
	case c.global.withheld != "":
		return c.global.withheld
	case s.clientCertificates != nil:
		if s.clientCertificates != l.from {
			c.reportNotTranslated(l.from, l.field, s.clientCertificates.String()+" demands client certificates by auth-tls-secret, in nginx for all paths of "+orAll(s.host)+"; so that nothing is open, they are answered 500", "set tls.frontend of the Gateway (docs/tasks/client-certificates.md), then add the backendRefs")
		}
		return s.clientCertificates.String() + ": demanding client certificates cannot be translated"
	case s.snippet != nil:
		if s.snippet != l.from {
			c.reportNotTranslated(l.from, l.field, s.snippet.String()+" has a server-snippet that may refuse requests, in nginx for all paths of "+orAll(s.host)+"; so that nothing is open, they are answered 500", "express what it does with filters and policies, then add the backendRefs")
		}
		return s.snippet.String() + ": a server-snippet that may refuse requests cannot be translated"
	case s.held != nil:
		if s.held != l.from {
			c.reportNotTranslated(l.from, l.field, s.held.String()+" has an annotation that protects all paths of "+orAll(s.host)+", and "+s.held.held+"; so that nothing is open, they are answered 500", "see its entry")
		}
		return s.held.String() + ": " + s.held.held
	case l.from.held != "":
		return l.from.String() + ": " + l.from.held
	case set.withheld != "":
		return l.from.String() + ": " + set.withheld
	case set.withheldAuth != "" && !c.open(l):
		return l.from.String() + ": " + set.withheldAuth
	}
	return ""
}

// note adds a reason why rules have no backends, once.
func (r *route) note(reason string) {
	if reason != "" && !slices.Contains(r.notes, reason) {
		r.notes = append(r.notes, reason)
	}
}

// slashRule redirects a path to itself with a slash, before anything else, as nginx does if only a location with the slash exists.
func (c *converter) slashRule(rw *rewrite, l *location, scheme string) *rule {
	return &rule{from: l.from, field: l.field, body: fields("matches", []object{pathMatch("Exact", rw.slash)},
		"filters", append(c.security(scheme), fields("type", "RequestRedirect", "requestRedirect", fields("path", fields("type", "ReplaceFullPath", "replaceFullPath", rw.slash+"/"), "statusCode", 301))))}
}

// unserved makes the rule of one match without backends, until a user adds them. Its filters and policies are those that it would
// have with backends, so that it then rejects the same requests.
func (c *converter) unserved(s *server, l *location, m object, rw *rewrite, r *route, scheme string, add func(*rule)) {
	if l.canary != nil {
		from := l.canary.from
		if _, asked := c.canaries[from]; !asked { // else another rule may have its backend
			c.canaries[from] = false
		}
		c.reportNotTranslated(from, "canary", "paths of "+orAll(s.host)+" that "+l.from.String()+" has are answered 500, so that none of their requests go to this Service", "add it where you add the backendRefs")
	}
	set := c.settingsOf(l.from)
	if set.unredirected {
		add(&rule{body: fields("matches", []object{m})})
		return
	}
	add(&rule{backend: true, body: fields("matches", []object{m}, "filters", c.filters(l, r, rw, m, scheme), "sessionPersistence", set.session)})
}

// backends makes the rules of one match: those that send requests to a canary by header or cookie, and the one for all others.
func (c *converter) backends(l *location, m, primary object, rw *rewrite, r *route, scheme string, add func(*rule)) {
	filters := c.filters(l, r, rw, m, scheme)
	session := c.settingsOf(l.from).session
	rest := []object{primary}
	one := func(match object, refs []object) {
		only := &rule{backend: true, body: fields("matches", []object{match}, "filters", filters, "backendRefs", refs, "sessionPersistence", session)}
		if len(match) > len(m) {
			only.canary = l.canary.from
		}
		add(only)
	}
	if l.canary != nil {
		set := c.settingsOf(l.canary.from)
		alternative, ok := c.backendRef(r, l.canary.from, "spec.rules", l.canary.backend)
		if ok {
			from := l.canary.from
			c.canaries[from] = true
			r.source(from)
			value := func(name string) string { return c.value(from, name) }
			header := func(name, kind, value string) object {
				h := fields("name", name, "value", value)
				if kind != "" {
					h = fields("type", kind, "name", name, "value", value)
				}
				return append(slices.Clone(m), field{"headers", []object{h}})
			}
			only := func(ref object) []object { return []object{ref} }
			if h := value("canary-by-header"); fieldName.MatchString(h) {
				pattern := value("canary-by-header-pattern")
				switch {
				case value("canary-by-header-value") != "":
					one(header(h, "", value("canary-by-header-value")), only(alternative))
				case pattern != "":
					if re, ok := search(pattern, false); ok {
						one(header(h, "RegularExpression", re), only(alternative))
					}
				default:
					one(header(h, "", "always"), only(alternative))
					one(header(h, "", "never"), only(primary))
				}
			}
			if cookie := value("canary-by-cookie"); cookie != "" {
				for _, choice := range []struct {
					value string
					ref   object
				}{{"always", alternative}, {"never", primary}} {
					one(header("Cookie", "RegularExpression", `(.*;\s*)?`+regexp.QuoteMeta(cookie)+"="+choice.value+`(;.*)?`), only(choice.ref))
				}
			}
			switch {
			case set.weight == set.weightTotal:
				rest = only(alternative)
			case set.weight > 0:
				rest = []object{primary.with("weight", set.weightTotal-set.weight), alternative.with("weight", set.weight)}
			}
		}
	}
	one(m, rest)
}

// security returns the filter for what ingress-nginx adds to all HTTPS responses, unless its ConfigMap disables it.
func (c *converter) security(scheme string) []object {
	if scheme != "https" || c.global.hsts == "" {
		return nil
	}
	return []object{fields("type", "ResponseHeaderModifier", "responseHeaderModifier", fields("set", []object{fields("name", "Strict-Transport-Security", "value", c.global.hsts)}))}
}

// filters returns the filters of a location's rules that have backends, or will have some. They are in the order in which nginx
// applies them.
func (c *converter) filters(l *location, r *route, rw *rewrite, m object, scheme string) []object {
	set := c.settingsOf(l.from)
	out := c.security(scheme)
	if len(set.cors) > 0 {
		out = append(out, fields("type", "CORS", "cors", set.cors))
	}
	if len(set.auth) > 0 && !c.open(l) {
		c.grantRef(r, l.from, "auth-url", set.auth)
		out = append(out, fields("type", "ExternalAuth", "externalAuth", set.auth))
	}
	if len(set.mirror) > 0 {
		c.grantRef(r, l.from, "mirror-target", set.mirror)
		out = append(out, fields("type", "RequestMirror", "requestMirror", set.mirror))
	}
	if len(set.requestHeaders) > 0 {
		out = append(out, fields("type", "RequestHeaderModifier", "requestHeaderModifier", fields("set", set.requestHeaders)))
	}
	path := rw.replace
	if exact := rw.exact; exact != nil && m[0].value.(object)[0].value == "Exact" {
		path = exact
	}
	if set.vhost != "" || path != nil {
		out = append(out, fields("type", "URLRewrite", "urlRewrite", fields("hostname", nonEmpty(set.vhost), "path", path)))
	}
	return out
}

// grantRef records the grant that a filter's backendRef needs. A reference without a namespace means that of the Ingress.
func (c *converter) grantRef(r *route, from *ingress, annotation string, filter object) {
	for i, f := range filter {
		if f.name != "backendRef" {
			continue
		}
		ref := f.value.(object)
		namespace := from.Namespace
		for _, g := range ref {
			if g.name == "namespace" {
				namespace = g.value.(string)
			}
		}
		if namespace == r.namespace {
			continue
		}
		c.allow(grant{"HTTPRoute", r.namespace, "Service", namespace}, ref[0].value.(string), from, annotation)
		if from.Namespace == namespace {
			filter[i].value = object{ref[0], {"namespace", namespace}, ref[len(ref)-1]}
		}
	}
}

// filter returns the redirect as a filter.
func (r *redirect) filter() object {
	o := fields("scheme", nonEmpty(r.scheme), "hostname", nonEmpty(r.host))
	if r.port > 0 {
		o = o.with("port", r.port)
	}
	if r.path != "" {
		o = o.with("path", fields("type", "ReplaceFullPath", "replaceFullPath", r.path))
	}
	return fields("type", "RequestRedirect", "requestRedirect", o.with("statusCode", r.code))
}

// backendRef returns a reference to a Service; ok is false if its port is not known.
func (c *converter) backendRef(r *route, from *ingress, where string, b *networkingv1.IngressServiceBackend) (object, bool) {
	port := int(b.Port.Number)
	if b.Port.Name != "" {
		if s := c.input.services[from.Namespace+"/"+b.Name]; s != nil {
			for _, p := range s.Spec.Ports {
				if p.Name == b.Port.Name {
					port = int(p.Port)
				}
			}
		}
		if port == 0 {
			c.reportNotTranslated(from, where, "the number of port "+b.Port.Name+" of Service "+from.Namespace+"/"+b.Name+" is not known; requests are answered 500", "give the Service as input too, or name the port by its number")
			return nil, false
		}
		c.reportTranslated(from, where, "port "+b.Port.Name+" is "+itoa(port)+", as the Service says")
	}
	ref := fields("name", b.Name)
	if from.Namespace != r.namespace {
		ref = ref.with("namespace", from.Namespace)
		c.allow(grant{"HTTPRoute", r.namespace, "Service", from.Namespace}, b.Name, from, where)
	}
	return ref.with("port", port), true
}

// www makes the redirects between a host with www and the one without, if the latter is not the host of an Ingress.
func (c *converter) www(servers []*server) {
	for _, s := range servers {
		if s.host == "" || strings.HasPrefix(s.host, "*") || !slices.ContainsFunc(s.locations, func(l *location) bool { return c.settingsOf(l.from).wwwRedirect }) {
			continue
		}
		from, ok := strings.CutPrefix(s.host, "www.")
		if !ok {
			from = "www." + s.host
		}
		if slices.ContainsFunc(servers, func(o *server) bool { return o.host == from }) {
			continue
		}
		var names []string
		if name, ok := c.listen(s, from, ""); ok {
			names = append(names, name)
		}
		if secret := c.secretOf(s, from, servers); secret != "" {
			if name, ok := c.listen(s, from, secret); ok {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		first := s.locations[0].from
		r := c.newRoute(first.Namespace, first.Name+"-www", []string{from}, names)
		r.add(&rule{name: "www", from: first, body: fields("filters", []object{fields("type", "RequestRedirect", "requestRedirect", fields("hostname", s.host, "statusCode", 308))})})
	}
}

// sharedCertificates reports certificates for hosts of several listeners, because browsers use one connection for these.
func (c *converter) sharedCertificates() {
	names := map[string][]string{}
	for _, l := range c.secure {
		names[l.secret] = c.certificateNames(l.secret)
	}
	for _, l := range c.secure {
		if !slices.ContainsFunc(c.secure, func(o secured) bool {
			return o.host != l.host && ((o.secret == l.secret && o.server.host != l.server.host) || covers(names[o.secret], l.host) || covers(names[l.secret], o.host))
		}) {
			continue
		}
		c.reportApproximated(l.server.certified(), "spec.tls", "the certificate of "+orAll(l.host)+" is for other hosts too, or another one is for this. Browsers send requests for these on the same HTTP/2 connection; Moongate answers such requests 421, so that they are repeated on another, and the Gateway has OverlappingTLSConfig=True, which is a warning",
			"use a certificate for each host where the further connection matters")
	}
}

// documents returns all objects, in an order in which they can be explained.
func (c *converter) documents() []*document {
	o := c.options
	limits := append([]object{fields("name", "*", "maxRequestBodyBytes", 1<<20)}, c.limits...)
	gatewayNotes := []string{"one listener for each host and scheme, as servers of nginx are by host"}
	shared := false
	c.routes = slices.DeleteFunc(c.routes, func(r *route) bool { return len(r.rules) == 0 }) // their paths cannot be matched
	for _, r := range c.routes {
		shared = shared || r.namespace != o.Namespace
	}
	if shared {
		for i := range c.listeners {
			c.listeners[i] = c.listeners[i].with("allowedRoutes", fields("namespaces", fields("from", "All")))
		}
	}
	c.listeners = append(c.listeners, c.ports...)
	docs := []*document{
		{kind: "GatewayClass", name: o.GatewayClass, notes: []string{"leave it out where the cluster has it"}, body: meta("gateway.networking.k8s.io/v1", "GatewayClass", "", o.GatewayClass, fields("controllerName", o.ControllerName))},
		{kind: "GatewayParameters", namespace: o.Namespace, name: o.Name, notes: []string{"the default limit of ingress-nginx for bodies is 1 MiB (proxy-body-size)"},
			body: meta("moongate.dev/v1alpha1", "GatewayParameters", o.Namespace, o.Name, fields("trustedProxies", c.global.trusted, "listeners", limits))},
		{kind: "Gateway", namespace: o.Namespace, name: o.Name, notes: gatewayNotes, body: meta("gateway.networking.k8s.io/v1", "Gateway", o.Namespace, o.Name, fields("gatewayClassName", o.GatewayClass,
			"infrastructure", fields("parametersRef", fields("group", "moongate.dev", "kind", "GatewayParameters", "name", o.Name)), "listeners", c.listeners))},
	}
	slices.SortStableFunc(c.routes, func(a, b *route) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	for _, r := range c.routes { // before any of them is written, because one may close others
		c.admitRoute(r)
	}
	for _, r := range c.routes {
		docs = append(docs, c.routeDocument(r))
	}
	docs = append(docs, c.streams...)
	docs = append(docs, c.policies()...)
	docs = append(docs, c.grantDocuments()...)
	c.unaccepted(docs)
	return docs
}

func meta(apiVersion, kind, namespace, name string, spec object) object {
	return fields("apiVersion", apiVersion, "kind", kind, "metadata", fields("name", name, "namespace", nonEmpty(namespace)), "spec", spec)
}

func (c *converter) routeDocument(r *route) *document {
	d := &document{kind: "HTTPRoute", namespace: r.namespace, name: r.name}
	var parents []object
	for _, l := range r.listeners {
		parent := fields("name", c.options.Name)
		if r.namespace != c.options.Namespace {
			parent = parent.with("namespace", c.options.Namespace)
		}
		parents = append(parents, parent.with("sectionName", l))
	}
	var rules []object
	for _, one := range r.rules {
		rules = append(rules, append(object{{"name", one.name}}, one.body...))
	}
	for _, ing := range r.sources {
		d.sources = append(d.sources, ing.String()+" ("+ing.at.String()+")")
	}
	for _, reason := range r.notes {
		d.notes = append(d.notes, reason+": rules without backendRefs answer 500")
	}
	d.body = meta("gateway.networking.k8s.io/v1", "HTTPRoute", r.namespace, r.name, fields("parentRefs", parents, "hostnames", r.hosts, "rules", rules))
	return d
}

// policies makes the BackendTrafficPolicies: one for each Ingress and namespace of routes.
func (c *converter) policies() []*document {
	type key struct {
		ing       *ingress
		namespace string
	}
	targets := map[key][]object{}
	var order []key
	for _, r := range c.routes {
		for _, ing := range r.sources {
			k := key{ing, r.namespace}
			if len(c.settingsOf(ing).policy) == 0 {
				continue
			}
			var refs []object
			whole := fields("group", "gateway.networking.k8s.io", "kind", "HTTPRoute", "name", r.name)
			asks := false
			for _, one := range r.rules {
				if one.from == ing && one.backend {
					asks = true
					refs = append(refs, whole.with("sectionName", one.name))
				}
			}
			if !asks {
				continue
			}
			if !r.shared {
				refs = []object{whole}
			}
			if targets[k] == nil {
				order = append(order, k)
			}
			targets[k] = append(targets[k], refs...)
		}
	}
	var docs []*document
	names := map[string]bool{}
	for _, k := range order {
		name := k.ing.Name
		if k.ing.Namespace != k.namespace {
			name = k.ing.Namespace + "-" + name
		}
		name = shorten(name)
		for n := 2; names[k.namespace+"/"+name]; n++ {
			name = shorten(name + "-" + itoa(n))
		}
		names[k.namespace+"/"+name] = true
		docs = append(docs, &document{kind: "BackendTrafficPolicy", namespace: k.namespace, name: name, sources: []string{k.ing.String() + " (" + k.ing.at.String() + ")"},
			body: meta("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy", k.namespace, name, append(object{{"targetRefs", targets[k]}}, c.settingsOf(k.ing).policy...))})
	}
	return docs
}

func (c *converter) grantDocuments() []*document {
	all := slices.SortedFunc(maps.Keys(c.grants), func(a, b grant) int {
		return cmp.Or(strings.Compare(a.toNamespace, b.toNamespace), strings.Compare(a.toKind, b.toKind), strings.Compare(a.namespace, b.namespace))
	})
	var docs []*document
	for _, g := range all {
		part := 0
		for names := range slices.Chunk(slices.Sorted(maps.Keys(c.grants[g])), maxGranted) {
			name := strings.ToLower(g.toKind) + "s-for-" + strings.ToLower(g.kind) + "s-of-" + g.namespace
			if part++; part > 1 {
				name += "-" + itoa(part)
			}
			var to []object
			for _, n := range names {
				to = append(to, fields("group", "", "kind", g.toKind, "name", n))
			}
			docs = append(docs, &document{kind: "ReferenceGrant", namespace: g.toNamespace, name: name, body: meta("gateway.networking.k8s.io/v1", "ReferenceGrant", g.toNamespace, name,
				fields("from", []object{fields("group", "gateway.networking.k8s.io", "kind", g.kind, "namespace", g.namespace)}, "to", to))})
		}
	}
	return docs
}
