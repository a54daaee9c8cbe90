package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// script looks at everything, again and again, and makes the world follow.
type script struct {
	client   client.Client
	gateways map[client.ObjectKey]*gateway
}

func (s *script) play(ctx context.Context) error {
	var classes gatewayv1.GatewayClassList
	var gateways gatewayv1.GatewayList
	var routes gatewayv1.HTTPRouteList
	for _, list := range []client.ObjectList{&classes, &gateways, &routes} {
		if err := s.client.List(ctx, list); err != nil {
			return err
		}
	}
	ours := map[gatewayv1.ObjectName]bool{}
	var errs []error
	for i := range classes.Items {
		if class := &classes.Items[i]; class.Spec.ControllerName == controllerName {
			ours[gatewayv1.ObjectName(class.Name)] = true
			errs = append(errs, s.playClass(ctx, class))
		}
	}
	present := map[client.ObjectKey]bool{}
	for i := range gateways.Items {
		if object := &gateways.Items[i]; ours[object.Spec.GatewayClassName] {
			present[client.ObjectKeyFromObject(object)] = true
			errs = append(errs, s.playGateway(ctx, object, routes.Items))
		}
	}
	for key, g := range s.gateways {
		if !present[key] {
			g.close()
			delete(s.gateways, key)
			errs = append(errs, client.IgnoreNotFound(s.client.Delete(ctx, &corev1.Service{ObjectMeta: serviceMeta(key)})))
		}
	}
	for i := range routes.Items {
		errs = append(errs, s.playRoute(ctx, &routes.Items[i], present))
	}
	return errors.Join(errs...)
}

func condition(conditions *[]metav1.Condition, generation int64, kind, reason string) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: generation,
	})
}

// update writes the object's status if it is not the one before.
func update[S any](ctx context.Context, c client.Client, object client.Object, before, after S) error {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return client.IgnoreNotFound(c.Status().Update(ctx, object))
}

func (s *script) playClass(ctx context.Context, class *gatewayv1.GatewayClass) error {
	before := class.Status.DeepCopy()
	condition(&class.Status.Conditions, class.Generation, "Accepted", "Accepted")
	class.Status.SupportedFeatures = []gatewayv1.SupportedFeature{{Name: "Gateway"}, {Name: "HTTPRoute"}, {Name: "ReferenceGrant"}}
	return update(ctx, s.client, class, *before, class.Status)
}

func (s *script) playGateway(ctx context.Context, object *gatewayv1.Gateway, routes []gatewayv1.HTTPRoute) error {
	key := client.ObjectKeyFromObject(object)
	g := s.gateways[key]
	if g == nil {
		var err error
		if g, err = listen(); err != nil {
			return err
		}
		s.gateways[key] = g
	}
	g.rules.Store(rules(key, routes))
	address, err := s.address(ctx, object, g)
	if err != nil {
		return err
	}
	before := object.Status.DeepCopy()
	condition(&object.Status.Conditions, object.Generation, "Accepted", "Accepted")
	if address != "" {
		condition(&object.Status.Conditions, object.Generation, "Programmed", "Programmed")
		kind := gatewayv1.IPAddressType
		object.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: &kind, Value: address}}
	}
	var listeners []gatewayv1.ListenerStatus
	for _, listener := range object.Spec.Listeners {
		group := gatewayv1.Group(gatewayv1.GroupName)
		status := gatewayv1.ListenerStatus{Name: listener.Name, SupportedKinds: []gatewayv1.RouteGroupKind{{Group: &group, Kind: "HTTPRoute"}}}
		for _, old := range before.Listeners {
			if old.Name == listener.Name {
				status.Conditions = slices.Clone(old.Conditions)
			}
		}
		for _, kind := range []string{"Accepted", "Programmed", "ResolvedRefs"} {
			condition(&status.Conditions, object.Generation, kind, kind)
		}
		listeners = append(listeners, status)
	}
	object.Status.Listeners = listeners
	return update(ctx, s.client, object, *before, object.Status)
}

// serviceMeta names a Gateway's Service, whatever the length of the Gateway's name.
func serviceMeta(key client.ObjectKey) metav1.ObjectMeta {
	hash := fnv.New64a()
	fmt.Fprint(hash, key)
	return metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("gateway-%x", hash.Sum64())}
}

// address lets the cluster's load balancer lead every port of the Gateway to the
// one at which this program serves it, and returns the address when there is one.
func (s *script) address(ctx context.Context, object *gatewayv1.Gateway, g *gateway) (string, error) {
	wanted := &corev1.Service{ObjectMeta: serviceMeta(client.ObjectKeyFromObject(object))}
	wanted.Spec.Type = corev1.ServiceTypeLoadBalancer
	wanted.Spec.Selector = map[string]string{"app": "scripted"}
	seen := map[int32]bool{}
	for _, listener := range object.Spec.Listeners {
		port := int32(listener.Port)
		if seen[port] {
			continue
		}
		seen[port] = true
		wanted.Spec.Ports = append(wanted.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("p%d", port), Port: port, TargetPort: intstr.FromInt32(g.port()),
		})
	}
	var service corev1.Service
	err := s.client.Get(ctx, client.ObjectKeyFromObject(wanted), &service)
	if apierrors.IsNotFound(err) {
		return "", s.client.Create(ctx, wanted)
	}
	if err != nil || len(service.Status.LoadBalancer.Ingress) == 0 {
		return "", err
	}
	return service.Status.LoadBalancer.Ingress[0].IP, nil
}

func (s *script) playRoute(ctx context.Context, route *gatewayv1.HTTPRoute, gateways map[client.ObjectKey]bool) error {
	before := route.Status.DeepCopy()
	parents := slices.DeleteFunc(slices.Clone(route.Status.Parents), func(p gatewayv1.RouteParentStatus) bool {
		return p.ControllerName == controllerName
	})
	for _, ref := range route.Spec.ParentRefs {
		if !gateways[parentKey(route, ref)] {
			continue
		}
		status := gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: controllerName}
		for _, old := range before.Parents {
			if old.ControllerName == controllerName && reflect.DeepEqual(old.ParentRef, ref) {
				status.Conditions = slices.Clone(old.Conditions)
			}
		}
		condition(&status.Conditions, route.Generation, "Accepted", "Accepted")
		condition(&status.Conditions, route.Generation, "ResolvedRefs", "ResolvedRefs")
		parents = append(parents, status)
	}
	route.Status.Parents = parents
	return update(ctx, s.client, route, *before, route.Status)
}

func parentKey(route *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference) client.ObjectKey {
	key := client.ObjectKey{Namespace: route.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil {
		key.Namespace = string(*ref.Namespace)
	}
	return key
}

// rules are those of all routes that name the Gateway: exact paths first, then
// longer prefixes before shorter ones.
func rules(gateway client.ObjectKey, routes []gatewayv1.HTTPRoute) *[]rule {
	var all []rule
	for i := range routes {
		route := &routes[i]
		if !slices.ContainsFunc(route.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool { return parentKey(route, ref) == gateway }) {
			continue
		}
		for _, r := range route.Spec.Rules {
			if len(r.BackendRefs) == 0 || r.BackendRefs[0].Port == nil {
				continue
			}
			ref := r.BackendRefs[0].BackendObjectReference
			backend := rule{host: fmt.Sprintf("%s.%s.svc.cluster.local:%d", ref.Name, route.Namespace, *ref.Port)}
			if ref.Namespace != nil {
				backend.host = fmt.Sprintf("%s.%s.svc.cluster.local:%d", ref.Name, *ref.Namespace, *ref.Port)
			}
			for _, match := range r.Matches {
				backend.path = *match.Path.Value
				backend.exact = *match.Path.Type == gatewayv1.PathMatchExact
				all = append(all, backend)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b rule) int {
		if a.exact != b.exact {
			if a.exact {
				return -1
			}
			return 1
		}
		return cmp.Compare(len(b.path), len(a.path))
	})
	return &all
}
