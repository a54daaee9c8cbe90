package translate

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// A Service's port with a BackendTLSPolicy is reached over TLS or not at all: references to it are invalid if the policy in force
// cannot be applied, even if another policy could be.

// backendTLS is the result of a BackendTLSPolicy and of the authorities that it refers to.
type backendTLS struct {
	Config  *config.BackendTLS   // nil if Invalid is set
	Invalid *condition.Problem   // why the policy cannot be applied
	Refs    []*condition.Problem // of caCertificateRefs
	Notes   []string             // fields that are ignored
}

func (b *backendTLS) same(o *backendTLS) bool {
	return sameMessage(b.Config, o.Config) && sameDeeply(b.Invalid, o.Invalid) && sameDeeply(b.Refs, o.Refs) && slices.Equal(b.Notes, o.Notes)
}

// backendTLSPolicies contains BackendTLSPolicies, without their effect on routes.
type backendTLSPolicies struct {
	undecodedPolicies *incremental.Collection[name, undecodedPolicy]
	authorities       *authorities

	byTarget  *incremental.Index[policy.Target, name, *gwv1.BackendTLSPolicy]
	undecoded *incremental.Index[string, name, undecodedPolicy] // by namespace
	ages      *incremental.Collection[name, int64]
	winners   *incremental.Collection[policy.Target, name] // of those that can be decoded
	// buckets are those that contain targets of winners.
	buckets *incremental.Collection[targetBucket, struct{}]
	all     *incremental.Collection[name, *backendTLS]
	refused *incremental.Collection[name, string] // policies that cannot be applied, and why
}

func newBackendTLSPolicies(e *incremental.Engine,
	policyObjects *incremental.Collection[name, *gwv1.BackendTLSPolicy],
	undecodedPolicies *incremental.Collection[name, undecodedPolicy],
	policiesForRoutes *incremental.Collection[name, *gwv1.BackendTLSPolicy], authorities *authorities) *backendTLSPolicies {
	bp := &backendTLSPolicies{undecodedPolicies: undecodedPolicies, authorities: authorities}
	bp.byTarget = incremental.NewIndex(policyObjects, "BackendTLSPolicies by target",
		tlsPolicyTargets)
	bp.undecoded = incremental.NewIndex(bp.undecodedPolicies, "undecoded BackendTLSPolicies by namespace",
		func(n name, _ undecodedPolicy) []string { return []string{n.Namespace} })
	bp.ages = incremental.Map(e, "BackendTLSPolicy age", policyObjects,
		func(_ *incremental.View, _ name, p *gwv1.BackendTLSPolicy) (int64, bool) { return createdOf(p), true }, same[int64])
	bp.winners = policyWinners(e, kind.BackendTLSPolicy.Kind, bp.byTarget, bp.ages)
	bp.buckets = targetBuckets(kind.BackendTLSPolicy.Kind, bp.winners)
	bp.all = incremental.Map(e, "BackendTLSPolicy", policiesForRoutes,
		func(v *incremental.View, n name, p *gwv1.BackendTLSPolicy) (*backendTLS, bool) {
			return bp.readBackendTLS(v, n, p), true
		}, (*backendTLS).same)
	bp.refused = incremental.Map(e, "refused BackendTLSPolicy", bp.all,
		func(_ *incremental.View, _ name, b *backendTLS) (string, bool) {
			if b.Invalid == nil {
				return "", false
			}
			return b.Invalid.String(), true
		}, same[string])
	return bp
}

func tlsPolicyTargets(n name, p *gwv1.BackendTLSPolicy) []policy.Target {
	return policy.Targets(n.Namespace, p.Spec.TargetRefs)
}

// backendTLSPoliciesInUse returns the policies for Services or XBackends that routes, listeners or XTelemetryPolicies name.
func backendTLSPoliciesInUse(e *incremental.Engine,
	policyObjects *incremental.Collection[name, *gwv1.BackendTLSPolicy],
	routeObjects *incremental.Collection[kindName, metav1.Object], xbackends *incremental.Collection[name, *apisx.XBackend], listeners *listeners,
	collectors *incremental.Index[policy.Target, name, *apisx.XTelemetryPolicy]) *incremental.Collection[name, *gwv1.BackendTLSPolicy] {
	named := incremental.Keys(incremental.NewIndex(routeObjects, "routes by Service that they name", namedServices), "Services that routes name")
	return incremental.Map(e, "BackendTLSPolicy in use", policyObjects,
		func(v *incremental.View, n name, p *gwv1.BackendTLSPolicy) (*gwv1.BackendTLSPolicy, bool) {
			return p, slices.ContainsFunc(policy.Targets(n.Namespace, p.Spec.TargetRefs), func(target policy.Target) bool {
				if isXBackend(target) { // an XBackend cannot have one, but its policies are read to report that
					_, is := incremental.Fetch(v, xbackends, name{target.Namespace, target.Name})
					return is
				}
				if !isService(target) {
					return false
				}
				_, is := incremental.Fetch(v, named, name{target.Namespace, target.Name})
				return is || incremental.Count(v, listeners.byBackend, target.Whole()) > 0 || incremental.Count(v, collectors, target.Whole()) > 0
			})
		}, sameDeeply[*gwv1.BackendTLSPolicy])
}

// policiesByAuthorities indexes BackendTLSPolicies by the objects whose authorities verify their backends.
func policiesByAuthorities(policies *incremental.Collection[name, *gwv1.BackendTLSPolicy]) *incremental.Index[kindName, name, *gwv1.BackendTLSPolicy] {
	return incremental.NewIndex(policies, "BackendTLSPolicies by authorities",
		func(n name, p *gwv1.BackendTLSPolicy) []kindName {
			return authoritiesOf(n.Namespace, &p.Spec.Validation)
		})
}

// authoritiesOf returns the objects with authorities that a validation in a namespace refers to.
func authoritiesOf(namespace string, spec *gwv1.BackendTLSPolicyValidation) (objects []kindName) {
	for _, ref := range spec.CACertificateRefs {
		if k, can := authoritiesObject(ref.Group, ref.Kind, namespace, ref.Name); can {
			objects = append(objects, k)
		}
	}
	return objects
}

// readBackendTLS validates a policy, without its targets.
func (bp *backendTLSPolicies) readBackendTLS(v *incremental.View, n name, p *gwv1.BackendTLSPolicy) *backendTLS {
	b := &backendTLS{}
	c := bp.readValidation(v, n, &p.Spec.Validation, "spec.validation", b)
	b.readOptions(p.Spec.Options, c)
	if b.Invalid == nil {
		b.Config = c
	}
	return b
}

// readValidation validates how a backend's certificate is verified, as field of an object defines it, and adds what is wrong with it
// to b.
func (bp *backendTLSPolicies) readValidation(v *incremental.View, n name, spec *gwv1.BackendTLSPolicyValidation, field string, b *backendTLS) *config.BackendTLS {
	authorities := bp.readAuthorities(v, n, spec, field, b)
	hostname := strings.ToLower(string(spec.Hostname))
	if _, err := netip.ParseAddr(hostname); err == nil || hostname == "" || strings.Contains(hostname, "*") {
		b.invalid(gwv1.PolicyReasonInvalid, field+".hostname", "write the DNS name that the backend's certificate has", "%q is not the name of a host", hostname)
	}
	c := &config.BackendTLS{ServerName: hostname, Authorities: authorities,
		SystemAuthorities: ptr.Deref(spec.WellKnownCACertificates, "") == gwv1.WellKnownCACertificatesSystem}
	if names := b.readSubjectAltNames(spec.SubjectAltNames, field); names != nil {
		names.AskedName, c.ServerName = hostname, ""
		c.SubjectAltNames = names
	}
	return c
}

// readSubjectAltNames returns the names of which a backend must have one instead of its hostname, or nil if there are none.
func (b *backendTLS) readSubjectAltNames(all []gwv1.SubjectAltName, at string) *config.SubjectAltNames {
	if len(all) == 0 {
		return nil
	}
	names := &config.SubjectAltNames{}
	for i, san := range all {
		field := fmt.Sprintf("%s.subjectAltNames[%d]", at, i)
		switch san.Type {
		case gwv1.HostnameSubjectAltNameType:
			hostname := strings.ToLower(string(san.Hostname))
			if _, err := netip.ParseAddr(hostname); err == nil || hostname == "" || strings.Contains(strings.TrimPrefix(hostname, "*."), "*") {
				b.invalid(gwv1.PolicyReasonInvalid, field+".hostname", "write a DNS name that the backend's certificate has", "%q is not the name of a host", hostname)
			}
			names.Hostnames = append(names.Hostnames, hostname)
		case gwv1.URISubjectAltNameType:
			u, err := url.Parse(string(san.URI))
			if err != nil || u.Scheme == "" || u.Opaque == "" && u.Host == "" && u.Path == "" {
				b.invalid(gwv1.PolicyReasonInvalid, field+".uri", "write one that the backend's certificate has, such as spiffe://cluster.local/ns/default/sa/web",
					"%q is not an absolute URI", san.URI)
				continue
			}
			u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
			names.Uris = append(names.Uris, u.String())
		default:
			b.invalid(gwv1.PolicyReasonInvalid, field+".type", "use Hostname or URI", "%q is not known", san.Type)
		}
	}
	return names
}

// invalid records a problem unless there is one already: one is enough to act on.
func (b *backendTLS) invalid(reason gwv1.PolicyConditionReason, field, remedy, format string, args ...any) {
	if b.Invalid == nil {
		b.Invalid = condition.NewProblem(reason, field, remedy, format, args...)
	}
}

// readAuthorities returns the keys of the authorities that a validation names, without duplicates; if empty, those of the system. It
// adds what is wrong with them to b.
func (bp *backendTLSPolicies) readAuthorities(v *incremental.View, n name, spec *gwv1.BackendTLSPolicyValidation, at string, b *backendTLS) (keys []string) {
	wellKnown := ptr.Deref(spec.WellKnownCACertificates, "")
	switch {
	case len(spec.CACertificateRefs) > 0 && wellKnown != "":
		b.invalid(gwv1.PolicyReasonInvalid, at+".wellKnownCACertificates", "remove one of both", "it cannot be used beside caCertificateRefs")
	case len(spec.CACertificateRefs) == 0 && wellKnown == "":
		b.invalid(gwv1.PolicyReasonInvalid, at+".caCertificateRefs", "add a reference to a ConfigMap with key "+kind.AuthoritiesKey+", or to a ClusterTrustBundle",
			"nothing is named to verify the backend's certificate by")
	case wellKnown != "" && wellKnown != gwv1.WellKnownCACertificatesSystem:
		b.invalid(gwv1.PolicyReasonInvalid, at+".wellKnownCACertificates", "use System, or caCertificateRefs", "%q is not known", wellKnown)
	}
	var refs authorityRefs
	for i, ref := range spec.CACertificateRefs {
		field := fmt.Sprintf("%s.caCertificateRefs[%d]", at, i)
		a, p := bp.resolveAuthorities(v, n.Namespace, ref, field)
		if refs.add(field, a, p); p != nil {
			b.Refs = append(b.Refs, p)
		}
	}
	size := 0
	for _, ref := range refs.usable {
		a := ref.authorities
		switch p := refs.refused(ref, gwv1.ListenerConditionReason(gwv1.BackendTLSPolicyReasonInvalidCACertificateRef)); {
		case p != nil:
			b.Refs = append(b.Refs, p)
		case !slices.Contains(keys, a.Key):
			keys = append(keys, a.Key)
			size += len(a.PEM)
		}
	}
	switch {
	case size > certificate.MaxAuthorityBytes:
		b.invalid(gwv1.PolicyReasonInvalid, at+".caCertificateRefs", "leave out what the backend's certificate is not verified by",
			"they have %d bytes of certificates together, and a policy may have %d", size, certificate.MaxAuthorityBytes)
	case len(b.Refs) > 0 && len(keys) == 0:
		b.invalid(gwv1.BackendTLSPolicyReasonNoValidCACertificate, at+".caCertificateRefs", "see condition ResolvedRefs", "no reference can be used: %s",
			condition.List(b.Refs))
	}
	return keys
}

func (bp *backendTLSPolicies) resolveAuthorities(v *incremental.View, namespace string, ref gwv1.LocalObjectReference, field string) (*certificate.Authorities, *condition.Problem) {
	k, can := authoritiesObject(ref.Group, ref.Kind, namespace, ref.Name)
	if !can {
		return nil, condition.NewProblem(gwv1.BackendTLSPolicyReasonInvalidKind, field+".kind", authoritiesRemedy,
			"%s of group %q cannot hold authorities", ref.Kind, ref.Group)
	}
	if why := bp.authorities.absence(v, k.Kind); why != "" {
		return nil, condition.NewProblem(gwv1.BackendTLSPolicyReasonInvalidKind, field+".kind", "refer to a ConfigMap", "%s", why)
	}
	a, why, remedy := bp.authorities.read(v, k)
	if why != "" {
		return a, condition.NewProblem(gwv1.BackendTLSPolicyReasonInvalidCACertificateRef, field+".name", remedy, "%s", why)
	}
	return a, nil
}

// targetOf returns the target by which policies refer to a port of a Service.
func targetOf(svc name, portName string) policy.Target {
	return policy.Target{Group: corev1.GroupName, Kind: string(KindService), Namespace: svc.Namespace, Name: svc.Name, Section: portName}
}

// unreadable returns the policy that takes precedence at a target and cannot be decoded, and why. A policy whose targets are unknown
// precedes all others, including those for sections of any object that it may be for.
func (bp *backendTLSPolicies) unreadable(v *incremental.View, target policy.Target) (n name, why string, is bool) {
	var first policy.Policy[string]
	for _, n := range incremental.Lookup(v, bp.undecoded, target.Namespace) {
		p, _ := incremental.Fetch(v, bp.undecodedPolicies, n)
		targets := policy.Targets(n.Namespace, p.Targets)
		if len(targets) == 0 {
			return n, p.Error, true
		}
		if !slices.Contains(targets, target) {
			continue
		}
		attached := policy.Policy[string]{Name: types.NamespacedName(n), Created: p.Created, Spec: p.Error}
		if !is || attached.Compare(first) < 0 {
			first, is = attached, true
		}
	}
	if !is {
		return name{}, "", false
	}
	if winner, readable := incremental.Fetch(v, bp.winners, target); readable {
		created, _ := incremental.Fetch(v, bp.ages, winner)
		if (policy.Policy[string]{Name: types.NamespacedName(winner), Created: created}).Compare(first) < 0 {
			return name{}, "", false
		}
	}
	return name(first.Name), first.Spec, true
}

const unreadableRemedy = "correct it, or install the CustomResourceDefinitions of this version"

// inForce returns the policy for a Service's port. If that policy cannot be decoded, it returns a problem instead.
func (bp *backendTLSPolicies) inForce(v *incremental.View, svc name, portName, field string) (n name, ok bool, _ *condition.Problem) {
	_, some := incremental.Fetch(v, bp.buckets, bucketOf(targetOf(svc, "")))
	for _, target := range targetOf(svc, portName).Levels() { // the most specific first
		if n, why, is := bp.unreadable(v, target); is {
			return n, false, condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field, unreadableRemedy,
				"BackendTLSPolicy %s, which may ask for TLS to Service %s, cannot be read: %s", n, svc, why)
		}
		if !some {
			continue
		}
		if n, ok = incremental.Fetch(v, bp.winners, target); ok {
			return n, true, nil
		}
	}
	return name{}, false, nil
}

// undecodedPolicy is what can be read of a BackendTLSPolicy that cannot be decoded.
type undecodedPolicy struct {
	Error   string
	Created int64                                            // in nanoseconds since the epoch, 0 if not known
	Targets []gwv1.LocalPolicyTargetReferenceWithSectionName // if empty, any Service of the namespace may be a target
}

// checkBackendTLS returns why routes of a kind cannot reach a Service's port with its policy or its appProtocol, or nil.
func (bp *backendTLSPolicies) checkBackendTLS(v *incremental.View, rk *routeKind, svc name, port *servicePort, field string) *condition.Problem {
	n, ok, p := bp.inForce(v, svc, port.Name, field)
	if p != nil {
		return p
	}
	if !ok && port.needsTLS() && !rk.raw {
		return condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field+".port", "attach a BackendTLSPolicy to the Service",
			"port %d of Service %s has appProtocol %s, and nothing says how its certificate is verified", port.Port, svc, port.AppProtocol)
	}
	if !ok {
		return nil
	}
	if why, refused := incremental.Fetch(v, bp.refused, n); refused {
		return condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field, "", "BackendTLSPolicy %s is for Service %s and cannot be carried out: %s", n, svc, why)
	}
	return nil
}

// backendTLSConfig returns the TLS settings of a Service's port, or nil for cleartext; ok is false if the port must not be reached
// at all.
func (bp *backendTLSPolicies) backendTLSConfig(v *incremental.View, svc name, portName string) (*config.BackendTLS, bool) {
	n, ok, p := bp.inForce(v, svc, portName, "")
	if p != nil || !ok {
		return nil, p == nil
	}
	b, exists := incremental.Fetch(v, bp.all, n)
	if !exists { // readBackendTLS panicked
		return nil, false
	}
	return b.Config, b.Config != nil
}

// backendTLSPolicyStatuses computes the statuses of BackendTLSPolicies: one entry for each Gateway that reaches their targets.
type backendTLSPolicyStatuses struct {
	o                  *Options
	policyObjects      *incremental.Collection[name, *gwv1.BackendTLSPolicy]
	services           *services
	backendTLSPolicies *backendTLSPolicies
	gateways           *policyGateways

	all *incremental.Collection[name, *status[gwv1.PolicyStatus]]
}

// newBackendTLSPolicyStatuses reports on each Gateway that reaches a target through a route.
func newBackendTLSPolicyStatuses(e *incremental.Engine, o *Options,
	policyObjects *incremental.Collection[name, *gwv1.BackendTLSPolicy],
	services *services, backendTLSPolicies *backendTLSPolicies, gateways *policyGateways) *backendTLSPolicyStatuses {
	bst := &backendTLSPolicyStatuses{o: o, policyObjects: policyObjects, services: services, backendTLSPolicies: backendTLSPolicies, gateways: gateways}
	bst.all = incremental.Map(e, "BackendTLSPolicy status", bst.policyObjects,
		func(v *incremental.View, n name, p *gwv1.BackendTLSPolicy) (*status[gwv1.PolicyStatus], bool) {
			s := bst.backendTLSPolicyStatus(v, n, p)
			return s, len(s.Status.Ancestors) > 0
		}, sameDeeply[*status[gwv1.PolicyStatus]])
	return bst
}

func (bst *backendTLSPolicyStatuses) backendTLSPolicyStatus(v *incremental.View, n name, p *gwv1.BackendTLSPolicy) *status[gwv1.PolicyStatus] {
	named, outcomes := bst.gateways.outcomes(v, tlsPolicyTargets(n, p), func(target policy.Target, field string) policy.Outcome { return bst.outcome(v, n, target, field) })
	b, _ := incremental.Fetch(v, bst.backendTLSPolicies.all, n)
	s := &status[gwv1.PolicyStatus]{Generation: generationOf(p)}
	if b == nil { // no route names a target, or readBackendTLS panicked
		return s
	}
	resolved := condition.True(gwv1.BackendTLSPolicyConditionResolvedRefs, gwv1.BackendTLSPolicyReasonResolvedRefs)
	if len(b.Refs) > 0 {
		resolved = condition.False(gwv1.BackendTLSPolicyConditionResolvedRefs, b.Refs[0].Reason, condition.List(b.Refs))
	}
	for _, a := range named {
		s.Status.Ancestors = append(s.Status.Ancestors, a.Status(bst.o.ControllerName, s.Generation, policy.Accepted(b.Invalid, outcomes[a], b.Notes...), resolved))
	}
	return s
}

// udpPorts returns the ports of a Service that have protocol UDP, each by name and number.
func udpPorts(svc *service) (ports []string) {
	for _, p := range svc.Ports {
		if p.Protocol == corev1.ProtocolUDP {
			ports = append(ports, strings.TrimSpace(fmt.Sprintf("%s %d", p.Name, p.Port)))
		}
	}
	return ports
}

// outcome returns the outcome of one of a policy's targets.
func (bst *backendTLSPolicyStatuses) outcome(v *incremental.View, n name, target policy.Target, field string) policy.Outcome {
	o := policy.Outcome{Field: field, Target: target}
	if isXBackend(target) {
		o.Missing = condition.NewProblem(gwv1.PolicyReasonInvalid, field+".kind", "write it in spec.tls of the XBackend", "an XBackend has its own settings for TLS")
		return o
	}
	if !isService(target) {
		o.Missing = condition.NewProblem(gwv1.PolicyReasonInvalid, field+".kind", "name a Service", "%s of group %q cannot be a backend", target.Kind, target.Group)
		return o
	}
	svc, exists := incremental.Fetch(v, bst.services.all, name{target.Namespace, target.Name})
	switch {
	case !exists:
		o.Missing = policy.NotFound(field+".name", target.Whole(), "create it or correct the name")
	case target.Section != "" && !slices.ContainsFunc(svc.Ports, func(p servicePort) bool { return p.Name == target.Section }):
		o.Missing = policy.NotFound(field+".sectionName", target, "write the name of one of its ports")
	case !slices.ContainsFunc(svc.Ports, func(p servicePort) bool {
		return p.Protocol != corev1.ProtocolUDP && (target.Section == "" || p.Name == target.Section)
	}):
		o.Missing = condition.NewProblem(gwv1.PolicyReasonInvalid, field, "name a port of protocol TCP", "TLS is for connections, and %s has protocol UDP", target)
	default:
		if udp := udpPorts(svc); target.Section == "" && len(udp) > 0 {
			o.Note = fmt.Sprintf("%s: no effect on ports of protocol UDP: %s", field, strings.Join(udp, ", "))
		}
		if unreadable, why, is := bst.backendTLSPolicies.unreadable(v, target); is {
			o.Blocked = condition.NewProblem(gwv1.PolicyReasonConflicted, field, unreadableRemedy,
				"%s is not reached, because BackendTLSPolicy %s, which may be the one for it, cannot be read: %s", target, unreadable, why)
		} else if winner, _ := incremental.Fetch(v, bst.backendTLSPolicies.winners, target); winner != n {
			o.Lost = (*types.NamespacedName)(&winner)
		}
	}
	return o
}
