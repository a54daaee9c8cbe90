package lint

import (
	"fmt"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// OlderVersion returns the finding that an object is defined with an apiVersion although its kind has a newer one.
func OlderVersion(id kind.ObjectKey, apiVersion string) Finding {
	newest := ""
	if k := kind.Find(id.Group, id.Kind); k != nil {
		newest = k.Group + "/" + k.Versions[0]
	}
	return Finding{id, "apiVersion", fmt.Sprintf("%s is an older version of %s, which API servers of a later release may not accept", apiVersion, id.Kind),
		fmt.Sprintf("write apiVersion: %s; the fields are the same", newest)}
}

// replacedKind reports an XListenerSet, because there is a kind in the Gateway API's standard channel now.
func (l *linter) replacedKind(o *gwx.XListenerSet) {
	l.add(o, "kind", "ListenerSet has taken the place of this kind, which API servers of a later release may not accept",
		fmt.Sprintf("write apiVersion: %s/%s and kind: %s", kind.ListenerSet.Group, kind.ListenerSet.Versions[0], kind.ListenerSet.Name))
}
