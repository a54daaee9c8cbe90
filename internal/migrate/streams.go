package migrate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// stream is a port for TCP or UDP that is forwarded to a Service.
type stream struct {
	protocol           string // TCP or UDP
	port               int
	namespace, service string
	servicePort        int
	entry              Entry // the entry if it is translated
}

// readStreams reads the ConfigMaps with ports for TCP and UDP that options or the controller's arguments name, and reports each of
// their keys. One that only has a typical name opens no port: a user who may write it in their own namespace could otherwise publish
// the Services of others.
func (c *converter) readStreams() (all []stream) {
	given := slices.Clone(c.input.configMaps)
	slices.SortStableFunc(given, func(a, b *configMap) int { return strings.Compare(a.String(), b.String()) })
	for _, kind := range []struct{ protocol, name string }{{"TCP", c.options.TCPServices}, {"UDP", c.options.UDPServices}} {
		found := false
		for _, m := range given {
			switch {
			case kind.name == m.Namespace+"/"+m.Name && !found:
				found = true
				all = append(all, c.streamsOf(kind.protocol, m)...)
			case kind.name == "" && c.controller == nil && m.ofStreams(strings.ToLower(kind.protocol)):
				c.unreadPorts(kind.protocol, m)
			}
		}
		if kind.name != "" && !found {
			c.report = append(c.report, Entry{Object: "ConfigMap " + kind.name, Outcome: NotTranslated, Message: "is not in the input, so that its ports for " + kind.protocol + " are left out", Remedy: "give it as input, too"})
		}
	}
	return all
}

// unreadPorts reports the keys of a ConfigMap that ingress-nginx is not known to read.
func (c *converter) unreadPorts(protocol string, m *configMap) {
	for key := range m.Data {
		c.report = append(c.report, Entry{Position: manifest.Position{File: m.at.File, Line: cmp.Or(m.lines[key], m.at.Line)}, Object: m.String(), Field: key, Outcome: NotTranslated,
			Message: "the port is left out, since nothing but the name of the ConfigMap says that ingress-nginx reads it for " + protocol,
			Remedy:  "where it does, name it by --" + strings.ToLower(protocol) + "-services-configmap, or give the controller's Deployment or DaemonSet, too"})
	}
}

// ofStreams reports whether a ConfigMap has the name of one with ports for a protocol, tcp or udp, in the chart or in older
// manifests.
func (m *configMap) ofStreams(protocol string) bool {
	return m.Name == protocol+"-services" || (m.Labels["app.kubernetes.io/name"] == "ingress-nginx" && strings.HasSuffix(m.Name, "-"+protocol))
}

// streamsOf reads a ConfigMap whose keys are ports and whose values are namespace/service:port, followed by PROXY if a PROXY header
// is expected or sent.
func (c *converter) streamsOf(protocol string, m *configMap) (all []stream) {
	keys := slices.SortedFunc(maps.Keys(m.Data), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	seen := map[int]string{}
	for _, key := range keys {
		e := Entry{Position: manifest.Position{File: m.at.File, Line: cmp.Or(m.lines[key], m.at.Line)}, Object: m.String(), Field: key, Outcome: NotTranslated}
		parts := strings.Split(strings.TrimSpace(m.Data[key]), ":")
		namespace, service, ok := strings.Cut(parts[0], "/")
		ok = ok && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1035Label(service)) == 0 && len(parts) > 1
		port, err := strconv.Atoi(key)
		s := stream{protocol: protocol, port: port, namespace: namespace, service: service}
		number := false
		if ok {
			s.servicePort, number = c.servicePort(parts[0], parts[1], protocol)
		}
		reserved := c.reserved(port)
		switch {
		case err != nil || port < 1 || port > 65535 || !ok || number && (s.servicePort < 1 || s.servicePort > 65535):
			e.Message, e.Remedy = "is not a port with namespace/service:port; ingress-nginx leaves it out, too", "correct it"
		case reserved != "":
			e.Message, e.Remedy = "the port is one that ingress-nginx reserves for itself, by --"+reserved+", and leaves out, too", "nothing, unless the port is to be served now; then write a listener and a "+protocol+"Route"
		case seen[port] != "":
			e.Message, e.Remedy = "the port is that of key "+seen[port]+", too, and left out", "leave one of them out"
		case c.global.streams != "":
			e.Message, e.Remedy = "the port is left out, since "+c.global.streams, "see its entry"
		case protocol == "TCP" && slices.ContainsFunc(parts[2:], func(p string) bool { return p != "" }): // nginx supports none for UDP
			e.Message, e.Remedy = "the PROXY protocol of single ports is not translated, and the port is left out", "write a listener and a TCPRoute; for connections from clients set ports[].proxyProtocol and trustedProxies of GatewayParameters, for those to backends see docs/tasks/backend-traffic-policy.md"
		case s.servicePort == 0:
			e.Message, e.Remedy = "the number of port "+parts[1]+" of Service "+parts[0]+" is not known, and the port is left out", "give the Service as input too, or name the port by its number"
		case protocol == "TCP" && (port == cmp.Or(c.options.HTTPPort, 80) || port == cmp.Or(c.options.HTTPSPort, 443)):
			e.Message, e.Remedy = "the port is one of HTTP, and left out", "give --http-port and --https-port"
		default:
			e.Outcome = Approximated
			e.Message = "a listener with a " + protocol + "Route; a connection on which nothing passes ends after an hour, in nginx after proxy-stream-timeout, 10 minutes by default"
			if protocol == "UDP" {
				e.Message = "a listener with a UDPRoute; when a session ends is decided by Moongate, in nginx by proxy-stream-timeout and proxy-stream-responses"
			}
			s.entry = e
			seen[port] = key
			all = append(all, s)
			continue
		}
		c.report = append(c.report, e)
	}
	return all
}

// servicePort returns the number of a Service's port that is given by number or name, 0 if it is not known. number reports whether a
// number was given.
func (c *converter) servicePort(service, port, protocol string) (n int, number bool) {
	if n, err := strconv.Atoi(port); err == nil {
		return n, true
	}
	if known := c.input.services[service]; known != nil {
		for _, p := range known.Spec.Ports {
			if p.Name == port && cmp.Or(string(p.Protocol), "TCP") == protocol {
				n = int(p.Port)
			}
		}
	}
	return n, false
}

// reservedPorts are the arguments of ingress-nginx for its own ports, which cannot be used otherwise, and their defaults.
var reservedPorts = []struct {
	argument string
	port     int
}{{"http-port", 80}, {"https-port", 443}, {"ssl-passthrough-proxy-port", 442}, {"healthz-port", 10254}, {"default-server-port", 8181}, {"profiler-port", 10245}, {"status-port", 10246}, {"stream-port", 10247}}

// reserved returns the argument because of which ingress-nginx itself uses a port; "" if it does not.
func (c *converter) reserved(port int) string {
	for _, r := range reservedPorts {
		own, err := strconv.Atoi(c.controller.value(r.argument))
		if err != nil {
			own = r.port
		}
		if port == own {
			return r.argument
		}
	}
	return ""
}

// forward makes listeners and routes of ports. A route is in the namespace of its Service, so that it needs no grant.
func (c *converter) forward(all []stream) {
	for _, s := range all {
		name := strings.ToLower(s.protocol) + "-" + itoa(s.port)
		if len(c.listeners)+len(c.ports) >= maxListeners {
			s.entry.Outcome, s.entry.Message, s.entry.Remedy = NotTranslated, "a Gateway has "+itoa(maxListeners)+" listeners at most; "+name+" is left out", "migrate in parts, or add the listener by another Gateway"
			c.report = append(c.report, s.entry)
			continue
		}
		c.report = append(c.report, s.entry)
		c.port(name, s.namespace, fields("port", s.port, "protocol", s.protocol))
		c.stream(s.protocol+"Route", s.namespace, s.service+"-"+name, name, nil, fields("name", s.service, "port", s.servicePort), s.entry.Object+" ("+s.entry.Position.String()+")")
	}
}

// port adds a listener to which routes of one namespace attach.
func (c *converter) port(name, namespace string, listener object) {
	l := append(object{{"name", name}}, listener...)
	if namespace != c.options.Namespace {
		l = l.with("allowedRoutes", fields("namespaces", fields("from", "Selector", "selector", fields("matchLabels", fields("kubernetes.io/metadata.name", namespace)))))
	}
	c.ports = append(c.ports, l)
}

// stream adds an L4 route.
func (c *converter) stream(kind, namespace, name, listener string, hosts []string, ref object, source string) {
	parent := fields("name", c.options.Name)
	if namespace != c.options.Namespace {
		parent = parent.with("namespace", c.options.Namespace)
	}
	c.streams = append(c.streams, &document{kind: kind, namespace: namespace, name: shorten(name), sources: []string{source},
		body: meta("gateway.networking.k8s.io/v1", kind, namespace, shorten(name), fields("parentRefs", []object{parent.with("sectionName", listener)}, "hostnames", hosts, "rules", []object{fields("backendRefs", []object{ref})}))})
}

// passthrough returns the location to whose backend TLS connections for a host are forwarded without being terminated; nil if the
// Gateway terminates TLS. In ingress-nginx the oldest Ingress of a host decides.
func (c *converter) passthrough(s *server) *location {
	if !c.options.Passthrough || s.host == "" || !c.enabled(s.first, "ssl-passthrough") {
		return nil
	}
	for _, l := range s.locations {
		if l.path == "/" && l.backend != nil {
			return l
		}
	}
	return nil
}

// passTLS makes a listener and a TLSRoute, by which connections for a host are forwarded to the backend of a location without TLS
// being terminated.
func (c *converter) passTLS(s *server, l *location) {
	name := c.listenerName("tls", s.host)
	r := &route{namespace: l.from.Namespace}
	ref, ok := c.backendRef(r, l.from, l.field, l.backend)
	why := ""
	switch {
	case !ok:
		why = "the number of port " + l.backend.Port.Name + " of Service " + l.from.Namespace + "/" + l.backend.Name + " is not known"
	case len(c.listeners)+len(c.ports) >= maxListeners:
		why = "a Gateway has " + itoa(maxListeners) + " listeners at most"
	}
	if why != "" {
		c.reportNotTranslated(s.first, "ssl-passthrough", "there is no listener for connections with TLS to "+s.host+": "+why, "write a listener and a TLSRoute (docs/tasks/tls-passthrough.md)")
		return
	}
	c.port(name, l.from.Namespace, fields("hostname", s.host, "port", cmp.Or(c.options.HTTPSPort, 443), "protocol", "TLS", "tls", fields("mode", "Passthrough")))
	c.stream("TLSRoute", l.from.Namespace, l.from.Name+"-"+name, name, []string{s.host}, ref, l.from.String()+" ("+l.from.at.String()+")")
	c.reportTranslated(s.first, "ssl-passthrough", "a TLSRoute sends connections with TLS for "+s.host+" as they are to the backend of /; nothing else of the annotations holds for these")
}
