package controller

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestEvents checks that what is wrong with a Gateway's proxies, and that it is over, becomes an Event of the Gateway; and that
// however much of it there is, the number of Events is bounded, and nobody waits.
func TestEvents(t *testing.T) {
	s := newStatusServer(t)
	c := newCampaigner(t, s, "a")
	cluster := fake.NewClientset()
	c.clients = cluster
	c.o.ControllerName = "example.org/team/x" // which no field of an Event can have
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.writeEvents(ctx) }()
	written := func() (out []corev1.Event) {
		for _, a := range cluster.Actions() {
			if create, ok := a.(clientgotesting.CreateAction); ok {
				out = append(out, *create.GetObject().(*corev1.Event))
			}
		}
		return out
	}
	c.noteTrouble("n", "gw", "proxy pod-1 has not acknowledged its configuration;; "+strings.Repeat("\u00fc", 2000)) // whose bytes the limit splits
	testkit.Eventually(t, "an Event is written", func() bool { return len(written()) == 1 })
	e := written()[0]
	if e.InvolvedObject.Kind != "Gateway" || e.InvolvedObject.Name != "gw" || e.Namespace != "n" || e.Type != corev1.EventTypeWarning ||
		e.Reason != reasonProxiesLag || !strings.Contains(e.Message, "pod-1") || len(e.Message) > maxEventMessage {
		t.Errorf("%+v", e)
	}
	if len(e.Message) < maxEventMessage-4 || !utf8.ValidString(e.Message) {
		t.Errorf("the message has %d bytes, %q at its end", len(e.Message), e.Message[len(e.Message)-4:])
	}
	if problems := validation.IsQualifiedName(e.ReportingController); len(problems) > 0 {
		t.Errorf("reported by %q: %v", e.ReportingController, problems)
	}
	c.noteTrouble("n", "other", "")
	testkit.Eventually(t, "its end is written", func() bool { return len(written()) == 2 })
	if e := written()[1]; e.Type != corev1.EventTypeNormal || e.Reason != reasonProxiesServe {
		t.Errorf("%+v", e)
	}
	// Of merged Gateways it is one of the parameters that merge them.
	c.noteTrouble("infra", config.MergedName("unknown"), "again")
	testkit.Eventually(t, "an Event about merged Gateways is written", func() bool { return len(written()) == 3 })
	if e := written()[2]; e.InvolvedObject.Kind != "GatewayParameters" || e.InvolvedObject.APIVersion != "moongate.dev/v1alpha1" || e.Namespace != "infra" {
		t.Errorf("%+v", e.InvolvedObject)
	}
	for range 10 * cap(c.troubles) {
		c.noteTrouble("n", "gw", "again")
	}
	testkit.Eventually(t, "all has been looked at", func() bool { return len(c.troubles) == 0 })
	stop()
	<-done
	if n := len(written()); n > 2*eventBurst {
		t.Errorf("%d Events were written", n)
	}
}
