package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/support"
)

// installation describes which part of the Gateway API is installed, and which objects of the cluster can be read.
type installation struct {
	installed *incremental.Collection[name, Installed]

	kinds            *incremental.Collection[name, []Kind] // installed kinds, under the empty name
	unreadKinds      *incremental.Collection[name, string] // the remedies for kinds that cannot be read, under their names
	unreadNamespaces *incremental.Collection[name, bool]
}

// newInstallation separates the kinds and namespaces from the versions, on which no listener depends.
func newInstallation(e *incremental.Engine,
	installed *incremental.Collection[name, Installed],
	namespaceObjects *incremental.Collection[name, *corev1.Namespace]) *installation {
	inst := &installation{installed: installed}
	inst.unreadNamespaces = incremental.FlatMap(e, "unread namespaces", inst.installed,
		func(v *incremental.View, _ name, i Installed) (out []incremental.Entry[name, bool]) {
			for _, namespace := range i.UnreadNamespaces {
				n := name{"", namespace}
				if _, exists := incremental.Fetch(v, namespaceObjects, n); exists { // if it does not exist, everything about it is known
					out = append(out, incremental.Entry[name, bool]{Key: n, Value: true})
				}
			}
			return out
		}, same[bool])
	inst.unreadKinds = incremental.FlatMap(e, "unread kinds", inst.installed,
		func(_ *incremental.View, _ name, i Installed) (out []incremental.Entry[name, string]) {
			for _, u := range i.Unread {
				out = append(out, incremental.Entry[name, string]{Key: name{"", string(u.Kind)}, Value: u.Remedy})
			}
			return out
		}, same[string])
	inst.kinds = incremental.Map(e, "installed kinds", inst.installed,
		func(_ *incremental.View, _ name, i Installed) ([]Kind, bool) { return i.Kinds, true }, slices.Equal[[]Kind])
	return inst
}

// lacks returns a function that reports whether a kind is not installed; nil if kinds do not have to be installed.
func (inst *installation) lacks(v *incremental.View) func(gwv1.Kind) bool {
	kinds, known := incremental.Fetch(v, inst.kinds, name{})
	if !known {
		return nil
	}
	return func(k gwv1.Kind) bool { return k != "" && !slices.Contains(kinds, Kind(k)) }
}

// unreadKind returns the remedy if the objects of a kind that is served cannot be read, otherwise "".
func (inst *installation) unreadKind(v *incremental.View, k Kind) string {
	remedy, _ := incremental.Fetch(v, inst.unreadKinds, name{"", string(k)})
	return remedy
}

// experimentalFields reports whether Gateways keep their experimental fields. They always do if nothing has to be installed.
func (inst *installation) experimentalFields(v *incremental.View) bool {
	installed, known := incremental.Fetch(v, inst.installed, name{})
	return !known || slices.ContainsFunc(installed.CRDs, func(c InstalledCRD) bool {
		return c.Name == "gateways."+gwv1.GroupName && support.HasExperimentalFields(c.BundleVersion, c.Channel)
	})
}

// kindDefinition is the kind whose annotations contain the version of the bundle.
const kindDefinition Kind = "CustomResourceDefinition"

// unread returns which kinds cannot be read and the remedy, or "" if all can be.
func (inst *installation) unread(v *incremental.View) string {
	installed, _ := incremental.Fetch(v, inst.installed, name{})
	var all []string
	for _, u := range installed.Unread {
		all = append(all, string(u.Kind)+" objects cannot be read, and are served without or as they were last: "+u.Remedy)
	}
	return strings.Join(all, ". ")
}

// unsupportedVersion returns what is wrong with the CRDs of the Gateway API's own group. Those of its experimental group, and
// leftovers of older bundles, are not considered.
func (inst *installation) unsupportedVersion(v *incremental.View) *condition.Problem {
	installed, known := incremental.Fetch(v, inst.installed, name{})
	if !known {
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
