package writer

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/status"
)

// abandoned says that an object that is no longer ours has no other controller
// either: only then what we wrote is ours to clear. Routes and policies say by
// entry whose it is, so there it always is.
func (w *Writer) abandoned(object metav1.Object) bool {
	switch o := object.(type) {
	case *gwv1.GatewayClass:
		return false // its controllerName never changes: it is foreign, or about to be ours again
	case *gwv1.Gateway:
		return w.withoutClass(o)
	case *gwv1.ListenerSet:
		ref := o.Spec.ParentRef
		if ref.Kind != nil && *ref.Kind != "Gateway" || ref.Group != nil && *ref.Group != gwv1.GroupName {
			return true
		}
		namespace := o.Namespace
		if ref.Namespace != nil {
			namespace = string(*ref.Namespace)
		}
		parent, ok := w.options.Objects.Get(status.Key{Group: gwv1.GroupName, Kind: "Gateway", Namespace: namespace, Name: string(ref.Name)})
		gateway, isGateway := parent.(*gwv1.Gateway)
		return !ok || !isGateway || w.withoutClass(gateway)
	}
	return true
}

// withoutClass says that nobody can look after a Gateway: its class does not exist.
func (w *Writer) withoutClass(g *gwv1.Gateway) bool {
	_, ok := w.options.Objects.Get(classKey(string(g.Spec.GatewayClassName)))
	return !ok
}

func classKey(name string) status.Key {
	return status.Key{Group: gwv1.GroupName, Kind: "GatewayClass", Name: name}
}

// finalizerPatch is what adds or removes the finalizer that keeps a class of ours
// while Gateways name it; nil where it is as it should be.
func (w *Writer) finalizerPatch(object metav1.Object) []byte {
	class, ok := object.(*gwv1.GatewayClass)
	if !ok || class.Spec.ControllerName != w.options.ControllerName {
		return nil
	}
	w.mu.Lock()
	used, swept := w.users[class.Name] > 0, w.swept
	w.mu.Unlock()
	finalizers := slices.Clone(class.Finalizers)
	has := slices.Contains(finalizers, gwv1.GatewayClassFinalizerGatewaysExist)
	switch {
	case used && !has && class.DeletionTimestamp == nil: // none may be added to what is being deleted
		finalizers = append(finalizers, gwv1.GatewayClassFinalizerGatewaysExist)
	case !used && has && swept:
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == gwv1.GatewayClassFinalizerGatewaysExist })
	default:
		return nil
	}
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // strings always have a JSON
		"resourceVersion": class.ResourceVersion, "finalizers": finalizers,
	}})
	return body
}
