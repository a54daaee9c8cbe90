package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

// together are the merged Gateways of class moongate, of which web is one.
var together = gatewayName{"infra", config.MergedName("moongate")}

func mergedSpec(edit func(*translate.ProxySpec)) translate.ProxySpecChange {
	return specOf(together, func(p *translate.ProxySpec) {
		p.UID = "uid-of-class"
		p.Merged = []translate.MergedGateway{{Namespace: "blog", Name: "other", UID: "uid-of-other"}, {Namespace: "shop", Name: "web", UID: "uid-of-web"}}
		p.Parameters.Service = &v1alpha1.Service{Type: corev1.ServiceTypeClusterIP}
		if edit != nil {
			edit(p)
		}
	})
}

// TestDocumentedSelectors checks that the selectors with which documents read logs select the pods of proxies.
func TestDocumentedSelectors(t *testing.T) {
	selector := regexp.MustCompile(`-l ([^\s\x60]*(?:gateway-name|merged-gateways)[^\s\x60]*)`)
	alone, merged := specOf(gatewayName{"default", "web"}, nil).Spec, mergedSpec(nil).Spec
	for page, want := range map[string][]*translate.ProxySpec{"troubleshooting.md": {alone, merged}, "tasks/merged-gateways.md": {merged}} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		found := selector.FindAllStringSubmatch(string(text), -1)
		if len(found) != len(want) {
			t.Fatalf("%s has the selectors %q, want %d", page, found, len(want))
		}
		for i, f := range found {
			s, err := labels.Parse(strings.Replace(f[1], "CLASS", want[i].Class, 1))
			if err != nil || !s.Matches(labels.Set(identityLabels(want[i]))) {
				t.Errorf("%s: %s selects no pods with %v: %v", page, f[1], identityLabels(want[i]), err)
			}
		}
	}
}

// readyPod is one of those that serve g.
func readyPod(g gatewayName) func(tree) {
	return func(o tree) {
		meta := o["metadata"].(tree)
		meta["uid"] = "uid-of-pod"
		meta["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: "moongate"}
		meta["annotations"] = tree{annotationGateway: g.name, annotationController: settings.ControllerName}
		o["status"] = tree{"phase": "Running", "conditions": []any{tree{"type": "Ready", "status": "True"}}}
	}
}

// ends takes the ProxySpec of g away.
func (r *replica) ends(g gatewayName) {
	r.Update([]translate.ProxySpecChange{{Namespace: g.namespace, Name: g.name}})
}

// TestMergedGatewaysRun follows the proxies of merged Gateways: what there is, what an edit of the ports and the coming and going of a Gateway write, and the end of the last one.
func TestMergedGatewaysRun(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	names := []string{"configmaps/infra/moongate-gateways", "deployments/infra/moongate-gateways", "serviceaccounts/infra/moongate-gateways", "services/infra/moongate-gateways"}
	var applied, deleted []string
	for _, name := range names {
		applied, deleted = append(applied, "apply "+name), append(deleted, "delete "+name)
	}
	for _, step := range []struct {
		what string
		spec translate.ProxySpecChange
		want []string
	}{
		{"the first Gateways", mergedSpec(nil), applied},
		{"one leaves", mergedSpec(func(p *translate.ProxySpec) { p.Merged = p.Merged[:1] }), nil},
		{"one joins with another port", mergedSpec(func(p *translate.ProxySpec) { p.Ports = append(p.Ports, translate.ProxyPort{Port: 443}) }), []string{"apply services/infra/moongate-gateways"}},
	} {
		if err := r.settle(t, s, step.spec); err != nil {
			t.Fatal(step.what, err)
		}
		if got := sorted(s.written()); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q was written, want %q", step.what, got, step.want)
		}
	}
	owner, _ := s.at("deployments/infra/moongate-gateways", "metadata", "ownerReferences").([]any)
	if len(owner) != 1 || owner[0].(tree)["kind"] != "GatewayClass" || owner[0].(tree)["uid"] != "uid-of-class" {
		t.Errorf("owned by %v", owner)
	}
	// A class that was made anew takes over what was made for it; of a Gateway of its own the objects are not.
	again := mergedSpec(func(p *translate.ProxySpec) { p.UID = "uid-of-next-class" })
	if err := r.settle(t, s, again); err != nil {
		t.Error(err)
	}
	if owner, _ := s.at("deployments/infra/moongate-gateways", "metadata", "ownerReferences").([]any); owner[0].(tree)["uid"] != "uid-of-next-class" {
		t.Errorf("with a class that was made anew, owned by %v", owner)
	}
	s.written()

	r.grace = 0
	r.ends(together)
	if err := r.once(t, s, together); err != nil {
		t.Fatal(err)
	}
	if got := sorted(s.written()); !slices.Equal(got, deleted) {
		t.Errorf("after the last Gateway %q was written, want %q", got, deleted)
	}
}

// TestMergedNameTaken: what a Gateway has is not taken over for merged ones that would have the same name.
func TestMergedNameTaken(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	squatter := gatewayName{"infra", "moongate"} // of class gateways
	if err := r.settle(t, s, specOf(squatter, func(p *translate.ProxySpec) { p.Class = "gateways" })); err != nil {
		t.Fatal(err)
	}
	s.written()
	err := r.settle(t, s, mergedSpec(nil))
	if err == nil || len(s.written()) != 0 {
		t.Errorf("what another Gateway has is taken over: %v", err)
	}
}

// TestMergedAccounts: a proxy of merged Gateways is believed for these, and one of a Gateway that was merged for that Gateway alone, while it lasts.
func TestMergedAccounts(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	for _, change := range []translate.ProxySpecChange{specOf(web, nil), mergedSpec(nil)} {
		if err := r.settle(t, s, change); err != nil {
			t.Fatal(err)
		}
	}
	r.caughtUp(t, s)
	uid := func(account string) string { return fmt.Sprint(s.at("serviceaccounts/"+account, "metadata", "uid")) }
	believed := func(what, namespace, account, want string) {
		t.Helper()
		if name, ok := r.Gateway(namespace, account, uid(namespace+"/"+account)); name != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", what, name, ok, want)
		}
	}
	believed("of merged Gateways", "infra", "moongate-gateways", together.name)
	believed("of a Gateway", "shop", "web-moongate", "web")
	r.ends(web)
	believed("of a Gateway that was merged", "shop", "web-moongate", "web")
	r.Update([]translate.ProxySpecChange{mergedSpec(func(p *translate.ProxySpec) { p.Merged[1].UID = "uid-of-another" })})
	believed("of a Gateway of that name that is no more", "shop", "web-moongate", "")
	r.Update([]translate.ProxySpecChange{mergedSpec(func(p *translate.ProxySpec) { p.Merged = p.Merged[:1] })})
	believed("of a Gateway that is gone", "shop", "web-moongate", "")
	r.Update([]translate.ProxySpecChange{mergedSpec(func(p *translate.ProxySpec) { p.UID = "uid-of-another" })})
	believed("of a class that is no more", "infra", "moongate-gateways", "")
	// The name and annotations alone, in another namespace, are nothing.
	s.set("serviceaccounts/shop/moongate-gateways", func(o tree) {
		meta := o["metadata"].(tree)
		meta["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName}
		meta["annotations"] = tree{annotationGateway: together.name, annotationController: settings.ControllerName}
		meta["ownerReferences"] = []any{tree{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "name": "moongate", "uid": "uid-of-class", "controller": true}}
	})
	r.caughtUp(t, s)
	r.Update([]translate.ProxySpecChange{mergedSpec(nil)})
	believed("of another namespace", "shop", "moongate-gateways", "")
}

// TestAwaitsMerge: what runs stays while not as much has taken its place, when a Gateway is merged with others and when it is no more; but not for ever.
func TestAwaitsMerge(t *testing.T) {
	elsewhere := gatewayName{"infra2", together.name}
	moved := mergedSpec(func(p *translate.ProxySpec) { p.Namespace = elsewhere.namespace }).Spec
	alone := specOf(web, func(p *translate.ProxySpec) {
		p.Parameters.Service = &v1alpha1.Service{Type: corev1.ServiceTypeClusterIP}
	})
	for _, c := range []struct {
		what       string
		from, to   gatewayName
		fromS, toS translate.ProxySpecChange
	}{
		{"merged", web, together, alone, mergedSpec(nil)},
		{"no longer merged", together, web, mergedSpec(nil), alone},
		{"merged in another namespace", together, elsewhere, mergedSpec(nil), translate.ProxySpecChange{Namespace: elsewhere.namespace, Name: elsewhere.name, Spec: moved}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			if err := r.settle(t, s, c.fromS); err != nil {
				t.Fatal(err)
			}
			deployment := "deployments/" + c.to.namespace + "/" + Name(c.to.name, "moongate")
			s.set("pods/"+c.from.namespace+"/old", readyPod(c.from))
			r.grace = 0
			r.ends(c.from)
			if err := r.settle(t, s, c.toS); err != nil {
				t.Fatal(err)
			}
			left := func() bool { return len(r.store.of(c.from)) > 1 }
			look := func() time.Duration {
				t.Helper()
				r.caughtUp(t, s)
				again, err := r.reconcile(t.Context(), c.from)
				if err != nil {
					t.Fatal(err)
				}
				r.caughtUp(t, s)
				return again
			}
			if again := look(); !left() || again != mergePoll {
				t.Fatalf("it is gone before anything took its place: %v; next look after %s", !left(), again)
			}
			s.set("pods/"+c.to.namespace+"/new", readyPod(c.to))
			s.set(deployment, func(o tree) { o["spec"].(tree)["replicas"] = 2.0 })
			s.availableOf(strings.TrimPrefix(deployment, "deployments/"), 1)
			if again := look(); !left() || again != mergePoll {
				t.Fatalf("it is gone before all proxies are in its place: %v; next look after %s", !left(), again)
			}
			s.availableOf(strings.TrimPrefix(deployment, "deployments/"), 2)
			r.grace = time.Hour
			if again := look(); !left() || again < time.Hour/2 {
				t.Errorf("it is gone at once: %v; next look after %s", !left(), again)
			}
			r.grace = 0
			if look(); left() {
				t.Error("it stays although others have taken its place")
			}
		})
		for why, paused := range map[string]bool{"parameters cannot be told": true, "nothing becomes ready beside what serves": false} {
			t.Run(c.what+", but "+why, func(t *testing.T) {
				s := newServer(t)
				r := startReplica(t, s)
				if err := r.settle(t, s, c.fromS); err != nil {
					t.Fatal(err)
				}
				if !paused {
					s.set("pods/"+c.from.namespace+"/old", readyPod(c.from))
				}
				r.grace, r.mergeTimeout = 0, 0
				r.ends(c.from)
				next := *c.toS.Spec
				next.Paused = paused
				if err := r.settle(t, s, translate.ProxySpecChange{Namespace: c.to.namespace, Name: c.to.name, Spec: &next}); err != nil {
					t.Fatal(err)
				}
				if err := r.once(t, s, c.from); err != nil {
					t.Fatal(err)
				}
				r.caughtUp(t, s)
				if len(r.store.of(c.from)) < 2 {
					t.Error("what serves is gone though nothing has taken its place")
				}
			})
		}
		t.Run(c.what+", but not all become ready", func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			if err := r.settle(t, s, c.fromS); err != nil {
				t.Fatal(err)
			}
			s.set("pods/"+c.from.namespace+"/old", readyPod(c.from))
			r.grace, r.mergeTimeout = 0, 0
			r.ends(c.from)
			if err := r.settle(t, s, c.toS); err != nil {
				t.Fatal(err)
			}
			s.set("pods/"+c.to.namespace+"/new", readyPod(c.to))
			if err := r.once(t, s, c.from); err != nil {
				t.Fatal(err)
			}
			r.caughtUp(t, s)
			if n := len(r.store.of(c.from)); n > 1 {
				t.Errorf("%d objects are left", n)
			}
		})
		t.Run(c.what+", but nothing becomes ready", func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			if err := r.settle(t, s, c.fromS); err != nil {
				t.Fatal(err)
			}
			r.grace, r.mergeTimeout = 0, 0
			r.ends(c.from)
			if err := r.settle(t, s, c.toS); err != nil {
				t.Fatal(err)
			}
			if err := r.once(t, s, c.from); err != nil {
				t.Fatal(err)
			}
			r.caughtUp(t, s)
			if n := len(r.store.of(c.from)); n != 0 {
				t.Errorf("%d objects are left", n)
			}
		})
	}
}

// TestMergedKeepTheNumber: with autoscaling the proxies of merged Gateways are as many as these had before, and each Gateway that is merged no more gets its share of them.
func TestMergedKeepTheNumber(t *testing.T) {
	const merged = "infra/moongate-gateways"
	scaled := func(p *translate.ProxySpec) { p.Parameters.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 9} }
	other := gatewayName{"blog", "other"}
	alone := []translate.ProxySpecChange{specOf(web, scaled), specOf(other, scaled)}
	s := newServer(t)
	r := startReplica(t, s)
	for _, change := range alone {
		if err := r.settle(t, s, change); err != nil {
			t.Fatal(err)
		}
	}
	s.availableOf("shop/web-moongate", 3)
	s.availableOf("blog/other-moongate", 4)
	if err := r.settle(t, s, mergedSpec(scaled)); err != nil {
		t.Fatal(err)
	}
	if got := s.at("deployments/"+merged, "spec", "replicas"); got != 7.0 {
		t.Errorf("merged, they begin with %v proxies, want 7", got)
	}
	r.grace, r.mergeTimeout = 0, 0
	for _, g := range []gatewayName{web, other} {
		for _, kind := range []string{"deployments/", "horizontalpodautoscalers/"} {
			s.set(kind+g.namespace+"/"+g.name+"-moongate", nil)
		}
	}
	s.availableOf(merged, 7)
	r.ends(together)
	r.Update(alone)
	for _, g := range []gatewayName{web, other} {
		if err := r.once(t, s, g); err != nil {
			t.Fatal(err)
		}
		if got := s.at("deployments/"+g.namespace+"/"+g.name+"-moongate", "spec", "replicas"); got != 4.0 {
			t.Errorf("no longer merged, %s begins with %v proxies, want 4", g, got)
		}
	}
}
