package migrate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// server corresponds to a server of ingress-nginx: a host, or "" for all hosts without a server.
type server struct {
	host      string
	aliases   []string
	first     *ingress    // the oldest that names the host; nil if only canaries do
	locations []*location // in the order of precedence of regular expressions
	regex     bool        // all locations are case-insensitive regular expressions
	tls       bool        // ingress-nginx has a certificate for the host, possibly its default one, so ssl-redirect counts
	secret    string      // namespace/name of the certificate; "" if it is the default one, or if there is none
	tlsFrom   *ingress    // the Ingress of the certificate
	// clientCertificates is the Ingress whose auth-tls-secret applies to all locations; nil if none.
	clientCertificates *ingress
	// snippet is the Ingress whose server-snippet may reject requests for all locations; nil if none.
	snippet *ingress
	// held is the Ingress because of which all locations have no backends; nil if none.
	held *ingress
}

// oldest returns the first Ingress of the host, whose name the route of all of them gets.
func (s *server) oldest() *ingress {
	return slices.MinFunc(s.locations, func(a, b *location) int { return older(a.from, b.from) }).from
}

// certified returns the Ingress whose certificate the host has, or one of its Ingresses.
func (s *server) certified() *ingress {
	if s.tlsFrom != nil {
		return s.tlsFrom
	}
	return s.locations[0].from
}

// older orders Ingresses as ingress-nginx does: of those with the same second the last by name comes first.
func older(a, b *ingress) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(b.Namespace+"/"+b.Name, a.Namespace+"/"+a.Name))
}

// byAge reports that the result depends on which of two Ingresses is older, if the input does not contain their ages.
func (c *converter) byAge(a, b *ingress, what string) {
	if a == nil || b == nil || a == b || (!a.CreationTimestamp.IsZero() && !b.CreationTimestamp.IsZero()) {
		return
	}
	if older(a, b) > 0 {
		a, b = b, a
	}
	c.reportApproximated(b, "metadata.creationTimestamp", what+" is that of the older Ingress in ingress-nginx. Without creationTimestamp "+a.String()+" counts as older than this one, by its name", "take the Ingresses from the cluster, by --kube or kubectl get -o yaml")
}

// location corresponds to a location of ingress-nginx.
type location struct {
	path    string
	exact   bool
	from    *ingress // whose annotations apply
	field   string   // the path in it, for the report
	backend *networkingv1.IngressServiceBackend
	// fallback is set for "/" of a host of which no Ingress has that path. Without a backend it answers 404.
	fallback bool
	canary   *canary
}

// canary is an alternative backend of a location.
type canary struct {
	from    *ingress // whose annotations apply
	backend *networkingv1.IngressServiceBackend
}

// upstream returns the name of the backend in ingress-nginx: all locations with the same one share a canary.
func (l *location) upstream() string {
	if l.backend == nil || l.from == nil {
		return ""
	}
	return upstreamName(l.from.Namespace, l.backend)
}

func upstreamName(namespace string, b *networkingv1.IngressServiceBackend) string {
	port := b.Port.Name
	if port == "" {
		port = itoa(int(b.Port.Number))
	}
	return namespace + "/" + b.Name + ":" + port
}

// upstream is a port of a Service. The first Ingress that names it decides whether it is that of a canary.
type upstream struct {
	from         *ingress
	canary       bool
	backend      *networkingv1.IngressServiceBackend
	alternatives []string // upstreams of canaries; the first gets requests
}

// upstreams corresponds to createUpstreams of ingress-nginx's controller.
func (c *converter) upstreams(all []*ingress) map[string]*upstream {
	ups := map[string]*upstream{}
	for _, ing := range all {
		canary := c.enabled(ing, "canary")
		if b := ing.Spec.DefaultBackend; b != nil && b.Service != nil {
			ups[upstreamName(ing.Namespace, b.Service)] = &upstream{from: ing, canary: canary, backend: b.Service}
		}
		for _, rule := range ing.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			for _, p := range rule.HTTP.Paths {
				if p.Backend.Service == nil {
					continue
				}
				name := upstreamName(ing.Namespace, p.Backend.Service)
				if ups[name] == nil {
					ups[name] = &upstream{from: ing, canary: canary, backend: p.Backend.Service}
				} else if ups[name].canary != canary {
					c.byAge(ups[name].from, ing, "whether Service "+p.Backend.Service.Name+" is one of a canary")
				}
			}
		}
	}
	return ups
}

func isExact(p networkingv1.HTTPIngressPath) bool {
	return p.PathType != nil && *p.PathType == networkingv1.PathTypeExact
}

// plan corresponds to createServers and getBackendServers of ingress-nginx's controller.
func (c *converter) plan(all []*ingress) []*server {
	slices.SortStableFunc(all, older)
	ups := c.upstreams(all)
	servers := map[string]*server{"": {locations: []*location{{path: "/", fallback: true}}}}
	for _, ing := range all {
		if c.enabled(ing, "canary") {
			continue
		}
		var fallback *networkingv1.IngressServiceBackend
		if ing.Spec.DefaultBackend != nil {
			fallback = ing.Spec.DefaultBackend.Service
			root := servers[""].locations[0]
			switch {
			case fallback == nil:
				c.reportNotTranslated(ing, "spec.defaultBackend", "ingress-nginx has no backends other than Services, and answers 404", "refer to a Service")
			case len(ing.Spec.Rules) > 0:
			case root.backend == nil:
				*root = location{path: "/", from: ing, field: "spec.defaultBackend", backend: fallback}
			default:
				c.reportTranslated(ing, "spec.defaultBackend", "left out: "+root.from.String()+" is the older one for all hosts")
				c.byAge(root.from, ing, "the backend for all hosts")
			}
		}
		for _, rule := range ing.Spec.Rules {
			if servers[rule.Host] == nil {
				servers[rule.Host] = &server{host: rule.Host, first: ing, locations: []*location{{path: "/", from: ing, field: "spec.defaultBackend", backend: fallback, fallback: true}}}
			}
		}
	}
	for _, ing := range all {
		if !c.enabled(ing, "canary") {
			c.hostSettings(ing, servers)
		}
	}
	for _, ing := range all {
		for ri, rule := range ing.Spec.Rules {
			if rule.HTTP == nil && rule.Host != "" {
				continue
			}
			s := servers[rule.Host]
			if s == nil { // of a canary
				s = servers[""]
			}
			if s.clientCertificates == nil && c.demandsCertificates(ing) {
				s.clientCertificates = ing
			}
			if s.held == nil && ing.heldHosts {
				s.held = ing
			}
			if s.snippet == nil && mayRefuse(c.value(ing, "server-snippet"), httpSnippet) {
				s.snippet = ing
			}
			if rule.HTTP == nil {
				continue
			}
			for pi, p := range rule.HTTP.Paths {
				c.place(ing, s, "spec.rules["+itoa(ri)+"].http.paths["+itoa(pi)+"]", p, ups)
			}
		}
	}
	for _, ing := range all {
		if c.enabled(ing, "canary") {
			c.merge(ing, servers, ups)
		}
	}
	var list []*server
	for _, s := range servers {
		s.locations = slices.DeleteFunc(s.locations, func(l *location) bool { return l.from == nil })
		if len(s.locations) == 0 {
			continue
		}
		for _, l := range s.locations {
			l.canary = c.canaryOf(l, ups)
		}
		slices.SortStableFunc(s.locations, func(a, b *location) int {
			return cmp.Or(cmp.Compare(len(b.path), len(a.path)), strings.Compare(b.path, a.path))
		})
		c.splitEqual(s)
		s.regex = slices.ContainsFunc(s.locations, func(l *location) bool {
			return c.rewritten(l) || c.useRegex(l.from)
		})
		if n := slices.IndexFunc(s.locations, func(l *location) bool { return l.fallback && l.backend == nil }); s.regex && n >= 0 {
			for _, l := range s.locations[n+1:] {
				c.reportTranslated(l.from, l.field, "left out: as regular expressions of this host are tried, the default backend goes before this path, and answers 404")
			}
			s.locations = s.locations[:n+1]
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *server) int { return strings.Compare(a.host, b.host) })
	c.uniqueAliases(list, servers)
	c.wildcardCertificates(list, servers)
	return list
}

// hostSettings sets the aliases and certificates of an Ingress on servers.
func (c *converter) hostSettings(ing *ingress, servers map[string]*server) {
	for _, rule := range ing.Spec.Rules {
		s := servers[rule.Host]
		if aliases := list(c.value(ing, "server-alias")); len(aliases) > 0 {
			if len(s.aliases) == 0 {
				slices.Sort(aliases)
				s.aliases = slices.Compact(aliases)
			} else {
				c.byAge(s.locations[0].from, ing, "the list of aliases of "+orAll(s.host))
			}
		}
		if rule.Host == "" || len(ing.Spec.TLS) == 0 {
			continue
		}
		secret := c.tlsSecret(ing, rule.Host)
		if !s.tls {
			s.tls, s.secret, s.tlsFrom = true, secret, ing
		} else if s.secret != secret {
			c.byAge(s.tlsFrom, ing, "the certificate of "+rule.Host)
		}
	}
}

// place makes a location of a path.
func (c *converter) place(ing *ingress, s *server, where string, p networkingv1.HTTPIngressPath, ups map[string]*upstream) {
	canary := c.enabled(ing, "canary")
	if p.Backend.Service == nil {
		if !canary {
			c.reportNotTranslated(ing, where+".backend", "ingress-nginx has no backends other than Services, and leaves the path out", "refer to a Service")
		}
		return
	}
	if up := ups[upstreamName(ing.Namespace, p.Backend.Service)]; up.canary {
		if !canary {
			c.reportTranslated(ing, where, "left out: "+up.from.String()+" is older and makes the Service one of a canary, so that ingress-nginx does not serve this path")
		}
		return
	}
	l := &location{path: cmp.Or(p.Path, "/"), exact: isExact(p), from: ing, field: where, backend: p.Backend.Service}
	have := slices.IndexFunc(s.locations, func(o *location) bool { return o.path == l.path && o.exact == l.exact })
	switch {
	case have < 0:
		s.locations = append(s.locations, l)
	case s.locations[have].fallback:
		s.locations[have] = l
	case canary: // its Service belongs to an ordinary Ingress, see merge
		return
	default:
		other := s.locations[have].from
		c.addEntry(ing, where, Translated, "left out: "+other.String()+" has the same path of the same host, and the older Ingress is served", "")
		c.byAge(other, ing, "the backend of "+l.path)
		return
	}
	if canary {
		c.serving[ing] = true
		c.reportApproximated(ing, where, "an older Ingress names the Service too, so that it is none of a canary, and ingress-nginx serves this path with it", "leave the path out where that was not intended")
	}
}

func orAll(host string) string { return cmp.Or(host, "all hosts") }

// rewritten reports whether the location has a rewrite. An Ingress without rules has none.
func (c *converter) rewritten(l *location) bool {
	target := c.rewriteTarget(l.from)
	return target != "" && target != l.path
}

func (c *converter) rewriteTarget(ing *ingress) string {
	if catchAll(ing) {
		return ""
	}
	return c.value(ing, "rewrite-target")
}

func (c *converter) useRegex(ing *ingress) bool { return !catchAll(ing) && c.enabled(ing, "use-regex") }

// catchAll reports whether an Ingress only applies to all hosts and paths. ingress-nginx ignores its redirects and rewrites.
func catchAll(ing *ingress) bool { return len(ing.Spec.Rules) == 0 }

// splitEqual splits paths whose rewrite-target is the path itself: only the paths below it are rewritten, because they belong to a
// location with a slash at the end in nginx's configuration.
func (c *converter) splitEqual(s *server) {
	var out []*location
	for _, l := range s.locations {
		if l.exact || l.fallback || l.path == "/" || strings.HasSuffix(l.path, "/") || c.useRegex(l.from) || c.rewriteTarget(l.from) != l.path {
			out = append(out, l)
			continue
		}
		below := *l
		below.path += "/"
		out = append(out, &below)
		if !slices.ContainsFunc(s.locations, func(o *location) bool { return o.exact && o.path == l.path }) {
			itself := *l
			itself.exact = true
			out = append(out, &itself)
		}
		c.reportTranslated(l.from, "rewrite-target", "paths below "+l.path+" become it, as in ingress-nginx, where a slash is added to the path before it is compared with the target")
	}
	s.locations = out
}

// uniqueAliases removes aliases that are hosts, or aliases of another host already; nginx uses the first.
func (c *converter) uniqueAliases(list []*server, servers map[string]*server) {
	taken := map[string]*server{}
	for _, s := range list {
		if s.host == "" {
			s.aliases = nil // requests for it arrive at this server anyway
		}
		s.aliases = slices.DeleteFunc(s.aliases, func(alias string) bool {
			switch other := taken[alias]; {
			case servers[alias] != nil:
				return true
			case other != nil:
				for _, l := range s.locations {
					if c.value(l.from, "server-alias") != "" {
						c.reportTranslated(l.from, "server-alias", alias+" is left out for "+s.host+": it is an alias of "+other.host+", and nginx takes the first")
					}
				}
				return true
			}
			taken[alias] = s
			return false
		})
	}
}

// parentWildcard returns the wildcard of a host's parent domain, or "".
func parentWildcard(host string) string {
	if _, parent, ok := strings.Cut(host, "."); ok && !strings.HasPrefix(host, "*") {
		return "*." + parent
	}
	return ""
}

// wildcardCertificates uses the certificate of the parent wildcard host for hosts without one, as ingress-nginx does.
func (c *converter) wildcardCertificates(list []*server, servers map[string]*server) {
	for _, s := range list {
		wild := servers[parentWildcard(s.host)]
		if s.host == "" || s.tls || wild == nil || wild.host == "" || !wild.tls {
			continue
		}
		s.tls, s.secret, s.tlsFrom = true, wild.secret, wild.tlsFrom
		c.reportTranslated(s.locations[0].from, "spec.rules", s.host+" has the certificate of "+wild.host+", as in ingress-nginx, so that requests by HTTP are redirected to HTTPS unless ssl-redirect says otherwise")
	}
}

// tlsSecret returns the Secret of an Ingress for a host, or "" for the controller's default certificate.
func (c *converter) tlsSecret(ing *ingress, host string) string {
	for _, t := range ing.Spec.TLS {
		if slices.ContainsFunc(t.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
			if t.SecretName == "" {
				return ""
			}
			return ing.Namespace + "/" + t.SecretName
		}
	}
	// From here on ingress-nginx reads the certificates, which are not known here.
	for _, t := range ing.Spec.TLS {
		if t.SecretName != "" && slices.ContainsFunc(t.Hosts, func(h string) bool { return strings.EqualFold(h, parentWildcard(host)) }) {
			return ing.Namespace + "/" + t.SecretName
		}
	}
	for _, t := range ing.Spec.TLS {
		if len(t.Hosts) == 0 && t.SecretName != "" {
			c.reportApproximated(ing, "spec.tls", "the certificate of Secret "+t.SecretName+" is for "+host+", in ingress-nginx where it is valid for that host only, else it is the default one", "check the names in the certificate")
			return ing.Namespace + "/" + t.SecretName
		}
	}
	return ""
}

// merge adds the alternative backend of a canary to upstreams, as mergeAlternativeBackends of ingress-nginx's controller does.
func (c *converter) merge(ing *ingress, servers map[string]*server, ups map[string]*upstream) {
	one := func(where string, b *networkingv1.IngressServiceBackend, locations []*location, matches func(*location) bool) {
		name := upstreamName(ing.Namespace, b)
		up := ups[name]
		if up == nil {
			c.reportTranslated(ing, where, "left out: ingress-nginx has dropped the Service of this canary, since another path of a canary with it is one of no other Ingress")
			return
		}
		merged := false
		for _, l := range locations {
			primary := ups[l.upstream()]
			if primary == nil {
				continue
			}
			if primary == up {
				c.reportTranslated(ing, where, "left out: the Service is that of an ordinary path of this host too, so ingress-nginx ignores the canary")
				return
			}
			if primary.canary || !matches(l) {
				continue
			}
			merged = true
			if !slices.Contains(primary.alternatives, name) {
				primary.alternatives = append(primary.alternatives, name)
			}
			if first := primary.alternatives[0]; first != name && ups[first] != nil {
				c.reportApproximated(ing, where, "ingress-nginx has one canary for each Service, the first; this is a further one, and is left out", "combine them in one rule with weights")
				c.byAge(ups[first].from, ing, "the canary of "+l.upstream())
			}
		}
		switch {
		case !merged:
			delete(ups, name)
			c.reportTranslated(ing, where, "left out: no other Ingress has this path of this host with another Service, so ingress-nginx ignores the canary")
		case !up.canary:
			c.reportTranslated(ing, where, "left out: "+up.from.String()+" is older and names the Service without being a canary, so that ingress-nginx sends nothing to it as a canary")
		case up.from != ing:
			c.reportTranslated(ing, where, "the annotations of "+up.from.String()+" hold, which is the older canary with this Service, as in ingress-nginx")
			c.byAge(up.from, ing, "how requests are shared with Service "+b.Name)
		}
	}
	if b := ing.Spec.DefaultBackend; b != nil && b.Service != nil {
		one("spec.defaultBackend", b.Service, servers[""].locations, func(*location) bool { return true })
	}
	for ri, rule := range ing.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for pi, p := range rule.HTTP.Paths {
			if p.Backend.Service == nil {
				continue
			}
			where := "spec.rules[" + itoa(ri) + "].http.paths[" + itoa(pi) + "]"
			s := servers[rule.Host]
			if s == nil {
				c.reportTranslated(ing, where, "left out: no other Ingress has this host, so ingress-nginx ignores the canary")
				continue
			}
			one(where, p.Backend.Service, s.locations, func(l *location) bool { return l.path == p.Path && l.exact == isExact(p) })
		}
	}
}

// canaryOf returns the alternative backend of a location. It belongs to the Service, so all paths with that Service share it.
func (c *converter) canaryOf(l *location, ups map[string]*upstream) *canary {
	up := ups[l.upstream()]
	if up == nil || len(up.alternatives) == 0 {
		return nil
	}
	first := ups[up.alternatives[0]]
	if first == nil || !first.canary {
		return nil
	}
	return &canary{from: first.from, backend: first.backend}
}

var metacharacter = regexp.MustCompile(`[\\^$*+?()\[\]{}|]`)

// literal reports whether a path matches only itself as a regular expression. A dot is treated as a literal dot.
func literal(path string) bool { return !metacharacter.MatchString(path) }
