package translate

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// EndpointSelector selects the pods that are the endpoints of an XBackend.
type EndpointSelector struct {
	UID    types.UID         // of the XBackend
	Labels map[string]string // of the pods; empty if the XBackend selects none
	Port   int32
}

func (s *EndpointSelector) same(o *EndpointSelector) bool {
	return s.UID == o.UID && s.Port == o.Port && maps.Equal(s.Labels, o.Labels)
}

// SelectorChange is a new, changed or removed EndpointSelector of an XBackend.
type SelectorChange struct {
	Namespace, Name string
	Selector        *EndpointSelector // nil if the XBackend may not be used any longer, or has no valid port
}

// endpointSelectors contains the selectors of XBackends that may be used: all in namespaces with a route that a managed Gateway
// accepts, and those that are used otherwise. The endpoints of an XBackend are therefore known before a route refers to it.
type endpointSelectors struct {
	all *incremental.Collection[name, *EndpointSelector] // nil outside of a cluster
}

func newEndpointSelectors(e *incremental.Engine, o *Options, objects, inUse *incremental.Collection[name, *apisx.XBackend], users *xbackendUsers) *endpointSelectors {
	if !o.Cluster {
		return &endpointSelectors{}
	}
	return &endpointSelectors{incremental.Map(e, "endpoint selector", objects,
		func(v *incremental.View, n name, x *apisx.XBackend) (*EndpointSelector, bool) {
			if x.DeletionTimestamp != nil || x.Spec.Port.Number < 1 || x.Spec.Port.Number > 65535 { // its endpoints stay as long as the object exists
				return nil, false
			}
			if incremental.Count(v, users.byNamespace, n.Namespace) == 0 {
				if _, used := incremental.Fetch(v, inUse, n); !used {
					return nil, false
				}
			}
			s := &EndpointSelector{UID: x.UID, Port: int32(x.Spec.Port.Number)}
			if selector := x.Spec.EndpointSelector; x.Spec.Type == apisx.BackendTypeEndpointSelector && selector != nil {
				s.Labels = plain(selector.MatchLabels)
			}
			return s, true
		}, (*EndpointSelector).same)}
}

func (es *endpointSelectors) changes() (out []SelectorChange) {
	if es.all == nil {
		return nil
	}
	for _, ch := range es.all.Changes() {
		out = append(out, SelectorChange{ch.Key.Namespace, ch.Key.Name, ch.New})
	}
	return out
}
