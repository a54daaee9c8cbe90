package provision

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestStoreOrder tells a store of the lives of objects: by a watch in their order, by answers to
// writes at any later time, and by lists that may be old. It ends with exactly what is there.
func TestStoreOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		s := newStore("c")
		changes := 0
		s.changed, s.synced = func(gatewayName, string) { changes++ }, func(scope) {}
		watch := kindStore{s, kindService, metav1.NamespaceAll}
		version := 0
		there := map[string]*corev1.Service{}
		var answers []*corev1.Service // that are still on their way
		// What the watch has yet to tell, in its order.
		var events []func()
		object := func(name, gateway string) *corev1.Service {
			version++
			svc := aService(name, "", corev1.ServiceTypeClusterIP)
			svc.ResourceVersion = strconv.Itoa(version)
			svc.Annotations[annotationGateway], svc.Annotations[annotationController] = gateway, "c"
			svc.Labels[gwv1.GatewayClassNameLabelKey] = strings.TrimPrefix(name, gateway+"-")
			return svc
		}
		for range 20 {
			name := []string{"a-b-c", "d-b-c"}[random.IntN(2)] // of Gateway a or a-b, and of d or d-b
			switch random.IntN(6) {
			case 0, 1: // a write of ours
				svc := object(name, name[:1+2*random.IntN(2)])
				there[name] = svc
				answers = append(answers, svc.DeepCopy())
				events = append(events, func() { watch.Update(svc.DeepCopy()) })
			case 2:
				if there[name] != nil {
					gone := object(name, there[name].Annotations[annotationGateway])
					delete(there, name)
					events = append(events, func() { watch.Delete(gone) })
				}
			case 3: // an answer arrives
				if i := len(answers); i > 0 {
					i = random.IntN(i)
					s.written(kindService, answers[i])
					answers = slices.Delete(answers, i, i+1)
				}
			case 4: // the watch goes on
				if len(events) > 0 {
					events[0]()
					events = events[1:]
				}
			case 5: // the watch broke: a list takes its place
				var list []any
				for _, svc := range there {
					list = append(list, svc.DeepCopy())
				}
				watch.Replace(list, strconv.Itoa(version))
				events = nil
			}
		}
		for _, tell := range events {
			tell()
		}
		for _, answer := range answers {
			s.written(kindService, answer)
		}
		held := 0
		for _, g := range s.names() {
			for n, object := range s.of(g) {
				held++
				if svc := there[n.name]; svc == nil || svc.ResourceVersion != object.GetResourceVersion() || svc.Annotations[annotationGateway] != g.name {
					t.Fatalf("%s of %s in version %s is held; there is %v", n, g, object.GetResourceVersion(), svc)
				}
				if s.find(g.namespace, n) != object {
					t.Fatalf("%s is not found", n)
				}
			}
		}
		if held != len(there) || changes == 0 && held > 0 {
			t.Fatalf("%d objects are held, there are %d, %d changes were told", held, len(there), changes)
		}
	}
}

// TestStoreForeign: what another controller or a user made as a copy of ours, labels and annotations included, is never taken for ours, and so
// never pruned. What has a name of ours and is owned by a Gateway, or by nothing, is ours.
func TestStoreForeign(t *testing.T) {
	s := newStore("c")
	s.changed = func(gatewayName, string) {}
	yes := true
	long := strings.Repeat("c", 70)
	for i, c := range []struct {
		gateway, class string
		kind, name     string
		owner          string // its kind
		ours           bool
	}{
		{"web", "moongate", kindService, "web-moongate", "Gateway", true}, {"web", "moongate", kindService, "web-moongate", "", true},
		{"web", "moongate", kindService, "web-moongate", "Rollout", false},
		{"web", "moongate", kindService, "copy", "Gateway", false}, {"web", "moongate", kindService, "copy", "", false},
		{"web", "moongate", kindService, "web-moongate-2", "", true}, {"web", "moongate", kindService, "web-moongate-2", "Gateway", true},
		{"web", "moongate", kindDeployment, "web-moongate-2", "Gateway", false}, {"web", "moongate", kindService, "web-other", "Gateway", false},
		{"web.example.org", "moongate", kindConfigMap, Name("web.example.org", "moongate"), "", true},
		{"web", long, kindService, serviceName("web", long, 2), "Gateway", true}, {"web", long, kindService, "copy", "", false},
		{config.MergedName(long), long, kindService, serviceName(config.MergedName(long), long, 1), "", true},
		{config.MergedName("moongate"), "moongate", kindService, "moongate-gateways", "GatewayClass", true}, {config.MergedName("moongate"), "moongate", kindService, "copy", "", false},
		{"web", "moongate", kindPod, "web-moongate-5f7c-x", "ReplicaSet", true},
	} {
		object := newObject(c.kind)
		object.SetNamespace("shop")
		object.SetName(c.name)
		object.SetResourceVersion(strconv.Itoa(i + 1))
		object.SetLabels(map[string]string{gwv1.GatewayClassNameLabelKey: labelValue(c.class)})
		object.SetAnnotations(map[string]string{annotationGateway: c.gateway, annotationController: "c"})
		if c.owner != "" {
			object.SetOwnerReferences([]metav1.OwnerReference{{Kind: c.owner, Name: "x", Controller: &yes}})
		}
		s.put(c.kind, object)
		if held := s.find("shop", objectName{c.kind, c.name}) != nil; held != c.ours {
			t.Errorf("%s %s of Gateway %s, owned by %q: held %v, want %v", c.kind, c.name, c.gateway, c.owner, held, c.ours)
		}
	}
}

// TestStoreOfNamespaces has a watch for each of two namespaces: neither's list nor version says anything of the other's.
func TestStoreOfNamespaces(t *testing.T) {
	s := newStore("c")
	s.split, s.changed, s.synced = true, func(gatewayName, string) {}, func(scope) {}
	service := func(namespace, version string) *corev1.Service {
		svc := aService("web-moongate", "", corev1.ServiceTypeClusterIP)
		svc.Namespace, svc.ResourceVersion = namespace, version
		svc.Annotations[annotationGateway], svc.Annotations[annotationController] = "web", "c"
		return svc
	}
	blue, green := kindStore{s, kindService, "blue"}, kindStore{s, kindService, "green"}
	if err := green.Replace([]any{service("green", "4")}, "5"); err != nil {
		t.Fatal(err)
	}
	if err := blue.Replace(nil, "50"); err != nil {
		t.Fatal(err)
	}
	if s.find("green", objectName{kindService, "web-moongate"}) == nil {
		t.Error("the list of one namespace ended an object of another")
	}
	s.written(kindService, service("green", "20")) // blue's watch has told 50
	if got := s.find("green", objectName{kindService, "web-moongate"}); got == nil || got.GetResourceVersion() != "20" {
		t.Errorf("what a write answered was left to a watch that does not tell of it: %v", got)
	}
	s.written(kindService, service("blue", "20")) // gone again by 50
	if s.find("blue", objectName{kindService, "web-moongate"}) != nil {
		t.Error("an old answer brought an object back")
	}
	if err := green.Replace(nil, "60"); err != nil {
		t.Fatal(err)
	}
	if s.find("green", objectName{kindService, "web-moongate"}) != nil {
		t.Error("an object that is gone is held")
	}
}

// TestStoreAfterARestore lists an API server whose data were restored from a backup: versions are lower than before, and what is
// held in higher ones is no more.
func TestStoreAfterARestore(t *testing.T) {
	s := newStore("c")
	s.changed, s.synced = func(gatewayName, string) {}, func(scope) {}
	watch := kindStore{s, kindService, ""}
	object := func(name string, version int, port int32) *corev1.Service {
		svc := aService(name+"-moongate", "", corev1.ServiceTypeClusterIP)
		svc.ResourceVersion, svc.UID = strconv.Itoa(version), types.UID(name)
		svc.Annotations[annotationGateway], svc.Annotations[annotationController] = name, "c"
		svc.Spec.Ports = []corev1.ServicePort{{Port: port}}
		return svc
	}
	port := func(name string) int32 {
		svc, _ := s.find("shop", objectName{kindService, name + "-moongate"}).(*corev1.Service)
		if svc == nil {
			return 0
		}
		return svc.Spec.Ports[0].Port
	}
	watch.Replace([]any{object("a", 500, 1), object("b", 501, 1)}, "600")
	watch.Update(object("a", 700, 2))
	s.written(kindService, object("new", 710, 1))
	watch.Replace([]any{object("a", 500, 1)}, "505")
	if port("a") != 1 || port("b") != 0 || port("new") != 0 {
		t.Errorf("after the restore there are ports %d, %d, %d", port("a"), port("b"), port("new"))
	}
	watch.Update(object("a", 510, 3))
	s.written(kindService, object("c", 511, 1))
	if port("a") != 3 || port("c") != 1 {
		t.Errorf("later writes are ignored: ports %d, %d", port("a"), port("c"))
	}
	// The restored server may have come further than what was seen, before it is listed.
	watch.Replace([]any{object("a", 506, 4), object("c", 511, 1)}, "520")
	if port("a") != 4 {
		t.Errorf("what the list has is ignored: port %d", port("a"))
	}
	// But a list does not undo a write that is later than it.
	s.written(kindService, object("a", 530, 5))
	watch.Replace([]any{object("a", 506, 4), object("c", 511, 1)}, "525")
	if port("a") != 5 {
		t.Errorf("a write was undone: port %d", port("a"))
	}
}
