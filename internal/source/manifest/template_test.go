package manifest

import "testing"

// TestTemplateInQuotes checks that a template of Helm is found where it is valid YAML, and that text which only looks like one is left alone.
func TestTemplateInQuotes(t *testing.T) {
	const helm = "is a template, not a manifest"
	const route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web}\nspec:\n  rules:\n"
	for _, c := range []struct{ text, field, reason string }{
		{route + "  - backendRefs: [{name: \"{{ .Values.name }}\", port: 80}]\n", "spec.rules[0].backendRefs[0].name", helm},
		{route + "  - backendRefs: [{name: a, port: '{{ .Values.port }}'}]\n", "spec.rules[0].backendRefs[0].port", helm},
		{"apiVersion: v1\nkind: Service\nmetadata: {name: \"{{ .Release.Name }}\"}\nspec: {ports: [{port: 80}]}\n", "metadata.name", helm},
		{"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports:\n  - port: ${PORT}\n", "spec.ports[0].port", "has a variable that nothing here replaces"},
		{route + "  - backendRefs: [{name: \"${NAME:-web}\", port: 80}]\n", "spec.rules[0].backendRefs[0].name", "has a variable that nothing here replaces"},
		{route + "  - filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-A, value: \"${id}\"}]}}]\n    backendRefs: [{name: a, port: 80}]\n", "", ""},
		{route + "  - filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-A, value: \"{{ id }}\"}]}}]\n    backendRefs: [{name: a, port: 80}]\n", "", ""},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {name: \"{{ id }}\"}\n", "", ""},
	} {
		d := Decode([]byte(c.text))
		if len(d.Entries) != 1 || len(d.Problems) > 0 {
			t.Fatalf("%s: %+v", c.text, d)
		}
		e := d.Entries[0]
		switch {
		case c.field == "" && (e.Object == nil || len(e.Problems) > 0):
			t.Errorf("%s: %v", c.text, e.Problems)
		case c.field != "" && (e.Object != nil || len(e.Problems) != 1 || e.Problems[0].Field != c.field || e.Problems[0].Message != c.reason):
			t.Errorf("%s: %v", c.text, e.Problems)
		}
	}
}

// TestChartIsNoManifest checks that the files of a chart lead to helm, not to fields that they never have.
func TestChartIsNoManifest(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: v2\nname: shop\nversion: 1.0.0\n":               "is the description of a Helm chart, not a manifest",
		"apiVersion: v2\nname: shop\nversion: 1\n":                   "is the description of a Helm chart, not a manifest",
		"apiVersion: v1\nmetadata: {name: a}\n":                      "required field is missing or not a string",
		"kind: Gateway\nmetadata: {name: {{ .Values.x }}}\n":         "is a template, not a manifest",
		"kind: Gateway\nspec: {listeners: [{port: ${PORT}}]}\n":      "has a variable that nothing here replaces",
		"kind: ConfigMap\ndata:\n  a: ${A}\n  b: c\n  d: e\n f: g\n": "not valid YAML: did not find expected key",
		"kind: Gateway\nspec: {listeners: [{port: 80}]\n# $PORT {x}": "not valid YAML: did not find expected ',' or '}'",
	} {
		if d := Decode([]byte(text)); len(d.Problems) != 1 || d.Problems[0].Message != want || d.Problems[0].Remedy == "" {
			t.Errorf("%s: %+v", text, d.Problems)
		}
	}
}

// TestOlderVersion checks of which objects the apiVersion is kept.
func TestOlderVersion(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"apiVersion: gateway.networking.k8s.io/v1beta1\nkind: HTTPRoute\nmetadata: {name: a}\nspec: {}\n", "gateway.networking.k8s.io/v1beta1"},
		{"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec: {}\n", ""},
		{"apiVersion: certificates.k8s.io/v1beta1\nkind: ClusterTrustBundle\nmetadata: {name: a}\nspec: {trustBundle: a}\n", ""}, // a cluster may have no newer one
	} {
		if e := Decode([]byte(c.text)).Entries[0]; e.Object == nil || e.Older != c.want {
			t.Errorf("%s: %q, %v", c.text, e.Older, e.Problems)
		}
	}
}
