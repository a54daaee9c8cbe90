package parameters_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// TestLocks merges a Gateway's parameters over those of a class that locks fields.
func TestLocks(t *testing.T) {
	for _, c := range []struct{ what, class, own, want, refused string }{
		{"nothing locked", `{}`, `{service: {type: NodePort}}`, `{service: {type: NodePort}}`, ""},
		{"a type", `{service: {type: ClusterIP}, classOnly: {locked: [service.type]}}`, `{service: {type: NodePort, ipFamilyPolicy: SingleStack}}`,
			`{service: {type: ClusterIP, ipFamilyPolicy: SingleStack}}`, "spec.service.type"},
		{"a type that the class does not set", `{classOnly: {locked: [service.type]}}`, `{service: {type: NodePort}}`, `{}`, "spec.service.type"},
		{"the default type", `{classOnly: {locked: [service.type]}}`, `{service: {type: LoadBalancer}}`, `{}`, ""},
		{"the same type", `{service: {type: NodePort}, classOnly: {locked: [service.type]}}`, `{service: {type: NodePort}}`, `{service: {type: NodePort}}`, ""},
		{"ranges", `{service: {loadBalancerSourceRanges: [10.0.0.0/8]}, classOnly: {locked: [service.loadBalancerSourceRanges]}}`,
			`{service: {loadBalancerSourceRanges: [0.0.0.0/0]}}`, `{service: {loadBalancerSourceRanges: [10.0.0.0/8]}}`, "spec.service.loadBalancerSourceRanges"},
		{"ranges around which a type leads", `{service: {loadBalancerSourceRanges: [10.0.0.0/8]}, classOnly: {locked: [service.loadBalancerSourceRanges]}}`,
			`{service: {type: NodePort}}`, `{service: {loadBalancerSourceRanges: [10.0.0.0/8]}}`, "spec.service.type"},
		{"a class of load balancers around which a type leads", `{service: {loadBalancerClass: a/internal}, classOnly: {locked: [service.loadBalancerClass]}}`,
			`{service: {type: NodePort, loadBalancerClass: a/public}}`, `{service: {loadBalancerClass: a/internal}}`, "spec.service.type, spec.service.loadBalancerClass"},
		{"all of service", `{service: {type: ClusterIP}, classOnly: {locked: [service]}}`,
			`{logLevel: warn, service: {type: LoadBalancer, loadBalancerSourceRanges: [0.0.0.0/0], ipFamilyPolicy: RequireDualStack, externalTrafficPolicy: Cluster}}`,
			`{logLevel: warn, service: {type: ClusterIP}}`,
			"spec.service.type, spec.service.loadBalancerSourceRanges, spec.service.externalTrafficPolicy, spec.service.ipFamilyPolicy"},
		{"replicas", `{replicas: 2, classOnly: {locked: [replicas]}}`, `{autoscaling: {maxReplicas: 900}}`, `{replicas: 2}`, "spec.autoscaling"},
		{"another's autoscaler", `{replicas: 2, classOnly: {locked: [replicas]}}`, `{externalAutoscaler: true}`, `{replicas: 2}`, "spec.externalAutoscaler"},
		{"one on each node", `{replicas: 2, classOnly: {locked: [replicas]}}`, `{daemonSet: true}`, `{replicas: 2}`, "spec.daemonSet"},
		{"what protects data", `{accessLogOptions: {redactQueryParameters: [token]}, classOnly: {locked: [accessLogOptions, disruptionBudget, service.nodePorts, service.ipFamilies]}}`,
			`{accessLogOptions: {oneIn: 5}, disruptionBudget: {maxUnavailable: 0}, service: {ipFamilies: [IPv6], nodePorts: [{port: 80, nodePort: 30080}]}}`,
			`{accessLogOptions: {redactQueryParameters: [token]}}`, "spec.disruptionBudget, spec.service.ipFamilies, spec.service.nodePorts, spec.accessLogOptions"},
		{"the access log, and with it what makes it one", `{accessLogOptions: {members: [path]}, classOnly: {locked: [accessLog]}}`, `{accessLogOptions: {oneIn: 1000000}}`,
			`{accessLogOptions: {members: [path]}}`, "spec.accessLogOptions"},
		{"the rest", `{classOnly: {locked: [resources, logLevel, accessLog, shutdownDelay, drainTimeout]}}`,
			`{replicas: 2, resources: {requests: {cpu: 64}}, logLevel: debug, accessLog: "off", shutdownDelay: 1m, drainTimeout: 1h}`, `{replicas: 2}`,
			"spec.resources, spec.logLevel, spec.accessLog, spec.shutdownDelay, spec.drainTimeout"},
	} {
		class, own := read(t, c.class), read(t, c.own)
		rest, refused := parameters.Unlocked(class, own)
		got := parameters.Merge(class, rest)
		want := *read(t, c.want)
		want.ClassOnly = class.ClassOnly
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", c.what, got, want)
		}
		if s := strings.Join(refused, ", "); s != c.refused {
			t.Errorf("%s: refused %q, want %q", c.what, s, c.refused)
		}
		if !reflect.DeepEqual(own, read(t, c.own)) {
			t.Errorf("%s: what was merged is modified", c.what)
		}
	}
	if rest, refused := parameters.Unlocked(read(t, `{classOnly: {locked: [service]}}`), nil); rest != nil || refused != nil {
		t.Errorf("of none: %+v, %v", rest, refused)
	}
}

// TestEveryFieldCanBeLocked locks everything: nothing of a Gateway is used then, be it a field that somebody adds.
func TestEveryFieldCanBeLocked(t *testing.T) {
	class, own := &v1alpha1.GatewayParametersSpec{ClassOnly: &v1alpha1.ClassOnly{Locked: v1alpha1.LockedFields}}, read(t, full)
	own.ClassOnly = nil
	rest, refused := parameters.Unlocked(class, own)
	if !reflect.DeepEqual(*rest, v1alpha1.GatewayParametersSpec{}) {
		t.Errorf("is left: %+v", *rest)
	}
	for _, field := range []string{"spec.replicas", "spec.service.loadBalancerClass", "spec.drainTimeout"} {
		if !slices.Contains(refused, field) {
			t.Errorf("%s is not refused", field)
		}
	}
}
