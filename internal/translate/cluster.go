package translate

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// KindGatewayParameters is our own kind, of group moongate.dev.
const KindGatewayParameters Kind = "GatewayParameters"

// Infrastructure is what a cluster says of the proxies of one Gateway: an input, like an object.
type Infrastructure struct {
	// Addresses are where the Gateway is reached, in order, at most 16. Their routability is Cluster for the address of a Service
	// within the cluster. status.addresses shows those that spec.addresses asks for.
	Addresses []gwv1.GatewayStatusAddress
	// Ready says that at least one proxy serves; otherwise Programmed is False.
	Ready bool
	// Class and Ports tell how much of a ProxySpec has come true: the class whose objects these are, "" where
	// that is not known, and the ports that each Service has, nil where none is needed. Translation
	// reads neither: who shows a status waits by them.
	Class string
	Ports []ProxyPort
	// Waiting says what the Gateway still waits for and what helps, "" for nothing. Programmed is
	// False with reason Pending while it is not empty, also where Ready.
	Waiting string
	// Lagging says which proxies do not serve what is current while others do, or what else of the ProxySpec a Gateway is served without, ""
	// for none. Programmed is True nevertheless, and says so: one node that is lost must not look like a Gateway that is.
	Lagging string
	// Unassigned says why an entry of spec.addresses cannot be had, and what helps, "" where that is not known.
	Unassigned string
}

// ProxySpec is what a managed Gateway needs to run in a cluster, or all Gateways of a class together.
type ProxySpec struct {
	Namespace, Name string    // of the Gateway; of merged Gateways the namespace of the class's parameters and config.MergedName
	UID             types.UID // of the Gateway, or of the GatewayClass of merged Gateways
	// Merged are the Gateways of a class that are served together, sorted by namespace and name; none for proxies of one Gateway.
	Merged []MergedGateway
	Class  string      // spec.gatewayClassName
	Ports  []ProxyPort // of listeners that nothing in the Gateway speaks against; sorted, distinct
	// Addresses are the entries of spec.addresses that may be asked for, in order, each value once: type
	// IPAddress, in canonical form; an empty value leaves the choice to the cluster. Empty: one
	// address of the cluster's choice.
	Addresses []gwv1.GatewaySpecAddress
	// Unaddressed says that there are entries and none may be asked for: the Gateway is reached nowhere.
	Unaddressed bool
	// Labels and Annotations are those of spec.infrastructure that the class allows on something;
	// parameters.Metadata says on what.
	Labels, Annotations map[string]string
	// Parameters are those of the class with the Gateway's own over them.
	Parameters v1alpha1.GatewayParametersSpec
	// Paused says that Parameters cannot be told, because a parametersRef cannot be used or the class is
	// not accepted: what runs for the Gateway stays exactly as it is and is not removed, and
	// nothing is begun. Translation has no memory, so this is how a bad edit of parameters does not
	// end what is served.
	Paused bool
}

// MergedGateway is a Gateway that is served with others.
type MergedGateway struct {
	Namespace, Name string
	UID             types.UID
}

// ProxyPort is a port to be reached.
type ProxyPort struct {
	Port int32
	UDP  bool
}

// ProxySpecChange is a ProxySpec that is new or other than before; nil where the Gateway, or the last of those that are merged, is gone or no longer managed.
type ProxySpecChange struct {
	Namespace, Name string
	Spec            *ProxySpec
}

// SecretRequest is for a Secret that translation reads, or reads no longer: a cluster has many that are none of our business. One that a
// reference without a grant names is not requested.
type SecretRequest struct {
	Object kind.ObjectKey // of kind Secret
	Needed bool           // false: no longer
}

// UnreadSecret is a needed Secret of which it is not known whether it exists, an object for Upsert. A listener that refers to one
// keeps the certificates that it was served with, as it does before Fetched is called. It ends with the Secret itself, or with its deletion.
type UnreadSecret struct {
	metav1.ObjectMeta // namespace and name
	// Forbidden says that the controller may not read it; otherwise that may pass by itself.
	Forbidden bool
}

// UnreadSecrets is how many Secrets could not be read as of the last Commit, but may be soon.
func (t *Translator) UnreadSecrets() (n int) {
	for _, forbidden := range t.in.unread.All() {
		if !forbidden {
			n++
		}
	}
	return n
}

// Unread are the Secrets that could not be read as of the last Commit, sorted; those that may not be among them.
func (t *Translator) Unread() (keys []kind.ObjectKey) {
	for n := range t.in.unread.All() {
		keys = append(keys, kind.Secret.Key(n.Namespace, n.Name))
	}
	return keys
}

// Installed is what a cluster has of the Gateway API.
type Installed struct {
	// CRDs of group gateway.networking.k8s.io, sorted by name.
	CRDs []InstalledCRD
	// Kinds that are served in a version that we read, sorted.
	Kinds []Kind
	// Unread are the kinds whose objects cannot be read, sorted; those of no interest to translation among them.
	Unread []UnreadKind
	// UnreadNamespaces are those of which nothing can be read, sorted: the translator is not given what is there.
	UnreadNamespaces []string
}

// UnreadKind is a kind whose objects cannot be read, and what helps.
type UnreadKind struct {
	Kind   Kind
	Remedy string
}

// InstalledCRD is a CustomResourceDefinition with its annotations; "" where one is absent.
type InstalledCRD struct {
	Name, BundleVersion, Channel string
}

// SetInfrastructure tells what runs for a Gateway, or for merged ones under the name of their ProxySpec; nil where nothing does. It counts only with Options.Cluster.
func (t *Translator) SetInfrastructure(namespace, gatewayName string, i *Infrastructure) {
	n := name{namespace, gatewayName}
	if i == nil {
		t.in.infrastructures.Delete(n)
		return
	}
	kept := *i
	kept.Addresses = slices.Clone(i.Addresses)
	t.in.infrastructures.Set(n, kept)
}

// SetInstalled tells what the cluster has. Without it everything is there in the version that we were built with.
func (t *Translator) SetInstalled(i Installed) {
	t.in.installed.Set(name{}, Installed{slices.Clone(i.CRDs), slices.Clone(i.Kinds), slices.Clone(i.Unread), slices.Clone(i.UnreadNamespaces)})
}
