package charts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

func everything(t *testing.T) map[string]any {
	t.Helper()
	return parse(t, read(t, "testdata/everything.yaml"))
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func TestLint(t *testing.T) {
	for _, name := range []string{"moongate", "moongate-crds"} {
		for _, message := range lint.RunAll(filepath.Join(root, "charts", name), nil, "default").Messages {
			// An icon is a picture on the web, of which there is none.
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, message)
			}
		}
	}
}

func TestDefaults(t *testing.T) {
	r := mustRender(t, "moongate", nil)
	want := []string{
		"ClusterRole moongate-controller-moongate-system", "ClusterRoleBinding moongate-controller-moongate-system",
		"Deployment moongate-controller", "GatewayClass moongate", "PodDisruptionBudget moongate-controller",
		"Role moongate-controller", "RoleBinding moongate-controller", "Service moongate-controller", "ServiceAccount moongate-controller",
	}
	if got := r.names(t); !slices.Equal(got, want) {
		t.Errorf("rendered %q", got)
	}
	if crds := r.chart.CRDObjects(); len(crds) != 0 {
		t.Errorf("%d CRDs that nobody asked for", len(crds))
	}
	if !strings.Contains(r.notes, "class moongate gets a proxy") {
		t.Errorf("notes:\n%s", r.notes)
	}
	// Deleted with the release it would wait for its Gateways to go, and fail the next installation.
	if class := get[*gwv1.GatewayClass](t, r, "GatewayClass moongate"); class.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("the GatewayClass would go with the release: %v", class.Annotations)
	}
	if budget := get[*policyv1.PodDisruptionBudget](t, r, "PodDisruptionBudget moongate-controller"); *budget.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
		t.Errorf("pods that are not ready hold up drains: %v", budget.Spec)
	}

	d := get[*appsv1.Deployment](t, r, "Deployment moongate-controller")
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	image := "ghcr.io/moongate-dev/moongate:" + r.chart.Metadata.AppVersion
	if c.Image != image || !slices.Contains(c.Args, "--image="+image) {
		t.Errorf("image %s, args %q", c.Image, c.Args)
	}
	if *d.Spec.Replicas != 2 {
		t.Errorf("%d replicas", *d.Spec.Replicas)
	}
	// What the Pod Security Standard "restricted" asks for, and a read-only root.
	if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser != 65532 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod's security context: %v", s)
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil {
		t.Errorf("container's security context: %v", s)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.IntValue() != 9902 {
			t.Errorf("probe of %s: %v", path, probe)
		}
	}
	s := get[*corev1.Service](t, r, "Service moongate-controller")
	if s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses || s.Spec.Ports[0].Port != 9443 {
		t.Errorf("service: %v", s.Spec)
	}
	p := get[*policyv1.PodDisruptionBudget](t, r, "PodDisruptionBudget moongate-controller")
	for what, selector := range map[string]map[string]string{"Service": s.Spec.Selector, "PodDisruptionBudget": p.Spec.Selector.MatchLabels, "Deployment": d.Spec.Selector.MatchLabels} {
		for key, value := range selector {
			if d.Spec.Template.Labels[key] != value {
				t.Errorf("%s selects %s=%s, which the pods lack", what, key, value)
			}
		}
	}
}

// TestEveryValue renders with each value changed, and asks for each where it belongs.
func TestEveryValue(t *testing.T) {
	values := everything(t)
	defaults := leaves("", load(t, "moongate").Values)
	set := leaves("", values)
	for key, value := range defaults {
		switch other, ok := set[key]; {
		case !ok:
			t.Errorf("testdata/everything.yaml lacks %s", key)
		case reflect.DeepEqual(value, other) && key != "gatewayClass.enabled":
			t.Errorf("testdata/everything.yaml leaves %s at its default", key)
		}
	}

	r := mustRender(t, "moongate", values)
	if crds := r.chart.CRDObjects(); len(crds) != 12 {
		t.Errorf("%d CRDs with crds.enabled=true", len(crds))
	}
	d := get[*appsv1.Deployment](t, r, "Deployment edge")
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	labels, annotations := d.Spec.Template.Labels, d.Spec.Template.Annotations
	class := get[*gwv1.GatewayClass](t, r, "GatewayClass second")
	parameters := get[*v1alpha1.GatewayParameters](t, r, "GatewayParameters second")
	if parameters.Annotations["helm.sh/resource-policy"] != "keep" { // the controllers may see it go, and the proxies that stay would go by nothing
		t.Errorf("the GatewayParameters would go with the release: %v", parameters.Annotations)
	}
	monitor := get[*monitoring.PodMonitor](t, r, "PodMonitor edge")
	proxies := get[*monitoring.PodMonitor](t, r, "PodMonitor moongate-proxy").Spec.PodMetricsEndpoints[0]
	relabeling := proxies.RelabelConfigs[0]
	for name, endpoint := range map[string]monitoring.PodMetricsEndpoint{"edge": monitor.Spec.PodMetricsEndpoints[0], "moongate-proxy": proxies} {
		// Operators before 0.79 do not know portNumber, and refuse an endpoint without a port. Proxies have a port of that name too.
		if endpoint.Port == nil || endpoint.PortNumber != nil || !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == *endpoint.Port && p.ContainerPort == 9902 }) {
			t.Errorf("PodMonitor %s: port %v, portNumber %v", name, endpoint.Port, endpoint.PortNumber)
		}
	}
	rule := get[*monitoring.PrometheusRule](t, r, "PrometheusRule edge")
	policy := get[*networkingv1.NetworkPolicy](t, r, "NetworkPolicy edge").Spec
	dashboard := get[*corev1.ConfigMap](t, r, "ConfigMap edge-dashboard")
	var shown struct{ Title string }
	if err := json.Unmarshal([]byte(dashboard.Data["moongate.json"]), &shown); err != nil {
		t.Error(err)
	}
	for key, value := range policy.PodSelector.MatchLabels {
		if labels[key] != value {
			t.Errorf("the NetworkPolicy selects %s=%s, which the pods lack", key, value)
		}
	}
	account := get[*corev1.ServiceAccount](t, r, "ServiceAccount edge")
	for _, name := range r.names(t) {
		if object := r.objects(t)[name].(metav1.Object); !strings.HasPrefix(name, "CustomResourceDefinition ") && (object.GetLabels()["cost-center"] != "42" || object.GetLabels()["app.kubernetes.io/instance"] == "stolen") {
			t.Errorf("commonLabels: %s has labels %v", name, object.GetLabels())
		}
	}
	const image = "registry.example/gateway@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, check := range []struct{ key, got, want string }{
		{"image", c.Image, image},
		{"image", c.Args[2], "--image=" + image},
		{"image.pullPolicy", string(c.ImagePullPolicy), "Always"},
		{"imagePullSecrets", pod.ImagePullSecrets[0].Name, "registry"},
		{"nameOverride", get[*corev1.Service](t, r, "Service edge").Name, strings.TrimPrefix(c.Args[4], "--service=")},
		{"nameOverride", get[*rbacv1.ClusterRoleBinding](t, r, "ClusterRoleBinding edge-moongate-system").RoleRef.Name, "edge-moongate-system"},
		{"nameOverride", pod.ServiceAccountName, "edge"},
		{"serviceAccount.annotations", account.Annotations["example.org/role"], "reader"},
		{"extraArgs", c.Args[len(c.Args)-1], "--leader-elect=false"},
		{"extraEnv", c.Env[2].Name + " " + c.Env[2].Value, "GODEBUG madvdontneed=1"},
		{"platformUser", fmt.Sprint(pod.SecurityContext.RunAsUser == nil, pod.SecurityContext.RunAsGroup == nil, *pod.SecurityContext.RunAsNonRoot), "true true true"},
		{"commonLabels", labels["cost-center"], "42"},
		{"replicas", fmt.Sprint(*d.Spec.Replicas), "3"},
		{"controllerName", string(class.Spec.ControllerName), "example.org/second"},
		{"controllerName", c.Args[3], "--controller-name=example.org/second"},
		{"logLevel", c.Args[8], "--log-level=debug"},
		{"logFormat", c.Args[len(c.Args)-2], "--log-format=json"},
		{"watchNamespaces", c.Args[10], "--watch-namespaces=blog,moongate-system,shop"},
		{"watchNamespaces", strings.Join(get[*monitoring.PodMonitor](t, r, "PodMonitor moongate-proxy").Spec.NamespaceSelector.MatchNames, ","), "blog,moongate-system,shop"},
		{"watchNamespaces", strings.Join(policy.Ingress[0].From[0].NamespaceSelector.MatchExpressions[0].Values, ","), "blog,moongate-system,shop"},
		{"rateLimits.redis.addressSecret", c.Args[11], "--redis=$(REDIS_ADDRESS)"},
		{"rateLimits.redis.addressSecret", c.Env[1].Name + " " + c.Env[1].ValueFrom.SecretKeyRef.Name + " " + c.Env[1].ValueFrom.SecretKeyRef.Key, "REDIS_ADDRESS redis url"},
		{"rateLimits.redis.keyPrefix", c.Args[12], "--redis-key-prefix=second:"},
		{"rateLimits.algorithm", c.Args[13], "--rate-limit-algorithm=GCRA"},
		{"rateLimits.failureMode", c.Args[14], "--rate-limit-failure-mode=Closed"},
		{"rateLimits.timeout", c.Args[15], "--rate-limit-timeout=50ms"},
		{"gatewayClass.name", class.Spec.ParametersRef.Name, "second"},
		{"gatewayClass.parameters", string(*class.Spec.ParametersRef.Namespace), parameters.Namespace},
		{"gatewayClass.parameters", fmt.Sprint(parameters.Spec.Autoscaling.MaxReplicas), "5"},
		{"resources", c.Resources.Limits.Memory().String(), "1Gi"},
		{"podLabels", labels["team"], "edge"},
		{"podLabels", labels["app.kubernetes.io/name"], "moongate-controller"},
		{"podAnnotations", annotations["example.org/note"], "true"},
		{"nodeSelector", pod.NodeSelector["kubernetes.io/os"], "linux"},
		{"tolerations", pod.Tolerations[0].Key, "edge"},
		{"affinity", fmt.Sprint(pod.Affinity.NodeAffinity != nil, pod.Affinity.PodAntiAffinity == nil), "true true"},
		{"topologySpreadConstraints", pod.TopologySpreadConstraints[0].TopologyKey, "topology.kubernetes.io/zone"},
		{"priorityClassName", pod.PriorityClassName, "system-cluster-critical"},
		{"networkPolicy.enabled", policy.Ingress[0].From[0].PodSelector.MatchLabels["app.kubernetes.io/name"], "moongate-proxy"},
		{"networkPolicy.enabled", policy.Ingress[0].Ports[0].Port.String(), "9443"},
		{"networkPolicy.proxiesFrom", policy.Ingress[0].From[1].IPBlock.CIDR, "192.0.2.0/24"},
		{"networkPolicy.metricsFrom", policy.Ingress[1].From[0].NamespaceSelector.MatchLabels["team"], "monitoring"},
		{"grafanaDashboard.enabled", shown.Title, "Moongate"},
		{"grafanaDashboard.labels", dashboard.Labels["dashboards"], "yes"},
		{"grafanaDashboard.annotations", dashboard.Annotations["grafana_folder"], "Gateways"},
		{"prometheusRule.labels", rule.Labels["release"], "prometheus"},
		{"prometheusRule.enabled", rule.Spec.Groups[0].Name, "moongate"},
		{"controllerName", fmt.Sprint(relabeling.Action, relabeling.SourceLabels, relabeling.Regex), `keep[__meta_kubernetes_pod_annotation_moongate_dev_controller]example\.org/second`},
		{"podMonitor.labels", monitor.Labels["release"], "prometheus"},
		{"podMonitor.interval", string(monitor.Spec.PodMetricsEndpoints[0].Interval), "15s"},
	} {
		if check.got != check.want {
			t.Errorf("%s: got %q, want %q", check.key, check.got, check.want)
		}
	}
}

// TestNotes: what Helm says after an installation takes kubectl alone.
func TestNotes(t *testing.T) {
	for values, want := range map[string]string{
		"{}": "rollout status deployment/moongate-controller",
		"{nameOverride: edge, gatewayClass: {enabled: false}}": "port-forward deployment/edge 9901",
		"{watchNamespaces: [shop]}":                            "kubectl -n shop apply",
	} {
		notes := mustRender(t, "moongate", parse(t, values)).notes
		if !strings.Contains(notes, want) {
			t.Errorf("%s: the notes lack %q:\n%s", values, want, notes)
		}
		for line := range strings.Lines(notes) {
			if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "  kubectl ") && !strings.HasPrefix(line, "  {") && !strings.HasPrefix(line, "   spec:") && line != "  EOF\n" {
				t.Errorf("%s: the notes have another command than kubectl: %s", values, line)
			}
		}
	}
}

// TestNotesNameCRDs: the notes say how to install the CRDs that are missing, unless the release installs them.
func TestNotesNameCRDs(t *testing.T) {
	const command = "\n  kubectl apply --server-side -f charts/moongate-crds/charts/moongate/files\n"
	if _, err := os.Stat(filepath.Join(root, "charts/moongate-crds/charts/moongate/files")); err != nil {
		t.Error(err)
	}
	before := chartcommon.DefaultCapabilities
	defer func() { chartcommon.DefaultCapabilities = before }()
	for _, c := range []struct {
		values    string
		installed bool
		want      bool
	}{{"{}", false, true}, {"{}", true, false}, {"{crds: {enabled: true}}", false, false}} {
		capabilities := before.Copy()
		if c.installed {
			capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), "moongate.dev/v1alpha1")
		}
		chartcommon.DefaultCapabilities = capabilities
		if notes := mustRender(t, "moongate", parse(t, c.values)).notes; strings.Contains(notes, command) != c.want {
			t.Errorf("%s, CRDs installed: %v, want the command: %v\n%s", c.values, c.installed, c.want, notes)
		}
	}
}

func TestTagAndSwitches(t *testing.T) {
	r := mustRender(t, "moongate", parse(t, "{image: {tag: v1.2.3}, gatewayClass: {enabled: false, parameters: {replicas: 1}}, replicas: 1}"))
	if got := get[*appsv1.Deployment](t, r, "Deployment moongate-controller").Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(got, ":v1.2.3") {
		t.Errorf("image %s", got)
	}
	for _, name := range r.names(t) {
		for _, kind := range []string{"GatewayClass", "GatewayParameters", "PodDisruptionBudget", "PodMonitor", "PrometheusRule", "NetworkPolicy", "ConfigMap"} {
			if strings.HasPrefix(name, kind+" ") {
				t.Errorf("%s was rendered", name)
			}
		}
	}
}

// TestRedisAddress: an address of Redis is given as it is, also where it looks like a variable; without one all else is said nevertheless, for those that GatewayParameters name.
func TestRedisAddress(t *testing.T) {
	for values, want := range map[string][]string{
		"{}":                                  {"--redis-key-prefix=", "--rate-limit-algorithm=FixedWindow", "--rate-limit-failure-mode=Open", "--rate-limit-timeout=20ms"},
		"{rateLimits: {failureMode: Closed}}": {"--redis-key-prefix=", "--rate-limit-algorithm=FixedWindow", "--rate-limit-failure-mode=Closed", "--rate-limit-timeout=20ms"},
		"{rateLimits: {redis: {address: '[::1]:6379'}}}":                {"--redis=[::1]:6379", "--redis-key-prefix=", "--rate-limit-algorithm=FixedWindow", "--rate-limit-failure-mode=Open", "--rate-limit-timeout=20ms"},
		"{rateLimits: {redis: {address: '$(X):1', keyPrefix: '$(Y)'}}}": {"--redis=$$(X):1", "--redis-key-prefix=$$(Y)", "--rate-limit-algorithm=FixedWindow", "--rate-limit-failure-mode=Open", "--rate-limit-timeout=20ms"},
	} {
		c := get[*appsv1.Deployment](t, mustRender(t, "moongate", parse(t, values)), "Deployment moongate-controller").Spec.Template.Spec.Containers[0]
		if got := c.Args[10:]; !slices.Equal(got, want) {
			t.Errorf("%s: the arguments end with %q, want %q", values, got, want)
		}
		if len(c.Env) != 1 {
			t.Errorf("%s: the environment is %v", values, c.Env)
		}
	}
}

// TestSchemaRefuses gives values that would do harm later, or nothing at all.
func TestSchemaRefuses(t *testing.T) {
	for _, test := range []struct{ chart, values, want string }{
		{"moongate", "{replica: 2}", "replica"},
		{"moongate", "{image: {name: x}}", "name"},
		{"moongate", "{image: {digest: abc}}", "digest"},
		{"moongate", "{image: {tag: 'a b'}}", "tag"},
		{"moongate", "{image: {pullPolicy: Sometimes}}", "pullPolicy"},
		{"moongate", "{replicas: two}", "replicas"},
		{"moongate", "{nameOverride: 1st}", "nameOverride"},
		{"moongate", "{commonLabels: {a: 1}}", "commonLabels"},
		{"moongate", "{serviceAccount: {name: mine}}", "name"},
		{"moongate", "{extraArgs: [controller]}", "extraArgs"},
		{"moongate", "{extraEnv: [{name: POD_NAMESPACE, value: x}]}", "extraEnv"},
		{"moongate", "{platformUser: 'yes'}", "platformUser"},
		{"moongate", "{replicas: -1}", "replicas"},
		{"moongate", "{controllerName: moongate}", "controllerName"},
		{"moongate", "{logLevel: loud}", "logLevel"},
		{"moongate", "{logFormat: xml}", "logFormat"},
		{"moongate", "{watchNamespaces: shop}", "watchNamespaces"},
		{"moongate", "{watchNamespaces: [Shop]}", "watchNamespaces"},
		{"moongate", "{watchNamespaces: [shop, shop]}", "watchNamespaces"},
		{"moongate", "{rateLimits: {algorithm: Leaky}}", "algorithm"},
		{"moongate", "{rateLimits: {failureMode: open}}", "failureMode"},
		{"moongate", "{rateLimits: {timeout: 1m}}", "timeout"},
		{"moongate", "{rateLimits: {redis: {address: 'a b'}}}", "address"},
		{"moongate", "{rateLimits: {redis: {addressSecret: {name: redis}}}}", "addressSecret"},
		{"moongate", "{rateLimits: {redis: {keyPrefix: 'a b'}}}", "keyPrefix"},
		{"moongate", "{gatewayClass: {name: Big}}", "name"},
		{"moongate", "{gatewayClass: {parameters: 3}}", "parameters"},
		{"moongate", "{crds: {channel: standard}}", "channel"},
		{"moongate", "{resources: {request: {}}}", "request"},
		{"moongate", "{podLabels: {a: 1}}", "podLabels"},
		{"moongate", "{imagePullSecrets: [registry]}", "imagePullSecrets"},
		{"moongate", "{podMonitor: {interval: often}}", "interval"},
		{"moongate-crds", "{chanel: standard}", "chanel"},
		{"moongate-crds", "{channel: stable}", "channel"},
		{"moongate-crds", "{takeOwnership: 'yes'}", "takeOwnership"},
		{"moongate-crds", "{standard: {files: 1}}", "files"},
	} {
		_, err := render(t, test.chart, parse(t, test.values))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %s: %v", test.chart, test.values, err)
		}
	}
}

// TestSchemaKnowsValues checks that the schema has each value of values.yaml and no other.
func TestSchemaKnowsValues(t *testing.T) {
	for _, name := range []string{"moongate", "moongate-crds"} {
		c := load(t, name)
		var s node
		if err := json.Unmarshal(c.Schema, &s); err != nil {
			t.Fatal(err)
		}
		s.compare(t, name, c.Values)
	}
}

type node struct {
	Properties map[string]*node `json:"properties"`
}

func (n *node) compare(t *testing.T, at string, values map[string]any) {
	for key, child := range n.Properties {
		if slices.Contains([]string{"global", "standard", "experimental", "moongate", "envoygateway"}, key) || strings.HasSuffix(at, ".resources") {
			continue // Helm's own, and a type of Kubernetes
		}
		value, ok := values[key]
		if !ok {
			t.Errorf("%s: values.yaml lacks %s, which the schema has", at, key)
		} else if fields, ok := value.(map[string]any); ok && child.Properties != nil {
			child.compare(t, at+"."+key, fields)
		}
	}
	for key := range values {
		if n.Properties[key] == nil {
			t.Errorf("%s: the schema lacks %s", at, key)
		}
	}
}

// TestReadmes checks that the tables of values are what values.yaml says, or writes them.
func TestReadmes(t *testing.T) {
	const begin, end = "<!-- values: made by go test -run TestReadmes -update in test/charts -->\n\n", "<!-- end of values -->\n"
	for _, name := range []string{"moongate", "moongate-crds"} {
		file := filepath.Join(root, "charts", name, "README.md")
		page := read(t, file)
		before, rest, ok := strings.Cut(page, begin)
		_, after, also := strings.Cut(rest, end)
		if !ok || !also {
			t.Errorf("%s lacks the marks of its table", file)
			continue
		}
		var b strings.Builder
		b.WriteString("| key | default | what it does |\n|---|---|---|\n")
		comments := commentsOf(read(t, root, "charts", name, "values.yaml"))
		values := leaves("", load(t, name).Values)
		if len(values) < 3 {
			t.Errorf("%s has %d values", name, len(values))
		}
		for _, key := range slices.SortedFunc(maps.Keys(values), func(a, b string) int {
			return cmp.Or(cmp.Compare(comments.place(a), comments.place(b)), strings.Compare(a, b))
		}) {
			text, err := json.Marshal(values[key])
			if err != nil {
				t.Fatal(err)
			}
			comment := comments.of(key)
			if comment == "" {
				t.Errorf("values.yaml of %s has no comment for %s", name, key)
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", key, strings.Trim(string(text), `"`), strings.NewReplacer("|", "\\|", "<", "&lt;", ">", "&gt;").Replace(comment))
		}
		b.WriteString("\n")
		want := before + begin + b.String() + end + after
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if page != want {
			t.Errorf("%s is not what values.yaml says: run the test with -update", file)
		}
	}
}

// comments are those of values.yaml by the paths of what follows them, with the order of the paths.
type comments struct {
	text  map[string]string
	order []string
}

// commentsOf reads lines: a comment belongs to the key below it.
func commentsOf(values string) *comments {
	c := &comments{text: map[string]string{}}
	var above, path []string
	for line := range strings.Lines(values) {
		trimmed := strings.TrimSpace(line)
		if words, ok := strings.CutPrefix(trimmed, "# "); ok {
			above = append(above, words)
			continue
		}
		key, _, ok := strings.Cut(trimmed, ":")
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		if ok && depth <= len(path) {
			path = append(path[:depth], key)
			at := strings.Join(path, ".")
			c.text[at] = strings.Join(above, " ")
			c.order = append(c.order, at)
		}
		above = nil
	}
	return c
}

// of is the comment of a value, or of the map that it is in on the same line.
func (c *comments) of(key string) string {
	for ; key != ""; key = key[:max(strings.LastIndexByte(key, '.'), 0)] {
		if text, ok := c.text[key]; ok {
			return text
		}
	}
	return ""
}

// place orders values as they stand in the file.
func (c *comments) place(key string) int {
	for at := key; at != ""; at = at[:max(strings.LastIndexByte(at, '.'), 0)] {
		if i := slices.Index(c.order, at); i >= 0 {
			return i
		}
	}
	return -1
}

// leaves are the values by their path. Maps that users fill are leaves.
func leaves(at string, values map[string]any) map[string]any {
	all := map[string]any{}
	for key, value := range values {
		fields, ok := value.(map[string]any)
		if !ok || len(fields) == 0 || at+key == "resources" || !slices.Contains([]string{"image", "rateLimits", "redis", "addressSecret", "gatewayClass", "crds", "networkPolicy", "podMonitor", "prometheusRule", "grafanaDashboard", "serviceAccount"}, key) {
			all[at+key] = value
			continue
		}
		for path, leaf := range leaves(at+key+".", fields) {
			all[path] = leaf
		}
	}
	return all
}

// TestPermissions checks that the rules are those of the tables in docs/install.md, where
// somebody who must approve them reads them.
func TestPermissions(t *testing.T) {
	told := map[string][]string{} // heading to lines "group resource verb"
	heading := ""
	for line := range strings.Lines(read(t, root, "docs/install.md")) {
		if text, ok := strings.CutPrefix(line, "### "); ok {
			heading = strings.TrimSpace(text)
		}
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|")
		if len(cells) != 6 || !strings.HasPrefix(heading, "Permissions") || strings.Contains(line, "---") || strings.TrimSpace(cells[1]) == "group" {
			continue
		}
		for _, resource := range strings.Split(cells[2], ",") {
			for _, verb := range strings.Split(cells[3], ",") {
				told[heading] = append(told[heading], strings.Join([]string{strings.TrimSpace(cells[1]), strings.TrimSpace(resource), strings.TrimSpace(verb)}, " "))
			}
		}
	}
	r := mustRender(t, "moongate", nil)
	some := mustRender(t, "moongate", parse(t, "{watchNamespaces: [shop]}"))
	for heading, rules := range map[string][]rbacv1.PolicyRule{
		"Permissions in the cluster":                      get[*rbacv1.ClusterRole](t, r, "ClusterRole moongate-controller-moongate-system").Rules,
		"Permissions in the controller's namespace":       get[*rbacv1.Role](t, r, "Role moongate-controller").Rules,
		"Permissions in the cluster with watchNamespaces": get[*rbacv1.ClusterRole](t, some, "ClusterRole moongate-controller-moongate-system").Rules,
	} {
		var has []string
		for _, rule := range rules {
			has = append(has, flatten(rule)...)
		}
		slices.Sort(has)
		slices.Sort(told[heading])
		if !slices.Equal(has, told[heading]) {
			t.Errorf("%s\nchart:           %q\ndocs/install.md: %q", heading, has, told[heading])
		}
	}
}

// TestNoLeaderOfInstallation checks that the alert by absence is about the namespace of the release, as test/alerts tests it.
func TestNoLeaderOfInstallation(t *testing.T) {
	var tested monitoring.PrometheusRuleSpec
	if err := yaml.Unmarshal([]byte(read(t, "../alerts/testdata/installation.yaml")), &tested); err != nil {
		t.Fatal(err)
	}
	rule := get[*monitoring.PrometheusRule](t, mustRender(t, "moongate", parse(t, "{prometheusRule: {enabled: true}}")), "PrometheusRule moongate-controller")
	want := tested.Groups[0].Rules[0]
	i := slices.IndexFunc(rule.Spec.Groups[0].Rules, func(r monitoring.Rule) bool { return r.Alert == want.Alert })
	if i < 0 {
		t.Fatalf("there is no alert %s", want.Alert)
	}
	if got := rule.Spec.Groups[0].Rules[i]; got.Expr != want.Expr || *got.For != *want.For {
		t.Errorf("%s: %s for %s, tested is %s for %s", want.Alert, got.Expr.String(), *got.For, want.Expr.String(), *want.For)
	}
}

// TestWatchNamespaces checks that Roles have exactly what the ClusterRole no longer has, in each namespace and nowhere else.
func TestWatchNamespaces(t *testing.T) {
	const name = "moongate-controller-moongate-system"
	lines := func(rules []rbacv1.PolicyRule) (all []string) {
		for _, rule := range rules {
			all = append(all, flatten(rule)...)
		}
		slices.Sort(all)
		return all
	}
	whole := lines(get[*rbacv1.ClusterRole](t, mustRender(t, "moongate", nil), "ClusterRole "+name).Rules)
	for values, want := range map[string][]string{
		"{watchNamespaces: [shop, blog]}": {"blog/", "shop/"},
		// The class's parameters are in the release's namespace, which has to be watched for them.
		"{watchNamespaces: [shop], gatewayClass: {parameters: {replicas: 2}}}":            {"", "shop/"},
		"{watchNamespaces: [moongate-system], gatewayClass: {parameters: {replicas: 2}}}": {""},
	} {
		r := mustRender(t, "moongate", parse(t, values))
		rest := lines(get[*rbacv1.ClusterRole](t, r, "ClusterRole "+name).Rules)
		var has []string
		for object := range r.objects(t) {
			if in, ok := strings.CutPrefix(object, "Role "); ok && strings.HasSuffix(in, name) {
				has = append(has, strings.TrimSuffix(in, name))
			}
		}
		slices.Sort(has)
		if !slices.Equal(has, want) {
			t.Errorf("%s: Roles in %q, want %q", values, has, want)
		}
		for _, namespace := range want {
			all := append(lines(get[*rbacv1.Role](t, r, "Role "+namespace+name).Rules), rest...)
			slices.Sort(all)
			if !slices.Equal(all, whole) {
				t.Errorf("%s: ClusterRole and Role have\n%q, want\n%q", values, all, whole)
			}
			b := get[*rbacv1.RoleBinding](t, r, "RoleBinding "+namespace+name)
			if b.RoleRef.Name != name || b.RoleRef.Kind != "Role" || b.Subjects[0].Name != "moongate-controller" || b.Subjects[0].Namespace != "moongate-system" {
				t.Errorf("%s: binding %+v", values, b)
			}
		}
		for _, line := range rest {
			if strings.HasPrefix(line, "core secrets") || strings.Contains(line, " create") || strings.Contains(line, " delete") {
				t.Errorf("%s: in the whole cluster: %s", values, line)
			}
		}
		args := get[*appsv1.Deployment](t, r, "Deployment moongate-controller").Spec.Template.Spec.Containers[0].Args
		flag := "--watch-namespaces=" + strings.ReplaceAll(strings.Join(want, ","), "/", "")
		if want[0] == "" {
			flag = strings.Replace(flag, "=", "=moongate-system", 1)
		}
		if !slices.Contains(args, flag) {
			t.Errorf("%s: args %q lack %s", values, args, flag)
		}
	}
	for _, values := range []string{"{}", "{watchNamespaces: []}", "{watchNamespaces: null}"} {
		r := mustRender(t, "moongate", parse(t, values))
		if all := lines(get[*rbacv1.ClusterRole](t, r, "ClusterRole "+name).Rules); !slices.Equal(all, whole) {
			t.Errorf("%s: the ClusterRole has %q", values, all)
		}
		for _, arg := range get[*appsv1.Deployment](t, r, "Deployment moongate-controller").Spec.Template.Spec.Containers[0].Args {
			if strings.Contains(arg, "watch-namespaces") {
				t.Errorf("%s: %s", values, arg)
			}
		}
	}
	// The Gateway that the notes propose has to be one that is served.
	notes := mustRender(t, "moongate", parse(t, "{watchNamespaces: [shop, blog]}")).notes
	for _, want := range []string{"namespaces only: shop, blog.\n", "  kubectl -n shop apply -f", "  kubectl -n shop get gateway web\n"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}

func flatten(rule rbacv1.PolicyRule) []string {
	var lines []string
	for _, verb := range rule.Verbs {
		for _, url := range rule.NonResourceURLs {
			lines = append(lines, fmt.Sprintf("(URL) %s %s", url, verb))
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if group == "" {
					group = "core"
				}
				for _, name := range rule.ResourceNames {
					lines = append(lines, fmt.Sprintf("%s %s %s %s", group, resource, name, verb))
				}
				if rule.ResourceNames == nil {
					lines = append(lines, fmt.Sprintf("%s %s %s", group, resource, verb))
				}
			}
		}
	}
	return lines
}
