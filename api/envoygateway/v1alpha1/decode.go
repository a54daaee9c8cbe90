package v1alpha1

import (
	stdjson "encoding/json"
	"errors"
	"strings"

	"sigs.k8s.io/json"
)

// Unread is a part of a spec that does not fit its Go type: a cluster may have another CustomResourceDefinition, such as that of a
// newer Envoy Gateway. The zero value means that everything was read.
type Unread struct {
	Field string // path from the object's root, such as spec.retry.numRetries
	// Type is the JSON type of the value, such as "string", if the field has another type; "" if the field is unknown.
	Type string
	// Error is why the field cannot be read for another reason; "" if Type, or that the field is unknown, explains it.
	Error string
}

// UnmarshalJSON decodes a spec as far as possible, so that the targets of a policy are known even if another field cannot be read,
// and records the first such field in Unread. It returns an error for invalid JSON, and if the targets themselves cannot be read: a
// policy with unknown targets must not be treated as one without targets.
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
	// Decoding may have stopped at the error: the targets are decoded again.
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
	_ = json.UnmarshalCaseSensitivePreserveInts(data, &merge) // if possible
	*s = BackendTrafficPolicySpec{TargetRef: targets.TargetRef, TargetRefs: targets.TargetRefs, TargetSelectors: targets.TargetSelectors, MergeType: merge.MergeType,
		Unread: Unread{Field: "spec", Error: err.Error()}}
	if wrong := (*stdjson.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		field := strings.TrimPrefix(wrong.Field, "Settings.") // a prefix of the Go types
		s.Unread = Unread{Field: strings.TrimSuffix("spec."+field, "."), Type: wrong.Value}
	}
	return nil
}
