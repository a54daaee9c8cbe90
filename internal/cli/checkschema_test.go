package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/moongate-dev/moongate/internal/admin"
)

// TestCheckJSONSchema holds what check prints as JSON to docs/check.schema.json, of every mistake, and the schema to the members that there are.
func TestCheckJSONSchema(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "check.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	written, schema := &apiextensionsv1.JSONSchemaProps{}, &apiextensions.JSONSchemaProps{}
	if err := json.Unmarshal(raw, written); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(written, schema, nil); err != nil {
		t.Fatal(err)
	}
	problem := schema.Properties["problems"].Items.Schema
	problem.AdditionalProperties = &apiextensions.JSONSchemaPropsOrBool{} // none that the schema does not know
	schema.AdditionalProperties = problem.AdditionalProperties
	validator, _, err := validation.NewSchemaValidator(schema)
	if err != nil {
		t.Fatal(err)
	}
	var members []string
	for i := range reflect.TypeFor[admin.Problem]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[admin.Problem]().Field(i).Tag.Get("json"), ",")
		members = append(members, name)
	}
	slices.Sort(members)
	if got := slices.Sorted(maps.Keys(problem.Properties)); !slices.Equal(got, members) {
		t.Errorf("the schema has the members %v of a problem, but there are %v", got, members)
	}

	violations := func(output []byte) field.ErrorList {
		var v any
		if err := json.Unmarshal(output, &v); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return validation.ValidateCustomResource(nil, v, validator)
	}
	t.Chdir(filepath.Join("testdata", "mistakes"))
	mistakes, err := filepath.Glob("*.yaml")
	if err != nil || len(mistakes) == 0 {
		t.Fatalf("%d mistakes, %v", len(mistakes), err)
	}
	for _, path := range mistakes {
		var stdout, stderr bytes.Buffer
		Main([]string{"check", "-o", "json", "base.yaml", path}, &stdout, &stderr)
		if found := violations(stdout.Bytes()); len(found) > 0 {
			t.Errorf("%s: %v", path, found)
		}
	}
	for _, wrong := range []string{`{"items": []}`, `{"items": [{"kind": "A"}], "problems": []}`, `{"items": [], "problems": [{"message": 1}]}`, `{"items": [], "problems": [{"message": "a", "line": 0}]}`,
		`{"items": [], "problems": [{"message": "a", "more": true}]}`, `{"items": [], "problems": [], "more": 1}`} {
		if len(violations([]byte(wrong))) == 0 {
			t.Errorf("the schema takes %s", wrong)
		}
	}
}
