package translate_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestUndecodedPolicyPrecedence: a policy that cannot be decoded closes a port only where it would be in force, which is decided as among policies that can be.
func TestUndecodedPolicyPrecedence(t *testing.T) {
	in := func(year int) metav1.Time { return metav1.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	refs := func(sections ...string) (refs []gwv1.LocalPolicyTargetReferenceWithSectionName) {
		for _, section := range sections {
			ref := gwv1.LocalPolicyTargetReferenceWithSectionName{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "web"}}
			if section != "" {
				ref.SectionName = new(gwv1.SectionName(section))
			}
			refs = append(refs, ref)
		}
		return refs
	}
	// The policy that can be decoded is default/p of 2020, for one target.
	for _, test := range []struct {
		name     string
		readable string // its sectionName
		other    kind.Undecoded
		reached  string // the ports that are reached by TLS of the policy, or in cleartext
		accepted string // what its condition says
	}{
		{"for the whole Service, beside a port", "https", kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Name: "u", CreationTimestamp: in(2010)}, Targets: refs("")}, "https", "True/Accepted "},
		{"for a port, beside the whole Service", "", kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Name: "u", CreationTimestamp: in(2030)}, Targets: refs("https")}, "http", "True/Accepted "},
		{"younger", "https", kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: in(2030)}, Targets: refs("https")}, "http https", "True/Accepted "},
		{"older", "https", kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Name: "z", CreationTimestamp: in(2010)}, Targets: refs("https")}, "http", `False/Conflicted spec.targetRefs[0]: Service default/web, section "https" is not reached, because BackendTLSPolicy default/z,`},
		{"as old, later by name", "", kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Name: "z", CreationTimestamp: in(2020)}, Targets: refs("")}, "http https", "True/Accepted "},
		{"as old, first by name", "", kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: in(2020)}, Targets: refs("")}, "", "False/Conflicted "},
		{"of an age that cannot be read", "", kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Name: "z"}, Targets: refs("")}, "", "False/Conflicted "},
		{"for who knows what", "https", kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Name: "z", CreationTimestamp: in(2030)}}, "", "False/Conflicted "},
	} {
		w := newWorld()
		w.Upsert(&gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate"}, Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}})
		w.Upsert(crowdGateway(1))
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		route := crowdRoute(0, "/")
		route.Spec.Rules[0].BackendRefs = nil
		for name, port := range map[string]int32{"http": 80, "https": 443} {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Port: port})
			route.Spec.Rules[0].BackendRefs = append(route.Spec.Rules[0].BackendRefs, gwv1.HTTPBackendRef{BackendRef: gwv1.BackendRef{
				BackendObjectReference: gwv1.BackendObjectReference{Name: "web", Port: new(gwv1.PortNumber(port))}}})
		}
		w.Upsert(svc)
		w.Upsert(route)
		p := &gwv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", CreationTimestamp: in(2020)}}
		p.Spec.TargetRefs = refs(test.readable)
		p.Spec.Validation = gwv1.BackendTLSPolicyValidation{Hostname: "web.example.com", WellKnownCACertificates: new(gwv1.WellKnownCACertificatesSystem)}
		w.Upsert(p)
		w.commit(t)
		before := w.print(t)

		test.other.Namespace, test.other.Kind, test.other.Error = "default", kind.BackendTLSPolicy.Name, "why"
		w.Upsert(&test.other)
		w.commit(t)
		var reached []string
		for _, port := range []struct{ name, key string }{{"http", "Service/default/web/80"}, {"https", "Service/default/web/443"}} {
			b := w.config[config.ID{Kind: config.KindBackend, Key: port.key}].GetBackend()
			if b == nil {
				continue
			}
			reached = append(reached, port.name)
			if encrypted := test.readable == "" || test.readable == port.name; encrypted != (b.Tls != nil) {
				t.Errorf("%s: port %s is reached with %v", test.name, port.name, b.Tls)
			}
		}
		if got := strings.Join(reached, " "); got != test.reached {
			t.Errorf("%s: reached are %q, want %q", test.name, got, test.reached)
		}
		s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "BackendTLSPolicy", Namespace: "default", Name: "p"}].Status.(*gwv1.PolicyStatus)
		accepted := s.Ancestors[0].Conditions[0]
		if got := string(accepted.Status) + "/" + accepted.Reason + " " + accepted.Message; !strings.HasPrefix(got, test.accepted) {
			t.Errorf("%s: Accepted %s, want %s", test.name, got, test.accepted)
		}
		w.Delete(translate.KindBackendTLSPolicy, "default", test.other.Name)
		w.commit(t)
		if after := w.print(t); after != before {
			t.Errorf("%s: once it is gone:\n%s\nwant:\n%s", test.name, after, before)
		}
	}
}
