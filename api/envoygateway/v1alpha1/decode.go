package v1alpha1

import (
	stdjson "encoding/json"
	"errors"
	"strings"

	"sigs.k8s.io/json"
)

// Unread is what of a spec its type has no place for: a cluster may have another CustomResourceDefinition, such as that of a newer Envoy Gateway. The zero
// value is nothing.
type Unread struct {
	Field string // path from the object's root, such as spec.retry.numRetries
	// Type is what stands there, such as "string", of a field whose type is another; "" for a field that is not known.
	Type string
	// Error is why the field cannot be read, where it is known and neither fits.
	Error string
}

// UnmarshalJSON decodes a spec as far as it can be, so that what a policy is for is known also where something else is not, and notes the first field
// that it cannot take in. It fails for what is no JSON, and where the targets are what cannot be read: a policy of which is not known what it is for is not one for nothing.
func (s *BackendTrafficPolicySpec) UnmarshalJSON(data []byte) error {
	type plain BackendTrafficPolicySpec // without this method
	*s = BackendTrafficPolicySpec{}
	unknown, err := json.UnmarshalStrict(data, (*plain)(s), json.DisallowUnknownFields)
	if is, _ := json.SyntaxErrorOffset(err); is {
		return err
	}
	if err == nil {
		if len(unknown) > 0 {
			s.Unread = Unread{Field: "spec"}
			if e, ok := unknown[0].(json.FieldError); ok {
				s.Unread.Field += "." + e.FieldPath()
			}
		}
		return nil
	}
	// Decoding may have ended where it failed: what is left is asked for anew.
	var targets struct {
		TargetRef       *PolicyTargetReference  `json:"targetRef"`
		TargetRefs      []PolicyTargetReference `json:"targetRefs"`
		TargetSelectors []TargetSelector        `json:"targetSelectors"`
	}
	var merge struct {
		MergeType *MergeType `json:"mergeType"`
	}
	if json.UnmarshalCaseSensitivePreserveInts(data, &targets) != nil {
		return err
	}
	_ = json.UnmarshalCaseSensitivePreserveInts(data, &merge) // if it can be
	*s = BackendTrafficPolicySpec{TargetRef: targets.TargetRef, TargetRefs: targets.TargetRefs, TargetSelectors: targets.TargetSelectors, MergeType: merge.MergeType,
		Unread: Unread{Field: "spec", Error: err.Error()}}
	if wrong := (*stdjson.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		field := strings.TrimPrefix(wrong.Field, "Settings.") // of the Go types
		s.Unread = Unread{Field: strings.TrimSuffix("spec."+field, "."), Type: wrong.Value}
	}
	return nil
}
