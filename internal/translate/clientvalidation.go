package translate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// clientValidation is what a Gateway requires of client certificates (spec.tls.frontend, GEP-91), read from the Gateway and from the
// authorities that it refers to.
type clientValidation struct {
	// Config does not contain the certificates of the listener; nil if clients are not asked for a certificate.
	Config  *config.ClientValidation
	Refs    []*condition.Problem // references that cannot be used
	Invalid *condition.Problem   // why no client can be verified
}

func (c *clientValidation) same(o *clientValidation) bool {
	return sameMessage(c.Config, o.Config) && sameDeeply(c.Refs, o.Refs) && sameDeeply(c.Invalid, o.Invalid)
}

// gatewayPort is a port of a Gateway; 0 stands for all ports without their own entry.
type gatewayPort struct {
	Gateway name
	Port    int32
}

func (p gatewayPort) Compare(o gatewayPort) int {
	return cmp.Or(p.Gateway.Compare(o.Gateway), cmp.Compare(p.Port, o.Port))
}

// clientValidations contains those of managed Gateways. Each Gateway has at least the one for all ports.
type clientValidations struct {
	authorities *authorities
	grants      *grants

	all *incremental.Collection[gatewayPort, *clientValidation]
}

func newClientValidations(e *incremental.Engine,
	gatewayObjects *incremental.Collection[name, *gwv1.Gateway],
	authorities *authorities, grants *grants, gateways *gateways) *clientValidations {
	cv := &clientValidations{grants: grants, authorities: authorities}
	cv.all = incremental.FlatMap(e, "Gateway's validation of clients", gatewayObjects,
		func(v *incremental.View, n name, gw *gwv1.Gateway) (out []incremental.Entry[gatewayPort, *clientValidation]) {
			if _, managed := incremental.Fetch(v, gateways.managed, n); !managed {
				return nil
			}
			frontends := listener.FrontendsOf(gw)
			if len(frontends) == 0 {
				frontends = []listener.Frontend{{}}
			}
			for _, f := range frontends {
				out = append(out, incremental.Entry[gatewayPort, *clientValidation]{Key: gatewayPort{n, f.Port}, Value: cv.read(v, n, f)})
			}
			return out
		}, (*clientValidation).same)
	return cv
}

// gatewaysByAuthorities indexes Gateways by the objects whose authorities verify their clients.
func gatewaysByAuthorities(gatewayObjects *incremental.Collection[name, *gwv1.Gateway]) *incremental.Index[kindName, name, *gwv1.Gateway] {
	return incremental.NewIndex(gatewayObjects, "Gateways by authorities",
		func(n name, gw *gwv1.Gateway) (objects []kindName) {
			for _, f := range listener.FrontendsOf(gw) {
				for _, ref := range f.References() {
					if k, can := clientAuthorities(n, ref); can {
						objects = append(objects, k)
					}
				}
			}
			return objects
		})
}

// clientAuthorities returns the object that a Gateway's reference names; ok is false if objects of its kind cannot contain
// authorities.
func clientAuthorities(gateway name, ref gwv1.ObjectReference) (kindName, bool) {
	return authoritiesObject(ref.Group, ref.Kind, string(ptr.Deref(ref.Namespace, gwv1.Namespace(gateway.Namespace))), ref.Name)
}

// read resolves the references of a validation. All authorities that can be used are trusted; if none can be used, no client is
// served.
func (cv *clientValidations) read(v *incremental.View, gateway name, f listener.Frontend) *clientValidation {
	c := &clientValidation{}
	if f.Validation == nil {
		return c
	}
	c.Config = &config.ClientValidation{Optional: f.Validation.Mode == gwv1.AllowInsecureFallback}
	var refs authorityRefs
	note := func(p *condition.Problem) {
		if p != nil {
			c.Refs = append(c.Refs, p)
		}
	}
	for i, ref := range f.Validation.CACertificateRefs {
		field := fmt.Sprintf("%s.caCertificateRefs[%d]", f.Field, i)
		a, p := cv.resolve(v, gateway, ref, field)
		refs.add(field, a, p)
		note(p)
	}
	var within []authorityRef
	var bytes, subjects int
	for _, ref := range refs.usable {
		a := ref.authorities
		switch withIt, subjectsWithIt := bytes+len(a.PEM), subjects+a.SubjectBytes; {
		case slices.ContainsFunc(within, func(o authorityRef) bool { return o.authorities.Key == a.Key }):
		case withIt > certificate.MaxAuthorityBytes || subjectsWithIt > certificate.MaxSubjectBytes:
			note(condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateRef, ref.field, "leave out what clients are not verified by",
				"with those before it there are %d bytes of certificates, whose subjects have %d bytes; there may be %d and %d",
				withIt, subjectsWithIt, certificate.MaxAuthorityBytes, certificate.MaxSubjectBytes))
			refs.leaveOut(a)
		default:
			within, bytes, subjects = append(within, ref), withIt, subjectsWithIt
		}
	}
	for _, ref := range within {
		if p := refs.refused(ref, gwv1.ListenerReasonInvalidCACertificateRef); p != nil {
			note(p)
			continue
		}
		c.Config.Authorities = append(c.Config.Authorities, ref.authorities.Key)
	}
	slices.Sort(c.Config.Authorities)
	if len(c.Config.Authorities) == 0 {
		c.Config.Optional = false // connections that are already open are not served any longer either
		c.Invalid = condition.NewProblem(gwv1.ListenerReasonNoValidCACertificate, f.Field+".caCertificateRefs", "see condition ResolvedRefs",
			"there is nothing to verify clients by, and they are not served without")
	}
	return c
}

func (cv *clientValidations) resolve(v *incremental.View, gateway name, ref gwv1.ObjectReference, field string) (*certificate.Authorities, *condition.Problem) {
	k, can := clientAuthorities(gateway, ref)
	if !can {
		return nil, condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateKind, field+".kind", authoritiesRemedy,
			"%s of group %q cannot hold authorities", ref.Kind, ref.Group)
	}
	if why := cv.authorities.absence(v, k.Kind); why != "" {
		return nil, condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateKind, field+".kind", "refer to a ConfigMap", "%s", why)
	}
	if p := cv.permit(v, gateway, ref, k, field); p != nil {
		return nil, p
	}
	a, why, remedy := cv.authorities.read(v, k)
	if why != "" {
		return a, condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateRef, field+".name", remedy, "%s", why)
	}
	return a, nil
}

// permit returns why a Gateway may not refer to an object, or nil: an object of another namespace needs a ReferenceGrant there, and
// a cluster-scoped one must not be named with a namespace.
func (cv *clientValidations) permit(v *incremental.View, gateway name, ref gwv1.ObjectReference, k kindName, field string) *condition.Problem {
	from := referrer{gwv1.GroupName, string(KindGateway), gateway}
	switch {
	case k.Name.Namespace == "" && ref.Namespace != nil:
		return condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateRef, field+".namespace", "remove it", "%ss are in no namespace", k.Kind)
	case k.Name.Namespace != "" && !cv.grants.permitted(v, from, string(ref.Group), string(k.Kind), k.Name):
		return condition.NewProblem(gwv1.ListenerReasonRefNotPermitted, field+".namespace", cv.grants.grantRemedy(v, from, string(k.Kind), k.Name),
			"no ReferenceGrant permits the reference to %s", authoritiesTitle(k))
	}
	return nil
}

// of returns what is required of the clients of a listener: an entry for its port replaces the one for all ports.
func (cv *clientValidations) of(v *incremental.View, k listenerKey, l *listener.Listener) *clientValidation {
	if l.Protocol != gwv1.HTTPSProtocolType {
		return &clientValidation{}
	}
	c := cv.at(v, k.Gateway, l.Port)
	if k.Set != "" {
		return c.confined(k.Gateway, l)
	}
	return c
}

// at returns what is required of the clients of a Gateway's port.
func (cv *clientValidations) at(v *incremental.View, gateway name, port int32) *clientValidation {
	for _, port := range []int32{port, 0} {
		if c, exists := incremental.Fetch(v, cv.all, gatewayPort{gateway, port}); exists {
			return c
		}
	}
	// Reading it panicked.
	return &clientValidation{Config: &config.ClientValidation{}, Invalid: condition.NewProblem(gwv1.ListenerReasonNoValidCACertificate, "spec.tls.frontend", "see the controller's log",
		"what is demanded of clients could not be read, and they are not served without")}
}

// confined returns c as the status of a listener of a ListenerSet reports it. Who may read the ListenerSet need not be permitted to
// read the Gateway, so the names in its references and the grants for them are not reported.
func (c *clientValidation) confined(gateway name, l *listener.Listener) *clientValidation {
	const remedy = "see the status of the Gateway"
	out := &clientValidation{Config: c.Config}
	if len(c.Refs) > 0 {
		out.Refs = []*condition.Problem{condition.NewProblem(c.Refs[0].Reason, l.Field+".port", remedy,
			"spec.tls.frontend of Gateway %s has references for port %d that cannot be used", gateway, l.Port)}
	}
	if c.Invalid != nil {
		out.Invalid = condition.NewProblem(c.Invalid.Reason, l.Field+".port", remedy,
			"spec.tls.frontend of Gateway %s has no usable authorities for port %d, and clients are not served without", gateway, l.Port)
	}
	return out
}

// unresolvedForSets returns the first reference that cannot be used for a port that only listeners of ListenerSets have, or nil. own
// are the ports of the Gateway's own HTTPS listeners, whose statuses report theirs.
func (cv *clientValidations) unresolvedForSets(v *incremental.View, gateway name, own, all map[int32]bool) *condition.Problem {
	for _, port := range slices.Sorted(maps.Keys(all)) {
		if c := cv.at(v, gateway, port); !own[port] && len(c.Refs) > 0 {
			return c.Refs[0]
		}
	}
	return nil
}
