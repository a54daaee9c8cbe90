package translate

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// KindGatewayParameters is a kind of Moongate itself, of group moongate.dev.
const KindGatewayParameters Kind = "GatewayParameters"

// Infrastructure describes the proxies of one Gateway in a cluster. It is an input, like an object.
type Infrastructure struct {
	// Addresses are the addresses of the Gateway, in order, at most 16. The routability of the address of a Service within the
	// cluster is Cluster. status.addresses contains those that spec.addresses asks for.
	Addresses []gwv1.GatewayStatusAddress
	// Ready reports that at least one proxy serves; otherwise Programmed is False.
	Ready bool
	// Class and Ports describe how much of a ProxySpec is in effect: Class is the class whose objects exist ("" if not known), and
	// Ports the ports that each Service has (nil if none is needed). Translation reads neither: the code that holds back statuses
	// does.
	Class string
	Ports []ProxyPort
	// Waiting is what the Gateway still waits for, and the remedy; "" if nothing. Programmed is False with reason Pending while it
	// is not empty, even if Ready.
	Waiting string
	// Lagging reports which proxies do not serve the current configuration while others do, or which part of the ProxySpec is not in
	// effect while the Gateway is served; "" if none. Programmed remains True, with this as its message: the loss of one node must
	// not look like the loss of a Gateway.
	Lagging string
	// Unassigned is why an entry of spec.addresses cannot be assigned, and the remedy; "" if not known.
	Unassigned string
}

// ProxySpec is what the proxies of a managed Gateway, or of all Gateways of a class together, need in order to run in a cluster.
type ProxySpec struct {
	Namespace, Name string    // of the Gateway; for merged Gateways the namespace of the class's parameters and config.MergedName
	UID             types.UID // of the Gateway, or of the GatewayClass for merged Gateways
	// Merged are the Gateways of a class that are served together, sorted by namespace and name; empty for the proxies of one
	// Gateway.
	Merged []MergedGateway
	Class  string      // spec.gatewayClassName
	Ports  []ProxyPort // of listeners that are valid as far as the Gateway itself determines; sorted, distinct
	// Addresses are the entries of spec.addresses that may be requested, in order, without duplicates: type IPAddress, in canonical
	// form; an empty value lets the cluster choose. If there are none, the cluster chooses one address.
	Addresses []gwv1.GatewaySpecAddress
	// Unaddressed is set if spec.addresses has entries and none may be requested: the Gateway cannot be reached.
	Unaddressed bool
	// Labels and Annotations are those of spec.infrastructure that the class allows on at least one kind of object;
	// parameters.Metadata decides on which.
	Labels, Annotations map[string]string
	// Parameters are those of the class, overridden by those of the Gateway.
	Parameters v1alpha1.GatewayParametersSpec
	// Paused is set if Parameters cannot be determined, because a parametersRef cannot be used or the class is not accepted: what
	// runs for the Gateway stays exactly as it is and is not removed, and nothing new is started. Translation has no memory, so this
	// is how a wrong edit of parameters does not stop what is served.
	Paused bool
}

// MergedGateway is a Gateway that is served together with others.
type MergedGateway struct {
	Namespace, Name string
	UID             types.UID
}

// ProxyPort is a port that a Service must expose.
type ProxyPort struct {
	Port int32
	UDP  bool
}

// ProxySpecChange is a new or changed ProxySpec; Spec is nil if the Gateway, or the last of the merged ones, is gone or no longer
// managed.
type ProxySpecChange struct {
	Namespace, Name string
	Spec            *ProxySpec
}

// SecretRequest requests a Secret that translation reads, or ends the request. A cluster has many Secrets that the controller must
// not read. A Secret that is named only by a reference without a grant is not requested.
type SecretRequest struct {
	Object kind.ObjectKey // of kind Secret
	Needed bool           // false ends the request
}

// UnreadSecret is a needed Secret of which it is not known whether it exists, an object for Upsert. A listener that refers to one
// keeps the certificates that it was served with, as it does before Fetched is called, and proxies keep what they have of the Secret (see config.Resource.Unread), which
// another leader may have sent. It ends with the Secret itself, or with its deletion.
type UnreadSecret struct {
	metav1.ObjectMeta // namespace and name
	// Forbidden is set if the controller is not permitted to read it; otherwise the failure may be temporary.
	Forbidden bool
}

// Unread are the Secrets that could not be read as of the last Commit, sorted; those that may not be among them.
func (t *Translator) Unread() (keys []kind.ObjectKey) {
	for n := range t.in.unread.All() {
		keys = append(keys, kind.Secret.Key(n.Namespace, n.Name))
	}
	return keys
}

// Installed describes which part of the Gateway API a cluster has.
type Installed struct {
	// CRDs are those of group gateway.networking.k8s.io, sorted by name.
	CRDs []InstalledCRD
	// Kinds are the kinds that are served in a version that Moongate reads, sorted.
	Kinds []Kind
	// Unread are the kinds whose objects cannot be read, sorted; including kinds that translation does not use.
	Unread []UnreadKind
	// UnreadNamespaces are the namespaces that cannot be read, sorted: the translator does not get their objects.
	UnreadNamespaces []string
}

// UnreadKind is a kind whose objects cannot be read, and the remedy.
type UnreadKind struct {
	Kind   Kind
	Remedy string
}

// InstalledCRD is a CustomResourceDefinition with its annotations; "" if one is absent.
type InstalledCRD struct {
	Name, BundleVersion, Channel string
}

// SetInfrastructure sets what runs for a Gateway, or for merged Gateways under the name of their ProxySpec; nil if nothing runs. It
// has an effect only with Options.Cluster.
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

// SetInstalled sets what the cluster has. Without a call, everything is considered installed in the version that Moongate was built
// with.
func (t *Translator) SetInstalled(i Installed) {
	t.in.installed.Set(name{}, Installed{slices.Clone(i.CRDs), slices.Clone(i.Kinds), slices.Clone(i.Unread), slices.Clone(i.UnreadNamespaces)})
}
