package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// controller is a Deployment or DaemonSet that runs ingress-nginx.
type controller struct {
	kind, namespace, name string
	at                    manifest.Position
	arguments             map[string]argument // by name, without dashes
	unknown               string              // why its arguments are not known; "" if they are
}

type argument struct {
	value string
	line  int
}

func (m *controller) String() string { return m.kind + " " + m.namespace + "/" + m.name }

// value returns an argument's value, or "".
func (m *controller) value(name string) string {
	if m == nil {
		return ""
	}
	return m.arguments[name].value
}

// on reports whether a boolean argument is set.
func (m *controller) on(name string) bool { return boolean(m.value(name), false) }

// class returns the controller's name in IngressClasses.
func (m *controller) class() string {
	return cmp.Or(m.value("controller-class"), "k8s.io/ingress-nginx")
}

// ingressClass is an IngressClass of the input.
type ingressClass struct {
	controller string
	byDefault  bool // the default for Ingresses that are created without a class
}

// newController returns nil if no container of the object runs ingress-nginx.
func newController(head string, position manifest.Position, offset int, n *yaml.Node) *controller {
	m := &controller{kind: head, namespace: text(at(at(n, "metadata"), "namespace")), name: text(at(at(n, "metadata"), "name")), at: position, arguments: map[string]argument{}}
	m.namespace = cmp.Or(m.namespace, "default")
	containers := at(at(at(at(n, "spec"), "template"), "spec"), "containers")
	if containers == nil || containers.Kind != yaml.SequenceNode {
		return nil
	}
	line := func(n *yaml.Node) int {
		if position.Line == 0 {
			return 0
		}
		return offset + n.Line
	}
	runs := false
	for _, c := range containers.Content {
		switch c = resolved(c); {
		case !runsController(c):
		case runs:
			m.unknown = "several of its containers run ingress-nginx"
		default:
			runs = true
			m.readArguments(c, line)
		}
	}
	if !runs {
		return nil
	}
	return m
}

// text returns a scalar, or "" if there is none.
func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// controllersOf returns the controllers of the input that serve a class, or the one that options name, and the ignored ones. A
// controller whose arguments are not known may serve any class.
func (in *Input) controllersOf(o Options) (serving, passed []*controller) {
	for _, m := range in.controllers {
		serves := m.unknown != ""
		switch class := in.classes[o.Class]; {
		case o.Controller != "":
			serves = o.Controller == m.namespace+"/"+m.name
		case class != nil:
			serves = serves || class.controller == m.class()
		default:
			serves = serves || cmp.Or(m.value("ingress-class"), "nginx") == o.Class
		}
		if serves {
			serving = append(serving, m)
		} else {
			passed = append(passed, m)
		}
	}
	return serving, passed
}

// Ambiguous returns which controllers or ConfigMaps of the input may be the relevant ones, and the flag that selects one; "" if it
// is known, or if there is none. Otherwise a user who may write another one could remove what the controller requires of all
// requests.
func (in *Input) Ambiguous(o Options) string {
	var names []string
	switch serving, passed := in.controllersOf(o); {
	case len(serving) > 1:
		return "several controllers serve the class " + o.Class + ": " + described(serving) + "; name the one that counts with --controller"
	case len(serving) == 0 && o.Controller != "":
		if len(passed) == 0 {
			return "there is no Deployment or DaemonSet " + o.Controller + " that runs ingress-nginx; give it as input, too"
		}
		return "there is no Deployment or DaemonSet " + o.Controller + " that runs ingress-nginx, but " + described(passed) + "; name the one that counts with --controller"
	case o.ConfigMap != "":
		return ""
	}
	for _, m := range in.configMaps {
		if in.mayBeRead(m, o) {
			names = append(names, m.Namespace+"/"+m.Name)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > 1 {
		return "several ConfigMaps look like that of the controller: " + strings.Join(names, ", ") + "; name the one that counts with --configmap"
	}
	return ""
}

// described names controllers, with the ConfigMaps that they read.
func described(all []*controller) string {
	var names []string
	for _, m := range all {
		reads := cmp.Or(m.value("configmap"), "of none")
		if m.unknown != "" {
			reads = "unknown"
		}
		names = append(names, m.String()+" (--configmap "+reads+")")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// mayBeRead reports whether a ConfigMap that nothing names is used as the controller's because of its name: if the input has no
// controller, or has one with unknown arguments in the ConfigMap's namespace.
func (in *Input) mayBeRead(m *configMap, o Options) bool {
	serving, _ := in.controllersOf(o)
	return m.ofController() && (len(in.controllers) == 0 || len(serving) == 1 && serving[0].unknown != "" && serving[0].namespace == m.Namespace)
}

// ConfigMaps returns the names, as namespace/name, of the relevant ConfigMaps according to options and the controller's arguments.
// known is false if nothing names that of the controller: then ConfigMaps with the names of NamesOfConfigMaps are relevant, if only
// to be reported.
func (in *Input) ConfigMaps(o Options) (names []string, known bool) {
	serving, _ := in.controllersOf(o)
	if known = len(serving) == 1 && serving[0].unknown == ""; known {
		o = o.from(serving[0])
	}
	names = append(names, o.ConfigMap, o.TCPServices, o.UDPServices)
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	slices.Sort(names)
	return slices.Compact(names), known && o.ConfigMap != ""
}

// NamesOfConfigMaps are the names that the chart of ingress-nginx and older manifests give to ConfigMaps that the controller reads.
// Those of the chart also have the label app.kubernetes.io/name=ingress-nginx.
var NamesOfConfigMaps = []string{"ingress-nginx-controller", "nginx-configuration", "tcp-services", "udp-services"}

// from returns options, with unset ones taken from a controller's arguments.
func (o Options) from(m *controller) Options {
	o.ConfigMap = cmp.Or(o.ConfigMap, m.value("configmap"))
	o.TCPServices = cmp.Or(o.TCPServices, m.value("tcp-services-configmap"))
	o.UDPServices = cmp.Or(o.UDPServices, m.value("udp-services-configmap"))
	o.DefaultCertificate = cmp.Or(o.DefaultCertificate, m.value("default-ssl-certificate"))
	o.WithoutClass = o.WithoutClass || m.on("watch-ingress-without-class")
	o.Passthrough = o.Passthrough || m.on("enable-ssl-passthrough")
	return o
}

// argumentsWithoutEffect do not change responses.
var argumentsWithoutEffect = strings.Fields(`alsologtostderr log_backtrace_at log_dir log_file log_file_max_size logtostderr one_output skip_headers skip_log_headers stderrthreshold v vmodule add_dir_header
	apiserver-host bucket-factor certificate-authority controller-class deep-inspect default-server-port disable-full-test disable-leader-election disable-sync-events dynamic-configuration-retries election-id election-ttl
	enable-metrics enable-topology-aware-routing exclude-socket-metrics health-check-path health-check-timeout healthz-host healthz-port http-port https-port ingress-class internal-logger-address kubeconfig length-buckets
	max-buckets metrics-per-host metrics-per-undefined-host monitor-max-batch-size post-shutdown-grace-period profiler-address profiler-port profiling publish-service publish-status-address report-node-internal-ip-address
	report-status-classes shutdown-grace-period size-buckets ssl-passthrough-proxy-port status-port status-update-interval stream-port sync-period sync-rate-limit time-buckets tcp-services-configmap udp-services-configmap
	update-status update-status-on-shutdown validating-webhook validating-webhook-certificate validating-webhook-key configmap default-ssl-certificate watch-ingress-without-class enable-ssl-passthrough watch-namespace
	disable-catch-all annotations-prefix ingress-class-by-name`)

// argumentNotes are the report messages of arguments that are translated.
var argumentNotes = map[string]string{
	"configmap":                   "this ConfigMap is read",
	"tcp-services-configmap":      "its ports are listeners with TCPRoutes",
	"udp-services-configmap":      "its ports are listeners with UDPRoutes",
	"default-ssl-certificate":     "hosts without a certificate of their own have it",
	"watch-ingress-without-class": "Ingresses without a class are read",
	"enable-ssl-passthrough":      "ssl-passthrough takes effect",
	"watch-namespace":             "Ingresses of other namespaces are left out",
	"disable-catch-all":           "Ingresses with a default backend are left out, with their rules",
	"annotations-prefix":          "annotations with this prefix are read, and reported as those of nginx.ingress.kubernetes.io",
	"controller-class":            "IngressClasses of this controller are those that are served",
	"ingress-class":               "Ingresses with this class as an annotation are read",
}

// argumentVerdicts are the arguments that change responses and are not translated.
var argumentVerdicts = map[string]verdict{
	"default-backend-service":      {"unknown hosts and paths are answered 404, and not by this Service", "write an HTTPRoute without hostnames to it"},
	"enable-annotation-validation": {"which annotations the controller refuses is not considered: all are translated", "leave out those that it refuses, which its log names"},
	"enable-ssl-chain-completion":  {"certificates are sent as their Secrets have them", "put intermediate certificates into the Secrets"},
	"disable-svc-external-name":    {"Services of type ExternalName are judged by Moongate's own rules", "see docs/tasks/external-hosts.md"},
	"watch-namespace-selector":     {"Ingresses of all namespaces are read", "give those of the namespaces that it selects"},
	"maxmind-license-key":          {"there is no GeoIP", "ask an authorization server, or have the application do it"},
	"maxmind-edition-ids":          {"there is no GeoIP", "ask an authorization server, or have the application do it"},
	"maxmind-mirror":               {"there is no GeoIP", "ask an authorization server, or have the application do it"},
	"maxmind-retries-count":        {"there is no GeoIP", ""},
	"maxmind-retries-timeout":      {"there is no GeoIP", ""},
}

// readController reads the controller's arguments, and reports each.
func (c *converter) readController() {
	say := func(m *controller, field string, outcome Outcome, message, remedy string) {
		c.report = append(c.report, Entry{Position: m.at, Object: m.String(), Field: field, Outcome: outcome, Message: message, Remedy: remedy})
	}
	serving, passed := c.input.controllersOf(c.options)
	for _, m := range passed {
		if c.options.Controller != "" {
			say(m, "spec", Translated, "left out: --controller names another", "")
			continue
		}
		say(m, "spec", NotTranslated, "is passed over: it serves the class "+cmp.Or(m.value("ingress-class"), "nginx")+" as an annotation, and IngressClasses of controller "+m.class()+", not the class "+c.options.Class,
			"name it by --controller where it serves "+c.options.Class+"; else give the IngressClass and the controller that does")
	}
	if len(serving) != 1 {
		for _, m := range serving {
			say(m, "spec", NotTranslated, "several controllers serve the class "+c.options.Class+", so that the arguments of none are read", "name the one that counts with --controller")
		}
		return
	}
	m := serving[0]
	if c.options.Controller != "" {
		say(m, "metadata.name", Translated, "is the controller, as --controller says", "")
	} else {
		holds := ""
		if m.unknown == "" {
			holds = ", so that what its arguments say holds"
		}
		say(m, "metadata.name", Approximated, "is taken for the controller that serves the class "+c.options.Class+holds, "make sure that it is the one; --controller names one")
	}
	if m.unknown != "" {
		c.unread = m
		say(m, "spec.template.spec.containers", NotTranslated, "the arguments of the controller are not known: "+m.unknown+"; those of ingress-nginx by default are assumed",
			"give it with all arguments as a list behind "+program+", or say what they say by --configmap and the other flags")
		return
	}
	c.controller = m
	c.options = c.options.from(m)
	for name, a := range m.arguments {
		e := Entry{Position: manifest.Position{File: m.at.File, Line: cmp.Or(a.line, m.at.Line)}, Object: m.String(), Field: "--" + name, Outcome: Translated}
		v, differs := argumentVerdicts[name]
		on, err := strconv.ParseBool(a.value)
		boolean := slices.Contains(booleans, name)
		switch note, translated := argumentNotes[name]; {
		case boolean && err != nil:
			e.Outcome, e.Message, e.Remedy = NotTranslated, fmt.Sprintf("%q is neither true nor false, and ingress-nginx does not start with it", a.value), "correct it"
		case boolean && !on, !boolean && a.value == "":
			e.Message = "has no effect with this value"
		case translated:
			e.Message = note
		case differs:
			e.Outcome, e.Message, e.Remedy = NotTranslated, v.message, v.remedy
		case slices.Contains(argumentsWithoutEffect, name):
			e.Message = noEffect
		default:
			e.Outcome, e.Message, e.Remedy = NotTranslated, "is not an argument documented for ingress-nginx 1.14", "check what it does"
		}
		c.report = append(c.report, e)
	}
}

const classAnnotation = "kubernetes.io/ingress.class"

// serves reports whether the controller serves a class that spec.ingressClassName names: any whose IngressClass names the
// controller.
func (c *converter) serves(class string) bool {
	want, have := c.input.classes[c.options.Class], c.input.classes[class]
	return class == c.options.Class || (want != nil && have != nil && want.controller == have.controller)
}

// annotationClass returns the class annotation of Ingresses that the controller serves. It is not the name of an IngressClass.
func (c *converter) annotationClass() string {
	if c.controller == nil {
		return c.options.Class
	}
	return cmp.Or(c.controller.value("ingress-class"), "nginx")
}

// taken returns the Ingresses that the controller serves, with the defaults of its ConfigMap, and reports the others.
func (c *converter) taken() (taken []*ingress) {
	for _, ing := range c.input.ingresses {
		class, annotated := ing.Annotations[classAnnotation]
		what, fresh := "", ing.CreationTimestamp.IsZero() && ing.UID == ""
		if ing.Spec.IngressClassName != nil { // it takes precedence over the annotation
			class, annotated = *ing.Spec.IngressClassName, false
		}
		switch {
		case ing.Spec.IngressClassName != nil && c.serves(class):
			if class != c.options.Class {
				c.reportTranslated(ing, "spec.ingressClassName", "IngressClass "+class+" is of the same controller as "+c.options.Class)
			}
		case annotated && class == c.annotationClass():
		case annotated && class == "":
			c.reportTranslated(ing, classAnnotation, "is empty, which ingress-nginx takes for its own class")
		case annotated && class == c.options.Class:
			c.reportNotTranslated(ing, classAnnotation, c.controller.String()+" serves the class "+c.annotationClass()+" where it is an annotation, and not "+class, "name the class in spec.ingressClassName, or give --controller where another serves it")
			continue
		case class != "":
			c.reportNotTranslated(ing, "spec.ingressClassName", "the class "+class+" is not "+c.options.Class, "give --class "+class+" where ingress-nginx serves that")
			continue
		case c.options.WithoutClass:
			c.reportTranslated(ing, "spec.ingressClassName", "there is no class, and the controller serves such Ingresses, as --watch-ingress-without-class says")
		case fresh && c.defaultClass() != "": // an API server sets it in Ingresses that are created
			c.reportTranslated(ing, "spec.ingressClassName", "there is no class, so IngressClass "+c.defaultClass()+" holds, which is the default one")
		default:
			what = "there is no class, and ingress-nginx serves Ingresses without a class with --watch-ingress-without-class only"
			if fresh {
				what += ", or where their IngressClass is the default one when they are created"
			}
			if c.controller == nil {
				c.reportNotTranslated(ing, "spec.ingressClassName", what, "give --watch-ingress-without-class where the controller has that argument, or name the class")
				continue
			}
			c.reportTranslated(ing, "spec.ingressClassName", "left out: "+what)
			continue
		}
		ing = c.renamed(ing)
		switch watched := c.controller.value("watch-namespace"); {
		case watched != "" && watched != ing.Namespace:
			c.reportTranslated(ing, "metadata.namespace", "left out: ingress-nginx serves namespace "+watched+" only")
		case ing.Spec.DefaultBackend != nil && c.controller.on("disable-catch-all"):
			c.reportTranslated(ing, "spec.defaultBackend", "left out: with --disable-catch-all ingress-nginx does not serve Ingresses with a default backend, nor their rules")
		default:
			taken = append(taken, c.withDefaults(ing))
		}
	}
	return taken
}

// defaultClass returns the class that is served and is the default for new Ingresses; "" if there is none.
func (c *converter) defaultClass() (name string) {
	for class, is := range c.input.classes {
		if is.byDefault && c.serves(class) && (name == "" || class < name) {
			name = class
		}
	}
	return name
}

// renamed returns an Ingress with the prefix of annotations that is used here, if the controller uses another. What a controller
// that options do not name would allow in this way stays withheld.
func (c *converter) renamed(ing *ingress) *ingress {
	other := c.controller.value("annotations-prefix")
	if c.controller == nil && len(c.input.controllers) > 0 {
		return c.doubted(ing)
	}
	if other == "" || other+"/" == prefix {
		return ing
	}
	out := *ing
	out.Ingress, out.lines = ing.DeepCopy(), map[string]int{}
	for name := range ing.Annotations {
		short, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		delete(out.Annotations, name)
		e := Entry{Position: manifest.Position{File: ing.at.File, Line: cmp.Or(ing.lines[name], ing.at.Line)}, Object: ing.String(), Field: name, Outcome: Translated, Message: "has no effect, since the controller has --annotations-prefix=" + other}
		paths := ""
		if c.options.Controller == "" {
			paths = out.hold(short, "--annotations-prefix="+other+" of "+c.controller.String()+" takes back what protects it")
		}
		if paths != "" {
			e.Outcome, e.Message = NotTranslated, "has no effect where "+c.controller.String()+" is the controller, which has --annotations-prefix="+other+"; so that nothing is open, "+paths+" are answered 500"
			e.Remedy = "name the controller by --controller where it is this one, or leave the annotation out"
		}
		c.report = append(c.report, e)
	}
	for name, value := range ing.Annotations {
		if short, ok := strings.CutPrefix(name, other+"/"); ok {
			out.Annotations[prefix+short] = value
			out.lines[prefix+short] = ing.lines[name]
		}
	}
	return &out
}

// protecting are the annotations that keep requests from the backends of an Ingress, and protectingHosts those that do so for all
// paths of its hosts.
var (
	protecting = strings.Fields(`auth-type auth-url auth-snippet allowlist-source-range whitelist-source-range denylist-source-range satisfy enable-modsecurity enable-owasp-core-rules modsecurity-snippet configuration-snippet
		enable-global-auth limit-rps limit-rpm limit-connections`)
	protectingHosts = strings.Fields("auth-tls-secret server-snippet")
)

// hold withholds the backends that an annotation protects, given without its prefix, and describes the paths; "" if it protects
// none.
func (i *ingress) hold(annotation, why string) (paths string) {
	switch {
	case slices.Contains(protectingHosts, annotation):
		i.held, i.heldHosts = why, true
		return "all paths of its hosts, those of other Ingresses too,"
	case slices.Contains(protecting, annotation):
		i.held = why
		return "its paths"
	}
	return ""
}

// doubted withholds an Ingress whose annotations with other prefixes may protect it, because --annotations-prefix of the controller
// is not known.
func (c *converter) doubted(ing *ingress) *ingress {
	out := *ing
	for _, name := range slices.Sorted(maps.Keys(ing.Annotations)) {
		_, short, ok := strings.Cut(name, "/")
		if !ok || strings.HasPrefix(name, prefix) {
			continue
		}
		if paths := out.hold(short, "whether "+name+" protects it is not known, nor --annotations-prefix of the controller"); paths != "" {
			c.report = append(c.report, Entry{Position: manifest.Position{File: ing.at.File, Line: cmp.Or(ing.lines[name], ing.at.Line)}, Object: ing.String(), Field: name, Outcome: NotTranslated,
				Message: "may protect it, since --annotations-prefix of the controller is not known; so that nothing is open, " + paths + " are answered 500", Remedy: "give the controller with its arguments, or leave the annotation out where it is for another"})
		}
	}
	return &out
}

// defaultCertificate uses the controller's default certificate for hosts without one. ingress-nginx serves every host over HTTPS.
func (c *converter) defaultCertificate(servers []*server) {
	namespace, name, ok := strings.Cut(c.options.DefaultCertificate, "/")
	if c.options.DefaultCertificate != "" && (!ok || namespace == "" || name == "") {
		c.report = append(c.report, Entry{Object: "all", Field: "--default-ssl-certificate", Outcome: NotTranslated, Message: fmt.Sprintf("%q is no namespace/name", c.options.DefaultCertificate), Remedy: "name the Secret"})
		c.options.DefaultCertificate = ""
	}
	for _, s := range servers {
		if s.secret == "" {
			s.secret = c.options.DefaultCertificate
		}
	}
}

// anyHost answers HTTPS requests for other hosts with 404 and the default certificate, as ingress-nginx does.
func (c *converter) anyHost(servers []*server) {
	if c.options.DefaultCertificate != "" && len(servers) > 0 && servers[0].host != "" {
		c.listen(servers[0], "", c.options.DefaultCertificate)
	}
}
