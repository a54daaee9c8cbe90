package kind

import (
	"cmp"
	"slices"
	"sync"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moongate-dev/moongate/internal/intern"
)

// keepNamespace keeps the metadata of a Namespace.
func keepNamespace(obj runtime.Object) metav1.Object {
	o := obj.(*metav1.PartialObjectMetadata)
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, Labels: o.Labels}}
}

// keepService keeps the type, the address families, the affinity and the ports of a Service.
func keepService(obj runtime.Object) metav1.Object {
	o := obj.(*corev1.Service)
	kept := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Spec:       corev1.ServiceSpec{Type: o.Spec.Type, ClusterIP: o.Spec.ClusterIP, SessionAffinity: o.Spec.SessionAffinity},
	}
	kept.Spec.IPFamilies = families.shared(o.Spec.IPFamilies)
	var ports []corev1.ServicePort
	for _, p := range o.Spec.Ports {
		ports = append(ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	kept.Spec.Ports = servicePorts.shared(ports)
	return kept
}

// keepEndpointSlice keeps the ports of an EndpointSlice, and the addresses, conditions and pods of its endpoints. There are as many
// as Services, and they change most often.
func keepEndpointSlice(obj runtime.Object) metav1.Object {
	o := obj.(*discoveryv1.EndpointSlice)
	kept := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		AddressType: o.AddressType,
	}
	if service, ok := o.Labels[discoveryv1.LabelServiceName]; ok {
		kept.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	}
	for _, label := range [...]string{v1alpha1.LabelXBackend, v1alpha1.LabelXBackendUID} {
		if value, ok := o.Labels[label]; ok {
			if kept.Labels == nil {
				kept.Labels = map[string]string{}
			}
			kept.Labels[label] = value
		}
	}
	if len(o.Endpoints) > 0 {
		kept.Endpoints = make([]discoveryv1.Endpoint, len(o.Endpoints))
	}
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		kept.Endpoints[i] = discoveryv1.Endpoint{Addresses: slices.Clone(e.Addresses), Conditions: discoveryv1.EndpointConditions{
			Ready: shared(e.Conditions.Ready), Serving: shared(e.Conditions.Serving), Terminating: shared(e.Conditions.Terminating),
		}, Zone: sharedZone(e.Zone)}
		if e.TargetRef != nil && e.TargetRef.UID != "" {
			kept.Endpoints[i].TargetRef = &corev1.ObjectReference{UID: e.TargetRef.UID}
		}
	}
	var ports []discoveryv1.EndpointPort
	for _, p := range o.Ports {
		ports = append(ports, discoveryv1.EndpointPort{Name: p.Name, Protocol: sharedProtocol(p.Protocol), Port: p.Port})
	}
	kept.Ports = slicePorts.shared(ports)
	return kept
}

// Most Services and EndpointSlices have the same ports and address families as thousands of others.
var (
	servicePorts lists[corev1.ServicePort]
	slicePorts   lists[discoveryv1.EndpointPort]
	families     lists[corev1.IPFamily]
)

// lists contains lists that are shared by objects and must not be modified.
type lists[E any] struct {
	mu     sync.Mutex
	values intern.Values[[]E]
}

// shared returns a list that is equal to list and has no unused capacity.
func (l *lists[E]) shared(list []E) []E {
	if len(list) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.values.Of(append(make([]E, 0, len(list)), list...))
}

// zones contains the names of zones that are shared: there are few, and as many uses as endpoints. The API server accepts any text as
// a zone, and what is here is never removed, so only as many names are shared as a cluster may have zones.
var zones = struct {
	sync.RWMutex
	byName map[string]*string
}{byName: map[string]*string{}}

const (
	maxZones = 256
	// maxZone is the maximum length of the label of nodes that zones come from.
	maxZone = validation.LabelValueMaxLength
)

func sharedZone(zone *string) *string {
	if zone == nil || len(*zone) > maxZone {
		return zone
	}
	zones.RLock()
	kept, room := zones.byName[*zone], len(zones.byName) < maxZones
	zones.RUnlock()
	if kept != nil || !room {
		return cmp.Or(kept, zone)
	}
	zones.Lock()
	defer zones.Unlock()
	if kept = zones.byName[*zone]; kept == nil && len(zones.byName) < maxZones {
		zones.byName[*zone], kept = zone, zone
	}
	return cmp.Or(kept, zone)
}

// There are millions of conditions with few values: all point to the same ones, which must not be modified.
var (
	yes, no  = true, false
	tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
)

func shared(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &yes
	}
	return &no
}

func sharedProtocol(p *corev1.Protocol) *corev1.Protocol {
	switch {
	case p == nil:
		return nil
	case *p == tcp:
		return &tcp
	case *p == udp:
		return &udp
	}
	return p
}

// keepSecret keeps the data of a Secret.
func keepSecret(obj runtime.Object) metav1.Object {
	o := obj.(*corev1.Secret)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, Labels: o.Labels},
		Type:       o.Type, Data: o.Data, Immutable: o.Immutable,
	}
}

func clearNamespace(o *corev1.Namespace) { o.Status = corev1.NamespaceStatus{} }

func clearService(o *corev1.Service) { o.Status = corev1.ServiceStatus{} }
