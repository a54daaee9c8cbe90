package translate

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// EndpointSelector is what pods an XBackend has as endpoints.
type EndpointSelector struct {
	UID    types.UID         // of the XBackend
	Labels map[string]string // of the pods; none for an XBackend that selects none
	Port   int32
}

func (s *EndpointSelector) same(o *EndpointSelector) bool {
	return s.UID == o.UID && s.Port == o.Port && maps.Equal(s.Labels, o.Labels)
}

// SelectorChange is what became of an XBackend.
type SelectorChange struct {
	Namespace, Name string
	Selector        *EndpointSelector // nil where nobody names the XBackend any more, or it cannot be carried out
}

// endpointSelectors are those of XBackends that are named as backends.
type endpointSelectors struct {
	all *incremental.Collection[name, *EndpointSelector] // nil outside of a cluster
}

func newEndpointSelectors(e *incremental.Engine, o *Options, inUse *incremental.Collection[name, *apisx.XBackend], xbackends *xbackends) *endpointSelectors {
	if !o.Cluster {
		return &endpointSelectors{}
	}
	return &endpointSelectors{incremental.Map(e, "endpoint selector", inUse,
		func(v *incremental.View, n name, object *apisx.XBackend) (*EndpointSelector, bool) {
			x, ok := incremental.Fetch(v, xbackends.all, n)
			if !ok || x.Invalid != nil || object.DeletionTimestamp != nil { // what it has stays, as long as the object is there
				return nil, false
			}
			s := &EndpointSelector{UID: object.UID, Port: x.Port}
			if selector := object.Spec.EndpointSelector; selector != nil {
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
