package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// route is one of the Gateway's, with one host name.
func route(namespace, name string, rules ...gwv1.HTTPRouteRule) *gwv1.HTTPRoute {
	space := gwv1.Namespace(home)
	return &gwv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: gwv1.HTTPRouteSpec{
			CommonRouteSpec: gwv1.CommonRouteSpec{ParentRefs: []gwv1.ParentReference{{Namespace: &space, Name: home}}},
			Hostnames:       []gwv1.Hostname{gwv1.Hostname(host(namespace, name))},
			Rules:           rules,
		},
	}
}

func host(namespace, name string) string { return name + "." + namespace + ".example.com" }

// rule leads from a prefix of the path to a Service of the route's namespace.
func rule(prefix, service string, port int32, filters ...gwv1.HTTPRouteFilter) gwv1.HTTPRouteRule {
	kind := gwv1.PathMatchPathPrefix
	return gwv1.HTTPRouteRule{
		Matches: []gwv1.HTTPRouteMatch{{Path: &gwv1.HTTPPathMatch{Type: &kind, Value: &prefix}}},
		Filters: filters,
		BackendRefs: []gwv1.HTTPBackendRef{{BackendRef: gwv1.BackendRef{
			BackendObjectReference: gwv1.BackendObjectReference{Name: gwv1.ObjectName(service), Port: &port}}}},
	}
}

func addHeader(kind gwv1.HTTPRouteFilterType) gwv1.HTTPRouteFilter {
	add := &gwv1.HTTPHeaderFilter{Add: []gwv1.HTTPHeader{{Name: "added", Value: "yes"}}}
	if kind == gwv1.HTTPRouteFilterRequestHeaderModifier {
		return gwv1.HTTPRouteFilter{Type: kind, RequestHeaderModifier: add}
	}
	return gwv1.HTTPRouteFilter{Type: kind, ResponseHeaderModifier: add}
}

// service has no selector: its endpoints are written by the tests. It has no address either, so
// that the service proxy of the node, which would work on thousands of them, leaves the CPUs to
// what is measured.
func service(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}}},
	}
}

// slice says that the Service has one ready endpoint, at an address where nobody is.
func slice(namespace, service, address string) *discoveryv1.EndpointSlice {
	ready, tcp := true, corev1.ProtocolTCP
	port := func(name string, number int32) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &tcp}
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{port("http", 80), port("https", 443)},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
}

// fakeAddress is the n-th of 198.18.0.0/15, which is kept for benchmarks.
func fakeAddress(n int) string {
	n %= 1 << 17
	return fmt.Sprintf("198.%d.%d.%d", 18+n>>16, n>>8&255, n&255)
}
