package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/status"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

// recordEvents has a replica write Events until the test ends.
func (c *campaigner) recordEvents(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.events.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
}

// events are "Type Reason Kind name: note" of the Events that were created, as the server has got them.
func (s *statusServer) events(t *testing.T) (all []string) {
	t.Helper()
	for _, ref := range s.Refs() {
		if ref.Group != eventsv1.GroupName || ref.Namespace != "n" {
			continue
		}
		var e eventsv1.Event
		text, err := json.Marshal(s.Server.Get(ref))
		if err == nil {
			err = json.Unmarshal(text, &e)
		}
		if err != nil {
			t.Fatal(err)
		}
		if problems := validation.IsQualifiedName(e.ReportingController); len(problems) > 0 || e.EventTime.IsZero() || e.Action == "" || e.ReportingInstance == "" {
			t.Errorf("an API server would refuse %+v: %v", e, problems)
		}
		all = append(all, fmt.Sprintf("%s %s %s %s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
	}
	slices.Sort(all)
	return all
}

// one reports whether exactly one of the Events begins so.
func one(events []string, beginning string) bool {
	n := 0
	for _, e := range events {
		if strings.HasPrefix(e, beginning) {
			n++
		}
	}
	return n == 1
}

// TestStatusEvents: what a status says newly is an Event, also by a new leader, who says nothing again that one before it has.
func TestStatusEvents(t *testing.T) {
	server := newStatusServer(t)
	s := &site{t: t, statusServer: server, replicas: [2]*campaigner{newCampaigner(t, server, "a"), newCampaigner(t, server, "b")}}
	a, b := s.replicas[0], s.replicas[1]
	a.recordEvents(t)
	b.recordEvents(t)
	route := routeTo("web", "gw")
	route.Spec.Rules = []gwv1.HTTPRouteRule{{BackendRefs: []gwv1.HTTPBackendRef{{BackendRef: gwv1.BackendRef{BackendObjectReference: gwv1.BackendObjectReference{Name: "absent", Port: new(gwv1.PortNumber(80))}}}}}}
	s.apply(className(), gatewayOf("gw", "moongate", 1), route, routeTo("lost", "nowhere"))
	s.reached("gw", "192.0.2.1")
	a.begin(t)
	const broken = "Warning BackendNotFound HTTPRoute web: "
	testkit.Eventually(t, "the backend that is missing is an Event", func() bool { return one(s.events(t), broken) })
	testkit.Eventually(t, "a has written all", a.writer.Idle)
	a.stop()

	b.begin(t)
	mended := routeTo("web", "gw")
	mended.Generation = 2
	s.apply(mended)
	testkit.Eventually(t, "that it is mended is an Event", func() bool { return one(s.events(t), "Normal ResolvedRefs HTTPRoute web: ") })
	testkit.Eventually(t, "b has written all", b.writer.Idle)
	b.stop()

	before := s.events(t)
	a.begin(t)
	s.apply(gatewayOf("marker", "moongate", 1), func() *gwv1.HTTPRoute {
		marker := routeTo("marker", "marker")
		marker.Spec.ParentRefs[0].SectionName = new(gwv1.SectionName("nothing"))
		return marker
	}())
	testkit.Eventually(t, "the next leader's first Event is there", func() bool { return one(s.events(t), "Warning NoMatchingParent HTTPRoute marker: ") })
	testkit.Eventually(t, "a has written all again", a.writer.Idle)
	for _, e := range s.events(t) {
		if !slices.Contains(before, e) && !strings.Contains(e, "marker") {
			t.Errorf("told again: %s", e)
		}
	}
	if all := s.events(t); !one(all, broken) || slices.ContainsFunc(all, func(e string) bool { return strings.Contains(e, "GatewayClass") || strings.Contains(e, "Pending") }) {
		t.Errorf("%q", all)
	}
}

// TestStatusFullEvents: what a status has no room for is an Event, and so is that it has room.
func TestStatusFullEvents(t *testing.T) {
	server := newStatusServer(t)
	a := newCampaigner(t, server, "a")
	a.recordEvents(t)
	s := &site{t: t, statusServer: server, replicas: [2]*campaigner{a, newCampaigner(t, server, "b")}}
	route := routeTo("web", "gw")
	foreign := func(n int) (parents []any) {
		for i := range n {
			parents = append(parents, map[string]any{"parentRef": map[string]any{"name": fmt.Sprint("other", i)}, "controllerName": "example.com/other", "conditions": []any{}})
		}
		return parents
	}
	setParents := func(n int) {
		s.Edit(refOf(keyOf("HTTPRoute", "web")), func(o map[string]any) { o["status"] = map[string]any{"parents": foreign(n)} })
		s.apply(route)
	}
	s.apply(className(), gatewayOf("gw", "moongate", 1), route)
	setParents(status.MaxParents)
	s.reached("gw", "192.0.2.1")
	a.begin(t)
	testkit.Eventually(t, "the full status is an Event", func() bool {
		return one(s.events(t), "Warning StatusFull HTTPRoute web: status.parents has 32 entries, which is the maximum, and no room for: Gateway gw (Accepted=True, ResolvedRefs=True)")
	})
	setParents(status.MaxParents - 1)
	testkit.Eventually(t, "that there is room is an Event", func() bool { return one(s.events(t), "Normal StatusHasRoom HTTPRoute web: ") })
}

// TestEventsThatFail: an API server that takes no Events, or does not answer them, keeps no status from being written.
func TestEventsThatFail(t *testing.T) {
	server := newStatusServer(t)
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	server.Intercept = func(r *apiserver.Request) *metav1.Status {
		if r.Resource == "events" {
			asked <- struct{}{}
			<-answer
			return apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "no role")
		}
		return nil
	}
	s := &site{t: t, statusServer: server, replicas: [2]*campaigner{newCampaigner(t, server, "a"), newCampaigner(t, server, "b")}}
	a := s.replicas[0]
	a.recordEvents(t)
	defer close(answer)
	s.apply(className(), routeTo("first", "gw"), gatewayOf("gw", "moongate", 1))
	a.begin(t)
	testkit.Eventually(t, "everything has its status", func() bool {
		return strings.Contains(s.statusText(keyOf("HTTPRoute", "first")), "Accepted") && a.writer.Idle()
	})
	unattached := routeTo("second", "gw")
	unattached.Spec.ParentRefs[0].SectionName = new(gwv1.SectionName("nothing"))
	s.apply(unattached)
	<-asked // and is not answered
	third := routeTo("third", "gw")
	third.Spec.ParentRefs[0].SectionName = new(gwv1.SectionName("nothing"))
	s.apply(third)
	testkit.Eventually(t, "another status is written meanwhile", func() bool {
		return strings.Contains(s.statusText(keyOf("HTTPRoute", "third")), "NoMatchingParent")
	})
}

// TestGatewayEvents: what is wrong with a Gateway's proxies, or with what runs for it, and that it is over, becomes an Event of the Gateway, unless its stored
// status says it.
func TestGatewayEvents(t *testing.T) {
	s := newStatusServer(t)
	c := newCampaigner(t, s, "a")
	c.recordEvents(t)
	c.noteTrouble("n", "gw", "proxy pod-1 has not acknowledged its configuration")
	c.noteTrouble("n", "gw", "")
	c.noteProblem("n", "gw", "Service n/gw is forbidden: quota")
	c.noteProblem("n", "gw", "")
	want := []string{ // sorted
		"Normal Provisioned Gateway gw: everything that runs for the Gateway is as it should be",
		"Normal ProxiesServe Gateway gw: every proxy serves what is current",
		"Warning ProvisioningFailed Gateway gw: Service n/gw is forbidden: quota",
		"Warning ProxiesLag Gateway gw: proxy pod-1 has not acknowledged its configuration",
	}
	testkit.Eventually(t, "all are written", func() bool { return slices.Equal(s.events(t), want) })
	// Another leader has said so, and this one not yet.
	c.setInherited(map[[2]string][]string{{"n", "gw"}: {"no address: Service n/gw is forbidden: other quota"}})
	c.noteProblem("n", "gw", "Service n/gw is forbidden: other quota")
	c.noteProblem("n", "gw", "")
	c.noteProblem("n", "gw", "Service n/gw is forbidden: other quota")
	want = append(want[:3:3], "Warning ProvisioningFailed Gateway gw: Service n/gw is forbidden: other quota", want[3])
	slices.Sort(want)
	testkit.Eventually(t, "what is news is written", func() bool { return len(s.events(t)) >= len(want) })
	if got := s.events(t); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Of merged Gateways it is an Event of the parameters that merge them, which are not known here.
	c.setInherited(map[[2]string][]string{{"other", "gw"}: {"no proxy is ready: pod-1 is full"}})
	c.noteTrouble("n", config.MergedName("unknown"), "pod-1 is full")
	c.noteTrouble("n", config.MergedName("unknown"), "pod-1 is away")
	testkit.Eventually(t, "an Event about merged Gateways is written", func() bool {
		return one(s.events(t), "Warning ProxiesLag GatewayParameters : pod-1 is away")
	})
	if got := s.events(t); len(got) != len(want)+1 {
		t.Errorf("got %q", got)
	}
}

// TestInheritedForAWhile: what another leader has said, and what was over before this one looked, is news when it comes again hours later.
func TestInheritedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Controller{}
		messages := func() map[[2]string][]string {
			return map[[2]string][]string{{"n", "gw"}: {"no address: quota"}, {"n", "other"}: {"no address: quota"}}
		}
		c.setInherited(messages())
		if c.inherited("n", "absent", "quota") || !c.inherited("n", "gw", "quota") || c.inherited("n", "gw", "quota") || !c.inherited("n", config.MergedName("class"), "quota") || c.inherited("n", "other", "quota") {
			t.Error("the text of a Gateway is not inherited exactly once")
		}
		c.setInherited(messages())
		time.Sleep(inheritance + time.Second)
		if c.inherited("n", "gw", "quota") {
			t.Error("the same text is no news after hours")
		}
		if len(c.inheritedMessages) > 0 {
			t.Errorf("%v is kept", c.inheritedMessages)
		}
	})
}

// TestReference: an Event regards the object in the version that the cluster serves.
func TestReference(t *testing.T) {
	c := newCampaigner(t, newStatusServer(t), "a")
	route := routeTo("web", "gw")
	route.UID, route.ResourceVersion = "1", "7"
	if ref := c.reference(route); ref.APIVersion != "gateway.networking.k8s.io/v1" || ref.Kind != "HTTPRoute" || ref.Namespace != "n" || ref.Name != "web" || ref.UID != "1" || ref.ResourceVersion != "7" {
		t.Errorf("%+v", ref)
	}
	c.objects.change(&kube.Change{Installed: &kube.Installed{Kinds: []kube.Served{{Group: gwv1.GroupName, Kind: "HTTPRoute", Version: "v1beta1"}}}})
	if ref := c.reference(route); ref.APIVersion != "gateway.networking.k8s.io/v1beta1" {
		t.Errorf("%+v", ref)
	}
}
