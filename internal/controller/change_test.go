package controller

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/translate"
)

type cluster struct {
	gateways map[string]string // the class, by namespace/name
	unread   map[string]bool   // by kind, namespace and name, as kube.ID prints them
	failing  map[string]bool   // the same
	wanted   map[string]bool   // the same, those with a status
	objects  map[string]metav1.Object
}

func (c cluster) Get(id kube.ID) (metav1.Object, bool) {
	if o, ok := c.objects[id.String()]; ok {
		return o, true
	}
	class, ok := c.gateways[id.Namespace+"/"+id.Name]
	return &gwv1.Gateway{Spec: gwv1.GatewaySpec{GatewayClassName: gwv1.ObjectName(class)}}, ok
}

func (c cluster) Unread(id kube.ID) bool { return c.unread[id.String()] }

func (c cluster) Failing(key translate.ObjectKey) bool { return c.failing[kube.ID(key).String()] }

func (c cluster) HasStatus(key translate.ObjectKey) bool { return c.wanted[kube.ID(key).String()] }

// TestSweepSparesWhatIsUnknown has routes and policies of which translation wants no status: those keep their entries at whose parent,
// or in whom, there is something that nobody could read or translate.
func TestSweepSparesWhatIsUnknown(t *testing.T) {
	const ours, theirs = "example.org/ours", "example.org/theirs"
	c := cluster{
		gateways: map[string]string{"shop/foreign": "foreign", "shop/lost": "lost", "shop/panics": "ours"},
		unread:   map[string]bool{"Gateway shop/bad": true, "GatewayClass lost": true, "ListenerSet shop/bad-set": true},
		failing:  map[string]bool{"Gateway shop/panics": true, "HTTPRoute shop/itself-panics": true},
		wanted:   map[string]bool{"HTTPRoute shop/served": true},
		objects: map[string]metav1.Object{"ListenerSet shop/set": &gwv1.ListenerSet{Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Name: "bad"}}},
			"ListenerSet shop/foreign-set": &gwv1.ListenerSet{Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Name: "foreign"}}}},
	}
	shop, set := gwv1.Namespace("shop"), gwv1.Kind("ListenerSet")
	// No CRD keeps a set from naming another set.
	for name, parent := range map[string]string{"self": "self", "one": "other", "other": "one"} {
		c.objects["ListenerSet shop/"+name] = &gwv1.ListenerSet{Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Kind: &set, Name: gwv1.ObjectName(parent)}}}
	}
	at := func(name string) gwv1.ParentReference { return gwv1.ParentReference{Name: gwv1.ObjectName(name)} }
	atSet := func(name string) gwv1.ParentReference {
		return gwv1.ParentReference{Kind: &set, Name: gwv1.ObjectName(name)}
	}
	entry := func(controller string, refs ...gwv1.ParentReference) (parents []gwv1.RouteParentStatus) {
		for _, ref := range refs {
			parents = append(parents, gwv1.RouteParentStatus{ParentRef: ref, ControllerName: gwv1.GatewayController(controller)})
		}
		return parents
	}
	var ids []kube.ID
	add := func(kind, namespace, name string, o metav1.Object) {
		id := kube.ID{Group: gwv1.GroupName, Kind: kind, Namespace: namespace, Name: name}
		ids, c.objects[id.String()] = append(ids, id), o
	}
	for name, parents := range map[string][]gwv1.RouteParentStatus{
		"served": entry(ours, at("foreign")), "itself-panics": entry(ours, at("foreign")), "at-foreign": entry(ours, at("foreign")), "at-bad": entry(ours, at("foreign"), at("bad")),
		"at-lost": entry(ours, at("lost")), "at-panics": entry(ours, at("panics")), "theirs": entry(theirs, at("bad")), "at-gone": entry(ours, at("gone")),
		"at-set": entry(ours, atSet("set")), "at-bad-set": entry(ours, atSet("bad-set")), "at-foreign-set": entry(ours, atSet("foreign-set")),
		"at-self": entry(ours, atSet("self")), "at-loop": entry(ours, atSet("one")),
	} {
		add("HTTPRoute", "shop", name, &gwv1.HTTPRoute{Status: gwv1.HTTPRouteStatus{RouteStatus: gwv1.RouteStatus{Parents: parents}}})
	}
	add("TLSRoute", "blog", "elsewhere", &gwv1.TLSRoute{Status: gwv1.TLSRouteStatus{RouteStatus: gwv1.RouteStatus{
		Parents: entry(ours, gwv1.ParentReference{Namespace: &shop, Name: "bad"})}}})
	for name, gateway := range map[string]string{"policy-at-panics": "panics", "policy-at-foreign": "foreign"} {
		add("BackendTLSPolicy", "shop", name, &gwv1.BackendTLSPolicy{Status: gwv1.PolicyStatus{
			Ancestors: []gwv1.PolicyAncestorStatus{{AncestorRef: at(gateway), ControllerName: ours}}}})
	}
	var got []string
	for _, key := range unwanted(ids, c, c, ours) {
		got = append(got, key.Name)
	}
	slices.Sort(got)
	if want := []string{"at-foreign", "at-foreign-set", "at-gone", "at-loop", "at-self", "policy-at-foreign", "theirs"}; !slices.Equal(got, want) {
		t.Errorf("swept: %q, want %q", got, want)
	}
}

// TestGatewayUnread is about Gateways without a plan: only those that were read, with their class, are not ours.
func TestGatewayUnread(t *testing.T) {
	c := cluster{
		gateways: map[string]string{"shop/foreign": "foreign", "shop/lost": "lost"},
		unread:   map[string]bool{"Gateway shop/bad": true, "GatewayClass lost": true},
		failing:  map[string]bool{"Gateway shop/panics": true},
	}
	for name, want := range map[string]bool{"foreign": false, "gone": false, "bad": true, "lost": true, "panics": true} {
		if got := gatewayUnread(c, c, "shop", name); got != want {
			t.Errorf("%s: unread is %v", name, got)
		}
	}
}

// TestFirstGenerationWaitsForSecrets waits as long as there are Secrets that could not be read, but not for ever.
func TestFirstGenerationWaitsForSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, left := time.Now(), 5
		unread := func() int { left = max(left-1, 0); return left }
		waitForSecrets(t.Context(), secretsLimit, unread, slog.New(slog.DiscardHandler))
		if left != 0 || time.Since(start) >= time.Second {
			t.Errorf("%d are unread after %s", left, time.Since(start))
		}
		start = time.Now()
		waitForSecrets(t.Context(), secretsLimit, func() int { return 1 }, slog.New(slog.DiscardHandler))
		if waited := time.Since(start); waited < secretsLimit || waited > secretsLimit+time.Second {
			t.Errorf("waited %s for a Secret that cannot be read", waited)
		}
	})
}
