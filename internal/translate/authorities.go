package translate

import (
	"cmp"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// authoritiesKey is config.Authorities.key.
type authoritiesKey string

func (k authoritiesKey) Compare(o authoritiesKey) int { return cmp.Compare(k, o) }

// authorities reads the certificates by which other certificates are verified, from ConfigMaps and ClusterTrustBundles.
type authorities struct {
	installation *installation

	all   *incremental.Collection[kindName, *certificate.Authorities] // of objects that BackendTLSPolicies, XBackends or Gateways refer to
	byKey *incremental.Index[authoritiesKey, kindName, *certificate.Authorities]
}

func newAuthorities(e *incremental.Engine,
	objects *incremental.Collection[kindName, metav1.Object], installation *installation,
	policies *incremental.Index[kindName, name, *gwv1.BackendTLSPolicy], xbackends *incremental.Index[kindName, name, *apisx.XBackend],
	gateways *incremental.Index[kindName, name, *gwv1.Gateway]) *authorities {
	as := &authorities{installation: installation}
	as.all = incremental.Map(e, "authorities", objects,
		func(v *incremental.View, k kindName, o metav1.Object) (*certificate.Authorities, bool) {
			if incremental.Count(v, policies, k) == 0 && incremental.Count(v, xbackends, k) == 0 && incremental.Count(v, gateways, k) == 0 {
				return nil, false
			}
			return certificate.ReadAuthorities(o), true
		}, (*certificate.Authorities).Equal)
	as.byKey = incremental.NewIndex(as.all, "authorities by content",
		func(_ kindName, a *certificate.Authorities) []authoritiesKey {
			if a.Wrong != "" {
				return nil
			}
			return []authoritiesKey{authoritiesKey(a.Key)}
		})
	return as
}

// authoritiesKinds returns the kinds of objects that can contain authorities.
func authoritiesKinds() []*kind.Kind {
	return []*kind.Kind{kind.ConfigMap.Kind, kind.ClusterTrustBundle.Kind}
}

// authoritiesRemedy is the remedy if a reference names another kind.
const authoritiesRemedy = "refer to a ConfigMap, or to a ClusterTrustBundle of group " + certificatesv1.GroupName

// authoritiesObject returns the object that a reference to authorities names; ok is false if objects of the kind cannot contain any.
func authoritiesObject(group gwv1.Group, k gwv1.Kind, namespace string, objectName gwv1.ObjectName) (kindName, bool) {
	for _, can := range authoritiesKinds() {
		if group == gwv1.Group(can.Group) && k == gwv1.Kind(can.Name) {
			if !can.Namespaced {
				namespace = ""
			}
			return kindName{Kind(can.Name), name{namespace, string(objectName)}}, true
		}
	}
	return kindName{}, false
}

// absence returns why objects of a kind cannot be referred to, or "" if they can. They can if they are served and only may not be
// read, which read reports.
func (as *authorities) absence(v *incremental.View, k Kind) string {
	if as.lacks(v, k) && as.installation.unreadKind(v, k) == "" {
		return string(k) + "s cannot be read: the API server does not serve them, or not to this controller"
	}
	return ""
}

// lacks reports whether no objects of a kind were read, because they are not served or because they may not be read.
func (as *authorities) lacks(v *incremental.View, k Kind) bool {
	if !kind.Named(string(k)).Optional {
		return false
	}
	lacks := as.installation.lacks(v)
	return lacks != nil && lacks(gwv1.Kind(k))
}

// read returns the authorities of an object, or nil if it does not exist, and why they cannot be used and the remedy.
func (as *authorities) read(v *incremental.View, k kindName) (a *certificate.Authorities, why, remedy string) {
	a, exists := incremental.Fetch(v, as.all, k)
	switch {
	case !exists && as.lacks(v, k.Kind):
		return nil, string(k.Kind) + "s cannot be read", as.installation.unreadKind(v, k.Kind)
	case !exists:
		return nil, authoritiesTitle(k) + " does not exist", "create it or correct the name"
	case a.Wrong != "":
		return a, authoritiesTitle(k) + ": " + a.Wrong, "correct the " + string(k.Kind)
	}
	return a, "", ""
}

func authoritiesTitle(k kindName) string {
	if k.Name.Namespace == "" {
		return string(k.Kind) + " " + k.Name.Name
	}
	return string(k.Kind) + " " + k.Name.String()
}

// authorityRefs collects the results of the references of one validation. If the revocation lists of an authority cannot be used,
// another reference to the same authority is not trusted either: else certificates that the lists revoke would be accepted.
type authorityRefs struct {
	usable   []authorityRef
	withheld []string // see certificate.Authorities.Withheld
	unknown  string   // the field of a reference to certificate.Authorities.UnknownLists, "" if none
}

type authorityRef struct {
	field       string
	authorities *certificate.Authorities
}

// add adds the result of a reference. p is why its authorities cannot be used, or nil; a may be nil if p is not.
func (r *authorityRefs) add(field string, a *certificate.Authorities, p *condition.Problem) {
	switch {
	case p == nil:
		r.usable = append(r.usable, authorityRef{field, a})
	case a != nil:
		if a.UnknownLists && r.unknown == "" {
			r.unknown = field
		}
		if a.Withheld != "" {
			r.withheld = append(r.withheld, a.Withheld)
		}
	}
}

// leaveOut excludes authorities that could be used, and with them those of other references that share a certificate with them, if
// they have revocation lists.
func (r *authorityRefs) leaveOut(a *certificate.Authorities) {
	if len(a.Lists) > 0 {
		r.withheld = append(r.withheld, a.PEM)
	}
}

// refused returns why a reference is not used although its authorities are usable, or nil.
func (r *authorityRefs) refused(ref authorityRef, reason gwv1.ListenerConditionReason) *condition.Problem {
	for _, text := range r.withheld {
		if certificate.Shares(text, ref.authorities.PEM) {
			return condition.NewProblem(reason, ref.field+".name", "see to it that the "+kind.RevocationsKey+" that another reference leads to can be used",
				"it has a certificate of an authority whose revocation lists, of another reference, are not used")
		}
	}
	if r.unknown != "" {
		return condition.NewProblem(reason, ref.field+".name", "correct the "+kind.AuthoritiesKey+" that "+r.unknown+" leads to, or remove that reference",
			"%s leads to a %s without the certificates that it is of, so it may have revoked certificates of any authority", r.unknown, kind.RevocationsKey)
	}
	return nil
}
