package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

const controller = "example.com/controller"

var loopback = netip.MustParseAddr("127.0.0.1")

// site is a Standalone with a proxy, and the statuses that were published last.
type site struct {
	*reconcile.Standalone
	local    *deliver.Local
	proxy    *proxy.Proxy
	gateway  *gwv1.GatewayStatus
	route    *gwv1.RouteStatus
	publish  int
	onStatus func() // called with each publication
}

func newSite(t *testing.T, change ...func(*reconcile.StandaloneOptions)) *site {
	s := &site{proxy: proxy.New(proxy.Options{Bind: []netip.Addr{loopback}})}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.proxy.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	s.local = deliver.NewLocal(s.proxy)
	o := reconcile.StandaloneOptions{
		Translator: translate.New(translate.Options{ControllerName: controller, DefaultAddresses: []string{"127.0.0.1"}}),
		Delivery:   s.local,
		Publish: func(changes []translate.StatusChange) {
			s.publish++
			for _, c := range changes {
				switch status := c.Status.(type) {
				case *gwv1.GatewayStatus:
					s.gateway = status
				case *gwv1.RouteStatus:
					s.route = status
				}
			}
			if s.onStatus != nil {
				s.onStatus()
			}
		},
	}
	for _, f := range change {
		f(&o)
	}
	s.Standalone = reconcile.NewStandalone(o)
	return s
}

func class() *gwv1.GatewayClass {
	return &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: gwv1.GatewayClassSpec{ControllerName: controller}}
}

func gateway(ports ...int) *gwv1.Gateway {
	gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "gw"}, Spec: gwv1.GatewaySpec{GatewayClassName: "c"}}
	for i, port := range ports {
		gw.Spec.Listeners = append(gw.Spec.Listeners, gwv1.Listener{Name: gwv1.SectionName(fmt.Sprintf("l%d", i)), Protocol: gwv1.HTTPProtocolType, Port: gwv1.PortNumber(port)})
	}
	return gw
}

func redirect(path string) *gwv1.HTTPRoute {
	target := "redirected.example.com"
	return &gwv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "r"},
		Spec: gwv1.HTTPRouteSpec{
			CommonRouteSpec: gwv1.CommonRouteSpec{ParentRefs: []gwv1.ParentReference{{Name: "gw"}}},
			Rules: []gwv1.HTTPRouteRule{{
				Matches: []gwv1.HTTPRouteMatch{{Path: &gwv1.HTTPPathMatch{Type: ptr(gwv1.PathMatchExact), Value: &path}}},
				Filters: []gwv1.HTTPRouteFilter{{Type: gwv1.HTTPRouteFilterRequestRedirect,
					RequestRedirect: &gwv1.HTTPRequestRedirectFilter{Hostname: (*gwv1.PreciseHostname)(&target)}}},
			}},
		},
	}
}

func ptr[T any](v T) *T { return &v }

func (s *site) set(objects ...metav1.Object) reconcile.Outcome {
	return s.Update(func(t *translate.Translator) {
		for _, o := range objects {
			t.Upsert(o)
		}
	})
}

// ask answers the status of a request, 0 where nothing listens.
func ask(port int, path string) int {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// take opens a port and says which.
func take(t *testing.T) (net.Listener, int) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln, ln.Addr().(*net.TCPAddr).Port
}

func has(conditions []metav1.Condition, conditionType string, status metav1.ConditionStatus) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == conditionType && c.Status == status })
}

// globalLimit is a policy with a global rate limit for the route of redirect.
func globalLimit() *eg.BackendTrafficPolicy {
	p := &eg.BackendTrafficPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	if err := yaml.Unmarshal([]byte("{targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}, rateLimit: {global: {rules: [{limit: {requests: 2, unit: Year}}]}}}"), &p.Spec); err != nil {
		panic(err)
	}
	return p
}

// degradedOf is condition Degraded of the first ancestor of a policy, "" for none.
func degradedOf(s *gwv1.PolicyStatus) string {
	if s != nil {
		for _, c := range s.Ancestors[0].Conditions {
			if c.Type == "Degraded" {
				return fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message)
			}
		}
	}
	return ""
}

// TestRedisAwayIsSaid: of a Redis that leaves the policies say so, and no more when it is back.
func TestRedisAwayIsSaid(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	var policy *gwv1.PolicyStatus
	s := newSite(t, func(o *reconcile.StandaloneOptions) {
		o.Translator = translate.New(translate.Options{ControllerName: controller, DefaultAddresses: []string{"127.0.0.1"}, RateLimits: &config.RateLimitService{Address: server.Address}})
		publish := o.Publish
		o.Publish = func(changes []translate.StatusChange) {
			for _, c := range changes {
				if p, is := c.Status.(*gwv1.PolicyStatus); is {
					policy = p
				}
			}
			publish(changes)
		}
	})
	ln, port := take(t)
	ln.Close()
	s.set(class(), gateway(port), redirect("/"), globalLimit())
	s.Retry()
	if d := degradedOf(policy); policy == nil || d != "" {
		t.Fatalf("while all is well the policy says %q", d)
	}
	server.Kill()
	want := "True RedisUnavailable Global rate limits cannot be decided. Redis at " + server.Address + " is away, and requests pass without being counted: dial tcp " + server.Address + ": connect: connection refused"
	testkit.Eventually(t, "that it is away is said", func() bool { s.Retry(); return degradedOf(policy) != "" })
	if d := degradedOf(policy); d != want {
		t.Errorf("%q, want %q", d, want)
	}
	server.Start(t)
	testkit.Eventually(t, "that it is back is said", func() bool { s.Retry(); return degradedOf(policy) == "" })
}

// TestServedBeforeSaid: when a status is published, what it says is already served.
func TestServedBeforeSaid(t *testing.T) {
	s := newSite(t)
	ln, port := take(t)
	ln.Close()
	var atPublication []int
	path := "/one"
	s.onStatus = func() { atPublication = append(atPublication, ask(port, path)) }
	first := s.set(class(), gateway(port), redirect("/one"))
	path = "/two"
	edited := redirect("/two")
	edited.Generation = 2
	second := s.set(edited)
	if !slices.Equal(atPublication, []int{302, 302}) {
		t.Errorf("answers at the publications: %v, want 302 twice", atPublication)
	}
	if second.Generation != first.Generation+1 || second.Applied != 1 || second.Runs > 10 {
		t.Errorf("an edit of one route: %+v after %+v, want one more generation with one resource", second, first)
	}
	if again := s.set(edited); again.Applied != 0 || again.Generation != second.Generation || s.publish != 2 {
		t.Errorf("the same object again: %+v, %d publications", again, s.publish)
	}
	if !has(s.gateway.Listeners[0].Conditions, "Programmed", metav1.ConditionTrue) {
		t.Errorf("conditions of the listener: %+v", s.gateway.Listeners[0].Conditions)
	}
}

// TestPortFault: a port that is taken is told, alone, and tried again.
func TestPortFault(t *testing.T) {
	s := newSite(t)
	ln, taken := take(t)
	free, port := take(t)
	free.Close()
	s.set(class(), gateway(taken, port), redirect("/"))
	if l := s.gateway.Listeners; !has(l[0].Conditions, "Accepted", metav1.ConditionFalse) || !has(l[1].Conditions, "Programmed", metav1.ConditionTrue) {
		t.Errorf("a taken and a free port: %+v", l)
	}
	if got := ask(port, "/"); got != 302 {
		t.Errorf("the free port answers %d", got)
	}
	published := s.publish
	s.Retry()
	if s.publish != published {
		t.Error("a retry without news published statuses")
	}
	ln.Close()
	s.Retry()
	if l := s.gateway.Listeners; !has(l[0].Conditions, "Programmed", metav1.ConditionTrue) || has(l[0].Conditions, "Accepted", metav1.ConditionFalse) {
		t.Errorf("after the port was freed: %+v", l)
	}
	if got := ask(taken, "/"); got != 302 {
		t.Errorf("the port that was freed answers %d", got)
	}
}

// TestBound: who asks for the listeners that serve is told when these may be others, and not of each route that comes or goes.
func TestBound(t *testing.T) {
	bound := 0
	s := newSite(t, func(o *reconcile.StandaloneOptions) { o.Bound = func() { bound++ } })
	ln, port := take(t)
	says := func(what string, want bool, f func()) {
		t.Helper()
		bound = 0
		if f(); bound > 0 != want {
			t.Errorf("%s: told %d times", what, bound)
		}
	}
	says("a port that is taken", true, func() { s.set(class(), gateway(port)) })
	ln.Close()
	says("it is free", true, s.Retry)
	says("nothing to retry", false, s.Retry)
	published := s.publish
	says("a route comes", false, func() { s.set(redirect("/")) })
	if s.publish == published || s.gateway.Listeners[0].AttachedRoutes != 1 {
		t.Errorf("status of the Gateway: %+v", s.gateway)
	}
	says("a listener goes", true, func() {
		gw := gateway()
		gw.Generation = 2
		s.set(gw)
	})
}

// TestPortMoves: a port goes from one listener to another in one generation.
func TestPortMoves(t *testing.T) {
	s := newSite(t)
	ln, port := take(t)
	ln.Close()
	s.set(class(), gateway(port), redirect("/"))
	moved := gateway(port)
	moved.Generation = 2
	moved.Spec.Addresses = []gwv1.GatewaySpecAddress{{Type: ptr(gwv1.IPAddressType), Value: "::1"}, {Type: ptr(gwv1.IPAddressType), Value: "127.0.0.1"}}
	s.set(moved)
	if !has(s.gateway.Conditions, "Programmed", metav1.ConditionTrue) || ask(port, "/") != 302 {
		t.Errorf("%+v", s.gateway.Conditions)
	}
}

// TestAddressFault: an address that is not on this host is the Gateway's fault; the other is served.
func TestAddressFault(t *testing.T) {
	s := newSite(t)
	ln, port := take(t)
	ln.Close()
	gw := gateway(port)
	gw.Spec.Addresses = []gwv1.GatewaySpecAddress{{Type: ptr(gwv1.IPAddressType), Value: "192.0.2.1"}, {Type: ptr(gwv1.IPAddressType), Value: "127.0.0.1"}}
	s.set(class(), gw, redirect("/"))
	if !has(s.gateway.Conditions, "Accepted", metav1.ConditionTrue) || !has(s.gateway.Conditions, "Programmed", metav1.ConditionFalse) {
		t.Errorf("conditions: %+v", s.gateway.Conditions)
	}
	if got := ask(port, "/"); got != 302 {
		t.Errorf("the usable address answers %d", got)
	}
}

// TestFaultsOfAddresses: what is wrong with each address of a listener is told, and stays the same however often it is tried again.
func TestFaultsOfAddresses(t *testing.T) {
	s := newSite(t)
	_, port := take(t)
	gw := gateway(port)
	for _, a := range []string{"192.0.2.1", "127.0.0.1", "198.51.100.1", "127.0.0.2"} {
		gw.Spec.Addresses = append(gw.Spec.Addresses, gwv1.GatewaySpecAddress{Type: ptr(gwv1.IPAddressType), Value: a})
	}
	s.set(class(), gw, redirect("/"))
	told := func() string { return fmt.Sprint(s.gateway.Conditions, s.gateway.Listeners[0].Conditions) }
	first, published := told(), s.publish
	for _, want := range []string{"address 192.0.2.1 cannot be used", "address 198.51.100.1 cannot be used", "port " + fmt.Sprint(port) + " is taken by another process"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not told: %s", want, first)
		}
	}
	for range 10 {
		s.Retry()
	}
	if s.publish != published {
		t.Errorf("told %d times more, at last %s", s.publish-published, told())
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.2:%d", port))
	if err != nil {
		t.Fatalf("the address that can be used: %v", err)
	}
	c.Close()
}

// TestRoutesBindNothing: what has to do with no listener does not lay out all sockets anew for a port that is taken; the next retry does.
func TestRoutesBindNothing(t *testing.T) {
	s := newSite(t)
	ln, port := take(t)
	s.set(class(), gateway(port))
	ln.Close()
	s.set(redirect("/"))
	if got := ask(port, "/"); got != 0 {
		t.Errorf("after an edit of a route it answers %d", got)
	}
	s.Retry()
	if got := ask(port, "/"); got != 302 {
		t.Errorf("after the retry it answers %d", got)
	}
}

// TestFaultsAtTheEnd: that a proxy has closed its ports is no fault of listeners, and what was one before remains one.
func TestFaultsAtTheEnd(t *testing.T) {
	s := newSite(t)
	_, taken := take(t)
	free, port := take(t)
	free.Close()
	s.set(class(), gateway(taken, port), redirect("/"))
	if err := s.proxy.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for generation := range int64(2) {
		edited := gateway(taken, port)
		edited.Generation, edited.Spec.Listeners[1].Hostname = 2+generation, ptr(gwv1.Hostname(fmt.Sprintf("h%d.test", generation)))
		s.set(edited)
		s.Retry()
		if l := s.gateway.Listeners; !has(l[0].Conditions, "Accepted", metav1.ConditionFalse) || !has(l[1].Conditions, "Programmed", metav1.ConditionTrue) {
			t.Errorf("%+v", l)
		}
	}
}

// TestConfigDump: the dump is in order and the same each time.
func TestConfigDump(t *testing.T) {
	s := newSite(t)
	ln, port := take(t)
	ln.Close()
	s.set(class(), gateway(port), redirect("/"))
	dump, err := s.local.Config()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(dump)
	if err != nil {
		t.Fatal(err)
	}
	listener, route := strings.Index(string(text), `"listener":{`), strings.Index(string(text), `"route":{`)
	if listener < 0 || route < listener || dump.Generation != 1 {
		t.Errorf("generation %d, listener at %d, route at %d in %s", dump.Generation, listener, route, text)
	}
}

// TestUnattachedPolicy: a policy that selects nothing, because its selector is malformed, is logged once.
func TestUnattachedPolicy(t *testing.T) {
	var log strings.Builder
	s := newSite(t, func(o *reconcile.StandaloneOptions) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	policy := &eg.BackendTrafficPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	policy.Spec.TargetSelectors = []eg.TargetSelector{{Kind: "HTTPRoute", MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Foo"}}}}
	s.set(policy)
	s.set(&gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gw"}})
	for _, part := range []string{"BackendTrafficPolicy default/p", "spec.targetSelectors[0]", "Foo"} {
		if n := strings.Count(log.String(), part); n != 1 {
			t.Errorf("%q is there %d times, want once:\n%s", part, n, &log)
		}
	}
	valid := policy.DeepCopy()
	valid.Spec.TargetSelectors[0].MatchExpressions[0].Operator = "Exists"
	s.set(valid)
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, &log)
	}
}
