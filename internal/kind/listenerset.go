package kind

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
)

// ListenerSets returns the kinds of objects whose listeners are attached to a Gateway.
func ListenerSets() []*Kind { return []*Kind{ListenerSet.Kind, XListenerSet.Kind} }

// OfListeners reports whether the kind is one of ListenerSets.
func (k *Kind) OfListeners() bool { return k == ListenerSet.Kind || k == XListenerSet.Kind }

// ParentGatewayOf returns the Gateway reference of an object of one of ListenerSets; ok is false for other objects.
func ParentGatewayOf(o metav1.Object) (gwv1.ParentGatewayReference, bool) {
	switch o := o.(type) {
	case *gwv1.ListenerSet:
		return o.Spec.ParentRef, true
	case *gwx.XListenerSet:
		return o.Spec.ParentRef, true
	}
	return gwv1.ParentGatewayReference{}, false
}
