package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/client"
	"github.com/moongate-dev/moongate/internal/deliver/delivertest"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestRemoteServedBeforeSaid: a status waits for the proxies that are ready, and for those only.
func TestRemoteServedBeforeSaid(t *testing.T) {
	c, first := started(t, forever)
	second := c.connect(t, "n/gw", "pod-1")
	testkit.Eventually(t, "the second proxy is configured", func() bool { return c.acked("n/gw", "pod-1") })
	goOn := second.block()
	defer goOn()
	c.set(edited("/two", 2))
	testkit.Eventually(t, "the first proxy has the edit", func() bool { return first.route("/two") && c.acked("n/gw", "pod-0") })
	if g, held := c.routeGeneration(), c.Status().Held; g != 1 || held != 1 {
		t.Errorf("while one proxy is at work: the status is of generation %d, %d are held", g, held)
	}
	goOn()
	testkit.Eventually(t, "the status is published", func() bool { return c.routeGeneration() == 2 })
	if !second.route("/two") || c.Status().Held != 0 {
		t.Errorf("published before it was served; held: %d", c.Status().Held)
	}

	defer second.block()()
	c.set(edited("/three", 3))
	testkit.Eventually(t, "the first proxy has the second edit", func() bool { return c.acked("n/gw", "pod-0") && first.route("/three") })
	if g := c.routeGeneration(); g != 2 {
		t.Errorf("the status is of generation %d", g)
	}
	go second.stop() // its Apply still hangs; the stream ends
	testkit.Eventually(t, "nobody waits for a proxy that is gone", func() bool { return c.routeGeneration() == 3 })
}

// TestReadyButNotConnected: a pod that the cluster calls ready is waited for although it is not connected.
func TestReadyButNotConnected(t *testing.T) {
	c, _ := started(t, forever)
	c.up("n/gw", "pod-0", "pod-1")
	c.set(edited("/two", 2))
	testkit.Eventually(t, "the proxy that is connected has it", func() bool { return c.acked("n/gw", "pod-0") })
	if g := c.routeGeneration(); g != 1 {
		t.Errorf("the status is of generation %d", g)
	}
	c.up("n/gw", "pod-0")
	if g := c.routeGeneration(); g != 2 {
		t.Errorf("when the pod is not ready any more: generation %d", g)
	}
}

// TestNoReadyProxy: nobody is waited for where nobody serves.
func TestNoReadyProxy(t *testing.T) {
	c := newCluster(t, forever)
	c.Lead("first")
	c.set(class(), gateway(80), edited("/one", 1))
	if got, _ := c.said("gw"); got != metav1.ConditionFalse || c.routeGeneration() != 1 || c.specs["n/gw"] == nil {
		t.Errorf("Programmed %q, route of generation %d, specs %v", got, c.routeGeneration(), c.specs)
	}
}

// TestOverdue: who does not answer in time is named, and waited for no more until it answers.
func TestOverdue(t *testing.T) {
	c, p := started(t, 50*time.Millisecond)
	testkit.Eventually(t, "nobody is overdue", func() bool { return c.programmed("gw") && !c.proxies("n/gw")[0].Overdue })
	goOn := p.block()
	defer goOn()
	c.set(edited("/two", 2))
	testkit.Eventually(t, "the status is published without the answer", func() bool { return c.routeGeneration() == 2 })
	status, message := c.said("gw")
	if status != metav1.ConditionFalse || !strings.Contains(message, "pod-0") || !strings.Contains(message, "kubectl") {
		t.Errorf("Programmed is %s: %s", status, message)
	}
	goOn()
	testkit.Eventually(t, "the Gateway is programmed again", func() bool { return c.programmed("gw") })
	if !p.route("/two") {
		t.Error("it is programmed before it is served")
	}
}

// TestOwnGatewayOnly: a proxy gets its own Gateway's listeners, routes, backends and certificates.
func TestOwnGatewayOnly(t *testing.T) {
	var wanted sync.Map // by kind.ObjectKey
	c := newCluster(t, forever, func(o *reconcile.ClusterOptions) {
		o.Fetch = func(_ context.Context, requests []translate.SecretRequest) (out []metav1.Object) {
			for _, r := range requests {
				if wanted.Store(r.Object, r.Needed); r.Needed {
					out = append(out, keyPair(t, r.Object.Namespace, r.Object.Name))
				}
			}
			return out
		}
	})
	other := named(gateway(80), "other")
	mode := gwv1.TLSModeTerminate
	other.Spec.Listeners = append(other.Spec.Listeners, gwv1.Listener{Name: "tls", Port: 443, Protocol: gwv1.HTTPSProtocolType,
		TLS: &gwv1.ListenerTLSConfig{Mode: &mode, CertificateRefs: []gwv1.SecretObjectReference{{Name: "secret"}}}})
	port := gwv1.PortNumber(80)
	foreign := redirect("/other")
	foreign.Name = "foreign"
	foreign.Spec.ParentRefs[0].Name = "other"
	foreign.Spec.Rules = append(foreign.Spec.Rules, gwv1.HTTPRouteRule{BackendRefs: []gwv1.HTTPBackendRef{{BackendRef: gwv1.BackendRef{
		BackendObjectReference: gwv1.BackendObjectReference{Name: "s", Port: &port}}}}})
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	c.set(class(), gateway(80), edited("/one", 1), other, foreign, service)
	c.Lead("first")
	mine, theirs := c.connect(t, "n/gw", "a"), c.connect(t, "n/other", "b")
	testkit.Eventually(t, "both are configured", func() bool { return c.acked("n/gw", "a") && c.acked("n/other", "b") })
	if got := mine.ids(); !slices.Equal(got, []string{"Listener n/gw/l0", "Route HTTPRoute/n/r"}) {
		t.Errorf("n/gw has %v", got)
	}
	if got := theirs.ids(); !slices.Equal(got, []string{"Backend Service/n/s/80", "Certificate Secret/n/secret", "Endpoints Service/n/s/80",
		"Listener n/other/l0", "Listener n/other/tls", "Route HTTPRoute/n/foreign"}) {
		t.Errorf("n/other has %v", got)
	}
	other = other.DeepCopy()
	other.Spec.Listeners = other.Spec.Listeners[:1]
	c.set(other)
	testkit.Eventually(t, "the certificate is gone", func() bool { return !theirs.has(config.KindCertificate, "Secret/n/secret") })
	testkit.Eventually(t, "the Secret is no longer wanted", func() bool {
		is, told := wanted.Load(kind.ObjectKey{Kind: "Secret", Namespace: "n", Name: "secret"})
		return told && is == false
	})
	if mine.updates != 1 {
		t.Errorf("%d updates of a Gateway that was not concerned", mine.updates)
	}
}

// TestRemoteFaults: a listener that one proxy cannot serve and another one can stays programmed and says so; it is faulty where none
// can, and the status that waited says that.
func TestRemoteFaults(t *testing.T) {
	c, first := started(t, forever)
	second := c.connect(t, "n/gw", "pod-1")
	c.up("n/gw", "pod-0", "pod-1")
	testkit.Eventually(t, "the second proxy is configured", func() bool { return c.acked("n/gw", "pod-1") })
	fault := func(p *remote, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.listeners = nil
		if err != nil {
			p.listeners = failing("n/gw/l0", err)
		}
	}
	change := func(generation int64) (before int) {
		before = len(c.copyHistory())
		changed := gateway(int(8080 + generation))
		changed.Generation = generation
		c.set(changed)
		return before
	}
	said := func(generation int64, kind string, want metav1.ConditionStatus, words ...string) func() bool {
		return func() bool {
			s, _ := c.published("Gateway", "gw").Status.(*gwv1.GatewayStatus)
			if c.published("Gateway", "gw").Generation != generation || !has(s.Listeners[0].Conditions, kind, want) {
				return false
			}
			message := s.Listeners[0].Conditions[slices.IndexFunc(s.Listeners[0].Conditions, func(c metav1.Condition) bool { return c.Type == kind })].Message
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(message, word) })
		}
	}
	never := func(what string, before int, kind string, unwanted metav1.ConditionStatus) {
		t.Helper()
		for _, s := range c.copyHistory()[before:] {
			if status, _ := s.Status.(*gwv1.GatewayStatus); status != nil && has(status.Listeners[0].Conditions, kind, unwanted) {
				t.Errorf("%s: a status said %s %s", what, kind, unwanted)
			}
		}
	}
	taken := fmt.Errorf("bind: %w", syscall.EADDRINUSE)

	fault(second, taken)
	before := change(2)
	testkit.Eventually(t, "the lagging one is named", said(2, "Programmed", metav1.ConditionTrue, "pod-1", "taken"))
	if !c.programmed("gw") {
		t.Error("the Gateway is not programmed because of one proxy of two")
	}
	never("with one proxy of two that serves it", before, "Programmed", metav1.ConditionFalse)

	fault(first, taken)
	before = change(3)
	testkit.Eventually(t, "the fault is told", said(3, "Accepted", metav1.ConditionFalse, "taken"))
	for _, s := range c.copyHistory()[before:] {
		if status, _ := s.Status.(*gwv1.GatewayStatus); status != nil && s.Generation == 3 && has(status.Listeners[0].Conditions, "Programmed", metav1.ConditionTrue) {
			t.Error("a status said Programmed before the fault was told")
		}
	}
	fault(first, nil)
	testkit.Eventually(t, "one that serves it is enough", said(3, "Programmed", metav1.ConditionTrue, "pod-1"))
	second.stop()
	c.up("n/gw", "pod-0")
	testkit.Eventually(t, "the fault is gone with its proxy", func() bool {
		s, _ := c.published("Gateway", "gw").Status.(*gwv1.GatewayStatus)
		return said(3, "Programmed", metav1.ConditionTrue)() && !strings.Contains(fmt.Sprint(s.Listeners[0].Conditions), "pod-1")
	})
}

// troubles are what ClusterOptions.Trouble was called with.
type troubles struct {
	mu  sync.Mutex
	all []string // "<namespace>/<name>: <what>"
}

func (s *troubles) follow(o *reconcile.ClusterOptions) {
	o.Trouble = func(namespace, name, what string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, namespace+"/"+name+": "+what)
	}
}

func (s *troubles) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// last is the last one, "" where there is none.
func (s *troubles) last() string {
	if all := s.list(); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// TestOneLags: one proxy of two that does not answer, or refuses, leaves the Gateway programmed; it is named in the message, in what
// is told of the cluster, and no more once it has answered. Where none serves, the Gateway is not programmed.
func TestOneLags(t *testing.T) {
	var trouble troubles
	c, first := started(t, 50*time.Millisecond, trouble.follow)
	second := c.connect(t, "n/gw", "pod-1")
	testkit.Eventually(t, "the second proxy is configured", func() bool { return c.acked("n/gw", "pod-0", "pod-1") })
	c.up("n/gw", "pod-0", "pod-1")
	goOn := second.block()
	defer goOn()
	before := len(c.copyHistory())
	c.set(edited("/two", 2))
	testkit.Eventually(t, "the lagging one is named", func() bool {
		status, message := c.said("gw")
		return c.routeGeneration() == 2 && status == metav1.ConditionTrue && strings.Contains(message, "proxy pod-1 has not acknowledged") && !strings.Contains(message, "pod-0")
	})
	if !first.route("/two") {
		t.Error("it is published, and nobody serves it")
	}
	for _, s := range c.copyHistory()[before:] {
		if status, _ := s.Status.(*gwv1.GatewayStatus); status != nil && !has(status.Conditions, "Programmed", metav1.ConditionTrue) {
			t.Errorf("the Gateway flapped: %v", status.Conditions)
		}
	}
	testkit.Eventually(t, "it is told", func() bool { return strings.Contains(trouble.last(), "n/gw: proxy pod-1 has not acknowledged") })
	stop := first.block()
	defer stop()
	c.set(edited("/three", 3))
	testkit.Eventually(t, "none serves", func() bool {
		status, message := c.said("gw")
		return status == metav1.ConditionFalse && strings.Contains(message, "pod-0") && strings.Contains(message, "pod-1")
	})
	stop()
	goOn()
	testkit.Eventually(t, "all is well", func() bool {
		status, message := c.said("gw")
		return status == metav1.ConditionTrue && message == "" && c.routeGeneration() == 3
	})
	testkit.Eventually(t, "its end is told", func() bool { return trouble.last() == "n/gw: " })
}

// TestTroubleEndsWithTheGateway: of a Gateway that was deleted nothing is told while its pods go one by one, least of all that all of them serve.
func TestTroubleEndsWithTheGateway(t *testing.T) {
	var trouble troubles
	c, _ := started(t, 50*time.Millisecond, trouble.follow)
	c.up("n/gw", "pod-0", "pod-1", "pod-2")
	testkit.Eventually(t, "two that never connected are told of", func() bool {
		return strings.Contains(trouble.last(), "pod-1") && strings.Contains(trouble.last(), "pod-2")
	})
	before := len(trouble.list())
	c.Update(func(t *translate.Translator) { t.Delete(translate.KindGateway, "n", "gw") })
	c.up("n/gw", "pod-2")
	c.SetInfrastructure("n", "gw", nil, nil)
	if all := trouble.list(); len(all) != before {
		t.Errorf("told after the end of the Gateway: %q", all[before:])
	}
	c.set(gateway(80))
	c.up("n/gw", "pod-0", "pod-3")
	testkit.Eventually(t, "of one that has its name it is told", func() bool {
		all := trouble.list()
		return len(all) > before && strings.Contains(all[len(all)-1], "pod-3")
	})
}

// TestServedWithoutPartOfTheProxySpec: what a Gateway is served without is said beside what its proxies lack, and takes nothing from its being programmed.
func TestServedWithoutPartOfTheProxySpec(t *testing.T) {
	c, _ := started(t, 50*time.Millisecond)
	second := c.connect(t, "n/gw", "pod-1")
	testkit.Eventually(t, "the second proxy is configured", func() bool { return c.acked("n/gw", "pod-0", "pod-1") })
	kind := gwv1.IPAddressType
	c.SetInfrastructure("n", "gw", &translate.Infrastructure{Ready: true, Lagging: "there is no budget",
		Addresses: []gwv1.GatewayStatusAddress{{Type: &kind, Value: "192.0.2.1"}}}, []string{"pod-0", "pod-1"})
	says := func(words ...string) func() bool {
		return func() bool {
			status, message := c.said("gw")
			return status == metav1.ConditionTrue && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(message, w) })
		}
	}
	testkit.Eventually(t, "it is said", says("there is no budget"))
	defer second.block()()
	c.set(edited("/two", 2))
	testkit.Eventually(t, "both are said", says("there is no budget. ", "proxy pod-1 has not acknowledged"))
}

// TestRedisAwayReachesPolicies: that a proxy does not reach Redis is said of the policies with global limits of its Gateway, and no more when it does again.
func TestRedisAwayReachesPolicies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, forever, func(o *reconcile.ClusterOptions) {
		o.Translator = translate.New(translate.Options{ControllerName: controller, Cluster: true, RateLimits: &config.RateLimitService{Address: "192.0.2.9:6379"}})
	})
	c.set(class(), gateway(80), edited("/one", 1), globalLimit())
	c.Lead("first")
	var away atomic.Pointer[map[config.ID]string]
	away.Store(&map[config.ID]string{})
	for _, pod := range []string{"pod-0", "pod-1"} {
		c.connect(t, "n/gw", pod, func(o *client.Options) { o.Unavailable = func() map[config.ID]string { return *away.Load() } })
	}
	testkit.Eventually(t, "the proxies are configured", func() bool { return c.acked("n/gw", "pod-0", "pod-1") })
	c.up("n/gw", "pod-0", "pod-1")
	degraded := func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		s, _ := c.statuses[kind.BackendTrafficPolicy.Key("n", "p")].Status.(*gwv1.PolicyStatus)
		return degradedOf(s)
	}
	testkit.Eventually(t, "the Gateway is programmed", func() bool { return c.programmed("gw") })
	if d := degraded(); d != "" {
		t.Errorf("while all is well the policy says %q", d)
	}
	id := config.ID{Kind: config.KindRateLimitService, Key: "n/gw"}
	away.Store(&map[config.ID]string{id: "Redis at 192.0.2.9:6379 is away", {Kind: config.KindRateLimitService, Key: "n/other"}: "of no concern"})
	want := "True RedisUnavailable Global rate limits cannot be decided. A proxy reports: Redis at 192.0.2.9:6379 is away"
	testkit.Eventually(t, "it is said", func() bool { return degraded() == want })
	testkit.Eventually(t, "the dashboard has it of both proxies", func() bool { // the policies say it with the first
		p := c.proxies("n/gw")
		return p[0].Unavailable == "Redis at 192.0.2.9:6379 is away" && p[1].Unavailable == p[0].Unavailable
	})
	if !c.programmed("gw") {
		t.Error("the Gateway is not programmed any more")
	}
	away.Store(&map[config.ID]string{})
	testkit.Eventually(t, "it is taken back", func() bool { return degraded() == "" })
}

// TestRejectedReachesStatus: what a proxy cannot carry out is said of the object that it comes from, of the other Gateways of a
// route nothing, and no more once it can.
func TestRejectedReachesStatus(t *testing.T) {
	c, p := started(t, forever)
	c.set(named(gateway(81), "other"))
	c.up("n/other", "x")
	other := c.connect(t, "n/other", "x")
	testkit.Eventually(t, "the other Gateway is served", func() bool { return c.acked("n/other", "x") })
	route := config.ID{Kind: config.KindRoute, Key: "HTTPRoute/n/r"}
	p.mu.Lock()
	p.rejects = map[config.ID]error{route: errors.New("rule 0: no such filter")}
	p.mu.Unlock()
	both := func(path string, generation int64) *gwv1.HTTPRoute {
		r := edited(path, generation)
		r.Spec.ParentRefs = append(r.Spec.ParentRefs, r.Spec.ParentRefs[0])
		r.Spec.ParentRefs[1].Name = "other"
		return r
	}
	c.set(both("/two", 2))
	partial := func(gateway string) string {
		s, _ := c.published("HTTPRoute", "r").Status.(*gwv1.RouteStatus)
		for _, parent := range s.Parents {
			for _, condition := range parent.Conditions {
				if string(parent.ParentRef.Name) == gateway && condition.Type == "PartiallyInvalid" {
					return condition.Message
				}
			}
		}
		return ""
	}
	testkit.Eventually(t, "it is said of the route", func() bool {
		return c.routeGeneration() == 2 && strings.Contains(partial("gw"), "proxy pod-0 cannot carry out Route HTTPRoute/n/r: rule 0: no such filter")
	})
	for _, s := range c.copyHistory() {
		if status, _ := s.Status.(*gwv1.RouteStatus); status != nil && s.Generation == 2 && !strings.Contains(fmt.Sprint(status.Parents), "no such filter") {
			t.Error("a status that waited for the proxy does not say what it refused")
		}
	}
	if message := partial("other"); message != "" || !other.route("/two") {
		t.Errorf("of the Gateway whose proxy can: %q", message)
	}
	if !p.route("/one") || !c.programmed("gw") {
		t.Error("the version before is not served, or the Gateway is blamed")
	}
	p.mu.Lock()
	p.rejects = map[config.ID]error{{Kind: config.KindListener, Key: "n/gw/l0"}: errors.New("no such protocol")}
	p.mu.Unlock()
	changed := gateway(8080)
	changed.Generation = 2
	c.set(both("/three", 3), changed)
	testkit.Eventually(t, "of the route it is said no more, but of the listener", func() bool {
		s, _ := c.published("Gateway", "gw").Status.(*gwv1.GatewayStatus)
		return c.routeGeneration() == 3 && partial("gw") == "" && has(s.Listeners[0].Conditions, "Accepted", metav1.ConditionFalse) &&
			strings.Contains(fmt.Sprint(s.Listeners[0].Conditions), "no such protocol")
	})
}

func (c *cluster) copyHistory() []translate.StatusChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.history)
}

// TestSlowProxy: one that is at work holds nobody up, and gets what it missed as one generation.
func TestSlowProxy(t *testing.T) {
	c, slow := started(t, forever)
	c.set(named(gateway(81), "other"))
	quick := c.connect(t, "n/gw", "pod-1")
	testkit.Eventually(t, "the quick one is configured", func() bool { return c.acked("n/gw", "pod-1") })
	goOn := slow.block()
	defer goOn()
	slow.mu.Lock()
	before := slow.updates
	slow.mu.Unlock()
	for i := range 50 {
		path := fmt.Sprintf("/edit-%d", i)
		c.set(edited(path, int64(i+2)))
		testkit.Eventually(t, "the quick one has it", func() bool { return quick.route(path) })
	}
	goOn()
	testkit.Eventually(t, "the slow one has the last", func() bool { return slow.route("/edit-49") && c.routeGeneration() == 51 })
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if n := slow.updates - before; n > 2 {
		t.Errorf("the slow one was sent %d generations, want 1 before the pause and 1 after", n)
	}
}

// TestGatewayGoes: its proxies keep what they have, and hear why.
func TestGatewayGoes(t *testing.T) {
	c, p := started(t, forever)
	before := p.ids()
	c.Update(func(tr *translate.Translator) { tr.Delete(translate.KindGateway, "n", "gw") })
	testkit.Eventually(t, "the stream has ended", func() bool { return !c.acked("n/gw", "pod-0") })
	c.SetInfrastructure("n", "gw", nil, nil)
	m, err := delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/gw", "pod-0"), &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}})
	if m != nil || status.Code(err) != codes.NotFound {
		t.Errorf("%v, %v", m, err)
	}
	if got := p.ids(); !slices.Equal(got, before) {
		t.Errorf("the proxy has %v, had %v", got, before)
	}
	if s := c.Status(); len(s.Gateways) != 0 {
		t.Errorf("remembered: %+v", s.Gateways)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if spec, told := c.specs["n/gw"]; spec != nil || !told {
		t.Errorf("spec %v, told: %v", spec, told)
	}
}

// TestRefusedGeneration: a proxy that refuses is named with its reason.
func TestRefusedGeneration(t *testing.T) {
	c, _ := started(t, 50*time.Millisecond)
	c.up("n/gw", "pod-0", "bad")
	s := delivertest.Dial(t, c.address, c.caFile, delivertest.Token("n/gw", "bad"))
	if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}); err != nil {
		t.Fatal(err)
	}
	for m := (*wire.ToProxy)(nil); m.GetCommit() == nil; {
		var err error
		if m, err = s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: &wire.Ack{Error: "cannot read it"}}}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the reason is told", func() bool {
		status, message := c.said("gw")
		return status == metav1.ConditionTrue && strings.Contains(message, "proxy bad refuses its configuration: cannot read it")
	})
}

// TestSpecsBeforeStreams: a leader serves no stream before the ProxySpecs are known, without which it would refuse proxies.
func TestSpecsBeforeStreams(t *testing.T) {
	var c *cluster
	early, calls := false, 0
	c = newCluster(t, forever, func(o *reconcile.ClusterOptions) {
		provision := o.Provision
		o.Provision = func(changes []translate.ProxySpecChange) {
			calls++
			early = early || c.remote.Status().Leading
			provision(changes)
		}
	})
	c.Update(func(*translate.Translator) {})
	c.Lead("first")
	if early || calls != 1 || !c.remote.Status().Leading {
		t.Errorf("served before: %t, after %d calls", early, calls)
	}
}
