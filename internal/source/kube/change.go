package kube

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ID names an object, whatever version it is read in.
type ID struct {
	Group     string // "" for the core group
	Kind      string
	Namespace string // "" for a cluster-scoped object
	Name      string
}

// Compare orders by group, kind, namespace and name.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Group, o.Group), cmp.Compare(id.Kind, o.Kind),
		cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}

// String is "Kind namespace/name", or "Kind name" for a cluster-scoped object.
func (id ID) String() string {
	if id.Namespace == "" {
		return id.Kind + " " + id.Name
	}
	return id.Kind + " " + id.Namespace + "/" + id.Name
}

// Change is what happened since the previous Change.
type Change struct {
	// Upserts are new, or differ in something that translation may read; sorted by ID.
	// They are typed (*gwv1.HTTPRoute and so on), without status, resourceVersion and
	// annotations; or *Undecoded. They are shared: nobody may modify them.
	Upserts []metav1.Object
	// Deletes are gone; sorted, disjoint from Upserts.
	Deletes []ID
	// Observed are the objects of kinds with a status that were written by whomever, also
	// those of Upserts; sorted. A Change may have nothing else: it is for those who write
	// statuses, and no matter of translation.
	Observed []ID
	// Installed is set where it differs from what it was, and in the first Change.
	Installed *Installed
	// Full is set on the first Change, which has everything but Secrets.
	Full bool
}

// ConcernsTranslation is false for a Change that has nothing but Observed.
func (c *Change) ConcernsTranslation() bool {
	return len(c.Upserts) > 0 || len(c.Deletes) > 0 || c.Installed != nil || c.Full
}

// Installed is what the cluster has of the Gateway API, and of our own one.
type Installed struct {
	// CRDs of group gateway.networking.k8s.io, sorted by name.
	CRDs []CRD
	// Kinds of both groups that are served and have been listed, sorted by group and kind.
	Kinds []Served
	// Unread are the kinds, of whatever group, that cannot be listed or watched, sorted by group and kind.
	Unread []Unread
	// UnreadNamespaces are those of which nothing may be read, sorted: nothing is told of them.
	UnreadNamespaces []string
}

// CRD is a CustomResourceDefinition with its annotations of the Gateway API; "" where one
// is absent.
type CRD struct {
	Name          string // as gateways.gateway.networking.k8s.io
	BundleVersion string
	Channel       string
}

// Served is a kind with the version that it is read in: v1, or the newest before it.
type Served struct {
	Group, Kind, Version string
	Resource             string // as in paths
}

// UnreadSecret is a Secret of which it is not known whether it exists.
type UnreadSecret struct {
	Namespace, Name string
	Forbidden       bool // the controller may not read it; otherwise that may pass by itself
}

// Undecoded takes the place of GatewayParameters or of a BackendTLSPolicy that exists, does not fit its Go type and was never read whole. What
// they close is read all the same: it must not be open because of a mistake beside it.
type Undecoded struct {
	metav1.ObjectMeta // namespace and name
	Kind              string
	Error             string // why it cannot be decoded
	// DeniedEndpoints are, of GatewayParameters, those of spec.classOnly.deniedEndpoints that are strings.
	DeniedEndpoints []string
	// Targets are, of a BackendTLSPolicy, its spec.targetRefs; none if one of them cannot be decoded: it may be any Service of the namespace.
	Targets []gwv1.LocalPolicyTargetReferenceWithSectionName
}

// Want is a Secret whose contents are needed (Wanted) or no longer.
type Want struct {
	Namespace, Name string
	Wanted          bool
}
