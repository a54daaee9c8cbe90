package provision

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "shop", Annotations: map[string]string{}, Labels: map[string]string{gwv1.GatewayClassNameLabelKey: "moongate"}}
}

func aPod(name string, ready bool, edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: named(name)}
	state := corev1.ConditionFalse
	if ready {
		state = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: state}}
	p.Status.HostIPs = []corev1.HostIP{{IP: "192.0.2." + name[len(name)-1:]}}
	if edit != nil {
		edit(p)
	}
	return p
}

func waitsWith(status corev1.ContainerStatus) *corev1.Pod {
	return aPod("pod-1", false, func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{status} })
}

func aService(name, asked string, kind corev1.ServiceType, addresses ...string) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: named(name), Spec: corev1.ServiceSpec{Type: kind}}
	svc.Annotations[annotationAddress] = asked
	if kind != corev1.ServiceTypeLoadBalancer {
		svc.Spec.ClusterIPs = addresses
		return svc
	}
	for _, a := range addresses {
		if strings.Contains(a, "example") {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{Hostname: a})
		} else {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
	}
	return svc
}

func onHosts(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true }

func aDeployment(edit func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: named("web-moongate")}
	if edit != nil {
		edit(d)
	}
	return d
}

func aDaemonSet(edit func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: named("web-moongate")}
	if edit != nil {
		edit(d)
	}
	return d
}

// TestInfrastructure tells what is said of what runs: addresses, whether a proxy serves, and what is waited for.
func TestInfrastructure(t *testing.T) {
	const lb, inside, node = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort
	host := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	otherClass := func(p *corev1.Pod) { p.Labels[gwv1.GatewayClassNameLabelKey] = "other" }
	ready := aPod("pod-1", true, nil)
	crashed := &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}
	for _, c := range []struct {
		what    string
		objects []Object
		want    string // addresses, ready pods, beginning of what is waited for
	}{
		{"nothing", nil, "nothing"},
		{"an address and a proxy", []Object{aService("a", "0//", lb, "10.0.0.1"), ready}, "[IPAddress 10.0.0.1] [pod-1] "},
		{"a hostname", []Object{aService("a", "0//", lb, "lb.example"), ready}, "[Hostname lb.example] [pod-1] "},
		{"both are given and one type is wanted", []Object{aService("a", "0/IPAddress/", lb, "lb.example", "10.0.0.1"), ready}, "[IPAddress 10.0.0.1] [pod-1] "},
		{"in the order of the specification", []Object{aService("a", "1/IPAddress/10.0.0.1", lb, "10.0.0.1"), aService("b", "0/IPAddress/10.0.0.2", lb, "10.0.0.2"), ready},
			"[IPAddress 10.0.0.2 IPAddress 10.0.0.1] [pod-1] "},
		{"not the address that was wanted", []Object{aService("a", "0/IPAddress/10.0.0.1", lb, "10.0.0.9"), ready}, "[] [pod-1] "},
		{"the wanted one is not there yet", []Object{aService("a", "0/IPAddress/10.0.0.1", lb), ready}, "[] [pod-1] "},
		{"no address", []Object{aService("a", "0//", lb), ready}, "[] [pod-1] no load balancer has assigned an address to Service shop/a;"},
		{"in the cluster", []Object{aService("a", "0//", inside, "10.96.0.7", "fd00::7"), ready}, "[IPAddress 10.96.0.7 IPAddress fd00::7] [pod-1] "},
		{"headless by a patch of somebody", []Object{aService("a", "0//", inside, "None"), ready}, "[] [pod-1] "},
		{"nodes' ports are other ones", []Object{aService("a", "0//", node, "10.96.0.7"), ready}, "[IPAddress 10.96.0.7] [pod-1] "},
		{"in the network of nodes", []Object{aDeployment(onHosts), aService("a", "0//", inside, "10.96.0.7"), aPod("pod-2", true, host), aPod("pod-1", true, host), aPod("pod-3", false, host)},
			"[IPAddress 192.0.2.1 IPAddress 192.0.2.2] [pod-1 pod-2] "},
		{"in the network of nodes, balanced", []Object{aDeployment(onHosts), aService("a", "0//", lb, "10.0.0.1"), aPod("pod-1", true, host)}, "[IPAddress 10.0.0.1] [pod-1] "},
		{"an update under way", []Object{aService("a", "0//", lb, "10.0.0.1"), ready, waitsWith(corev1.ContainerStatus{LastTerminationState: corev1.ContainerState{Terminated: crashed}}), aPod("pod-0", false, ending)},
			"[IPAddress 10.0.0.1] [pod-1] "},
		{"the last one is ending", []Object{aService("a", "0//", lb, "10.0.0.1"), aPod("pod-1", true, ending)}, "[IPAddress 10.0.0.1] [] no proxy is ready yet"},
		{"of another class", []Object{aService("a", "0//", lb, "10.0.0.1"), aPod("pod-1", true, otherClass)}, "[IPAddress 10.0.0.1] [] no proxy is ready yet"},
		{"no image", []Object{waitsWith(corev1.ContainerStatus{Image: "a/b", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "try 7"}}})},
			"[] [] pod shop/pod-1 cannot get image \"a/b\"; look at"},
		{"it ends again and again", []Object{waitsWith(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "40s"}},
			LastTerminationState: corev1.ContainerState{Terminated: crashed}})}, "[] [] pod shop/pod-1 ended with exit code 3 (Error) and is started again;"},
		{"it just ended", []Object{waitsWith(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: crashed}})}, "[] [] pod shop/pod-1 ended with exit code 3 (Error) and is started again;"},
		{"it is starting", []Object{waitsWith(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}})}, "[] [] no proxy is ready yet;"},
		{"a container that is refused", []Object{waitsWith(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: "no secret"}}})},
			"[] [] pod shop/pod-1 cannot start: CreateContainerConfigError: no secret;"},
		{"no room", []Object{aPod("pod-1", false, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes"})
		})}, "[] [] pod shop/pod-1 cannot be scheduled: 0/3 nodes;"},
		{"no pod", []Object{aDeployment(func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}}
		})}, "[] [] Deployment shop/web-moongate cannot create pods: exceeded quota;"},
		{"one on each node, in its network", []Object{aDaemonSet(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.HostNetwork = true }), aService("a", "0//", inside, "10.96.0.7"), aPod("pod-1", true, host)},
			"[IPAddress 192.0.2.1] [pod-1] "},
		{"no node", []Object{aDaemonSet(func(d *appsv1.DaemonSet) { d.Generation, d.Status.ObservedGeneration = 1, 1 })}, "[] [] DaemonSet shop/web-moongate runs on no node; relax nodeSelector"},
		{"a node, as far as is known", []Object{aDaemonSet(func(d *appsv1.DaemonSet) { d.Generation = 1 })},
			"[] [] no proxy is ready yet, and there is no pod; if this stays, look at the events of DaemonSet shop/web-moongate"},
		{"nodes", []Object{aDaemonSet(func(d *appsv1.DaemonSet) { d.Status.DesiredNumberScheduled = 2 })},
			"[] [] no proxy is ready yet, and there is no pod; if this stays, look at the events of DaemonSet shop/web-moongate"},
		{"nodes and a pod", []Object{aDaemonSet(func(d *appsv1.DaemonSet) { d.Status.DesiredNumberScheduled = 2 }), aPod("pod-1", false, nil)}, "[] [] no proxy is ready yet; if this stays, look at the pods"},
		{"a Service alone", []Object{aService("a", "0//", lb, "10.0.0.1")}, "[IPAddress 10.0.0.1] [] no proxy is ready yet, and nothing runs any; if this stays, see the log of the controller"},
		{"in the network of nodes, by what is not listed", []Object{aService("a", "0//", inside, "10.96.0.7"), aPod("pod-1", true, host)}, "[IPAddress 192.0.2.1] [pod-1] "},
		{"not in the network of nodes any more", []Object{aDeployment(nil), aService("a", "0//", inside, "10.96.0.7"), aPod("pod-1", true, host)}, "[IPAddress 10.96.0.7] [pod-1] "},
		{"no replicas", []Object{aDeployment(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32) })}, "[] [] Deployment shop/web-moongate has no replicas; set replicas"},
	} {
		objects := map[objectName]Object{}
		for i, object := range c.objects {
			objects[objectName{fmt.Sprintf("%T", object), fmt.Sprint(object.GetName(), i)}] = object
		}
		i, pods := observe(objects, "moongate", problem{}).infrastructure()
		got := "nothing"
		if i != nil {
			var addresses []string
			for _, a := range i.Addresses {
				addresses = append(addresses, string(*a.Type)+" "+a.Value)
			}
			got = fmt.Sprint(addresses, " ", pods, " ", i.Waiting)
			if i.Ready != (len(pods) > 0) {
				t.Errorf("%s: ready is %v with pods %q", c.what, i.Ready, pods)
			}
		}
		if got != c.want && (!strings.HasPrefix(got, c.want) || strings.HasSuffix(c.want, "] ")) {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	noRoom := aPod("pod-2", false, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes"})
	})
	for _, on := range []bool{true, false} {
		d := aDeployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork, d.Status.ReadyReplicas = on, 1 })
		i, _ := observe(map[objectName]Object{{kindDeployment, "web"}: d, {kindPod, "pod-1"}: ready, {kindPod, "pod-2"}: noRoom}, "moongate", problem{minor: "no budget"}).infrastructure()
		const want = "no budget. Deployment shop/web-moongate has more replicas than there are nodes for them"
		if i.Waiting != "" || strings.HasPrefix(i.Lagging, want) != on || !strings.HasPrefix(i.Lagging, "no budget") {
			t.Errorf("with hostNetwork %v, and a proxy that no node has room for: %+v", on, i)
		}
	}
	if i, _ := observe(nil, "", problem{failed: "quota"}).infrastructure(); i == nil || i.Waiting != "quota" {
		t.Errorf("a problem before anything runs: %+v", i)
	}
}

// TestPorts tells which ports clients can reach: those that each Service has.
func TestPorts(t *testing.T) {
	const lb = corev1.ServiceTypeLoadBalancer
	with := func(svc *corev1.Service, ports ...corev1.ServicePort) *corev1.Service {
		svc.Spec.Ports = ports
		return svc
	}
	http, https, quic := corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP}, corev1.ServicePort{Port: 443, Protocol: corev1.ProtocolTCP},
		corev1.ServicePort{Port: 443, Protocol: corev1.ProtocolUDP}
	for _, c := range []struct {
		what    string
		objects []Object
		want    []translate.ProxyPort
	}{
		{"no Service yet", []Object{aDeployment(nil)}, nil},
		{"one", []Object{with(aService("a", "0//", lb), http, quic)}, []translate.ProxyPort{{Port: 80}, {Port: 443, UDP: true}}},
		{"another one that is behind", []Object{with(aService("a", "0//", lb), http, https), with(aService("b", "1//", lb), https, quic)}, []translate.ProxyPort{{Port: 443}}},
		{"another one that has none of them", []Object{with(aService("a", "0//", lb), http), with(aService("b", "1//", lb), quic)}, []translate.ProxyPort{}},
		{"in the network of nodes", []Object{aDeployment(onHosts), with(aService("a", "0//", corev1.ServiceTypeClusterIP), http)}, nil},
	} {
		objects := map[objectName]Object{}
		for i, object := range c.objects {
			objects[objectName{fmt.Sprintf("%T", object), fmt.Sprint(object.GetName(), i)}] = object
		}
		i, _ := observe(objects, "moongate", problem{}).infrastructure()
		if !reflect.DeepEqual(i.Ports, c.want) || i.Class != "moongate" {
			t.Errorf("%s: ports %v of class %q, want %v", c.what, i.Ports, i.Class, c.want)
		}
	}
}

// TestAddressesOfAFormerClass: a Gateway has the addresses of the class that it had before as long as that one's proxies serve and those of its class do not, or have no address.
func TestAddressesOfAFormerClass(t *testing.T) {
	const lb = corev1.ServiceTypeLoadBalancer
	of := func(class string, object Object) Object {
		object.SetLabels(map[string]string{gwv1.GatewayClassNameLabelKey: class})
		return object
	}
	former := []Object{of("former", aService("a", "0//", lb, "10.0.0.1")), of("former", aPod("pod-1", true, nil))}
	host := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	for _, c := range []struct {
		what    string
		objects []Object
		want    string // addresses, whether it is ready, and whether it waits
	}{
		{"nothing of the class", nil, "[10.0.0.1] false true"},
		{"no address", []Object{aService("b", "0//", lb), aPod("pod-2", true, nil)}, "[10.0.0.1] true true"},
		{"no proxy is ready", []Object{aService("b", "0//", lb, "10.0.0.2"), aPod("pod-2", false, nil)}, "[10.0.0.1] false true"},
		{"it serves", []Object{aService("b", "0//", lb, "10.0.0.2"), aPod("pod-2", true, nil)}, "[10.0.0.2] true false"},
		{"it serves, and asks for the address that the former class has", []Object{aService("b", "0/IPAddress/10.0.0.1", lb), aPod("pod-2", true, nil)}, "[10.0.0.1] true true"},
		{"it serves, and its Service cannot be created yet", []Object{aPod("pod-2", true, nil)}, "[10.0.0.1] true true"},
		{"it serves at its nodes", []Object{aDaemonSet(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.HostNetwork = true }), aPod("pod-2", true, host)}, "[192.0.2.2] true false"},
	} {
		for _, formerServes := range []bool{true, false} {
			objects := map[objectName]Object{}
			for i, object := range append(c.objects, former...) {
				if pod, ok := object.(*corev1.Pod); ok && pod.Name == "pod-1" && !formerServes {
					continue
				}
				objects[objectName{fmt.Sprintf("%T", object), fmt.Sprint(object.GetName(), i)}] = object
			}
			i, _ := infrastructureOf(objects, "moongate", problem{})
			got := "nothing"
			if i != nil {
				values := []string{}
				for _, a := range i.Addresses {
					values = append(values, a.Value)
				}
				got = fmt.Sprint(values, " ", i.Ready, " ", i.Waiting != "")
				if i.Class != "moongate" {
					t.Errorf("%s: of class %q", c.what, i.Class)
				}
			}
			if formerServes && got != c.want || !formerServes && strings.Contains(got, "10.0.0.1") {
				t.Errorf("%s, the former class serves: %v: %s, want %s", c.what, formerServes, got, c.want)
			}
		}
	}
}
