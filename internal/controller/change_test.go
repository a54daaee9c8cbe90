package controller

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
)

type cluster struct {
	gateways map[string]string // the class, by namespace/name
	unread   map[string]bool   // by kind, namespace and name, as kind.ObjectKey prints them
	failing  map[string]bool   // the same
	wanted   map[string]bool   // the same, those with a status
	// failingOf is the class of a Gateway that is failing.
	failingOf string
	// unreadKind is a kind of which an object was not read.
	unreadKind string
	objects    map[string]metav1.Object
}

func (c cluster) Get(id kind.ObjectKey) (metav1.Object, bool) {
	if o, ok := c.objects[id.String()]; ok {
		return o, true
	}
	class, ok := c.gateways[id.Namespace+"/"+id.Name]
	return &gwv1.Gateway{Spec: gwv1.GatewaySpec{GatewayClassName: gwv1.ObjectName(class)}}, ok
}

func (c cluster) Unread(id kind.ObjectKey) bool { return c.unread[id.String()] }

func (c cluster) UnreadAny(_, kind string) bool { return c.unreadKind == kind }

func (c cluster) Failing(key kind.ObjectKey) bool { return c.failing[key.String()] }

func (c cluster) FailingOf(class string) bool { return c.failingOf == class }

func (c cluster) HasStatus(key kind.ObjectKey) bool { return c.wanted[key.String()] }

// TestSweepSparesWhatFails has routes of which translation wants no status, and one whose status nobody knows.
func TestSweepSparesWhatFails(t *testing.T) {
	c := cluster{wanted: map[string]bool{"HTTPRoute shop/served": true}, failing: map[string]bool{"HTTPRoute shop/panics": true}}
	var ids []kind.ObjectKey
	for _, name := range []string{"served", "panics", "unwanted"} {
		ids = append(ids, kind.ObjectKey{Group: gwv1.GroupName, Kind: "HTTPRoute", Namespace: "shop", Name: name})
	}
	if got := unwanted(ids, c); len(got) != 1 || got[0].Name != "unwanted" {
		t.Errorf("swept: %v", got)
	}
}

// TestParentUnknown is about parents that translation does not know: only those that were read, with what they depend on, are not ours.
func TestParentUnknown(t *testing.T) {
	c := cluster{
		gateways: map[string]string{"shop/foreign": "foreign", "shop/lost": "lost", "shop/panics": "ours"},
		unread:   map[string]bool{"Gateway shop/bad": true, "GatewayClass lost": true, "ListenerSet shop/bad-set": true},
		failing:  map[string]bool{"Gateway shop/panics": true},
		objects: map[string]metav1.Object{"ListenerSet shop/set": &gwv1.ListenerSet{Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Name: "bad"}}},
			"ListenerSet shop/foreign-set": &gwv1.ListenerSet{Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Name: "foreign"}}}},
	}
	shop, set := gwv1.Namespace("shop"), gwv1.Kind("ListenerSet")
	// No CRD keeps a set from naming another set.
	for name, parent := range map[string]string{"self": "self", "one": "other", "other": "one"} {
		c.objects["ListenerSet shop/"+name] = &gwv1.ListenerSet{Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Kind: &set, Name: gwv1.ObjectName(parent)}}}
	}
	for name, want := range map[string]bool{"foreign": false, "gone": false, "bad": true, "lost": true, "panics": true} {
		if got := parentUnknown(c, c, "shop", gwv1.ParentReference{Name: gwv1.ObjectName(name)}); got != want {
			t.Errorf("Gateway %s: unknown is %v", name, got)
		}
	}
	for name, want := range map[string]bool{"set": true, "bad-set": true, "foreign-set": false, "self": false, "one": false, "gone": false} {
		if got := parentUnknown(c, c, "shop", gwv1.ParentReference{Kind: &set, Name: gwv1.ObjectName(name)}); got != want {
			t.Errorf("ListenerSet %s: unknown is %v", name, got)
		}
	}
	if !parentUnknown(c, c, "blog", gwv1.ParentReference{Namespace: &shop, Name: "bad"}) || parentUnknown(c, c, "blog", gwv1.ParentReference{Name: "bad"}) {
		t.Error("the namespace of the reference does not count")
	}
}

// TestGatewayUnread is about Gateways without a ProxySpec: only those that were read, with their class, are not ours.
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
	c.failingOf = "ours"
	for class, want := range map[string]bool{"ours": true, "lost": true, "foreign": false} {
		if got := gatewayUnread(c, c, "infra", config.MergedName(class)); got != want {
			t.Errorf("Gateways of class %s: unread is %v", class, got)
		}
	}
	c.failingOf, c.unreadKind = "", "Gateway"
	if !gatewayUnread(c, c, "infra", config.MergedName("ours")) || gatewayUnread(c, c, "shop", "foreign") {
		t.Error("a Gateway that was not read may be one of any class that merges them, and no other Gateway is it")
	}
}

// TestFirstGenerationWaitsForSecrets waits as long as there are Secrets that were not answered yet, but not for ever.
func TestFirstGenerationWaitsForSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, left := time.Now(), 5
		unanswered := func() int { left = max(left-1, 0); return left }
		waitForSecrets(t.Context(), secretsLimit, unanswered, slog.New(slog.DiscardHandler))
		if left != 0 || time.Since(start) >= time.Second {
			t.Errorf("%d are unanswered after %s", left, time.Since(start))
		}
		start = time.Now()
		waitForSecrets(t.Context(), secretsLimit, func() int { return 1 }, slog.New(slog.DiscardHandler))
		if waited := time.Since(start); waited < secretsLimit || waited > secretsLimit+time.Second {
			t.Errorf("waited %s for a Secret that is not answered", waited)
		}
	})
}
