package parameters

import (
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Patch returns a workload with a strategic merge patch, in JSON, applied to it. The error names the field that workloads of its
// kind do not have, or whose type is wrong.
func Patch[T any](workload *T, patch []byte) (*T, error) {
	before, err := json.Marshal(workload)
	if err != nil {
		return nil, err
	}
	patched := new(T)
	after, err := strategicpatch.StrategicMergePatch(before, patch, *patched)
	if err != nil {
		return nil, err
	}
	if err := decode(after, patched); err != nil {
		return nil, err
	}
	return patched, nil
}

// decode returns an error that names an unknown field.
func decode[T any](text []byte, into *T) error {
	// For a wrong type the standard library names the field, for an unknown field the converter does.
	if err := json.Unmarshal(text, into); err != nil {
		return err
	}
	var tree map[string]any
	if err := apijson.Unmarshal(text, &tree); err != nil {
		return err
	}
	var zero T
	*into = zero
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, into, true)
	if unknown, ok := runtime.AsStrictDecodingError(err); ok {
		return errors.Join(unknown.Errors()...)
	}
	return err
}
