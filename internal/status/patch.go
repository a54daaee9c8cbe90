package status

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Patch returns the JSON merge patch that sets an object's status to merged, for the given version of the object only: an API server
// rejects it if there is a newer one. merged must be the result of Merger.Merge for the object.
func Patch(object metav1.Object, merged any) ([]byte, error) {
	before, err := fields(Of(object))
	if err != nil {
		return nil, err
	}
	after, err := fields(merged)
	if err != nil {
		return nil, err
	}
	changed := map[string]json.RawMessage{}
	for name, value := range after {
		if !bytes.Equal(before[name], value) {
			changed[name] = value
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			changed[name] = json.RawMessage("null")
		}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": object.GetResourceVersion()},
		"status":   changed,
	})
}

// Of returns an object's status, of the types that Merger.Merge returns; nil if it has none. It is not a copy.
func Of(object metav1.Object) any {
	if s := statusOf(object); s.IsValid() {
		return s.Addr().Interface()
	}
	return nil
}

// fields returns the JSON fields of a status.
func fields(status any) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	return m, json.Unmarshal(text, &m)
}
