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

// encode returns an object in the form in which it is applied: only fields that are set, in one spelling, with a hash of all of them
// as an annotation.
func encode(object Object) (map[string]any, error) {
	tree, err := treeOf(object)
	if err != nil {
		return nil, err
	}
	delete(tree, "status")
	annotations := tree["metadata"].(map[string]any)["annotations"].(map[string]any) // meta sets both
	if _, ok := workloadOf(object); ok {
		if annotations[annotationTemplate], err = hashOf(tree["spec"].(map[string]any)["template"]); err != nil {
			return nil, err
		}
	}
	if annotations[annotationApplied], err = hashOf(tree); err != nil {
		return nil, err
	}
	return tree, nil
}

func hashOf(tree any) (string, error) {
	body, err := json.Marshal(tree) // with sorted keys
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8]), err
}

// treeOf returns an object as JSON without null values.
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

// differences returns the fields of wanted that differ in have, by their paths, with both values. Fields that only have contains
// belong to other writers, except elements of a list before those of the controller.
func differences(wanted, have any) map[string]string {
	all := map[string]string{}
	compare(all, "", wanted, have)
	return all
}

func compare(all map[string]string, path string, wanted, have any) {
	switch wanted := wanted.(type) {
	case map[string]any:
		there, _ := have.(map[string]any)
		for key, below := range wanted {
			compare(all, strings.TrimPrefix(path+"."+key, "."), below, there[key])
		}
	case []any:
		there, _ := have.([]any)
		for i, element := range wanted {
			at := fmt.Sprintf("%s[%d]", path, i)
			if i >= len(there) {
				all[at] = "is absent"
				return
			}
			compare(all, at, element, there[i])
		}
	default:
		if wanted != have {
			all[path] = fmt.Sprintf("is %v, not %v", have, wanted)
		}
	}
}

// describe names fields that differ, in order.
func describe(differs map[string]string) string {
	var all []string
	for _, path := range slices.Sorted(maps.Keys(differs)) {
		all = append(all, path+" "+differs[path])
	}
	return strings.Join(all, ", ")
}
