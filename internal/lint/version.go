package lint

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// OlderVersion returns the finding that an object is defined with an apiVersion although its kind has a newer one.
func OlderVersion(o metav1.Object, apiVersion string) Finding {
	id := kind.KeyOf(o)
	newest, version := "", ""
	if k := kind.Find(id.Group, id.Kind); k != nil {
		version = k.Versions[0]
		newest = k.Group + "/" + version
	}
	remedy := fmt.Sprintf("write apiVersion: %s", newest)
	if changes := newlyRequired(o, version); len(changes) > 0 {
		remedy += ", and " + strings.Join(changes, ", and ")
	} else {
		remedy += "; the fields are the same"
	}
	return Finding{id, "apiVersion", fmt.Sprintf("%s is an older version of %s, which API servers of a later release may not accept", apiVersion, id.Kind), remedy}
}

// newlyRequired returns what else must be changed in an object that an older version of its kind accepts and the newest does not.
func newlyRequired(o metav1.Object, newest string) (changes []string) {
	rules := 0
	switch o := o.(type) {
	case *gwv1.TLSRoute:
		if rules = len(o.Spec.Rules); len(o.Spec.Hostnames) == 0 {
			changes = append(changes, fmt.Sprintf("add spec.hostnames with the server names of the route, which %s requires", newest))
		}
	case *gwv1.TCPRoute:
		rules = len(o.Spec.Rules)
	case *gwv1.UDPRoute:
		rules = len(o.Spec.Rules)
	}
	if rules > 1 {
		changes = append(changes, fmt.Sprintf("keep one of the rules, because %s allows no more", newest))
	}
	return changes
}

// replacedKind reports an XListenerSet, because there is a kind in the Gateway API's standard channel now.
func (l *linter) replacedKind(o *gwx.XListenerSet) {
	l.add(o, "kind", "ListenerSet has taken the place of this kind, which API servers of a later release may not accept",
		fmt.Sprintf("write apiVersion: %s/%s and kind: %s", kind.ListenerSet.Group, kind.ListenerSet.Versions[0], kind.ListenerSet.Name))
}
