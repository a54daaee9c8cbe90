package translate

import (
	"slices"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
	"github.com/moongate-dev/moongate/internal/translate/gateway"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// Options are what translation needs to know besides the objects.
type Options struct {
	// ControllerName selects the GatewayClasses that are ours.
	ControllerName string
	// DefaultAddresses is what status.addresses shows for a Gateway without
	// spec.addresses: IP literals, or names. Nil means that such a Gateway has no address.
	DefaultAddresses []string
	// Cluster says that each Gateway runs in proxies of its own: listeners bind every address of theirs,
	// and SetInfrastructure tells the addresses and whether they serve.
	Cluster bool
	// Namespaces are those whose objects the translator is given, as far as it is not all; messages tell of others.
	Namespaces []string
	// Loopback has requests sent to backends on loopback addresses, also where Cluster is set: of proxies that share the
	// machine with them, as in tests. In a cluster a loopback address is the proxy's own.
	Loopback bool
	// ReservedPorts are TCP ports that listeners cannot have.
	ReservedPorts []int32
	// Panicked is called when a function panics on behalf of an object, by the deferred function that has recovered v. What
	// was made of the object before stays, and its status says so. With nil panics are not recovered.
	Panicked func(function, key string, v any)
}

// Translator holds all objects and keeps config and statuses up to date with
// them. It is not safe for concurrent use.
type Translator struct {
	options    Options
	engine     *incremental.Engine
	generation uint64
	in         inputs
	stores     map[string]*store // by kind
	reports    reports
	unanswered map[name]bool     // needed Secrets of which Fetched was not called yet
	failed     map[kindName]bool // of which the status was last said to be that of failing
	defect     func(name)        // set by tests: called for each HTTPRoute, Gateway and GatewayClass
	listenerLayer
	routeLayer
	backendLayer
	backendTLSLayer
	statusLayer
}

// inputs are the objects as they came, without what nobody here reads.
type inputs struct {
	classes             *incremental.Input[name, *gwv1.GatewayClass]
	gateways            *incremental.Input[name, *gwv1.Gateway]
	listenerSets        *incremental.Input[name, *gwv1.ListenerSet]
	routes              *incremental.Input[kindName, metav1.Object]
	grants              *incremental.Input[name, *gwv1.ReferenceGrant]
	policies            *incremental.Input[name, *gwv1.BackendTLSPolicy]
	namespaces          *incremental.Input[name, *corev1.Namespace]
	services            *incremental.Input[name, *corev1.Service]
	endpointSlices      *incremental.Input[name, *discoveryv1.EndpointSlice]
	secrets             *incremental.Input[name, *corev1.Secret]
	listenerFaults      *incremental.Input[listenerKey, ListenerFault]
	routeFaults         *incremental.Input[routeFaultKey, RouteFault]
	addressFaults       *incremental.Input[addressKey, AddressFault]
	parameters          *incremental.Input[name, *v1alpha1.GatewayParameters]
	undecodedParameters *incremental.Input[name, undecodedParameters] // those that exist and are not in parameters
	undecodedPolicies   *incremental.Input[name, undecodedPolicy]     // those that exist and are not in policies

	infrastructures *incremental.Input[name, Infrastructure]
	installed       *incremental.Input[name, Installed] // under the empty name
	tickets         *incremental.Input[name, Tickets]   // under the empty name

	unread *incremental.Input[name, bool]          // Secrets that could not be read; true where that is forbidden
	absent *incremental.Input[name, bool]          // needed Secrets that do not exist
	last   *incremental.Input[listenerKey, []name] // Secrets whose certificates a listener was last served with
}

// listenerLayer is what is known of GatewayClasses, Gateways and their listeners.
type listenerLayer struct {
	parameters          *incremental.Collection[name, *checked]
	kinds               *incremental.Collection[name, []Kind] // that are installed, under the empty name
	unreadNamespaces    *incremental.Collection[name, bool]
	classes             *incremental.Collection[name, class]
	gateways            *incremental.Collection[name, *gateway.Gateway]
	managedGateways     *incremental.Collection[name, managedGateway]
	listenerSets        *incremental.Collection[name, *listenerSet]  // of those
	setsByGateway       *incremental.Index[name, name, *listenerSet] // those that are attached
	listenerTerms       *incremental.Collection[name, listenerTerms]
	ownListeners        *incremental.Collection[listenerKey, *listener.Listener] // of Gateways
	setSpecs            *incremental.Collection[listenerKey, setListener]
	ownByGateway        *incremental.Index[name, listenerKey, *listener.Listener]
	setSpecsByGateway   *incremental.Index[name, listenerKey, setListener]
	setConflicts        *incremental.Collection[listenerKey, gwv1.ListenerConditionReason]
	setListeners        *incremental.Collection[listenerKey, *listener.Listener] // of ListenerSets
	listeners           *incremental.Collection[listenerKey, *listener.Listener] // of both
	acceptedSets        *incremental.Index[name, attachedSet, struct{}]          // by Gateway
	portsByGateway      *incremental.Index[name, proxyPort, struct{}]            // in a cluster
	claims              *incremental.Collection[listenerKey, claim]
	claimsByPort        *incremental.Index[portNumber, listenerKey, claim]                 // in standalone mode, as claims and portConflicts
	portConflicts       *incremental.Collection[listenerKey, gwv1.ListenerConditionReason] // of listeners that lose
	grants              *incremental.Index[grantKey, name, *gwv1.ReferenceGrant]
	secretUsers         *incremental.Index[name, listenerKey, *listener.Listener]
	abroad              *incremental.Index[string, listenerKey, *listener.Listener] // by the other namespaces whose Secrets they refer to
	neededSecrets       *incremental.Collection[name, bool]                         // Secrets
	keyPairs            *incremental.Collection[name, *certificate.KeyPair]
	certificateNames    *incremental.Collection[listenerKey, *listener.CertificateNames] // of HTTPS listeners with a certificate
	certificateHosts    *incremental.Index[certificateHost, listenerKey, *listener.CertificateNames]
	certificateUsers    *incremental.Collection[certificateHost, []listenerKey] // the first of those in certificateHosts
	proxySpecs          *incremental.Collection[name, *ProxySpec]               // nil outside of a cluster
	reachable           *incremental.Collection[name, bool]                     // Gateways in a cluster that wait for nothing
	states              *incremental.Collection[listenerKey, *listenerState]
	serving             *incremental.Collection[listenerKey, *config.Listener]
	served              *incremental.Collection[listenerKey, bool]
	certUsers           *incremental.Index[string, listenerKey, *config.Listener]
	certificates        *incremental.Collection[name, *config.Certificate]
	terminating         *incremental.Index[name, listenerKey, *config.Listener] // by Gateway
	ticketKeys          *incremental.Collection[name, *config.TicketKeys]
	admissions          *incremental.Collection[listenerKey, admission]
	listenersByOwner    *incremental.Index[kindName, listenerKey, admission]
	listenersByPort     *incremental.Index[portKey, listenerKey, admission]
	listenersByHostname *incremental.Index[hostnameKey, listenerKey, admission]
}

// routeLayer is what is known of routes.
type routeLayer struct {
	namespaceLabels *incremental.Collection[name, map[string]string]
	services        *incremental.Collection[name, *service]
	compiled        *incremental.Collection[kindName, *compiled]
	referrers       *incremental.Index[name, kindName, *compiled] // Service -> routes that refer to it
	attachments     *incremental.Collection[kindName, *attachment]
	attached        *incremental.Index[listenerKey, kindName, *attachment]
	shares          *incremental.Collection[shareKey, struct{}]            // namespaces with regular expressions, of each listener
	expressions     *incremental.Index[shareKey, kindName, *attachment]    // routes that have any
	excess          *incremental.Collection[excessKey, struct{}]           // those beyond the limit
	l4Routes        *incremental.Index[listenerKey, kindName, *attachment] // routes of connections that are accepted
	l4Chosen        *incremental.Collection[listenerKey, kindName]         // those that get the connections
	routes          *incremental.Collection[kindName, *config.Resource]
}

// backendLayer is what the accepted routes need of Services and EndpointSlices.
type backendLayer struct {
	denyingClasses *incremental.Index[bool, name, class]
	refusals       *incremental.Collection[name, *refusal]  // by EndpointSlice
	refused        *incremental.Index[name, name, *refusal] // by Service

	backendUsers *incremental.Index[string, kindName, *config.Resource]
	backends     *incremental.Collection[backendKey, *config.Backend]
	slices       *incremental.Index[name, name, *discoveryv1.EndpointSlice]
	endpoints    *incremental.Collection[backendKey, *config.Endpoints]
}

// statusLayer is what users are told, by kind.
type statusLayer struct {
	classStatuses   *incremental.Collection[name, *status[gwv1.GatewayClassStatus]]
	gatewayStates   *incremental.Collection[name, *status[gwv1.GatewayStatus]]
	gatewayOutcomes *incremental.Collection[name, gatewayOutcome]
	setStatuses     *incremental.Collection[name, *status[gwv1.ListenerSetStatus]]
	routeStatuses   *incremental.Collection[kindName, *status[gwv1.RouteStatus]]

	classesByParameters  *incremental.Index[name, name, *gwv1.GatewayClass]
	gatewaysByParameters *incremental.Index[name, name, *gateway.Gateway]
	parametersStatuses   *incremental.Collection[name, *status[v1alpha1.GatewayParametersStatus]]
}

// New returns a Translator without objects.
func New(options Options) *Translator {
	t := &Translator{options: options, engine: incremental.New(), unanswered: map[name]bool{}, stores: map[string]*store{}, reports: reports{current: map[Kind]func(kindName) (any, int64){}}}
	t.reportPanics()
	t.declareInputs()
	t.declareInstalled()
	t.declareGatewayParameters()
	t.declareGatewayClasses()
	t.declareGateways()
	t.declareListenerTerms()
	t.declareNamespaces()
	t.declareListenerSets()
	t.declareGrants()
	t.declareListeners()
	t.declareNeededSecrets()
	t.declareSecrets()
	t.declareCertificateNames()
	t.declareInfrastructures()
	if options.Cluster {
		t.declareProxySpecs()
	}
	t.declareListenerStates()
	t.declareTicketKeys()
	t.declareAdmissions()
	t.declareServices()
	t.declareRoutes()
	t.declareBackends()
	t.declareStatuses()
	return t
}

// Result is what one Commit changed.
type Result struct {
	Config         config.Update
	Statuses       []StatusChange    // sorted by Object
	ProxySpecs     []ProxySpecChange // sorted by Gateway; with Options.Cluster only
	SecretRequests []SecretRequest   // sorted by Object
	Stats          incremental.Stats
}

// Commit brings everything up to date with the objects and returns what has
// changed. Values in it are shared and must not be modified. The generation of
// the update grows with every Commit that changes config.
func (t *Translator) Commit() Result {
	stats := t.engine.Commit()
	r := Result{Config: t.update(), Statuses: t.statusChanges(), ProxySpecs: t.proxySpecChanges(), SecretRequests: t.secretRequests(), Stats: stats}
	if t.options.Cluster {
		t.noteServed()
		t.noteRequests(r.SecretRequests)
	}
	if !r.Config.Empty() {
		t.generation++
	}
	r.Config.Generation = t.generation
	return r
}

func (t *Translator) update() config.Update {
	var u config.Update
	collect(&u, t.certificates, func(c *config.Certificate) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Certificate{Certificate: c}}
	})
	collect(&u, t.trusted, func(a *config.Authorities) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Authorities{Authorities: a}}
	})
	collect(&u, t.backends, func(b *config.Backend) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Backend{Backend: b}}
	})
	collect(&u, t.endpoints, func(e *config.Endpoints) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Endpoints{Endpoints: e}}
	})
	collect(&u, t.serving, func(l *config.Listener) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Listener{Listener: l}}
	})
	collect(&u, t.routes, func(r *config.Resource) *config.Resource { return r })
	collect(&u, t.ticketKeys, func(k *config.TicketKeys) *config.Resource {
		return &config.Resource{Kind: &config.Resource_TicketKeys{TicketKeys: k}}
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
