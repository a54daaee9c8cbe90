package status

import (
	"fmt"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"
)

// listOf returns the name of the list of parents or ancestors in a status, its maximum length and its length; "" if there is none.
func listOf(status any) (name string, limit, length int) {
	switch s := status.(type) {
	case *gwv1.RouteStatus:
		return "parents", MaxParents, len(s.Parents)
	case *gwv1.PolicyStatus:
		return "ancestors", MaxAncestors, len(s.Ancestors)
	case *apisx.BackendStatus:
		return "ancestors", MaxBackendAncestors, len(s.Ancestors)
	}
	return "", 0, 0
}

// Full reports whether the list of parents or ancestors in a status, as returned by kind.StatusOf, has its maximum length.
func Full(status any) bool {
	name, limit, length := listOf(status)
	return name != "" && length >= limit
}

// Omitted returns a message about the entries of the controller in desired for which the list in merged, the result of Merge, has no
// room, and about their conditions; "" if there are none. GEP-713 requires that they are not added, and nothing in the status can report
// that.
func Omitted(merged, desired any, controller gwv1.GatewayController) string {
	if isNil(desired) || !Full(merged) {
		return ""
	}
	written := Parts(merged, controller)
	var names []string
	for _, part := range Parts(desired, "") {
		if slices.ContainsFunc(written, part.same) {
			continue
		}
		var conditions []string
		for _, c := range part.Conditions {
			switch text := c.Type + "=" + string(c.Status); {
			case bad(c):
				conditions = append(conditions, text+" "+c.Reason+": "+c.Message)
			case good(c):
				conditions = append(conditions, text)
			}
		}
		names = append(names, part.String()+" ("+strings.Join(conditions, ", ")+")")
	}
	if len(names) == 0 {
		return ""
	}
	if n := len(names); n > maxNamed {
		names = append(names[:maxNamed], fmt.Sprintf("and %d more", n-maxNamed))
	}
	name, limit, _ := listOf(merged)
	return fmt.Sprintf("status.%s has %d entries, which is the maximum, and no room for: %s", name, limit, strings.Join(names, ", "))
}
