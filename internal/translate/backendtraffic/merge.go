package backendtraffic

import (
	"encoding/json"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// Merge returns the settings of parent with those of child merged onto them, as child's mergeType requires: RFC 7386, or a strategic
// merge of Kubernetes, which merges lists by their keys. The result has no targets. Limits that rateLimit.type excludes in one of
// the policies are not merged, nor is the type itself: it would exclude limits of the other.
func Merge(child, parent *eg.BackendTrafficPolicySpec) (*eg.BackendTrafficPolicySpec, error) {
	patch, err := json.Marshal(mergeable(child))
	if err != nil {
		return nil, err
	}
	base, err := json.Marshal(mergeable(parent))
	if err != nil {
		return nil, err
	}
	var merged []byte
	if ptr.Deref(child.MergeType, "") == eg.JSONMerge {
		merged, err = jsonpatch.MergePatch(base, patch)
	} else {
		merged, err = strategicpatch.StrategicMergePatch(base, patch, settings{})
	}
	if err != nil {
		return nil, err
	}
	var s settings
	if err := json.Unmarshal(merged, &s); err != nil {
		return nil, err
	}
	return &eg.BackendTrafficPolicySpec{Settings: s.Settings, Protocols: s.Protocols}, nil
}

// settings are the parts of a spec that are merged.
type settings struct {
	eg.Settings `json:",inline"`
	Protocols   *eg.Protocols `json:"protocols,omitempty"`
}

func settingsOf(spec *eg.BackendTrafficPolicySpec) settings {
	return settings{spec.Settings, spec.Protocols}
}

// mergeable returns the settings of a spec that would be in force without a merge.
func mergeable(spec *eg.BackendTrafficPolicySpec) settings {
	s := settingsOf(spec)
	s.RateLimit = selected(s.RateLimit)
	s.HTTPUpgrade = slices.Clone(s.HTTPUpgrade)
	for i := range s.HTTPUpgrade { // the key by which entries are merged; it is case-insensitive (RFC 9110 section 7.8)
		s.HTTPUpgrade[i].Type = strings.ToLower(s.HTTPUpgrade[i].Type)
	}
	return s
}
