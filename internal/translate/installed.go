package translate

import (
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/support"
)

// declareInstalled tells the kinds and namespaces apart from the versions, on which no listener depends.
func (t *Translator) declareInstalled() {
	t.unreadNamespaces = incremental.FlatMap(t.engine, "unread namespaces", t.in.installed.Collection,
		func(v *incremental.View, _ name, i Installed) (out []incremental.Entry[name, bool]) {
			for _, namespace := range i.UnreadNamespaces {
				n := name{"", namespace}
				if _, exists := incremental.Fetch(v, t.in.namespaces.Collection, n); exists { // of one that does not all is known
					out = append(out, incremental.Entry[name, bool]{Key: n, Value: true})
				}
			}
			return out
		}, same[bool])
	t.kinds = incremental.Map(t.engine, "installed kinds", t.in.installed.Collection,
		func(_ *incremental.View, _ name, i Installed) ([]Kind, bool) { return i.Kinds, true }, slices.Equal[[]Kind])
}

// lacks says of a kind whether it is not installed; nil where the question does not arise.
func (t *Translator) lacks(v *incremental.View) func(gwv1.Kind) bool {
	kinds, told := incremental.Fetch(v, t.kinds, name{})
	if !told {
		return nil
	}
	return func(k gwv1.Kind) bool { return k != "" && !slices.Contains(kinds, Kind(k)) }
}

// kindDefinition is what tells of bundles.
const kindDefinition Kind = "CustomResourceDefinition"

// unread says which kinds cannot be read and what helps, "" for none.
func (t *Translator) unread(v *incremental.View) string {
	installed, _ := incremental.Fetch(v, t.in.installed.Collection, name{})
	var all []string
	for _, u := range installed.Unread {
		all = append(all, string(u.Kind)+" objects cannot be read, and are served without or as they were last: "+u.Remedy)
	}
	return strings.Join(all, ". ")
}

// unsupportedVersion is what is wrong with the CRDs of the Gateway API's own group; those of its
// experiments, and leftovers of older bundles, do not count.
func (t *Translator) unsupportedVersion(v *incremental.View) *condition.Problem {
	installed, told := incremental.Fetch(v, t.in.installed.Collection, name{})
	if !told {
		return nil
	}
	for _, u := range installed.Unread {
		if u.Kind == kindDefinition {
			return condition.NewProblem(gwv1.GatewayClassReasonUnsupportedVersion, "", u.Remedy, "the CustomResourceDefinitions of the Gateway API cannot be read")
		}
	}
	var crds []support.CRD
	for _, c := range installed.CRDs {
		if plural, native := strings.CutSuffix(c.Name, "."+gwv1.GroupName); native {
			crds = append(crds, support.CRD{Name: plural, BundleVersion: c.BundleVersion})
		}
	}
	return support.Unsupported(crds)
}
