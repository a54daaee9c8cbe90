package v1alpha1_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	"github.com/moongate-dev/moongate/internal/testkit"
)

var update = flag.Bool("update", false, "write the page of docs that is made from the schema")

// TestPage checks that docs/gatewayparameters.md is what the schema of the CRD says, which is made from the types.
func TestPage(t *testing.T) {
	const file = "../../docs/gatewayparameters.md"
	const begin, end = "<!-- fields: made by go test ./api/v1alpha1 -run TestPage -update -->\n", "<!-- end of fields -->\n"
	var b strings.Builder
	spec := readSchema(t).Properties["spec"]
	writeFields(&b, "spec", &spec)
	testkit.SamePart(t, file, begin, end, b.String()+"\n", *update)
}

// kubernetes are the fields whose type is Kubernetes' own, and where its fields are documented.
var kubernetes = map[string]string{
	"spec.resources":                                 "workload-resources/pod-v1/#resources",
	"spec.autoscaling.behavior":                      "workload-resources/horizontal-pod-autoscaler-v2/#HorizontalPodAutoscalerSpec",
	"spec.classOnly.affinity":                        "workload-resources/pod-v1/#scheduling",
	"spec.classOnly.env[]":                           "workload-resources/pod-v1/#environment-variables",
	"spec.classOnly.imagePullSecrets[]":              "common-definitions/local-object-reference/#LocalObjectReference",
	"spec.classOnly.tolerations[]":                   "workload-resources/pod-v1/#scheduling",
	"spec.classOnly.topologySpreadConstraints[]":     "workload-resources/pod-v1/#scheduling",
	"spec.classOnly.volumeMounts[]":                  "workload-resources/pod-v1/#volumes-1",
	"spec.classOnly.volumes[].configMap":             "config-and-storage-resources/volume/#projections",
	"spec.classOnly.volumes[].secret":                "config-and-storage-resources/volume/#projections",
	"spec.classOnly.volumes[].emptyDir":              "config-and-storage-resources/volume/#local-temporary-directory",
	"spec.classOnly.volumes[].persistentVolumeClaim": "config-and-storage-resources/volume/#exposed-persistent-volumes",
	"spec.classOnly.volumes[].csi":                   "config-and-storage-resources/volume/#persistent-volumes",
	"spec.classOnly.volumes[].hostPath":              "config-and-storage-resources/volume/#local-temporary-directory",
}

// writeFields writes the table of the fields at a path, and those of the objects in it.
func writeFields(b *strings.Builder, at string, s *apiext.JSONSchemaProps) {
	fmt.Fprintf(b, "\n### %s\n\n", at)
	if text := oneLine(s.Description); text != "" {
		b.WriteString(text + "\n\n")
	}
	for _, rule := range s.XValidations {
		fmt.Fprintf(b, "The API server rejects invalid values with this message: %s.\n\n", rule.Message)
	}
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	type below struct {
		path   string
		schema *apiext.JSONSchemaProps
	}
	var objects []below
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		path, object := at+"."+name, &field
		if field.Type == "array" {
			path, object = path+"[]", field.Items.Schema
		}
		required := ""
		if slices.Contains(s.Required, name) {
			required = ", required"
		}
		text := oneLine(field.Description)
		if link, ok := kubernetes[path]; ok {
			text = strings.TrimSpace(fmt.Sprintf("%s [Fields of Kubernetes](https://kubernetes.io/docs/reference/kubernetes-api/%s)", ownText(path, text), link))
		} else if len(object.Properties) > 0 {
			objects = append(objects, below{path, object})
		}
		fmt.Fprintf(b, "| `%s` | %s%s | %s |\n", name, typeOf(&field), required, text)
	}
	for _, o := range objects {
		writeFields(b, o.path, o.schema)
	}
}

// ownText leaves out the description of a type that is documented elsewhere: of a volume's source it would be all there is.
func ownText(path, text string) string {
	if strings.HasPrefix(path, "spec.classOnly.volumes[].") || path == "spec.classOnly.affinity" {
		return ""
	}
	return text
}

// typeOf names the type of a field, with what its values are bounded by.
func typeOf(s *apiext.JSONSchemaProps) string {
	name := s.Type
	switch {
	case s.XIntOrString:
		name = "integer or percentage"
	case s.Type == "array":
		return "list of " + strings.TrimPrefix(typeOf(s.Items.Schema), "list of ") + most(s.MaxItems)
	case s.Type == "object" && s.AdditionalProperties != nil:
		return "map of strings" + most(s.MaxProperties)
	case len(s.Enum) > 0:
		var values []string
		for _, v := range s.Enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		return strings.Join(values, ", ")
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		name += fmt.Sprintf(", %.0f to %.0f", *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		name += fmt.Sprintf(", from %.0f", *s.Minimum)
	}
	for _, rule := range s.XValidations {
		if s.Type != "object" {
			name += ", " + rule.Message
		}
	}
	return name
}

func most(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf(", %d at most", *n)
}

func oneLine(text string) string {
	return strings.NewReplacer("\n", " ", "|", "\\|", "<", "&lt;", ">", "&gt;").Replace(strings.TrimSpace(text))
}
