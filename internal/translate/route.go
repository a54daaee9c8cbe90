package translate

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/intern"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// compiled is the result of a route's rules, independent of the listeners that accept it.
type compiled struct {
	Generation int64
	Route      *config.Route // without attachments
	Services   []name        // that its status may mention; sorted, distinct
	Rules      int           // in the spec
	*findings
}

// findings contains what most routes do not have; those share noFindings.
type findings struct {
	Unresolved []*condition.Problem // references, for condition ResolvedRefs
	// Passthrough and PassthroughUnresolved are the results of the references for connections whose TLS is not terminated, of kinds
	// that may have such.
	Passthrough           []*config.BackendRef
	PassthroughUnresolved []*condition.Problem
	Notes                 []*condition.Problem // values that are ignored
	Dropped               []*dropped           // rules that cannot be applied, for PartiallyInvalid
	Invalid               *condition.Problem   // why the route as a whole is not accepted
	// Expressions are the regular expressions of the rules that have any. They are in Route too.
	Expressions []expressions
	// XBackends are those that its status may mention; sorted, distinct.
	XBackends []name
}

var noFindings = &findings{}

// expressions are the regular expressions of a rule.
type expressions struct {
	Rule     int
	Filtered bool // the rule has filters
	rule.Expressions
}

// size returns the size of all regular expressions.
func (c *compiled) size() (sum int) {
	for _, e := range c.Expressions {
		sum += e.Size
	}
	return sum
}

// dropped is a rule that cannot be applied.
type dropped struct {
	Rule    int
	Problem condition.Problem
	Fails   bool // its requests fail, because no filter may be skipped; else other rules match them
}

func (d *dropped) String() string {
	return fmt.Sprintf("Rule %d: %s", d.Rule, &d.Problem)
}

// routes contains the routes, compiled, attached to listeners, and limited.
type routes struct {
	listenerStates *listenerStates
	backendRefs    *backendRefs
	httpFilters    *httpFilters
	backendTraffic *backendTrafficPolicies

	compiled    *incremental.Collection[kindName, *compiled]
	referrers   *incremental.Index[policy.Target, kindName, *compiled]     // routes by a Service that they refer to
	others      *incremental.Index[policy.Target, kindName, metav1.Object] // routes by an object, not a Service, that they name as a backend
	attachments *incremental.Collection[kindName, *attachment]
	attached    *incremental.Index[listenerKey, kindName, *attachment] // also those that are not accepted
	expressions *incremental.Index[shareKey, kindName, *attachment]    // routes with regular expressions
	shares      *incremental.Collection[shareKey, struct{}]            // namespaces with regular expressions, for each listener
	excess      *incremental.Collection[excessKey, struct{}]           // those that exceed the limit
	refused     *incremental.Collection[kindName, []listenerKey]       // routes of which no rule is within the limit, with the listeners that allow them
	refusedOn   *incremental.Index[listenerKey, kindName, []listenerKey]
	l4Routes    *incremental.Index[listenerHost, kindName, *attachment] // accepted L4 routes
	l4Chosen    *incremental.Collection[listenerHost, kindName]         // those that are selected
	configs     *incremental.Collection[routePart, *config.Resource]
}

func newRoutes(e *incremental.Engine, options *Options,
	routeObjects *incremental.Collection[kindName, metav1.Object],
	listenerStates *listenerStates, admissions *admissions, backendRefs *backendRefs, httpFilters *httpFilters, backendTraffic *backendTrafficPolicies) *routes {
	rs := &routes{listenerStates: listenerStates, backendRefs: backendRefs, httpFilters: httpFilters, backendTraffic: backendTraffic}
	rs.compiled = incremental.Map(e, "route", routeObjects,
		func(v *incremental.View, k kindName, o metav1.Object) (*compiled, bool) {
			if options.defect != nil {
				options.defect(k.Name)
			}
			return rs.compile(v, k, routeKindOf(k.Kind), o), true
		}, sameCompiled)
	rs.referrers = incremental.NewIndex(rs.compiled, "routes by Service",
		func(_ kindName, c *compiled) (services []policy.Target) {
			for _, service := range c.Services {
				services = append(services, targetOf(service, ""))
			}
			return services
		})
	rs.others = incremental.NewIndex(routeObjects, "routes by other backends", namedOthers)
	rs.attachments = incremental.Map(e, "route attachment", routeObjects,
		func(v *incremental.View, k kindName, o metav1.Object) (*attachment, bool) {
			c, ok := incremental.Join(v, rs.compiled)
			if !ok { // compile panicked
				return nil, false
			}
			facts := factsOf(k, o)
			facts.Invalid = c.Invalid
			a := admissions.attach(v, facts)
			a.Expressions, a.Created = c.size(), createdOf(o)
			return a, len(a.Parents) > 0
		}, sameAttachment)
	rs.attached = incremental.NewIndex(rs.attachments, "routes by listener",
		func(_ kindName, a *attachment) []listenerKey {
			if a.Invalid {
				return nil // attachedRoutes counts accepted routes only
			}
			return a.Listeners
		})
	rs.declareExpressions(e)
	backendTraffic.declareMerged(e, rs.attachments)
	rs.declareL4Routes(e)
	rs.configs = incremental.Parts(e, "route config", rs.attachments,
		func(v *incremental.View, k kindName, a *attachment) []*config.Resource {
			c := rs.bounded(v, k, a)
			if routeKindOf(k.Kind).connections {
				if r := rs.l4RouteConfig(v, k, c, a); r != nil {
					return rs.l4RouteParts(v, k, r)
				}
			} else if r := rs.routeConfig(v, c, a); r != nil {
				return rs.routeParts(v, k, r)
			}
			return nil
		}, func(k kindName, i int) routePart { return routePart{k, i} }, sameMessage[*config.Resource])
	return rs
}

func sameCompiled(a, b *compiled) bool {
	return a.Generation == b.Generation && sameMessage(a.Route, b.Route) && sameDeeply(a.Invalid, b.Invalid) &&
		sameDeeply(a.Unresolved, b.Unresolved) &&
		slices.EqualFunc(a.Passthrough, b.Passthrough, sameMessage[*config.BackendRef]) && sameDeeply(a.PassthroughUnresolved, b.PassthroughUnresolved) && sameDeeply(a.Dropped, b.Dropped) && sameDeeply(a.Notes, b.Notes) && slices.Equal(a.Services, b.Services) && slices.Equal(a.XBackends, b.XBackends) &&
		a.Rules == b.Rules && slices.Equal(a.Expressions, b.Expressions)
}

func sameAttachment(a, b *attachment) bool {
	return a.Invalid == b.Invalid && a.Expressions == b.Expressions && a.Created == b.Created && sameDeeply(a.Parents, b.Parents) && slices.Equal(a.Listeners, b.Listeners) && slices.Equal(a.Gateways, b.Gateways) &&
		slices.EqualFunc(a.Hosts, b.Hosts, func(x, y attachedHosts) bool {
			return x.Passthrough == y.Passthrough && sameHostnames(x.Hostnames, y.Hostnames)
		})
}

// routeConfig returns the route with the listeners that are served and accept it. If the route is not accepted, it contains the
// rules whose requests must fail: their requests must not match a rule of another route, and so bypass the filter. It is nil if
// there is nothing to serve.
func (rs *routes) routeConfig(v *incremental.View, c *compiled, a *attachment) *config.Route {
	r := &config.Route{
		Key: c.Route.Key, Namespace: c.Route.Namespace, Name: c.Route.Name,
		CreatedUnixNano: c.Route.CreatedUnixNano, Rules: c.Route.Rules,
	}
	for i, k := range a.Listeners {
		if key, served := incremental.Fetch(v, rs.listenerStates.served, k); served {
			r.Attachments = append(r.Attachments, &config.Attachment{Listener: key, Hostnames: a.Hosts[i].Hostnames})
		}
	}
	slices.SortFunc(r.Attachments, func(a, b *config.Attachment) int { return cmp.Compare(a.Listener, b.Listener) })
	if len(r.Attachments) == 0 || len(r.Rules) == 0 {
		return nil
	}
	return r
}

func (rs *routes) compile(v *incremental.View, k kindName, rk *routeKind, o metav1.Object) *compiled {
	n := k.Name
	c := &compiled{Generation: generationOf(o), Route: &config.Route{
		Key: config.RouteKey(string(k.Kind), n.Namespace, n.Name), Namespace: n.Namespace, Name: n.Name,
		CreatedUnixNano: createdOf(o),
	}, findings: &findings{}}
	from := referrer{rk.kind.Group, rk.kind.Name, n}
	resolveFor := func(passthrough bool) rule.Resolve {
		return func(ref gwv1.BackendObjectReference, http2 bool, field string) (rule.Backend, *condition.Problem) {
			key, permitted, p := rs.backendRefs.resolveBackend(v, from, rk, ref, passthrough, http2, field)
			switch {
			case permitted:
				c.Services = append(c.Services, key.Name)
			case key.XBackend && p == nil:
				c.XBackends = append(c.XBackends, key.Name)
			}
			return rs.backendRefs.named(v, key), p
		}
	}
	rules := rk.rules(o)
	c.Rules = len(rules)
	used := 0 // the total size of regular expressions
	for i := range rules {
		rules[i].Route, rules[i].HTTPFilters = string(k.Kind)+" "+n.String(), rs.httpFilters.beside(v, n.Namespace)
		compiled := rule.Compile(&rules[i], i, used, resolveFor(false))
		if p := rs.backendRefs.clientIP(v, n.Namespace, i, &rules[i], compiled.Rule); p != nil {
			compiled.Refuse(p)
		}
		used += compiled.Used
		if compiled.Expressions.Size > 0 {
			c.Expressions = append(c.Expressions, expressions{i, compiled.Filtered, compiled.Expressions})
		}
		if compiled.Rule != nil {
			c.Route.Rules = append(c.Route.Rules, compiled.Rule)
		}
		if compiled.Problem != nil {
			c.Dropped = append(c.Dropped, &dropped{i, *compiled.Problem, compiled.Rule != nil && !rk.connections})
		}
		c.Unresolved = append(c.Unresolved, compiled.Unresolved...)
		c.Notes = append(c.Notes, compiled.Notes...)
		if rk.passthrough {
			passed := rule.Compile(&rules[i], i, used, resolveFor(true))
			c.Passthrough = append(c.Passthrough, passed.Rule.GetBackendRefs()...)
			c.PassthroughUnresolved = append(c.PassthroughUnresolved, passed.Unresolved...)
		}
	}
	c.judge()
	slices.SortFunc(c.Services, name.Compare)
	c.Services = slices.Compact(c.Services)
	slices.SortFunc(c.XBackends, name.Compare)
	c.XBackends = slices.Compact(c.XBackends)
	if reflect.ValueOf(c.findings).Elem().IsZero() {
		c.findings = noFindings
	}
	return c
}

// judge sets Invalid if none of the rules can be applied.
func (c *compiled) judge() {
	if len(c.Dropped) < c.Rules || c.Rules == 0 {
		return
	}
	reason := gwv1.RouteReasonIncompatibleFilters
	for _, d := range c.Dropped {
		if d.Problem.Reason != string(gwv1.RouteReasonIncompatibleFilters) {
			reason = gwv1.RouteReasonUnsupportedValue
		}
	}
	c.Invalid = &condition.Problem{Reason: string(reason), Field: "spec.rules", What: "no rule can be carried out: " + droppedMessage(c.Dropped)}
	c.Dropped = nil
}

// routeStatuses computes the statuses of routes.
type routeStatuses struct {
	o          *Options
	admissions *admissions
	routes     *routes
	gateways   *gateways

	faults *incremental.Collection[kindName, []gatewayFault] // of routes that have any, one for each Gateway
	all    *incremental.Collection[kindName, *status[gwv1.RouteStatus]]
}

func newRouteStatuses(e *incremental.Engine, o *Options,
	routeFaults *incremental.Collection[routeFaultKey, RouteFault],
	gateways *gateways, admissions *admissions, routes *routes, refusals *refusals) *routeStatuses {
	rst := &routeStatuses{o: o, gateways: gateways, admissions: admissions, routes: routes}
	var statuses intern.Values[*status[gwv1.RouteStatus]] // most routes have the same status
	rst.declareFaults(e, routeFaults)
	rst.all = incremental.Map(e, "route status", rst.routes.attachments,
		func(v *incremental.View, k kindName, a *attachment) (*status[gwv1.RouteStatus], bool) {
			c := rst.routes.bounded(v, k, a)
			s := &status[gwv1.RouteStatus]{Generation: c.Generation}
			refused := refusals.refusedOf(v, c)
			for _, p := range a.Parents {
				if p.Problem == nil {
					p.Problem = c.Invalid
				}
				s.Status.Parents = append(s.Status.Parents, rst.parentStatus(p, c.Generation, c.conditions(p, rst.passedOver(v, k, a, p), refused, rst.routeFault(v, p))...))
			}
			return statuses.Of(s), true
		}, sameDeeply[*status[gwv1.RouteStatus]])
	return rst
}

func (rst *routeStatuses) parentStatus(p parent, generation int64, conditions ...metav1.Condition) gwv1.RouteParentStatus {
	return gwv1.RouteParentStatus{
		ParentRef:      p.Ref,
		ControllerName: gwv1.GatewayController(rst.o.ControllerName),
		Conditions:     condition.Observed(generation, conditions...),
	}
}

// gatewayFault is why the proxies of a Gateway cannot apply a route.
type gatewayFault struct {
	Gateway name
	Message string
}

func (rst *routeStatuses) declareFaults(e *incremental.Engine, faults *incremental.Collection[routeFaultKey, RouteFault]) {
	byRoute := incremental.NewIndex(faults, "route faults by route", func(k routeFaultKey, _ RouteFault) []kindName {
		return []kindName{routeOfKey(k.Route)}
	})
	rst.faults = incremental.Map(e, "route faults by Gateway", incremental.Keys(byRoute, "routes with faults"),
		func(v *incremental.View, k kindName, _ struct{}) (all []gatewayFault, _ bool) {
			for _, part := range incremental.Lookup(v, byRoute, k) {
				if !slices.ContainsFunc(all, func(f gatewayFault) bool { return f.Gateway == part.Gateway }) { // one for each Gateway is enough to act on
					fault, _ := incremental.Fetch(v, faults, part)
					all = append(all, gatewayFault{part.Gateway, fault.Message})
				}
			}
			return all, true
		}, slices.Equal[[]gatewayFault])
}

// routeFault returns why the proxies of a parent Gateway cannot apply a route, "" if they can.
func (rst *routeStatuses) routeFault(v *incremental.View, p parent) string {
	faults, _ := incremental.Join(v, rst.faults)
	if len(faults) == 0 {
		return ""
	}
	proxies := rst.gateways.proxiesOf(v, p.Gateway)
	for _, f := range faults {
		if f.Gateway == proxies {
			return f.Message
		}
	}
	return ""
}

func (c *compiled) conditions(p parent, passedOver, refused []*condition.Problem, fault string) []metav1.Condition {
	accepted := condition.True(gwv1.RouteConditionAccepted, gwv1.RouteReasonAccepted)
	notes := slices.Concat(c.Notes, passedOver)
	if p.Default {
		notes = slices.Insert(notes, 0, condition.NewProblem("", "spec.useDefaultGateways", "", "attached to a default Gateway"))
	}
	accepted.Message = condition.List(notes)
	if p.Problem != nil {
		accepted = condition.False(gwv1.RouteConditionAccepted, p.Problem.Reason, p.Problem.String())
	}
	resolved := condition.True(gwv1.RouteConditionResolvedRefs, gwv1.RouteReasonResolvedRefs)
	unresolved := c.Unresolved
	if p.Passthrough {
		unresolved = c.PassthroughUnresolved
	}
	if problems := slices.Concat(unresolved, refused); len(problems) > 0 {
		resolved = condition.False(gwv1.RouteConditionResolvedRefs, problems[0].Reason, condition.List(problems))
	}
	out := []metav1.Condition{accepted, resolved}
	var partial []string
	if p.Problem == nil && len(c.Dropped) > 0 {
		partial = append(partial, "Dropped "+droppedMessage(c.Dropped))
	}
	if p.Problem == nil && fault != "" {
		// The specification requires these words if the last valid version stays in force.
		partial = append(partial, "Fall Back to the version before, if there is one: "+condition.NewProblem("", "", "", "%s", fault).String())
	}
	if partial != nil {
		c := condition.True(gwv1.RouteConditionPartiallyInvalid, gwv1.RouteReasonUnsupportedValue)
		c.Message = strings.Join(partial, ". ")
		out = append(out, c)
	}
	return out
}

// droppedMessage lists rules that cannot be applied and reports which of them fail.
func droppedMessage(list []*dropped) string {
	message := condition.List(list)
	var fails []string
	for _, d := range list {
		if d.Fails {
			fails = append(fails, strconv.Itoa(d.Rule))
		}
	}
	if fails != nil {
		message += ". Until then requests are answered with 500 that match rule " + strings.Join(fails, ", ")
	}
	return message
}
