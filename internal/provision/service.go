package provision

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate"
)

// request is the address that a Service requests.
type request struct {
	position int    // in spec.addresses
	kind     string // an address type; "" for any
	value    string // "" for any of the type
	cluster  bool   // an address within the cluster, regardless of the parameters
}

// String returns the value of annotationAddress.
func (r request) String() string {
	text := fmt.Sprintf("%d/%s/%s", r.position, r.kind, r.value)
	if r.cluster {
		text += "/" + string(gwv1.GatewayAddressRoutabilityCluster)
	}
	return text
}

// requestOf reads annotationAddress. If it is absent or invalid, nothing special is requested.
func requestOf(service *corev1.Service) request {
	position, rest, _ := strings.Cut(service.Annotations[annotationAddress], "/")
	kind, rest, _ := strings.Cut(rest, "/")
	value, routability, _ := strings.Cut(rest, "/")
	at, err := strconv.Atoi(position)
	if err != nil {
		return request{}
	}
	return request{at, kind, value, routability == string(gwv1.GatewayAddressRoutabilityCluster)}
}

// requests returns the requests of a spec's Services, one for each.
func requests(spec *translate.ProxySpec) []request {
	var all []request
	for i, a := range spec.Addresses {
		kind := gwv1.IPAddressType
		if a.Type != nil {
			kind = *a.Type
		}
		value := a.Value
		if ip, err := netip.ParseAddr(value); err == nil {
			value = ip.String() // in canonical form, for comparison
		}
		all = append(all, request{i, string(kind), value, a.Routability == gwv1.GatewayAddressRoutabilityCluster})
	}
	if len(all) == 0 {
		all = []request{{}}
	}
	return all
}

// services returns the Services of a spec; none without ports, because Kubernetes requires at least one, and none if no address may
// be requested.
func services(spec *translate.ProxySpec, s Settings) []*corev1.Service {
	if len(spec.Ports) == 0 || spec.Unaddressed {
		return nil
	}
	var all []*corev1.Service
	wanted := requests(spec)
	names := placeServices(spec, wanted, s.Services)
	for i, r := range wanted {
		all = append(all, service(spec, s, names[i], r))
	}
	if p := spec.Parameters.Service; p != nil {
		setNodePorts(all, s.Services, p.NodePorts)
	}
	return all
}

func service(spec *translate.ProxySpec, s Settings, name string, r request) *corev1.Service {
	p := spec.Parameters.Service
	if p == nil {
		p = &v1alpha1.Service{}
	}
	svc := &corev1.Service{
		TypeMeta: kind("v1", "Service"), ObjectMeta: meta(spec, s, v1alpha1.MetadataService, name),
		Spec: corev1.ServiceSpec{
			Type: serviceType(spec, r), Selector: identityLabels(spec), Ports: servicePorts(spec), IPFamilyPolicy: p.IPFamilyPolicy, IPFamilies: p.IPFamilies,
		},
	}
	if c := spec.Parameters.ClassOnly; c != nil {
		maps.Copy(svc.Labels, c.ServiceLabels)
		maps.Copy(svc.Labels, identityLabels(spec))
		maps.Copy(svc.Annotations, c.ServiceAnnotations) // parameters.Check rejects annotations of the controller
	}
	svc.Annotations[annotationAddress] = r.String()
	balanced := svc.Spec.Type == corev1.ServiceTypeLoadBalancer
	if balanced {
		svc.Spec.LoadBalancerClass, svc.Spec.LoadBalancerSourceRanges = p.LoadBalancerClass, p.LoadBalancerSourceRanges
	}
	if svc.Spec.Type != corev1.ServiceTypeClusterIP {
		svc.Spec.ExternalTrafficPolicy = p.ExternalTrafficPolicy
	}
	if r.value != "" && r.kind == string(gwv1.IPAddressType) {
		if balanced {
			svc.Spec.LoadBalancerIP = r.value
		} else {
			svc.Spec.ClusterIP = r.value
		}
	}
	return svc
}

// serviceType returns LoadBalancer unless the request or the parameters require another type. With hostNetwork, proxies are reached
// without one.
func serviceType(spec *translate.ProxySpec, r request) corev1.ServiceType {
	p := spec.Parameters
	switch {
	case r.cluster:
		return corev1.ServiceTypeClusterIP
	case p.Service != nil && p.Service.Type != "":
		return p.Service.Type
	case p.ClassOnly != nil && p.ClassOnly.HostNetwork:
		return corev1.ServiceTypeClusterIP
	}
	return corev1.ServiceTypeLoadBalancer
}

func servicePorts(spec *translate.ProxySpec) []corev1.ServicePort {
	var ports []corev1.ServicePort
	for _, p := range spec.Ports {
		port := corev1.ServicePort{Name: fmt.Sprintf("p%d", p.Port), Port: p.Port, TargetPort: intstr.FromInt32(p.Port), Protocol: corev1.ProtocolTCP}
		if p.UDP {
			port.Name, port.Protocol = port.Name+"-udp", corev1.ProtocolUDP
		}
		ports = append(ports, port)
	}
	return ports
}

// setNodePorts sets the node ports that parameters fix. A Service that has one keeps it, because the API server gives it to no other
// as long as that one exists; others go to the first Service that can have them. A port of a Service that is about to be removed, or
// to have none, is left out until then: the cluster assigns another in the meantime.
func setNodePorts(wanted, existing []*corev1.Service, fixed []v1alpha1.NodePort) {
	for _, f := range fixed {
		holder := ""
		for _, svc := range existing {
			if holdsNodePort(svc, f.NodePort) {
				holder = svc.Name
			}
		}
		for _, svc := range wanted {
			if svc.Spec.Type == corev1.ServiceTypeClusterIP || holder != "" && svc.Name != holder {
				continue
			}
			setNodePort(svc.Spec.Ports, f)
			break
		}
	}
}

func setNodePort(ports []corev1.ServicePort, f v1alpha1.NodePort) {
	for i := range ports {
		if f.Port == ports[i].Port && cmp.Or(f.Protocol, corev1.ProtocolTCP) == ports[i].Protocol {
			ports[i].NodePort = f.NodePort
		}
	}
}

// holdsNodePort reports whether a Service has a node port, of any protocol: the API server gives a number to one Service only.
func holdsNodePort(svc *corev1.Service, number int32) bool {
	return svc.Spec.HealthCheckNodePort == number || slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == number })
}

// nodePorts finds the Services that use node ports.
type nodePorts struct {
	mu       sync.Mutex
	services []corev1.Service // those with node ports
	read     time.Time
}

// portHeld is the error that a Service cannot have a node port because another one uses it.
type portHeld struct {
	svc    *corev1.Service
	port   corev1.ServicePort
	holder *corev1.Service
}

// heldBy returns which of the node ports that are fixed for a Service another one uses; nil if none is known. list returns all
// Services.
func (n *nodePorts) heldBy(svc *corev1.Service, list func() []corev1.Service) *portHeld {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.read) >= nodePortLook {
		n.services = slices.DeleteFunc(list(), func(s corev1.Service) bool {
			return s.Spec.HealthCheckNodePort == 0 && !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
		})
		n.read = time.Now()
	}
	for _, p := range svc.Spec.Ports {
		for i := range n.services {
			if other := &n.services[i]; p.NodePort != 0 && holdsNodePort(other, p.NodePort) && (other.Name != svc.Name || other.Namespace != svc.Namespace) {
				return &portHeld{svc, p, other}
			}
		}
	}
	return nil
}

// Error names the other Service if it is in the same namespace: users of one namespace must not learn what exists in others.
func (h *portHeld) Error() string {
	holder, remedy := "a Service of another namespace", "set another one in service.nodePorts"
	if h.holder.Namespace == h.svc.Namespace {
		holder, remedy = fmt.Sprintf("Service %s/%s", h.holder.Namespace, h.holder.Name), "set another one in service.nodePorts, or delete that Service"
		if gateway := h.holder.Annotations[annotationGateway]; gateway != "" && h.holder.Labels[labelManagedBy] == managedBy {
			holder += " of " + servedBy(h.holder.Namespace, gateway)
			remedy = "a node port serves one Gateway, also of those of a class: give this one GatewayParameters of its own with other service.nodePorts"
		}
	}
	return fmt.Sprintf("node port %d for port %d of Service %s/%s is taken by %s; %s", h.port.NodePort, h.port.Port, h.svc.Namespace, h.svc.Name, holder, remedy)
}

// placeServices selects the name of the Service for each request. A Service with the address that a request names is used for it, so
// that an edit of spec.addresses moves no address from one Service to another, and an automatically assigned address can be added to
// the spec and kept.
func placeServices(spec *translate.ProxySpec, wanted []request, existing []*corev1.Service) []string {
	names := make([]string, len(wanted))
	used := map[string]bool{}
	existing = slices.SortedFunc(slices.Values(existing), func(a, b *corev1.Service) int {
		return placeOf(spec, a.Name) - placeOf(spec, b.Name)
	})
	claim := func(i int, fits func(*corev1.Service) bool) {
		for _, svc := range existing {
			if names[i] == "" && !used[svc.Name] && svc.DeletionTimestamp == nil && placeOf(spec, svc.Name) < places && sameScope(spec, svc, wanted[i]) && fits(svc) {
				names[i], used[svc.Name] = svc.Name, true
			}
		}
	}
	for i, r := range wanted {
		if r.value != "" {
			claim(i, func(svc *corev1.Service) bool { return hasAddress(svc, r.value) })
		}
	}
	for i, r := range wanted { // those that have requested the same
		if r.value == "" {
			claim(i, func(svc *corev1.Service) bool { return requestOf(svc).value == "" })
		}
	}
	for i, r := range wanted {
		claim(i, func(svc *corev1.Service) bool { return canBecome(spec, svc, r) })
	}
	for i := range wanted {
		for place := 0; names[i] == ""; place++ {
			if name := serviceName(spec.Name, spec.Class, place); !used[name] && !slices.ContainsFunc(existing, func(svc *corev1.Service) bool { return svc.Name == name }) {
				names[i], used[name] = name, true
			}
		}
	}
	return names
}

// places limits the suffix of a Service's name: twice the length of spec.addresses, because a Service that is removed may still
// exist when its replacement is created.
const places = 32

// placeOf returns the place in the name of a Service; places if it has none.
func placeOf(spec *translate.ProxySpec, name string) int {
	for place := range places {
		if serviceName(spec.Name, spec.Class, place) == name {
			return place
		}
	}
	return places
}

// hasAddress reports whether a Service has an address, or requests it.
func hasAddress(svc *corev1.Service, address string) bool {
	if requestOf(svc).value == address || svc.Spec.LoadBalancerIP == address {
		return true
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return slices.Contains(svc.Spec.ClusterIPs, address)
	}
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		return i.IP == address || i.Hostname == address
	})
}

// sameScope reports whether a Service and a request are both for an address within the cluster, or both not. If one were changed to
// the other, it would remain reachable from outside until the load balancer is released.
func sameScope(spec *translate.ProxySpec, svc *corev1.Service, r request) bool {
	return requestOf(svc).cluster == r.cluster || svc.Spec.Type == serviceType(spec, r)
}

// canBecome reports whether a Service with another address can be changed to the one of a request. The address within the cluster
// cannot be changed.
func canBecome(spec *translate.ProxySpec, svc *corev1.Service, r request) bool {
	return r.value == "" || r.kind != string(gwv1.IPAddressType) || serviceType(spec, r) == corev1.ServiceTypeLoadBalancer
}

// heldByFormerClass reports whether a Service of a class that the Gateway had before has an address. No other Service can have it meanwhile.
// A Service without a controller does not count: prune never removes it.
func heldByFormerClass(spec *translate.ProxySpec, running map[objectName]Object, address string) bool {
	return slices.ContainsFunc(servicesOf(running), func(svc *corev1.Service) bool {
		return metav1.GetControllerOf(svc) != nil && classOf(svc) != labelValue(spec.Class) && hasAddress(svc, address)
	})
}

// addressed reports whether each Service of a spec has an address, but for those that ask for one that a Service of a former class has.
func addressed(spec *translate.ProxySpec, running map[objectName]Object, wanted []Object) bool {
	return !slices.ContainsFunc(wanted, func(object Object) bool {
		svc, ok := object.(*corev1.Service)
		if !ok {
			return false
		}
		value := requestOf(svc).value
		if value != "" && heldByFormerClass(spec, running, value) {
			return false
		}
		live, _ := running[nameOf(svc)].(*corev1.Service)
		switch {
		case live == nil:
			return true
		case live.Spec.Type != corev1.ServiceTypeLoadBalancer:
			return false
		}
		addresses := serviceAddresses(live)
		return len(addresses) == 0 || value != "" && !slices.ContainsFunc(addresses, func(a gwv1.GatewayStatusAddress) bool { return a.Value == value })
	})
}
