package backendtraffic

import (
	"encoding/json"
	"slices"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// Fields are the paths of the settings that are made, such as "spec.timeout.http.requestTimeout"; sorted. A list is one, and an object without fields.
func Fields(spec *eg.BackendTrafficPolicySpec) (paths []string) {
	text, err := json.Marshal(settingsOf(spec))
	if err != nil {
		return nil // of no value that a manifest can have
	}
	var all map[string]any
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		fields, ok := v.(map[string]any)
		if !ok || len(fields) == 0 {
			paths = append(paths, at)
			return
		}
		for name, field := range fields {
			walk(at+"."+name, field)
		}
	}
	for name, v := range all {
		walk("spec."+name, v)
	}
	slices.Sort(paths)
	return paths
}
