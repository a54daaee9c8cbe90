package parameters

import (
	"encoding/json"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// PatchDeployment is the Deployment with a strategic merge patch, in JSON, applied to it. The error
// names what a Deployment does not have, or not so.
func PatchDeployment(d *appsv1.Deployment, patch []byte) (*appsv1.Deployment, error) {
	before, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, appsv1.Deployment{})
	if err != nil {
		return nil, err
	}
	patched := &appsv1.Deployment{}
	if err := decode(after, patched); err != nil {
		return nil, err
	}
	return patched, nil
}

// decode refuses fields that a Deployment does not have, each by its name.
func decode(text []byte, into *appsv1.Deployment) error {
	// Of a wrong type the standard library can name the field, of an unknown field the converter.
	if err := json.Unmarshal(text, into); err != nil {
		return err
	}
	var tree map[string]any
	if err := apijson.Unmarshal(text, &tree); err != nil {
		return err
	}
	*into = appsv1.Deployment{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, into, true)
	if unknown, ok := runtime.AsStrictDecodingError(err); ok {
		return errors.Join(unknown.Errors()...)
	}
	return err
}
