package v1alpha1_test

import (
	"context"
	"os"
	"strings"
	"testing"

	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// readSchema reads the schema of the CRD.
func readSchema(t *testing.T) *apiext.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile("moongate.dev_gatewayparameters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	if crd.Spec.Group != v1alpha1.GroupName || crd.Spec.Names.Kind != "GatewayParameters" || len(crd.Spec.Versions) != 1 {
		t.Fatalf("the CRD is of %s %s, %d versions", crd.Spec.Group, crd.Spec.Names.Kind, len(crd.Spec.Versions))
	}
	var props apiext.JSONSchemaProps
	if err := apiextv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	return &props
}

// TestSchema checks what the schema lets through, and that all of that can be decoded: one
// object that cannot would hide all others from who lists them.
func TestSchema(t *testing.T) {
	props := readSchema(t)
	structural, err := schema.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	if errs := schema.ValidateStructural(nil, structural); len(errs) > 0 {
		t.Errorf("an API server refuses the schema: %v", errs)
	}
	open, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	for _, c := range []struct{ spec, wrong string }{
		{`{}`, ""},
		{`{replicas: 0, logLevel: debug, accessLog: "off", shutdownDelay: 1m30s, drainTimeout: 0s}`, ""},
		{`{autoscaling: {minReplicas: 1, maxReplicas: 2}, resources: {requests: {cpu: 50m, memory: 1Gi}, limits: {cpu: 2}}}`, ""},
		{`{service: {type: ClusterIP, loadBalancerSourceRanges: [10.0.0.0/8]}}`, ""},
		{`{classOnly: {hostNetwork: true, deploymentPatch: {spec: {anything: [1, {a: b}]}}, tolerations: [{operator: Exists}]}}`, ""},
		{`{classOnly: {locked: [replicas, service.type, service]}}`, ""},
		{`{classOnly: {locked: [image]}}`, "spec.classOnly.locked[0]"},
		{`{classOnly: {infrastructure: {}}}`, ""},
		{`{classOnly: {infrastructure: {labels: [{keys: ["a.b/*"]}], annotations: [{keys: [a], kinds: [Pod, Service]}]}}}`, ""},
		{`{classOnly: {infrastructure: {labels: [{keys: []}]}}}`, "spec.classOnly.infrastructure.labels[0].keys"},
		{`{classOnly: {infrastructure: {labels: [{keys: [a], kinds: [Node]}]}}}`, "spec.classOnly.infrastructure.labels[0].kinds[0]"},
		{`{classOnly: {deniedEndpoints: [169.254.169.254/32, "fd00:ec2::/32"]}}`, ""},
		{`{accessLog: stdout, accessLogOptions: {format: combined, redactQueryParameters: ["*"], oneIn: 1000000}}`, ""},
		{`{accessLogOptions: {oneIn: 0}}`, "spec.accessLogOptions.oneIn"},
		{`{accessLogOptions: {members: [""]}}`, "spec.accessLogOptions.members[0]"},
		{`{externalAutoscaler: true, disruptionBudget: {minAvailable: 0}, service: {ipFamilies: [IPv6, IPv4], nodePorts: [{port: 80, protocol: TCP, nodePort: 30080}]}}`, ""},
		{`{externalAutoscaler: true, autoscaling: {maxReplicas: 2}}`, "spec"},
		{`{daemonSet: true, classOnly: {daemonSetPatch: {spec: {minReadySeconds: 5}}, infrastructure: {labels: [{keys: [a], kinds: [DaemonSet]}]}}}`, ""},
		{`{daemonSet: false, replicas: 2, disruptionBudget: {minAvailable: 1}}`, ""},
		{`{daemonSet: true, replicas: 2}`, "spec"},
		{`{daemonSet: true, autoscaling: {maxReplicas: 2}}`, "spec"},
		{`{daemonSet: true, externalAutoscaler: true}`, "spec"},
		{`{daemonSet: true, disruptionBudget: {minAvailable: 1}}`, "spec"},
		{`{disruptionBudget: {maxUnavailable: 50%}}`, ""},
		{`{disruptionBudget: {maxUnavailable: half}}`, "spec.disruptionBudget.maxUnavailable"},
		{`{disruptionBudget: {maxUnavailable: -1}}`, "spec.disruptionBudget.maxUnavailable"},
		{`{disruptionBudget: {maxUnavailable: 1, minAvailable: 1}}`, "spec.disruptionBudget"},
		{`{disruptionBudget: {}}`, "spec.disruptionBudget"},
		{`{autoscaling: {maxReplicas: 4, memoryUtilization: 70, behavior: {scaleDown: {stabilizationWindowSeconds: 60}}}}`, ""},
		{`{autoscaling: {maxReplicas: 4, memoryUtilization: 0}}`, "spec.autoscaling.memoryUtilization"},
		{`{service: {ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack}}`, ""},
		{`{service: {ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}}`, ""},
		{`{service: {ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack}}`, "spec.service"},
		{`{service: {ipFamilies: [IPv4, IPv4]}}`, "spec.service.ipFamilies"},
		{`{service: {ipFamilies: [IPv5]}}`, "spec.service.ipFamilies[0]"},
		{`{service: {nodePorts: [{port: 80, protocol: TCP, nodePort: 70000}]}}`, "spec.service.nodePorts[0].nodePort"},
		{`{classOnly: {serviceLabels: {a: b}, serviceAnnotations: {c: d}, platformUser: true, accessLogFile: /logs/a, volumes: [{name: logs, emptyDir: {}}], volumeMounts: [{name: logs, mountPath: /logs}]}}`, ""},
		{`{classOnly: {volumes: [{name: state, emptyDir: {}}]}}`, "spec.classOnly.volumes[0].name"},
		{`{classOnly: {volumes: [{name: a}]}}`, "spec.classOnly.volumes[0]"},
		{`{classOnly: {volumes: [{name: a, emptyDir: {}, secret: {secretName: s}}]}}`, "spec.classOnly.volumes[0]"},
		{`{classOnly: {accessLogCollector: "https://collector.example/v1/logs"}}`, ""},
		{`{classOnly: {accessLogCollector: "collector.example:4318"}}`, "spec.classOnly.accessLogCollector"},
		{`{classOnly: {accessLogFile: logs/a}}`, "spec.classOnly.accessLogFile"},
		{`{shutdownDelay: soon}`, "spec.shutdownDelay"},
		{`{shutdownDelay: 6m}`, "spec.shutdownDelay"},
		{`{drainTimeout: 3601s}`, "spec.drainTimeout"},
		{`{drainTimeout: -1s}`, "spec.drainTimeout"},
		{`{replicas: 1, autoscaling: {maxReplicas: 2}}`, "spec"},
		{`{autoscaling: {minReplicas: 3, maxReplicas: 2}}`, "spec.autoscaling"},
		{`{resources: {requests: {cpu: much}}}`, "spec.resources.requests.cpu"},
		{`{classOnly: {deploymentPatch: [1]}}`, "spec.classOnly.deploymentPatch"},
		{`{service: {type: ExternalName}}`, "spec.service.type"},
		{`{logLevel: loud}`, "spec.logLevel"},
		{`{trustedProxies: [10.0.0.0/8], ports: [{port: 80, proxyProtocol: true, idleTimeout: 1s, requestHeadTimeout: 24h, requestBodyIdleTimeout: 1m30s, maxConnections: 1}]}`, ""},
		{`{listeners: [{name: "*", maxRequestBodyBytes: 1}, {name: http}], classOnly: {locked: [trustedProxies, ports, listeners]}}`, ""},
		{`{ports: [{port: 0}]}`, "spec.ports[0].port"},
		{`{ports: [{port: 80, idleTimeout: 999ms}]}`, "spec.ports[0].idleTimeout"},
		{`{ports: [{port: 80, requestHeadTimeout: 25h}]}`, "spec.ports[0].requestHeadTimeout"},
		{`{ports: [{port: 80, requestBodyIdleTimeout: soon}]}`, "spec.ports[0].requestBodyIdleTimeout"},
		{`{ports: [{port: 80, maxConnections: 0}]}`, "spec.ports[0].maxConnections"},
		{`{listeners: [{name: a, maxRequestBodyBytes: 0}]}`, "spec.listeners[0].maxRequestBodyBytes"},
	} {
		text, err := yaml.YAMLToJSON([]byte("{apiVersion: moongate.dev/v1alpha1, kind: GatewayParameters, metadata: {name: p}, spec: " + c.spec + "}"))
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		errs := validation.ValidateCustomResource(nil, object, open)
		if len(errs) == 0 {
			errs, _ = rules.Validate(context.Background(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
		}
		if c.wrong == "" && len(errs) > 0 || c.wrong != "" && (len(errs) == 0 || !strings.HasPrefix(errs[0].Field, c.wrong)) {
			t.Errorf("%s: %v, want a problem of %q", c.spec, errs, c.wrong)
		}
		if len(errs) > 0 {
			continue
		}
		if unknown := pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
			t.Errorf("%s: fields %v would be dropped", c.spec, unknown)
		}
		if err := yaml.UnmarshalStrict(text, &v1alpha1.GatewayParameters{}); err != nil {
			t.Errorf("%s: let through and cannot be decoded: %v", c.spec, err)
		}
	}
}
