package provision

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestNames tries names of all lengths for what Kubernetes allows, and for being apart.
func TestNames(t *testing.T) {
	taken := map[string]string{}
	for _, letter := range []string{"a", "1", "a.b"} {
		for n := 1; len(strings.Repeat(letter, n)) <= validation.DNS1123SubdomainMaxLength; n++ {
			gateway := strings.Trim(strings.Repeat(letter, n), ".")
			for place := range 17 {
				name := serviceName(gateway, "moongate", place)
				if why := validation.IsDNS1035Label(name); len(why) > 0 {
					t.Fatalf("%q is no name of a Service: %s", name, why)
				}
				if other, ok := taken[name]; ok {
					t.Fatalf("%q is the name for %q and for %q", name, gateway, other)
				}
				taken[name] = gateway
			}
			if why := validation.IsValidLabelValue(labelValue(gateway)); len(why) > 0 {
				t.Fatalf("%q is no value of a label: %s", labelValue(gateway), why)
			}
		}
	}
	if got := Name("web", "moongate"); got != "web-moongate" {
		t.Errorf("a plain name became %q", got)
	}
	if Name(strings.Repeat("a", 60), "b-c") == Name(strings.Repeat("a", 60)+"-b", "c") {
		t.Error("two long names became one")
	}
}

// TestAddressesStay edits spec.addresses at random. An address that stays in it stays
// with its Service, whatever comes and goes around it.
func TestAddressesStay(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pool := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "lb.example", ""}
	for range 300 {
		spec := &translate.ProxySpec{Namespace: "shop", Name: "web", Class: "moongate", Ports: []translate.ProxyPort{{Port: 80}}}
		var running []*corev1.Service
		for range 6 {
			before := map[string]string{} // address by Service
			for _, svc := range running {
				if r := requestOf(svc); r.value != "" && svc.DeletionTimestamp == nil {
					before[r.value] = svc.Name
				}
			}
			spec.Addresses = nil
			for _, i := range random.Perm(len(pool))[:1+random.IntN(len(pool))] {
				kind := gwv1.IPAddressType
				if strings.Contains(pool[i], "example") {
					kind = gwv1.HostnameAddressType
				}
				spec.Addresses = append(spec.Addresses, gwv1.GatewaySpecAddress{Type: &kind, Value: pool[i]})
			}
			s := settings
			s.Services = running
			next := services(spec, s)
			names := map[string]bool{}
			for i, svc := range next {
				r := requestOf(svc)
				if names[svc.Name] || len(validation.IsDNS1035Label(svc.Name)) > 0 {
					t.Fatalf("a second Service %q", svc.Name)
				}
				names[svc.Name] = true
				if r.position != i || r.value != spec.Addresses[i].Value || r.kind != string(*spec.Addresses[i].Type) {
					t.Fatalf("entry %d %+v is served by %+v", i, spec.Addresses[i], r)
				}
				if had, ok := before[r.value]; ok && had != svc.Name {
					t.Fatalf("%s went from Service %s to %s", r.value, had, svc.Name)
				}
			}
			// What is pruned may still be there, or on its way out.
			for _, svc := range running {
				if random.IntN(2) == 0 && !names[svc.Name] {
					gone := svc.DeepCopy()
					gone.DeletionTimestamp = &metav1.Time{}
					next = append(next, gone)
				}
			}
			running = slices.DeleteFunc(next, func(svc *corev1.Service) bool { return svc.DeletionTimestamp != nil && random.IntN(3) == 0 })
		}
	}
}

// TestPinned writes down an address that came by chance: the Service that has it is asked for it.
func TestPinned(t *testing.T) {
	spec := specOf(web, func(p *translate.ProxySpec) { p.Addresses = addressesOf("10.0.0.5", "10.0.0.6") }).Spec
	running := aService("web-moongate", "0//", corev1.ServiceTypeLoadBalancer, "10.0.0.6")
	s := settings
	s.Services = []*corev1.Service{running}
	got := services(spec, s)
	if len(got) != 2 || got[1].Name != "web-moongate" || got[1].Spec.LoadBalancerIP != "10.0.0.6" || got[0].Name != "web-moongate-2" {
		t.Errorf("Services %v", got)
	}
	// Within the cluster an address cannot be changed, so another one is another Service.
	spec.Parameters.Service = &v1alpha1.Service{Type: corev1.ServiceTypeClusterIP}
	spec.Addresses = addressesOf("10.96.0.5")
	s.Services = []*corev1.Service{aService("web-moongate", "0//", corev1.ServiceTypeClusterIP, "10.96.0.4")}
	if got := services(spec, s); got[0].Name != "web-moongate-2" || got[0].Spec.ClusterIP != "10.96.0.5" {
		t.Errorf("Services %v", got)
	}
}

// TestNodePortsStay has a node port stay with the Service that has it, whatever becomes of spec.addresses: the API server gives it to no other.
func TestNodePortsStay(t *testing.T) {
	spec := specOf(web, func(p *translate.ProxySpec) {
		p.Addresses = addressesOf("10.0.0.5", "10.0.0.6")
		p.Parameters.Service = &v1alpha1.Service{NodePorts: []v1alpha1.NodePort{{Port: 80, NodePort: 30080}}}
	}).Spec
	s := settings
	nodePorts := func(what string, want map[string]int32) []*corev1.Service {
		t.Helper()
		got, all := map[string]int32{}, services(spec, s)
		for _, svc := range all {
			got[svc.Name] = svc.Spec.Ports[0].NodePort
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: node ports %v, want %v", what, got, want)
		}
		return all
	}
	s.Services = nodePorts("new", map[string]int32{"web-moongate": 30080, "web-moongate-2": 0})
	spec.Addresses = addressesOf("10.0.0.6", "10.0.0.5")
	nodePorts("in another order", map[string]int32{"web-moongate": 30080, "web-moongate-2": 0})
	spec.Addresses[1].Routability = gwv1.GatewayAddressRoutabilityCluster
	nodePorts("the first is within the cluster", map[string]int32{"web-moongate-2": 0, "web-moongate-3": 0})
	s.Services = nil
	spec.Addresses = spec.Addresses[1:]
	spec.Addresses = append(spec.Addresses, addressesOf("10.0.0.6")...)
	nodePorts("new, the first within the cluster", map[string]int32{"web-moongate": 0, "web-moongate-2": 30080})

	// One that goes has it until it has gone.
	going := aService("web-moongate", "0/IPAddress/10.0.0.9", corev1.ServiceTypeLoadBalancer, "10.0.0.9")
	going.DeletionTimestamp = &metav1.Time{}
	going.Spec.HealthCheckNodePort = 30080
	s.Services, spec.Addresses = []*corev1.Service{going}, addressesOf("10.0.0.5")
	nodePorts("another one goes", map[string]int32{"web-moongate-2": 0})
}

// TestHeldByFormerClass ignores a Service that nothing removes, since its address would be waited for without end.
func TestHeldByFormerClass(t *testing.T) {
	for _, c := range []struct {
		class string
		owned bool
		want  bool
	}{{"other", true, true}, {"other", false, false}, {"moongate", true, false}} {
		svc := aService("web", "0//", corev1.ServiceTypeClusterIP, "10.96.0.7")
		svc.Labels[gwv1.GatewayClassNameLabelKey] = c.class
		if c.owned {
			svc.OwnerReferences = []metav1.OwnerReference{{Kind: "Gateway", Name: "web", Controller: pointer(true)}}
		}
		running := map[objectName]Object{{kindService, "web"}: svc}
		if got := heldByFormerClass(specOf(web, nil).Spec, running, "10.96.0.7"); got != c.want {
			t.Errorf("a Service of class %s, with a controller: %v: %v", c.class, c.owned, got)
		}
	}
}

// FuzzRequest reads annotations that anybody may have written.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{"0//", "3/IPAddress/10.0.0.1", "x", "-1/a/b/c", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		svc := aService("a", annotation, corev1.ServiceTypeLoadBalancer, "10.0.0.1")
		r := requestOf(svc)
		if again := requestOf(aService("a", r.String(), corev1.ServiceTypeLoadBalancer)); again != r {
			t.Errorf("%q is %+v, and again %+v", annotation, r, again)
		}
		observed{services: []*corev1.Service{svc}}.infrastructure()
	})
}
