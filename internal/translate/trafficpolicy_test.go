package translate_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

// TestManyPoliciesForOneService: whoever attaches thousands of policies to a Service of theirs makes each further one no dearer than their number, and of the other
// policies none is looked at again.
func TestManyPoliciesForOneService(t *testing.T) {
	const policies = 1000
	w := newWorld()
	w.Upsert(&gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate"}, Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}})
	w.Upsert(crowdGateway(1))
	w.Upsert(crowdRoute(7, "/"))
	w.Upsert(crowdService(7))
	w.Upsert(crowdSlice(7, "10.0.0.1"))
	target := gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "s7"}
	add := func(i int) {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", i), CreationTimestamp: metav1.Unix(int64(i+1), 0)}
		traffic := &gwx.XBackendTrafficPolicy{ObjectMeta: meta}
		traffic.Spec.TargetRefs = []gwv1.LocalPolicyTargetReference{target}
		percent := i
		traffic.Spec.RetryConstraint = &gwx.RetryConstraint{Budget: &gwx.BudgetDetails{Percent: &percent}}
		w.Upsert(traffic)
		tls := &gwv1.BackendTLSPolicy{ObjectMeta: meta}
		tls.Spec.TargetRefs = []gwv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: target}}
		tls.Spec.Validation = gwv1.BackendTLSPolicyValidation{Hostname: gwv1.PreciseHostname(fmt.Sprintf("h%d.example.com", i)), WellKnownCACertificates: new(gwv1.WellKnownCACertificatesSystem)}
		w.Upsert(tls)
	}
	for i := range policies {
		add(i)
	}
	begin := time.Now()
	r := w.commit(t)
	t.Logf("%d policies of each kind: %v, %d runs, %d reads", policies, time.Since(begin), r.Stats.Runs, r.Stats.Reads)
	if most := 30 * policies; r.Stats.Reads > most {
		t.Errorf("%d reads %v, want at most %d", r.Stats.Reads, r.Stats.ReadsByName, most)
	}
	b := w.config[config.ID{Kind: config.KindBackend, Key: "Service/default/s7/80"}].GetBackend()
	if b.GetRetryBudget().GetPolicy() != "XBackendTrafficPolicy default/p0" || b.GetTls().GetServerName() != "h0.example.com" {
		t.Errorf("in force is not the oldest: %v", b)
	}
	add(policies)
	r = w.commit(t)
	if r.Stats.Runs > 30 || r.Stats.Reads > 4*policies {
		t.Errorf("one more policy of each kind: %d runs %v and %d reads %v", r.Stats.Runs, r.Stats.RunsByName, r.Stats.Reads, r.Stats.ReadsByName)
	}
}
