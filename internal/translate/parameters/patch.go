package parameters

import (
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Patch is a workload with a strategic merge patch, in JSON, applied to it. The error
// names what a workload of its kind does not have, or not so.
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

// decode refuses fields that a workload does not have, each by its name.
func decode[T any](text []byte, into *T) error {
	// Of a wrong type the standard library can name the field, of an unknown field the converter.
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
