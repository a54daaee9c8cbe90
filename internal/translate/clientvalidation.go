package translate

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// clientValidation is what a Gateway demands of the certificates of clients (spec.tls.frontend, GEP-91), as far as itself and its ConfigMaps tell.
type clientValidation struct {
	// Config is without the certificates of the listener; nil where clients are not asked for any.
	Config  *config.ClientValidation
	Refs    *condition.Problem // the first reference that cannot be used
	Invalid *condition.Problem // why no client can be verified
}

func (c *clientValidation) same(o *clientValidation) bool {
	return sameMessage(c.Config, o.Config) && sameDeeply(c.Refs, o.Refs) && sameDeeply(c.Invalid, o.Invalid)
}

// gatewayPort is a port of a Gateway; 0 stands for all that have no entry of their own.
type gatewayPort struct {
	Gateway name
	Port    int32
}

func (p gatewayPort) Compare(o gatewayPort) int {
	return cmp.Or(p.Gateway.Compare(o.Gateway), cmp.Compare(p.Port, o.Port))
}

// clientValidations are those of managed Gateways.
type clientValidations struct {
	grants *grants

	authorities *incremental.Collection[name, *certificate.Authorities]
	all         *incremental.Collection[gatewayPort, *clientValidation]
}

func newClientValidations(e *incremental.Engine,
	gatewayObjects *incremental.Collection[name, *gwv1.Gateway],
	authorities *incremental.Collection[name, *certificate.Authorities], grants *grants, gateways *gateways) *clientValidations {
	cv := &clientValidations{grants: grants, authorities: authorities}
	cv.all = incremental.FlatMap(e, "Gateway's validation of clients", gatewayObjects,
		func(v *incremental.View, n name, gw *gwv1.Gateway) (out []incremental.Entry[gatewayPort, *clientValidation]) {
			if _, managed := incremental.Fetch(v, gateways.managed, n); !managed {
				return nil
			}
			for _, f := range listener.FrontendsOf(gw) {
				out = append(out, incremental.Entry[gatewayPort, *clientValidation]{Key: gatewayPort{n, f.Port}, Value: cv.read(v, n, f)})
			}
			return out
		}, (*clientValidation).same)
	return cv
}

// gatewaysByConfigMap finds the Gateways that verify clients by a ConfigMap.
func gatewaysByConfigMap(gatewayObjects *incremental.Collection[name, *gwv1.Gateway]) *incremental.Index[name, name, *gwv1.Gateway] {
	return incremental.NewIndex(gatewayObjects, "Gateways by ConfigMap",
		func(n name, gw *gwv1.Gateway) (configMaps []name) {
			for _, f := range listener.FrontendsOf(gw) {
				for _, ref := range f.References() {
					if isConfigMapOf(ref) {
						configMaps = append(configMaps, authoritiesOf(n, ref))
					}
				}
			}
			return configMaps
		})
}

func isConfigMapOf(ref gwv1.ObjectReference) bool {
	return ref.Group == corev1.GroupName && ref.Kind == gwv1.Kind(kind.ConfigMap.Name)
}

// authoritiesOf is the object that a Gateway's reference names.
func authoritiesOf(gateway name, ref gwv1.ObjectReference) name {
	return name{string(value(ref.Namespace, gwv1.Namespace(gateway.Namespace))), string(ref.Name)}
}

// read resolves the references of a validation: those that can be used are trusted together. Where none can, no client is served.
func (cv *clientValidations) read(v *incremental.View, gateway name, f listener.Frontend) *clientValidation {
	c := &clientValidation{}
	if f.Validation == nil {
		return c
	}
	c.Config = &config.ClientValidation{Optional: f.Validation.Mode == gwv1.AllowInsecureFallback}
	var bytes, subjects int
	for i, ref := range f.Validation.CACertificateRefs {
		field := fmt.Sprintf("%s.caCertificateRefs[%d]", f.Field, i)
		a, p := cv.resolve(v, gateway, ref, field)
		if p == nil && !slices.Contains(c.Config.Authorities, a.Key) {
			if bytes, subjects = bytes+len(a.PEM), subjects+a.SubjectBytes; bytes > certificate.MaxAuthorityBytes || subjects > certificate.MaxSubjectBytes {
				p = condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateRef, field, "leave out what clients are not verified by",
					"with those before it there are %d bytes of certificates, whose subjects have %d bytes; there may be %d and %d",
					bytes, subjects, certificate.MaxAuthorityBytes, certificate.MaxSubjectBytes)
				bytes, subjects = bytes-len(a.PEM), subjects-a.SubjectBytes
			} else {
				c.Config.Authorities = append(c.Config.Authorities, a.Key)
			}
		}
		if p != nil && c.Refs == nil {
			c.Refs = p
		}
	}
	slices.Sort(c.Config.Authorities)
	if len(c.Config.Authorities) == 0 {
		c.Config.Optional = false // connections that are open are not served any more either
		c.Invalid = condition.NewProblem(gwv1.ListenerReasonNoValidCACertificate, f.Field+".caCertificateRefs", "see condition ResolvedRefs",
			"there is nothing to verify clients by, and they are not served without")
	}
	return c
}

func (cv *clientValidations) resolve(v *incremental.View, gateway name, ref gwv1.ObjectReference, field string) (*certificate.Authorities, *condition.Problem) {
	if !isConfigMapOf(ref) {
		return nil, condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateKind, field+".kind", "refer to a ConfigMap",
			"%s of group %q cannot hold authorities", ref.Kind, ref.Group)
	}
	from, n := referrer{gwv1.GroupName, string(KindGateway), gateway}, authoritiesOf(gateway, ref)
	if !cv.grants.permitted(v, from, corev1.GroupName, kind.ConfigMap.Name, n) {
		return nil, condition.NewProblem(gwv1.ListenerReasonRefNotPermitted, field+".namespace", cv.grants.grantRemedy(v, from, kind.ConfigMap.Name, n),
			"no ReferenceGrant permits the reference to ConfigMap %s", n)
	}
	a, exists := incremental.Fetch(v, cv.authorities, n)
	switch {
	case !exists:
		return nil, condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateRef, field+".name", "create it or correct the name", "ConfigMap %s does not exist", n)
	case a.Wrong != "":
		return nil, condition.NewProblem(gwv1.ListenerReasonInvalidCACertificateRef, field+".name", "correct the ConfigMap", "ConfigMap %s: %s", n, a.Wrong)
	}
	return a, nil
}

// of returns what is demanded of the clients of a listener: an entry for its port replaces the one for all.
func (cv *clientValidations) of(v *incremental.View, k listenerKey, l *listener.Listener) *clientValidation {
	if l.Protocol == gwv1.HTTPSProtocolType {
		for _, port := range []int32{l.Port, 0} {
			if c, exists := incremental.Fetch(v, cv.all, gatewayPort{k.Gateway, port}); exists {
				return c
			}
		}
	}
	return &clientValidation{}
}
