package provision

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

// maxAddresses is the maximum length of status.addresses that the API server allows.
const maxAddresses = 16

// observed is the state of the objects of one Gateway.
type observed struct {
	services  []*corev1.Service // in the order of spec.addresses
	workloads []workload
	pods      []*corev1.Pod // those that have not ended, by name
	class     string        // "" if not known
	problem   problem       // why something cannot be applied
}

// observe collects the objects of a Gateway. Objects of another class than class are about to be removed and do not count; class ""
// means that it is not known.
func observe(objects map[objectName]Object, class string, why problem) observed {
	o := observed{class: class, problem: why}
	for _, object := range objects {
		if class != "" && object.GetLabels()[gwv1.GatewayClassNameLabelKey] != labelValue(class) {
			continue
		}
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		switch object := object.(type) {
		case *corev1.Service:
			o.services = append(o.services, object)
		case *appsv1.Deployment, *appsv1.DaemonSet:
			w, _ := workloadOf(object)
			o.workloads = append(o.workloads, w)
		case *corev1.Pod:
			if object.Status.Phase != corev1.PodSucceeded && object.Status.Phase != corev1.PodFailed {
				o.pods = append(o.pods, object)
			}
		}
	}
	slices.SortFunc(o.services, func(a, b *corev1.Service) int {
		return cmp.Or(requestOf(a).position-requestOf(b).position, strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(o.workloads, func(a, b workload) int { return strings.Compare(a.name.String(), b.name.String()) })
	slices.SortFunc(o.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return o
}

// infrastructure returns the Infrastructure, and the names of the pods that are ready.
func (o observed) infrastructure() (*translate.Infrastructure, []string) {
	if len(o.services)+len(o.workloads)+len(o.pods) == 0 && o.problem.failed == "" {
		return nil, nil
	}
	var ready []string
	for _, pod := range o.pods {
		if podReady(pod) {
			ready = append(ready, pod.Name)
		}
	}
	i := &translate.Infrastructure{Addresses: o.addresses(), Class: o.class, Ports: o.ports(), Ready: len(ready) > 0, Lagging: o.lagging(), Unassigned: o.problem.unassigned}
	switch {
	case o.problem.failed != "":
		i.Waiting = o.problem.failed
	case !i.Ready:
		i.Waiting = o.whyNotReady()
	default:
		i.Waiting = o.whyNoAddress()
	}
	return i, ready
}

// infrastructureOf is what to report of the objects of a Gateway. As long as those of its class do not serve, or have no address, and those of a former one do, the
// addresses are theirs: clients use them, and whatever creates DNS records for the addresses of Gateways must not remove these meanwhile.
func infrastructureOf(objects map[objectName]Object, class string, why problem) (*translate.Infrastructure, []string) {
	o := observe(objects, class, why)
	i, ready := o.infrastructure()
	if class == "" || i != nil && i.Ready && i.Waiting == "" && len(i.Addresses) > 0 {
		return i, ready
	}
	former := maps.Clone(objects)
	maps.DeleteFunc(former, func(_ objectName, object Object) bool { return classOf(object) == labelValue(class) })
	serving, _ := observe(former, "", problem{}).infrastructure()
	if serving == nil || !serving.Ready || len(serving.Addresses) == 0 {
		return i, ready
	}
	if i == nil {
		i = &translate.Infrastructure{Class: class, Waiting: o.whyNotReady()}
	}
	i.Addresses, i.Waiting = serving.Addresses, cmp.Or(i.Waiting, "the former class of the Gateway still has the addresses")
	return i, ready
}

// lagging is what the Gateway is served without.
func (o observed) lagging() string {
	all := []string{o.problem.minor, o.problem.unassigned, o.whyNoRoom()}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), ". ")
}

// whyNoRoom reports that a Deployment has more proxies than there are nodes for; see Provisioner.allowUnplaced.
func (o observed) whyNoRoom() string {
	for _, w := range o.workloads {
		if w.name.kind != kindDeployment || !w.template.Spec.HostNetwork || w.ready == 0 || len(o.workloads) > 1 {
			continue
		}
		for _, pod := range o.pods {
			if unschedulable(pod) != nil {
				return fmt.Sprintf("Deployment %s/%s has more replicas than there are nodes for them, since with hostNetwork a node has room for one proxy; "+
					"lower replicas, or set daemonSet in GatewayParameters", w.object.GetNamespace(), w.name.name)
			}
		}
	}
	return ""
}

func podReady(pod *corev1.Pod) bool {
	return podCondition(pod, corev1.PodReady) == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// addresses returns the addresses of the Services, or of the nodes if the proxies use their network. A requested address that is not
// assigned is not replaced by another.
func (o observed) addresses() []gwv1.GatewayStatusAddress {
	var all []gwv1.GatewayStatusAddress
	add := func(kind gwv1.AddressType, value string, routability gwv1.GatewayAddressRoutabilityType) {
		a := gwv1.GatewayStatusAddress{Type: &kind, Value: value, Routability: &routability}
		if value != "" && value != corev1.ClusterIPNone && len(all) < maxAddresses &&
			!slices.ContainsFunc(all, func(b gwv1.GatewayStatusAddress) bool { return *b.Type == kind && b.Value == value }) {
			all = append(all, a)
		}
	}
	onNodes := o.onNodes()
	for _, svc := range o.services {
		r := requestOf(svc)
		if onNodes && !r.cluster {
			continue
		}
		routability := gwv1.GatewayAddressRoutabilityDefault
		if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
			routability = gwv1.GatewayAddressRoutabilityCluster
		}
		for _, a := range serviceAddresses(svc) {
			if (r.kind == "" || r.kind == string(*a.Type)) && (r.value == "" || r.value == a.Value) {
				add(*a.Type, a.Value, routability)
			}
		}
	}
	if onNodes {
		for _, ip := range o.nodes() {
			add(gwv1.IPAddressType, ip, gwv1.GatewayAddressRoutabilityDefault)
		}
	}
	return all
}

// serviceAddresses returns the addresses at which a Service's ports are reached: those of a load balancer, or else those in the
// cluster. Addresses of nodes do not count: they have the ports under other numbers.
func serviceAddresses(svc *corev1.Service) []gwv1.GatewayStatusAddress {
	var all []gwv1.GatewayStatusAddress
	ip, hostname := gwv1.IPAddressType, gwv1.HostnameAddressType
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		for _, value := range svc.Spec.ClusterIPs {
			all = append(all, gwv1.GatewayStatusAddress{Type: &ip, Value: value})
		}
		return all
	}
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			all = append(all, gwv1.GatewayStatusAddress{Type: &ip, Value: ingress.IP})
		}
		if ingress.Hostname != "" {
			all = append(all, gwv1.GatewayStatusAddress{Type: &hostname, Value: ingress.Hostname})
		}
	}
	return all
}

// onNodes reports whether the proxies are reached at their nodes: they use the network of the nodes, and no load balancer was
// requested. If no workload is known, for example because DaemonSets may not be listed, the pods decide.
func (o observed) onNodes() bool {
	host := slices.ContainsFunc(o.workloads, func(w workload) bool { return w.template.Spec.HostNetwork }) ||
		len(o.workloads) == 0 && slices.ContainsFunc(o.pods, func(pod *corev1.Pod) bool { return pod.Spec.HostNetwork })
	return host &&
		!slices.ContainsFunc(o.services, func(svc *corev1.Service) bool { return svc.Spec.Type != corev1.ServiceTypeClusterIP })
}

// ports returns the ports that every Service has; nil if no Service is needed, or if there is none yet.
func (o observed) ports() (all []translate.ProxyPort) {
	if len(o.services) == 0 || o.onNodes() {
		return nil
	}
	all = []translate.ProxyPort{}
	for _, p := range o.services[0].Spec.Ports {
		everywhere := !slices.ContainsFunc(o.services, func(svc *corev1.Service) bool {
			return !slices.ContainsFunc(svc.Spec.Ports, func(q corev1.ServicePort) bool { return q.Port == p.Port && q.Protocol == p.Protocol })
		})
		if everywhere {
			all = append(all, translate.ProxyPort{Port: p.Port, UDP: p.Protocol == corev1.ProtocolUDP})
		}
	}
	return all
}

// nodes returns the addresses of nodes with a ready proxy, sorted.
func (o observed) nodes() []string {
	var all []string
	for _, pod := range o.pods {
		if !podReady(pod) || !pod.Spec.HostNetwork {
			continue
		}
		if len(pod.Status.HostIPs) == 0 && pod.Status.HostIP != "" {
			all = append(all, pod.Status.HostIP)
		}
		for _, ip := range pod.Status.HostIPs {
			all = append(all, ip.IP)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// whyNoAddress reports load balancers without any address. Translation reports those that did not get the requested address.
func (o observed) whyNoAddress() string {
	for _, svc := range o.services {
		if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && requestOf(svc).value == "" && len(svc.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Sprintf("no load balancer has assigned an address to Service %s/%s; look at its events, "+
				"install a load balancer, or set service.type in GatewayParameters", svc.Namespace, svc.Name)
		}
	}
	return ""
}

// whyNotReady returns why no proxy serves. The text does not depend on how often something was tried, because it becomes a
// condition's message.
func (o observed) whyNotReady() string {
	for _, w := range o.workloads {
		switch d := w.object.(type) {
		case *appsv1.Deployment:
			if w.wanted > 0 {
				continue
			}
			return fmt.Sprintf("Deployment %s/%s has no replicas; set replicas in GatewayParameters to 1 or more", d.Namespace, d.Name)
		case *appsv1.DaemonSet:
			if w.wanted != 0 {
				continue
			}
			return fmt.Sprintf("DaemonSet %s/%s runs on no node; relax nodeSelector, affinity or tolerations in the GatewayParameters of the GatewayClass", d.Namespace, d.Name)
		}
	}
	for _, pod := range o.pods {
		if why := whyPodNotReady(pod); why != "" {
			return why
		}
	}
	for _, w := range o.workloads {
		d, ok := w.object.(*appsv1.Deployment)
		if !ok {
			continue // a DaemonSet does not report it; its events do
		}
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				return fmt.Sprintf("Deployment %s/%s cannot create pods: %s; look at quotas and admission policies of the namespace", d.Namespace, d.Name, c.Message)
			}
		}
	}
	switch {
	case len(o.pods) > 0:
		return "no proxy is ready yet; if this stays, look at the pods of the Gateway"
	case len(o.workloads) > 0:
		w := o.workloads[0]
		return fmt.Sprintf("no proxy is ready yet, and there is no pod; if this stays, look at the events of %s %s/%s", w.name.kind, w.object.GetNamespace(), w.name.name)
	}
	return "no proxy is ready yet, and nothing runs any; if this stays, see the log of the controller"
}

// unschedulable returns the condition that no node has room for a pod; nil if there is none.
func unschedulable(pod *corev1.Pod) *corev1.PodCondition {
	for i, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// whyPodNotReady returns "" if the pod may only need more time.
func whyPodNotReady(pod *corev1.Pod) string {
	name := pod.Namespace + "/" + pod.Name
	if c := unschedulable(pod); c != nil {
		return fmt.Sprintf("pod %s cannot be scheduled: %s; add nodes, or relax the parameters of the GatewayClass", name, c.Message)
	}
	for _, c := range pod.Status.ContainerStatuses {
		if waiting := c.State.Waiting; waiting != nil {
			switch waiting.Reason {
			case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
				return fmt.Sprintf("pod %s cannot get image %q; look at its events, and check the image's name and imagePullSecrets", name, c.Image)
			case "CrashLoopBackOff", "PodInitializing", "ContainerCreating":
			default:
				return fmt.Sprintf("pod %s cannot start: %s: %s; look at its events", name, waiting.Reason, waiting.Message)
			}
		}
		last := c.LastTerminationState.Terminated
		if c.State.Terminated != nil {
			last = c.State.Terminated
		}
		if last != nil {
			return fmt.Sprintf("pod %s ended with exit code %d (%s) and is started again; look at its log: kubectl logs --previous -n %s %s",
				name, last.ExitCode, cmp.Or(last.Reason, "no reason"), pod.Namespace, pod.Name)
		}
	}
	return ""
}
