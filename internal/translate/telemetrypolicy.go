package translate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// telemetryPolicy is the result of an XTelemetryPolicy by itself.
type telemetryPolicy struct {
	Tracing *config.Tracing    // nil if it enables no tracing
	Invalid *condition.Problem // why it cannot be applied
	Missing *condition.Problem // why its collector does not resolve
	Notes   []string           // settings that are ignored
}

func (p *telemetryPolicy) same(o *telemetryPolicy) bool {
	return sameMessage(p.Tracing, o.Tracing) && sameDeeply(p.Invalid, o.Invalid) && sameDeeply(p.Missing, o.Missing) && slices.Equal(p.Notes, o.Notes)
}

// telemetryPolicies contains XTelemetryPolicies, and which of them are in force.
type telemetryPolicies struct {
	objects     *incremental.Collection[name, *apisx.XTelemetryPolicy]
	backendRefs *backendRefs

	targets  *incremental.Collection[name, []policy.Target]
	byTarget *incremental.Index[policy.Target, name, []policy.Target]
	winners  *incremental.Collection[policy.Target, name]
	all      *incremental.Collection[name, *telemetryPolicy]
}

func newTelemetryPolicies(e *incremental.Engine, objects *incremental.Collection[name, *apisx.XTelemetryPolicy], backendRefs *backendRefs) *telemetryPolicies {
	tp := &telemetryPolicies{objects: objects, backendRefs: backendRefs}
	tp.targets = policyTargets(e, kind.XTelemetryPolicy.Kind, objects, func(n name, p *apisx.XTelemetryPolicy) (targets []policy.Target) {
		for _, ref := range p.Spec.TargetRefs {
			targets = append(targets, policy.Target{Group: string(ref.Group), Kind: string(ref.Kind), Namespace: n.Namespace, Name: string(ref.Name)})
		}
		return targets
	})
	tp.byTarget = incremental.NewIndex(tp.targets, "XTelemetryPolicies by target", func(_ name, targets []policy.Target) []policy.Target { return targets })
	ages := incremental.Map(e, "XTelemetryPolicy age", objects,
		func(_ *incremental.View, _ name, p *apisx.XTelemetryPolicy) (int64, bool) { return createdOf(p), true }, same[int64])
	tp.winners = policyWinners(e, kind.XTelemetryPolicy.Kind, tp.byTarget, ages)
	tp.all = incremental.Map(e, "XTelemetryPolicy", objects,
		func(v *incremental.View, n name, p *apisx.XTelemetryPolicy) (*telemetryPolicy, bool) {
			return tp.read(v, n, &p.Spec.Tracing), true
		}, (*telemetryPolicy).same)
	return tp
}

// newCollectors indexes, by the collectors that they name, permitted or not, the policies that enable tracing for managed Gateways.
func newCollectors(e *incremental.Engine, objects *incremental.Collection[name, *apisx.XTelemetryPolicy], gateways *gateways) *incremental.Index[policy.Target, name, *apisx.XTelemetryPolicy] {
	enabled := incremental.Map(e, "XTelemetryPolicy of managed Gateways", objects,
		func(v *incremental.View, n name, p *apisx.XTelemetryPolicy) (*apisx.XTelemetryPolicy, bool) {
			return p, p.Spec.Tracing.Mode == apisx.TracingModeEnabled && slices.ContainsFunc(p.Spec.TargetRefs, func(ref gwv1.LocalObjectReference) bool {
				_, managed := incremental.Fetch(v, gateways.managed, name{n.Namespace, string(ref.Name)})
				return managed && ref.Group == gwv1.GroupName && ref.Kind == gwv1.Kind(KindGateway)
			})
		}, sameDeeply[*apisx.XTelemetryPolicy])
	return incremental.NewIndex(enabled, "XTelemetryPolicies by collector", telemetryBackends)
}

// telemetryBackends returns the objects that policies name as collectors, permitted or not.
func telemetryBackends(n name, p *apisx.XTelemetryPolicy) []policy.Target {
	if p.Spec.Tracing.Provider.BackendRef.Name == "" {
		return nil
	}
	target := namedBy(p.Spec.Tracing.Provider.BackendRef, n.Namespace)
	if !mayName(target, n.Namespace) {
		return nil
	}
	return []policy.Target{target}
}

// telemetryReferrer returns the referrer for the collector of a policy.
func telemetryReferrer(n name) referrer {
	return referrer{kind.XTelemetryPolicy.Group, string(KindXTelemetryPolicy), n}
}

func gatewayTarget(gateway name) policy.Target {
	return policy.Target{Group: gwv1.GroupName, Kind: string(KindGateway), Namespace: gateway.Namespace, Name: gateway.Name}
}

// tracing returns how requests to a Gateway are traced, nil if they are not.
func (tp *telemetryPolicies) tracing(v *incremental.View, gateway name) *config.Tracing {
	winner, ok := incremental.Fetch(v, tp.winners, gatewayTarget(gateway))
	if !ok {
		return nil
	}
	p, ok := incremental.Fetch(v, tp.all, winner)
	if !ok { // reading it panicked
		return nil
	}
	return p.Tracing
}

// gatewaysOf returns the Gateways for which a policy enables tracing, or would if its collector could be used.
func (tp *telemetryPolicies) gatewaysOf(v *incremental.View, n name, gateways *gateways) (all []name) {
	targets, _ := incremental.Fetch(v, tp.targets, n)
	for _, target := range targets {
		gateway := name{target.Namespace, target.Name}
		_, managed := incremental.Fetch(v, gateways.managed, gateway)
		if winner, _ := incremental.Fetch(v, tp.winners, target); target == gatewayTarget(gateway) && managed && winner == n {
			all = append(all, gateway)
		}
	}
	return all
}

// defaultServiceName is the service of spans if a policy does not set it.
const defaultServiceName = "moongate"

// maxAttributes leaves room for the attributes that spans have anyway: proxies keep 128 of a span.
const maxAttributes = 96

// read validates a policy without its targets.
func (tp *telemetryPolicies) read(v *incremental.View, n name, spec *apisx.TracingConfig) *telemetryPolicy {
	p := &telemetryPolicy{}
	const at = "spec.tracing"
	switch spec.Mode {
	case apisx.TracingModeEnabled:
	case apisx.TracingModeDisabled, apisx.TracingModeImplementationDefault, "":
		return p // there is no default collector to which spans could be sent, so the default is not to trace
	default:
		p.invalid(at+".mode", "use Enabled, Disabled or ImplementationDefault", "%q is not known", spec.Mode)
		return p
	}
	t := &config.Tracing{ServiceName: spec.ServiceName, SpanName: spec.SpanName, IgnoreParent: spec.ParentBasedSampling.Mode == apisx.ParentBasedSamplingModeDisabled}
	if t.ServiceName == "" {
		t.ServiceName = defaultServiceName
	}
	t.Sampling = p.share(spec.SamplingRate, at+".samplingRate")
	t.SampledParents = p.share(spec.ParentBasedSampling.SamplingRate, at+".parentBasedSampling.samplingRate")
	for i, h := range spec.Provider.Headers {
		field := fmt.Sprintf("%s.provider.headers[%d]", at, i)
		switch name := strings.ToLower(string(h.Name)); {
		case !config.IsToken(name) || strings.HasPrefix(name, "grpc-") || slices.Contains(collectorFields, name):
			p.invalid(field+".name", "use another name", "%q cannot be added to calls by gRPC", h.Name)
		case strings.IndexFunc(h.Value, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }) >= 0:
			p.invalid(field+".value", "remove control characters", "the value cannot be sent")
		default:
			t.Headers = append(t.Headers, &config.HeaderField{Name: name, Value: h.Value})
		}
	}
	for i := range spec.Attributes {
		if i == maxAttributes {
			p.Notes = append(p.Notes, condition.NewProblem("", at+".attributes", "remove some", "%d are left out: a policy may have %d", len(spec.Attributes)-i, maxAttributes).String())
			break
		}
		p.attribute(t, &spec.Attributes[i], fmt.Sprintf("%s.attributes[%d]", at, i))
	}
	key, _, missing := tp.backendRefs.resolveBackend(v, telemetryReferrer(n), httpRoutes, spec.Provider.BackendRef, false, true, at+".provider.backendRef")
	if p.Missing = missing; missing == nil {
		collector := tp.backendRefs.named(v, key)
		t.Backend, t.Authority = collector.Key, collector.Authority
	}
	if p.Missing == nil && p.Invalid == nil {
		p.Tracing = t
	}
	return p
}

// collectorFields are the header fields of calls to a collector that a policy cannot set.
var collectorFields = []string{"connection", "content-length", "content-type", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}

// invalid records a problem unless there is one already: one is enough to act on.
func (p *telemetryPolicy) invalid(field, remedy, format string, args ...any) {
	if p.Invalid == nil {
		p.Invalid = condition.NewProblem(gwv1.PolicyReasonInvalid, field, remedy, format, args...)
	}
}

// share reads a sampling rate; nil means all requests.
func (p *telemetryPolicy) share(f *gwv1.Fraction, field string) *config.Share {
	if f == nil {
		return nil
	}
	numerator, denominator := f.Numerator, ptr.Deref(f.Denominator, 100)
	if denominator < 1 || numerator < 0 || numerator > denominator {
		p.invalid(field, "use a fraction from 0 to 1", "%d/%d is not a share", numerator, denominator)
		return nil
	}
	return &config.Share{Numerator: uint32(numerator), Denominator: uint32(denominator)}
}

// attribute reads one attribute. A copy of an attribute that spans do not have is ignored, as the specification requires.
func (p *telemetryPolicy) attribute(t *config.Tracing, a *apisx.Attribute, field string) {
	out := &config.TraceAttribute{Name: string(a.Name)}
	switch a.SourceType {
	case apisx.AttributeSourceLiteral:
		out.Value = &config.TraceAttribute_Literal{Literal: a.LiteralValue}
	case apisx.AttributeSourceHeader:
		name := strings.ToLower(string(a.HeaderName))
		if !config.IsToken(name) {
			p.invalid(field+".headerName", "correct it", "%q is not the name of a header field", a.HeaderName)
			return
		}
		out.Value = &config.TraceAttribute_Header{Header: name}
	case apisx.AttributeSourceAttribute:
		if !slices.Contains(config.TraceAttributes(), a.AttributeKey) {
			p.Notes = append(p.Notes, condition.NewProblem("", field+".attributeKey", "use "+condition.AnyOf(config.TraceAttributes()), "it is left out: spans have no attribute %q", a.AttributeKey).String())
			return
		}
		out.Value = &config.TraceAttribute_Attribute{Attribute: a.AttributeKey}
	default:
		p.invalid(field+".sourceType", "use Header, Literal or Attribute", "%q is not known", a.SourceType)
		return
	}
	t.Attributes = append(t.Attributes, out)
}

// telemetryPolicyStatuses computes the statuses of XTelemetryPolicies: one entry for each Gateway that they target.
type telemetryPolicyStatuses struct {
	o        *Options
	policies *telemetryPolicies
	gateways *gateways

	all *incremental.Collection[name, *status[gwv1.PolicyStatus]]
}

func newTelemetryPolicyStatuses(e *incremental.Engine, o *Options, policies *telemetryPolicies, gateways *gateways) *telemetryPolicyStatuses {
	ts := &telemetryPolicyStatuses{o: o, policies: policies, gateways: gateways}
	ts.all = incremental.Map(e, "XTelemetryPolicy status", policies.objects,
		func(v *incremental.View, n name, p *apisx.XTelemetryPolicy) (*status[gwv1.PolicyStatus], bool) {
			s := ts.status(v, n, p)
			return s, len(s.Status.Ancestors) > 0
		}, sameDeeply[*status[gwv1.PolicyStatus]])
	return ts
}

func (ts *telemetryPolicyStatuses) status(v *incremental.View, n name, p *apisx.XTelemetryPolicy) *status[gwv1.PolicyStatus] {
	s := &status[gwv1.PolicyStatus]{Generation: generationOf(p)}
	read, ok := incremental.Fetch(v, ts.policies.all, n)
	if !ok { // read panicked
		return s
	}
	targets, _ := incremental.Fetch(v, ts.policies.targets, n)
	var ancestors []policy.Ancestor
	outcomes := map[policy.Ancestor][]policy.Outcome{}
	for i, target := range targets {
		gateway := name{target.Namespace, target.Name}
		if target != gatewayTarget(gateway) {
			continue // a kind that other controllers may know
		}
		o := policy.Outcome{Field: fmt.Sprintf("spec.targetRefs[%d]", i), Target: target}
		a := policy.Ancestor{Gateway: types.NamespacedName(gateway), Created: math.MaxInt64}
		if gw, managed := incremental.Fetch(v, ts.gateways.managed, gateway); managed {
			a.Created = gw.Created
		} else if _, exists := incremental.Fetch(v, ts.gateways.gatewayObjects, gateway); exists {
			continue // the controller that manages it reports on it
		} else {
			o.Missing = policy.NotFound(o.Field+".name", target, "create it or correct the name") // GEP-4768
		}
		if winner, _ := incremental.Fetch(v, ts.policies.winners, target); o.Missing == nil && winner != n {
			o.Lost = (*types.NamespacedName)(&winner)
		}
		if outcomes[a] == nil {
			ancestors = append(ancestors, a)
		}
		outcomes[a] = append(outcomes[a], o)
	}
	resolved := condition.True(apisx.TelemetryPolicyConditionResolvedRefs, apisx.TelemetryPolicyReasonResolvedRefs)
	if p := read.Missing; p != nil {
		resolved = condition.False(apisx.TelemetryPolicyConditionResolvedRefs, p.Reason, p.String())
	}
	slices.SortFunc(ancestors, policy.Ancestor.Compare)
	for _, a := range ancestors {
		s.Status.Ancestors = append(s.Status.Ancestors, a.Status(ts.o.ControllerName, s.Generation, policy.Accepted(read.Invalid, outcomes[a], read.Notes...), resolved))
	}
	return s
}
