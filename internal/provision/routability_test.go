package provision

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestRoutability checks that the address of a Service within the cluster is told apart from those of load balancers and nodes.
func TestRoutability(t *testing.T) {
	const lb, inside = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP
	host := aPod("pod-1", true, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	for _, c := range []struct {
		what    string
		objects []Object
		want    []string
	}{
		{"a load balancer and an address within the cluster", []Object{aService("a", "0/IPAddress/", lb, "192.0.2.7"), aService("b", "1/IPAddress//Cluster", inside, "10.96.0.9")},
			[]string{"192.0.2.7 ", "10.96.0.9 Cluster"}},
		{"type ClusterIP by the parameters", []Object{aService("a", "0//", inside, "10.96.0.9")}, []string{"10.96.0.9 Cluster"}},
		{"in the network of nodes", []Object{aDeployment(onHosts), host, aService("a", "0/IPAddress/", inside, "10.96.0.8"), aService("b", "1/IPAddress//Cluster", inside, "10.96.0.9")},
			[]string{"10.96.0.9 Cluster", "192.0.2.1 "}},
	} {
		objects := map[objectName]Object{}
		for i, object := range c.objects {
			objects[objectName{fmt.Sprintf("%T", object), fmt.Sprint(object.GetName(), i)}] = object
		}
		i, _ := observe(objects, "moongate", problem{}).infrastructure()
		var got []string
		for _, a := range i.Addresses {
			got = append(got, a.Value+" "+string(*a.Routability))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestPlaceOfRoutability checks that the Service of a load balancer is not edited into one within the cluster, nor the other way round, and that each keeps
// its entry when the order changes.
func TestPlaceOfRoutability(t *testing.T) {
	const lb, inside = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP
	balanced, within := aService("web-moongate", "0/IPAddress/", lb, "192.0.2.7"), aService("web-moongate-2", "1/IPAddress//Cluster", inside, "10.96.0.9")
	cluster := gwv1.GatewaySpecAddress{Routability: gwv1.GatewayAddressRoutabilityCluster}
	for _, c := range []struct {
		what      string
		addresses []gwv1.GatewaySpecAddress
		running   []*corev1.Service
		want      []string
	}{
		{"the order changes", []gwv1.GatewaySpecAddress{cluster, {}}, []*corev1.Service{balanced, within}, []string{"web-moongate-2", "web-moongate"}},
		{"from a load balancer to the cluster", []gwv1.GatewaySpecAddress{cluster}, []*corev1.Service{balanced}, []string{"web-moongate-2"}},
		{"from the cluster to a load balancer", []gwv1.GatewaySpecAddress{{}}, []*corev1.Service{within}, []string{"web-moongate"}},
		{"the address of the load balancer within the cluster", []gwv1.GatewaySpecAddress{{Value: "192.0.2.7", Routability: cluster.Routability}}, []*corev1.Service{balanced}, []string{"web-moongate-2"}},
	} {
		spec := &translate.ProxySpec{Name: "web", Class: "moongate", Addresses: c.addresses}
		if got := placeServices(spec, requests(spec), c.running); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestRefusedAddressIsUnassigned has the API server refuse the Service of an address within the cluster: that is why the address is not assigned, and
// what the Gateway is served without.
func TestRefusedAddressIsUnassigned(t *testing.T) {
	s := newServer(t)
	s.fail = func(verb, object string) *metav1.Status {
		if verb != "get" && object == "services/shop/web-moongate-2" {
			return apiserver.Failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "not in the valid range")
		}
		return nil
	}
	r := startReplica(t, s)
	change := specOf(web, func(p *translate.ProxySpec) {
		p.Addresses = append(addressesOf(""), addressesOf("10.1.2.3")...)
		p.Addresses[1].Routability = gwv1.GatewayAddressRoutabilityCluster
	})
	if err := r.settle(t, s, change); err == nil {
		t.Error("no error")
	}
	const want = "Service shop/web-moongate-2 is refused: not in the valid range"
	testkit.Eventually(t, want, func() bool {
		i := r.last("shop/web").infrastructure
		return i != nil && strings.HasPrefix(i.Unassigned, want) && i.Lagging == i.Unassigned && !strings.Contains(i.Waiting, want)
	})
}
