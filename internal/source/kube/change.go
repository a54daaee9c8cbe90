package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Change is what has happened since the previous Change.
type Change struct {
	// Upserts are objects that are new, or differ in something that translation may read; sorted by key. They are typed
	// (*gwv1.HTTPRoute and so on), without status, resourceVersion and annotations; or *kind.Undecoded. They are shared and must not
	// be modified.
	Upserts []metav1.Object
	// Deletes are objects that are gone; sorted, disjoint from Upserts.
	Deletes []kind.ObjectKey
	// Observed are the objects of kinds with a status that any writer has written, including those in Upserts; sorted. A Change may
	// contain only these: they are for writers of statuses, not for translation.
	Observed []kind.ObjectKey
	// Installed is set if it has changed, and in the first Change.
	Installed *Installed
	// Full is set for the first Change, which contains everything except Secrets.
	Full bool
}

// ConcernsTranslation returns false for a Change that contains only Observed.
func (c *Change) ConcernsTranslation() bool {
	return len(c.Upserts) > 0 || len(c.Deletes) > 0 || c.Installed != nil || c.Full
}

// Installed describes what the cluster has of the Gateway API, and of the API of Moongate.
type Installed struct {
	// CRDs of group gateway.networking.k8s.io, sorted by name.
	CRDs []CRD
	// Kinds are those of both groups that are served and have been listed, sorted by group and kind.
	Kinds []Served
	// Unread are the kinds, of any group, that cannot be listed or watched, sorted by group and kind.
	Unread []Unread
	// UnreadNamespaces are the namespaces that cannot be read, sorted: no Change includes their objects.
	UnreadNamespaces []string
}

// CRD is a CustomResourceDefinition with its annotations of the Gateway API; "" if one is absent.
type CRD struct {
	Name          string // such as gateways.gateway.networking.k8s.io
	BundleVersion string
	Channel       string
}

// Served is a kind with the version in which it is read: v1, or the newest before it.
type Served struct {
	Group, Kind, Version string
	Resource             string // as in URL paths
}

// UnreadSecret is a Secret of which it is not known whether it exists.
type UnreadSecret struct {
	Namespace, Name string
	Forbidden       bool // the controller may not read it; otherwise the failure may be temporary
}

// SecretRequest requests the content of a Secret, or ends the request.
type SecretRequest struct {
	Namespace, Name string
	Needed          bool
}
