package parameters_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

func read(t *testing.T, text string) *v1alpha1.GatewayParametersSpec {
	t.Helper()
	var s v1alpha1.GatewayParametersSpec
	if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &s
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		spec   string
		fields []string // with a problem, in order
	}{
		{`{}`, nil},
		{`{replicas: 0, logLevel: warn, accessLog: "off", shutdownDelay: 0s, drainTimeout: 1h}`, nil},
		{`{autoscaling: {minReplicas: 2, maxReplicas: 2, cpuUtilization: 1}}`, nil},
		{`{resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: "1", memory: 32Mi}}}`, nil},
		{`{service: {loadBalancerClass: example.com/lb, loadBalancerSourceRanges: [10.0.0.0/8, "2001:db8::/32"], externalTrafficPolicy: Local, ipFamilyPolicy: RequireDualStack}}`, nil},
		{`{classOnly: {image: "example.com/a:b", imagePullPolicy: Always, env: [{name: A}], deploymentPatch: {spec: {}}}}`, nil},
		{`{externalAutoscaler: true, disruptionBudget: {minAvailable: 50%}}`, nil},
		{`{externalAutoscaler: true, replicas: 1}`, []string{"spec.externalAutoscaler"}},
		{`{daemonSet: true, classOnly: {daemonSetPatch: {spec: {updateStrategy: {rollingUpdate: {maxSurge: 1}}}}}}`, nil},
		{`{daemonSet: true, replicas: 1}`, []string{"spec.daemonSet"}},
		{`{daemonSet: true, autoscaling: {maxReplicas: 2}}`, []string{"spec.daemonSet"}},
		{`{daemonSet: true, externalAutoscaler: true}`, []string{"spec.daemonSet"}},
		{`{daemonSet: true, disruptionBudget: {minAvailable: 1}}`, []string{"spec.daemonSet"}},
		{`{classOnly: {daemonSetPatch: {spec: {replicas: 2}}}}`, []string{"spec.classOnly.daemonSetPatch"}},
		{`{classOnly: {daemonSetPatch: spec}}`, []string{"spec.classOnly.daemonSetPatch"}},
		{`{disruptionBudget: {}}`, []string{"spec.disruptionBudget"}},
		{`{disruptionBudget: {minAvailable: 1, maxUnavailable: -1}}`, []string{"spec.disruptionBudget", "spec.disruptionBudget.maxUnavailable"}},
		{`{disruptionBudget: {maxUnavailable: 0}}`, []string{"spec.disruptionBudget.maxUnavailable"}},
		{`{disruptionBudget: {maxUnavailable: 0%}}`, []string{"spec.disruptionBudget.maxUnavailable"}},
		{`{disruptionBudget: {minAvailable: 100%}}`, []string{"spec.disruptionBudget.minAvailable"}},
		{`{disruptionBudget: {minAvailable: 0}}`, nil},
		{`{disruptionBudget: {maxUnavailable: half}}`, []string{"spec.disruptionBudget.maxUnavailable"}},
		{`{disruptionBudget: {maxUnavailable: 101%}}`, []string{"spec.disruptionBudget.maxUnavailable"}},
		{`{autoscaling: {maxReplicas: 3, memoryUtilization: 1001}}`, []string{"spec.autoscaling.memoryUtilization"}},
		{`{accessLog: stdout, accessLogOptions: {members: [all, request_header.referer], redactQueryParameters: [token], oneIn: 10}}`, nil},
		{`{accessLogOptions: {members: [hat], redactQueryParameters: [a, ""], oneIn: -1}}`,
			[]string{"spec.accessLogOptions.redactQueryParameters[1]", "spec.accessLogOptions.oneIn", "spec.accessLogOptions.members[0]"}},
		{`{accessLogOptions: {format: "{path"}}`, []string{"spec.accessLogOptions.format"}},
		{`{service: {ipFamilies: [IPv6, IPv4], nodePorts: [{port: 80, nodePort: 30080}, {port: 80, protocol: UDP, nodePort: 30080}]}}`, nil},
		{`{service: {ipFamilies: [IPv6, IPv6], nodePorts: [{port: 80, nodePort: 30080}, {port: 80, protocol: TCP, nodePort: 30081}, {port: 81, nodePort: 30080}, {port: 82, nodePort: 0, protocol: SCTP}]}}`,
			[]string{"spec.service.ipFamilies[1]", "spec.service.nodePorts[1].port", "spec.service.nodePorts[2].nodePort", "spec.service.nodePorts[3].nodePort", "spec.service.nodePorts[3].protocol"}},
		{`{service: {ipFamilies: [IPv6, IPv4], ipFamilyPolicy: SingleStack}}`, []string{"spec.service.ipFamilies"}},
		{`{service: {ipFamilies: [IPv6, IPv4], ipFamilyPolicy: PreferDualStack}}`, nil},
		{`{service: {ipFamilies: [IPv6], ipFamilyPolicy: SingleStack}}`, nil},
		{`{service: {type: ClusterIP, ipFamilies: [IPv5], nodePorts: [{port: 80, nodePort: 30080}]}}`, []string{"spec.service.ipFamilies[0]", "spec.service.nodePorts"}},
		{`{classOnly: {serviceLabels: {team: a}, serviceAnnotations: {example.com/type: "any text"}, platformUser: true}}`, nil},
		{`{classOnly: {serviceLabels: {team: "a b"}, serviceAnnotations: {moongate.dev/gateway: x, "a b": y}}}`,
			[]string{"spec.classOnly.serviceLabels", "spec.classOnly.serviceAnnotations", "spec.classOnly.serviceAnnotations"}},
		{`{classOnly: {platformUser: true, hostNetwork: true}}`, []string{"spec.classOnly.platformUser"}},
		{`{classOnly: {volumes: [{name: logs, emptyDir: {}}], volumeMounts: [{name: logs, mountPath: /var/log/moongate}], accessLogFile: /var/log/moongate/access.log}}`, nil},
		{`{classOnly: {volumes: [{name: logs, emptyDir: {}}], volumeMounts: [{name: logs, mountPath: /var/log}], accessLogFile: /var/log}}`, []string{"spec.classOnly.accessLogFile"}},
		{`{classOnly: {volumes: [{name: logs, configMap: {name: c}}], volumeMounts: [{name: logs, mountPath: /var/log}], accessLogFile: /var/log/a}}`, []string{"spec.classOnly.accessLogFile"}},
		{`{classOnly: {volumes: [{name: logs, emptyDir: {}}, {name: c, secret: {secretName: s}}], volumeMounts: [{name: logs, mountPath: /var/log}, {name: c, mountPath: /var/log/c}], accessLogFile: /var/log/c/a}}`,
			[]string{"spec.classOnly.accessLogFile"}},
		{`{classOnly: {volumes: [{name: state, emptyDir: {}}, {name: a}, {name: a, emptyDir: {}}, {name: "A b", secret: {secretName: s}, configMap: {name: c}}]}}`,
			[]string{"spec.classOnly.volumes[0].name", "spec.classOnly.volumes[1]", "spec.classOnly.volumes[2].name", "spec.classOnly.volumes[3].name", "spec.classOnly.volumes[3]"}},
		{`{classOnly: {volumes: [{name: a, emptyDir: {}}], volumeMounts: [{name: b, mountPath: /b}, {name: a, mountPath: /var/run}, {name: a, mountPath: /var/run/moongate/state/x}, {name: a, mountPath: a}]}}`,
			[]string{"spec.classOnly.volumeMounts[0].name", "spec.classOnly.volumeMounts[1].mountPath", "spec.classOnly.volumeMounts[2].mountPath", "spec.classOnly.volumeMounts[3].mountPath"}},
		{`{classOnly: {volumes: [{name: a, emptyDir: {}}], volumeMounts: [{name: a, mountPath: /logs, readOnly: true}], accessLogFile: /logs/a}}`, []string{"spec.classOnly.accessLogFile"}},
		{`{classOnly: {accessLogCollector: "http://collector.observability.svc:4318"}}`, nil},
		{`{classOnly: {accessLogCollector: "http://$(SECRET).example"}}`, []string{"spec.classOnly.accessLogCollector"}},
		{`{classOnly: {accessLogCollector: "ftp://a", volumes: [{name: a, emptyDir: {}}], volumeMounts: [{name: a, mountPath: /logs}], accessLogFile: /logs/a}}`,
			[]string{"spec.classOnly.accessLogCollector", "spec.classOnly.accessLogCollector"}},
		{`{classOnly: {accessLogFile: "/logs/../$(A)"}}`, []string{"spec.classOnly.accessLogFile"}},
		{`{replicas: -1}`, []string{"spec.replicas"}},
		{`{replicas: 1001}`, []string{"spec.replicas"}},
		{`{replicas: 1, autoscaling: {maxReplicas: 1}}`, []string{"spec.autoscaling"}},
		{`{autoscaling: {minReplicas: 3, maxReplicas: 2}}`, []string{"spec.autoscaling.minReplicas"}},
		{`{autoscaling: {minReplicas: 0, maxReplicas: 0, cpuUtilization: 0}}`,
			[]string{"spec.autoscaling.minReplicas", "spec.autoscaling.maxReplicas", "spec.autoscaling.cpuUtilization"}},
		{`{resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}`, []string{"spec.resources.requests.memory"}},
		{`{resources: {requests: {cpu: -1}, limits: {cpu: -2}}}`, []string{"spec.resources.limits.cpu", "spec.resources.requests.cpu", "spec.resources.requests.cpu"}},
		{`{service: {type: ExternalName}}`, []string{"spec.service.type"}},
		{`{service: {type: NodePort, loadBalancerClass: a/b, loadBalancerSourceRanges: [10.0.0.0/8]}}`,
			[]string{"spec.service.loadBalancerClass", "spec.service.loadBalancerSourceRanges"}},
		{`{service: {type: ClusterIP, externalTrafficPolicy: Local}}`, []string{"spec.service.externalTrafficPolicy"}},
		{`{service: {loadBalancerClass: "a b"}}`, []string{"spec.service.loadBalancerClass"}},
		{`{service: {loadBalancerSourceRanges: [10.0.0.0/8, 10.0.0.0, 10.0.0.0/33]}}`,
			[]string{"spec.service.loadBalancerSourceRanges[1]", "spec.service.loadBalancerSourceRanges[2]"}},
		{`{service: {externalTrafficPolicy: Near, ipFamilyPolicy: Both}}`, []string{"spec.service.externalTrafficPolicy", "spec.service.ipFamilyPolicy"}},
		{`{logLevel: trace, accessLog: xml, requestIDs: keep}`, []string{"spec.logLevel", "spec.accessLog", "spec.requestIDs"}},
		{`{shutdownDelay: 5m1s, drainTimeout: -1s}`, []string{"spec.shutdownDelay", "spec.drainTimeout"}},
		{`{trustedProxies: [192.0.2.0/24, "2001:db8::/32"], ports: [{port: 1}, {port: 65535, proxyProtocol: true}]}`, nil},
		{`{trustedProxies: [192.0.2.1, "::ffff:10.0.0.0/104"], ports: [{port: 0}, {port: 80}, {port: 80}, {port: 65536}]}`,
			[]string{"spec.trustedProxies[0]", "spec.trustedProxies[1]", "spec.ports[0].port", "spec.ports[2].port", "spec.ports[3].port"}},
		{`{listeners: [{name: a, maxRequestBodyBytes: 1}, {name: "*"}]}`, nil},
		{`{ports: [{port: 80, idleTimeout: 1s, requestHeadTimeout: 24h, requestBodyIdleTimeout: 1m, maxConnections: 1}]}`, nil},
		{`{ports: [{port: 80, idleTimeout: 999ms, requestHeadTimeout: 25h, requestBodyIdleTimeout: -1s, maxConnections: 0}]}`,
			[]string{"spec.ports[0].idleTimeout", "spec.ports[0].requestHeadTimeout", "spec.ports[0].requestBodyIdleTimeout", "spec.ports[0].maxConnections"}},
		{`{listeners: [{name: a, maxRequestBodyBytes: 0}, {name: a}, {name: ""}]}`,
			[]string{"spec.listeners[0].maxRequestBodyBytes", "spec.listeners[1].name", "spec.listeners[2].name"}},
		{`{classOnly: {image: "a b", imagePullPolicy: Sometimes, env: [{name: A}, {name: ""}, {name: a=b}]}}`,
			[]string{"spec.classOnly.image", "spec.classOnly.imagePullPolicy", "spec.classOnly.env[1].name", "spec.classOnly.env[2].name"}},
		{`{classOnly: {locked: [service, replicas]}}`, nil},
		{`{classOnly: {locked: [service, classOnly, service.kind]}}`, []string{"spec.classOnly.locked[1]", "spec.classOnly.locked[2]"}},
		{`{classOnly: {infrastructure: {labels: [{keys: [a, "b/*", "*"]}], annotations: [{keys: [a], kinds: [Pod]}]}}}`, nil},
		{`{classOnly: {infrastructure: {labels: [{keys: ["", "a*b"]}], annotations: [{keys: [a], kinds: [Pod, Node]}]}}}`,
			[]string{"spec.classOnly.infrastructure.labels[0].keys[0]", "spec.classOnly.infrastructure.labels[0].keys[1]", "spec.classOnly.infrastructure.annotations[0].kinds[1]"}},
		{`{classOnly: {deniedEndpoints: [169.254.169.254/32, "10.0.0.1", "::ffff:10.0.0.0/104", "::/0"]}}`,
			[]string{"spec.classOnly.deniedEndpoints[1]", "spec.classOnly.deniedEndpoints[2]"}},
		{`{classOnly: {deploymentPatch: [1]}}`, []string{"spec.classOnly.deploymentPatch"}},
		{`{classOnly: {deploymentPatch: spec}}`, []string{"spec.classOnly.deploymentPatch"}},
		{`{classOnly: {deploymentPatch: {spec: {template: {spec: {nodeNam: a}}}}}}`, []string{"spec.classOnly.deploymentPatch"}},
		{`{classOnly: {deploymentPatch: {spec: {paused: "yes"}}}}`, []string{"spec.classOnly.deploymentPatch"}},
		{`{classOnly: {deploymentPatch: {spec: {template: {spec: {containers: [{name: proxy, $patch: delete}]}}}}}}`, nil},
	} {
		var fields []string
		for _, p := range parameters.Check(read(t, c.spec)) {
			fields = append(fields, p.Field)
			if p.Reason != v1alpha1.ReasonInvalid || p.What == "" || p.Remedy == "" {
				t.Errorf("%s: problem %+v", c.spec, p)
			}
		}
		if !slices.Equal(fields, c.fields) {
			t.Errorf("%s: problems of %q, want %q", c.spec, fields, c.fields)
		}
	}
}

func TestMerge(t *testing.T) {
	for _, c := range []struct{ what, class, own, want string }{
		{"own alone", `{}`, `{replicas: 3, service: {type: NodePort}}`, `{replicas: 3, service: {type: NodePort}}`},
		{"class alone", `{replicas: 3, service: {type: NodePort}}`, `{}`, `{replicas: 3, service: {type: NodePort}}`},
		{"replicas over autoscaling", `{autoscaling: {maxReplicas: 3}}`, `{replicas: 0}`, `{replicas: 0}`},
		{"autoscaling over replicas", `{replicas: 9}`, `{autoscaling: {maxReplicas: 3}}`, `{autoscaling: {maxReplicas: 3}}`},
		{"replicas over another's autoscaler", `{externalAutoscaler: true}`, `{replicas: 2}`, `{replicas: 2}`},
		{"one on each node over an autoscaler and a budget", `{autoscaling: {maxReplicas: 3}, disruptionBudget: {minAvailable: 1}}`, `{daemonSet: true}`, `{daemonSet: true}`},
		{"replicas over one on each node", `{daemonSet: true}`, `{replicas: 2, disruptionBudget: {minAvailable: 1}}`, `{replicas: 2, disruptionBudget: {minAvailable: 1}}`},
		{"a budget beside one on each node", `{daemonSet: true}`, `{disruptionBudget: {minAvailable: 1}}`, `{daemonSet: true}`},
		{"another's autoscaler over replicas", `{replicas: 2}`, `{externalAutoscaler: true}`, `{externalAutoscaler: true}`},
		{"node ports of a ClusterIP", `{service: {nodePorts: [{port: 80, nodePort: 30080}], ipFamilies: [IPv4]}}`, `{service: {type: ClusterIP, ipFamilies: [IPv6]}}`,
			`{service: {type: ClusterIP, ipFamilies: [IPv6]}}`},
		{"autoscaling as a whole", `{autoscaling: {minReplicas: 2, maxReplicas: 3}}`, `{autoscaling: {maxReplicas: 4}}`, `{autoscaling: {maxReplicas: 4}}`},
		{"resources as a whole", `{resources: {limits: {cpu: 1}}}`, `{resources: {requests: {cpu: 2}}}`, `{resources: {requests: {cpu: 2}}}`},
		{"service by field", `{service: {loadBalancerClass: a/b, externalTrafficPolicy: Local}}`,
			`{service: {loadBalancerSourceRanges: [10.0.0.0/8], externalTrafficPolicy: Cluster}}`,
			`{service: {loadBalancerClass: a/b, loadBalancerSourceRanges: [10.0.0.0/8], externalTrafficPolicy: Cluster}}`},
		{"what a type cannot have", `{service: {loadBalancerClass: a/b, loadBalancerSourceRanges: [10.0.0.0/8], externalTrafficPolicy: Local}}`,
			`{service: {type: NodePort}}`, `{service: {type: NodePort, externalTrafficPolicy: Local}}`},
		{"what a ClusterIP cannot have", `{service: {externalTrafficPolicy: Local}}`, `{service: {type: ClusterIP}}`, `{service: {type: ClusterIP}}`},
		{"lists as a whole", `{trustedProxies: [10.0.0.0/8], ports: [{port: 80}, {port: 443, proxyProtocol: true}]}`,
			`{trustedProxies: [192.0.2.0/24], ports: [{port: 80, proxyProtocol: true}]}`, `{trustedProxies: [192.0.2.0/24], ports: [{port: 80, proxyProtocol: true}]}`},
		{"options of the access log, but for what is redacted", `{accessLogOptions: {members: [path], redactQueryParameters: [token, code]}}`, `{accessLogOptions: {oneIn: 10, redactQueryParameters: [code, key]}}`,
			`{accessLogOptions: {oneIn: 10, redactQueryParameters: [token, code, key]}}`},
		{"classOnly of the class", `{classOnly: {image: a}}`, `{classOnly: {image: b}, logLevel: warn}`, `{classOnly: {image: a}, logLevel: warn}`},
	} {
		class, own := read(t, c.class), read(t, c.own)
		got := parameters.Merge(class, own)
		if want := *read(t, c.want); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", c.what, got, want)
		}
		if problems := parameters.Check(&got); problems != nil {
			t.Errorf("%s: the result is not valid: %v", c.what, problems)
		}
		if !reflect.DeepEqual(class, read(t, c.class)) || !reflect.DeepEqual(own, read(t, c.own)) {
			t.Errorf("%s: what was merged is modified", c.what)
		}
	}
	if got := parameters.Merge(nil, nil); !reflect.DeepEqual(got, v1alpha1.GatewayParametersSpec{}) {
		t.Errorf("of none: %+v", got)
	}
}

// full sets every field.
const full = `
replicas: 2
resources: {limits: {cpu: 1}}
service: {type: LoadBalancer, loadBalancerClass: a/b, loadBalancerSourceRanges: [10.0.0.0/8], externalTrafficPolicy: Local, ipFamilyPolicy: SingleStack, ipFamilies: [IPv6], nodePorts: [{port: 80, nodePort: 30080}]}
disruptionBudget: {minAvailable: 1}
logLevel: warn
accessLog: json
accessLogOptions: {oneIn: 2}
requestIDs: preserve
shutdownDelay: 1s
drainTimeout: 2s
trustedProxies: [10.0.0.0/8]
ports: [{port: 80, proxyProtocol: true}]
listeners: [{name: http, maxRequestBodyBytes: 1}]
classOnly: {image: a}
`

// TestMergeForgetsNoField is there for the next field that somebody adds.
func TestMergeForgetsNoField(t *testing.T) {
	all := read(t, full)
	unset(t, reflect.ValueOf(all).Elem(), "Autoscaling", "ExternalAutoscaler", "DaemonSet")
	unset(t, reflect.ValueOf(all.Service).Elem())
	empty := read(t, `{service: {}}`)
	if got := parameters.Merge(all, empty); !reflect.DeepEqual(got, *all) {
		t.Errorf("of the class are lost: %+v", got)
	}
	all.ClassOnly = nil
	if got := parameters.Merge(empty, all); !reflect.DeepEqual(got, *all) {
		t.Errorf("of the Gateway are lost: %+v", got)
	}
}

func unset(t *testing.T, v reflect.Value, but ...string) {
	t.Helper()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && !slices.Contains(but, name) {
			t.Errorf("the test sets no %s", strings.ToLower(name))
		}
	}
}

// TestMergeOfManyRedactions: more names than a log may have become all parameters, and none of both is forgotten.
func TestMergeOfManyRedactions(t *testing.T) {
	names := func(prefix string) *v1alpha1.GatewayParametersSpec {
		o := &v1alpha1.AccessLogOptions{}
		for i := range accesslog.MaxRedacted {
			o.RedactQueryParameters = append(o.RedactQueryParameters, fmt.Sprint(prefix, i))
		}
		return &v1alpha1.GatewayParametersSpec{AccessLogOptions: o}
	}
	got := parameters.Merge(names("a"), names("b"))
	if !reflect.DeepEqual(got.AccessLogOptions.RedactQueryParameters, []string{"*"}) || parameters.Check(&got) != nil {
		t.Errorf("%+v", got.AccessLogOptions)
	}
}
