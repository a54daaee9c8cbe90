package translate

import (
	"slices"

	"google.golang.org/protobuf/proto"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// Options is what translation needs to know in addition to the objects.
type Options struct {
	// ControllerName selects the GatewayClasses that this controller manages.
	ControllerName string
	// DefaultAddresses are the status.addresses of a Gateway without spec.addresses: IP literals or names. If nil, such a Gateway
	// has no address.
	DefaultAddresses []string
	// Bind are the IP addresses that listeners of Gateways without spec.addresses bind if Gateways share the ports of one process;
	// if empty, all addresses.
	Bind []string
	// Cluster is set if each Gateway runs in its own proxies: listeners bind all their addresses, and SetInfrastructure sets the
	// addresses and whether they serve.
	Cluster bool
	// OwnPorts is set if each Gateway has its own ports although Cluster is not set: to check the objects of a cluster without
	// running anything.
	OwnPorts bool
	// Namespaces are those whose objects the translator gets, if not all; messages mention it.
	Namespaces []string
	// Loopback allows backends on loopback addresses even if Cluster is set: for proxies that share a host with their backends, as
	// in tests. In a cluster a loopback address would be the proxy's own.
	Loopback bool
	// ReservedPorts are TCP ports that listeners cannot use.
	ReservedPorts []int32
	// RateLimits is the Redis server and the settings for global rate limits of policies. Without an address, global limits are
	// refused at Gateways whose parameters name no server; nil means the same with default settings.
	RateLimits *config.RateLimitService
	// Panicked is called when a function panics on an object, by the deferred function that has recovered v. The earlier result of
	// the object stays in force, and its status reports the panic. If Panicked is nil, panics are not recovered.
	Panicked func(function, key string, v any)

	defect func(name) // set by tests: called for each HTTPRoute, Gateway and GatewayClass
}

// Translator contains all objects and keeps the configuration and the statuses up to date with them. It is not safe for concurrent
// use.
type Translator struct {
	options    Options
	engine     *incremental.Engine
	generation uint64
	in         *inputs
	reports    reports
	failed     map[kindName]bool // objects whose last reported status was that of a panic

	// The parts that are read between Commits.

	installation       *installation
	gatewayClasses     *gatewayClasses
	gateways           *gateways
	listeners          *listeners
	secrets            *secrets
	redises            *redises
	proxySpecs         *proxySpecs
	endpointSelectors  *endpointSelectors
	listenerStates     *listenerStates
	ticketKeys         *ticketKeys
	rateLimitServices  *rateLimitServices
	routes             *routes
	backends           *backends
	certificates       *certificates
	xbackendGateways   *policyGateways
	trustedAuthorities *trustedAuthorities
	backendTraffic     *backendTrafficStatuses
}

// New returns a Translator without objects. Each part of translation gets what it reads: inputs, and parts created before it.
func New(options Options) *Translator {
	e := incremental.New()
	t := &Translator{options: options, engine: e, reports: reports{current: map[Kind]func(kindName) (any, int64){}}}
	t.reportPanics()
	o := &t.options
	t.in = newInputs(e)
	t.installation = newInstallation(e, t.in.installed.Collection, t.in.namespaces.Collection)
	namespaces := newNamespaces(e, t.in.namespaces.Collection)
	grants := newGrants(e, o, t.in.grants.Collection, t.installation)
	gatewayParameters := newGatewayParameters(e, t.in.undecodedParameters.Collection, t.in.parameters.Collection, grants)
	t.gatewayClasses = newGatewayClasses(e, o, t.in.classes.Collection, t.in.infrastructures.Collection, gatewayParameters)
	t.gateways = newGateways(e, o, t.in.gateways.Collection, gatewayParameters, t.gatewayClasses)
	t.listeners = newListeners(e, o, t.in.gateways.Collection, t.in.listenerSets.Collection, t.installation, namespaces, t.gateways)
	admissions := newAdmissions(e, namespaces, t.gateways, t.listeners)
	collectors := newCollectors(e, t.in.telemetryPolicies.Collection, t.gateways)
	routeNamespaces := newRouteNamespaces(e, t.in.routes.Collection)
	xbackendUsers := newXBackendUsers(e, t.in.xbackends.Collection, routeNamespaces, admissions)
	xbackendsInUse := xbackendsInUse(e, t.in.xbackends.Collection, xbackendUsers, t.listeners, collectors)
	t.redises = newRedises(e, o, t.in, t.gateways)
	t.secrets = newSecrets(e, o, t.in, grants, t.listeners, t.redises, xbackendsInUse)
	listenerCertificates := &listenerCertificates{t.in.unread.Collection, t.in.invalidSecrets.Collection, grants, t.secrets}
	policiesInUse := backendTLSPoliciesInUse(e, t.in.policies.Collection, t.in.routes.Collection, xbackendsInUse, t.listeners, collectors)
	authorities := newAuthorities(e, t.in.authorities.Collection, t.installation, policiesByAuthorities(policiesInUse), xbackendsByAuthorities(xbackendsInUse), gatewaysByAuthorities(t.in.gateways.Collection))
	backendTLSPolicies := newBackendTLSPolicies(e, t.in.policies.Collection, t.in.undecodedPolicies.Collection, policiesInUse, authorities)
	clientValidations := newClientValidations(e, t.in.gateways.Collection, authorities, grants, t.gateways)
	infrastructure := newInfrastructure(e, o, t.in.addressFaults.Collection, t.in.infrastructures.Collection, t.gateways)
	t.proxySpecs = newProxySpecs(e, o, t.in.classes.Collection, t.in.gateways.Collection, t.gatewayClasses, t.gateways, t.listeners)
	httpFilters := &httpFilters{t.in.httpFilters.Collection}
	services := newServices(e, t.in.services.Collection)
	xbackends := newXBackends(e, t.in.xbackends.Collection, xbackendsInUse, backendTLSPolicies, listenerCertificates)
	t.endpointSelectors = newEndpointSelectors(e, o, t.in.xbackends.Collection, xbackendsInUse, xbackendUsers)
	backendRefs := newBackendRefs(grants, services, xbackends, backendTLSPolicies)
	telemetryPolicies := newTelemetryPolicies(e, t.in.telemetryPolicies.Collection, backendRefs)
	t.listenerStates = newListenerStates(e, o, t.in.listenerFaults.Collection, t.in.mergedFaults.Collection, t.listeners, t.secrets, listenerCertificates,
		newListenerOverlaps(e, t.listeners, listenerCertificates), clientValidations, infrastructure, backendRefs, telemetryPolicies, httpFilters)
	backendTraffic := newBackendTrafficPolicies(e, t.in, namespaces, routeNamespaces, grants, t.redises)
	backendTraffic.declareAbove(e, t.listeners)
	t.routes = newRoutes(e, o, t.in.routes.Collection, t.listenerStates, admissions, backendRefs, httpFilters, backendTraffic)
	refusals := newRefusals(e, o, t.in.endpointSlices.Collection, t.gatewayClasses, xbackends)
	trafficPolicies := newTrafficPolicies(e, t.in.trafficPolicies.Collection)
	t.backends = newBackends(e, t.in.endpointSlices.Collection, services, xbackends, backendTLSPolicies, trafficPolicies, t.listenerStates, t.routes, refusals, infrastructure, backendTraffic)
	t.certificates = newCertificates(e, t.secrets, t.listenerStates, t.backends)
	t.ticketKeys = newTicketKeys(e, t.in.tickets.Collection, t.gateways, t.listenerStates, t.routes, t.backends)
	t.rateLimitServices = newRateLimitServices(e, t.redises, t.gateways, t.routes)
	t.trustedAuthorities = newTrustedAuthorities(e, authorities, t.backends, t.listenerStates)
	tlsPolicyGateways := newPolicyGateways(e, kind.BackendTLSPolicy.Kind, policyTargets(e, kind.BackendTLSPolicy.Kind, t.in.policies.Collection, tlsPolicyTargets), t.gateways, t.listeners, t.routes, collectors, telemetryPolicies)
	trafficPolicyGateways := newPolicyGateways(e, kind.XBackendTrafficPolicy.Kind, trafficPolicies.targets, t.gateways, t.listeners, t.routes, collectors, telemetryPolicies)
	t.xbackendGateways = newPolicyGateways(e, kind.XBackend.Kind, policyTargets(e, kind.XBackend.Kind, xbackendsInUse, func(n name, _ *apisx.XBackend) []policy.Target {
		return []policy.Target{xbackendTarget(n)}
	}), t.gateways, t.listeners, t.routes, collectors, telemetryPolicies)
	gatewayStatuses := newGatewayStatuses(e, o, t.gateways, t.listeners, listenerCertificates, clientValidations, infrastructure, t.listenerStates, t.routes, tlsPolicyGateways, trafficPolicyGateways)
	listenerSetStatuses := newListenerSetStatuses(e, t.in.listenerSets.Collection, t.listeners, t.listenerStates, t.routes, gatewayStatuses)
	routeStatuses := newRouteStatuses(e, o, t.in.routeFaults.Collection, t.gateways, admissions, t.routes, refusals)
	backendTLSPolicyStatuses := newBackendTLSPolicyStatuses(e, o, t.in.policies.Collection, services, backendTLSPolicies, tlsPolicyGateways)
	trafficPolicyStatuses := newTrafficPolicyStatuses(e, o, services, xbackends, trafficPolicies, trafficPolicyGateways)
	xbackendStatuses := newXBackendStatuses(e, o, xbackendsInUse, xbackends, t.xbackendGateways)
	t.backendTraffic = newBackendTrafficStatuses(e, o, t.in, backendTraffic, t.gateways, t.listeners, t.routes)
	telemetryPolicyStatuses := newTelemetryPolicyStatuses(e, o, telemetryPolicies, t.gateways)
	gatewayClassStatuses := newGatewayClassStatuses(e, o, t.in.classes.Collection, t.installation, t.gatewayClasses)
	gatewayParametersStatuses := newGatewayParametersStatuses(e, o, t.in.classes.Collection, gatewayParameters, t.gateways)
	report(t, kind.GatewayClass.Kind, gatewayClassStatuses.all)
	report(t, kind.Gateway.Kind, gatewayStatuses.all)
	reportAll(t, []*kind.Kind{kind.ListenerSet.Kind}, listenerSetStatuses.current, itself, itself)
	reportAll(t, []*kind.Kind{kind.XListenerSet.Kind}, listenerSetStatuses.former, itself, itself)
	report(t, kind.BackendTLSPolicy.Kind, backendTLSPolicyStatuses.all)
	report(t, kind.XBackendTrafficPolicy.Kind, trafficPolicyStatuses.all)
	report(t, kind.BackendTrafficPolicy.Kind, t.backendTraffic.all)
	report(t, kind.XTelemetryPolicy.Kind, telemetryPolicyStatuses.all)
	report(t, kind.XBackend.Kind, xbackendStatuses.all)
	report(t, kind.GatewayParameters.Kind, gatewayParametersStatuses.all)
	reportAll(t, routeKindsOfAPI(), routeStatuses.all, itself, itself)
	return t
}

// Result is what one Commit changed.
type Result struct {
	Config             config.Update
	Statuses           []StatusChange     // sorted by Object
	ProxySpecs         []ProxySpecChange  // sorted by Gateway; with Options.Cluster only
	Selectors          []SelectorChange   // sorted by XBackend; with Options.Cluster only
	SecretRequests     []SecretRequest    // sorted by Object
	UnattachedPolicies []UnattachedPolicy // sorted by Object
	Stats              incremental.Stats
}

// Commit updates everything to the present objects and returns what has changed. Values in it are shared and must not be modified.
// The generation of the update grows with every Commit that changes the configuration.
func (t *Translator) Commit() Result {
	stats := t.engine.Commit()
	r := Result{Config: t.update(), Statuses: t.statusChanges(), ProxySpecs: t.proxySpecs.changes(), Selectors: t.endpointSelectors.changes(), SecretRequests: t.secrets.requests(), UnattachedPolicies: t.unattachedPolicies(), Stats: stats}
	if t.options.Cluster {
		t.secrets.noteServed(t.listenerStates.serving)
		t.secrets.noteRequests(r.SecretRequests)
	}
	if !r.Config.Empty() {
		t.generation++
	}
	r.Config.Generation = t.generation
	t.engine.Release()
	return r
}

// UnattachedPolicy is a problem that keeps a policy from being attached to any object, so that no status reports it.
type UnattachedPolicy struct {
	Object                 kind.ObjectKey
	Field, Message, Remedy string
}

func (t *Translator) unattachedPolicies() (all []UnattachedPolicy) {
	for _, ch := range t.backendTraffic.unattached.Changes() {
		if p := ch.New; !ch.Deleted {
			all = append(all, UnattachedPolicy{kind.BackendTrafficPolicy.Key(ch.Key.Namespace, ch.Key.Name), p.Field, p.What, p.Remedy})
		}
	}
	return all
}

func (t *Translator) update() config.Update {
	var u config.Update
	collect(&u, t.certificates.all, func(c *config.Certificate) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Certificate{Certificate: c}}
	})
	collect(&u, t.trustedAuthorities.all, func(a *config.Authorities) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Authorities{Authorities: a}}
	})
	collect(&u, t.backends.all, func(b *config.Backend) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Backend{Backend: b}}
	})
	collect(&u, t.backends.endpoints, func(e *config.Endpoints) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Endpoints{Endpoints: e}}
	})
	collect(&u, t.listenerStates.serving, func(l *config.Listener) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Listener{Listener: l}}
	})
	collect(&u, t.routes.configs, func(r *config.Resource) *config.Resource { return r })
	collect(&u, t.ticketKeys.all, func(k *config.TicketKeys) *config.Resource {
		return &config.Resource{Kind: &config.Resource_TicketKeys{TicketKeys: k}}
	})
	collect(&u, t.rateLimitServices.all, func(s *config.RateLimitService) *config.Resource {
		return &config.Resource{Kind: &config.Resource_RateLimitService{RateLimitService: s}}
	})
	slices.SortFunc(u.Upserts, func(a, b *config.Resource) int { return config.CompareID(a.ID(), b.ID()) })
	slices.SortFunc(u.Removals, config.CompareID)
	return u
}

func collect[K incremental.Key[K], V any](u *config.Update, c *incremental.Collection[K, V], wrap func(V) *config.Resource) {
	for _, ch := range c.Changes() {
		if ch.Deleted {
			u.Removals = append(u.Removals, wrap(ch.Old).ID())
		} else {
			u.Upserts = append(u.Upserts, wrap(ch.New))
		}
	}
}

// sameMessage compares two messages of one type.
func sameMessage[M proto.Message](a, b M) bool { return proto.Equal(a, b) }

// same compares two comparable values.
func same[V comparable](a, b V) bool { return a == b }
