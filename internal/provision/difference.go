package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// encode is an object as it is applied: only fields that are set, in one spelling, with a
// hash of all of them as an annotation.
func encode(object Object) (map[string]any, error) {
	tree, err := treeOf(object)
	if err != nil {
		return nil, err
	}
	delete(tree, "status")
	body, err := json.Marshal(tree) // sorted
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	annotations := tree["metadata"].(map[string]any)["annotations"].(map[string]any) // meta sets both
	annotations[annotationApplied] = hex.EncodeToString(sum[:8])
	return tree, nil
}

// treeOf is an object as its JSON, without what is null.
func treeOf(object Object) (map[string]any, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(body, &tree); err != nil {
		return nil, err
	}
	return withoutNull(tree).(map[string]any), nil
}

func withoutNull(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			if below == nil {
				delete(value, key)
			} else {
				value[key] = withoutNull(below)
			}
		}
	case []any:
		for i := range value {
			value[i] = withoutNull(value[i])
		}
	}
	return value
}

// difference is the first field of wanted that is otherwise in have, with both values, "" for none. What only have
// has is somebody else's, except elements of a list before ours.
func difference(path string, wanted, have any) string {
	switch wanted := wanted.(type) {
	case map[string]any:
		there, _ := have.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(wanted)) {
			if d := difference(strings.TrimPrefix(path+"."+key, "."), wanted[key], there[key]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		there, _ := have.([]any)
		for i, element := range wanted {
			if i >= len(there) {
				return fmt.Sprintf("%s[%d] is absent", path, i)
			}
			if d := difference(fmt.Sprintf("%s[%d]", path, i), element, there[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if wanted != have {
		return fmt.Sprintf("%s is %v, not %v", path, have, wanted)
	}
	return ""
}
