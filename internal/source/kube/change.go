package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Change is what happened since the previous Change.
type Change struct {
	// Upserts are new, or differ in something that translation may read; sorted by key.
	// They are typed (*gwv1.HTTPRoute and so on), without status, resourceVersion and
	// annotations; or *kind.Undecoded. They are shared: nobody may modify them.
	Upserts []metav1.Object
	// Deletes are gone; sorted, disjoint from Upserts.
	Deletes []kind.ObjectKey
	// Observed are the objects of kinds with a status that were written by whomever, also
	// those of Upserts; sorted. A Change may have nothing else: it is for those who write
	// statuses, and no matter of translation.
	Observed []kind.ObjectKey
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

// SecretRequest is for a Secret whose contents are needed, or needed no longer.
type SecretRequest struct {
	Namespace, Name string
	Needed          bool
}
