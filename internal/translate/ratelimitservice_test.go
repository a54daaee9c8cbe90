package translate_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestRateLimitServiceOfGateways: the address of Redis, which may hold a password, is given to Gateways that have global limits, to each once, and to no others.
func TestRateLimitServiceOfGateways(t *testing.T) {
	w := sharingWorld()
	other := crowdGateway(1)
	other.Name = "other"
	for i := range other.Spec.Listeners {
		other.Spec.Listeners[i].Port += 1000
	}
	w.Upsert(other)
	for _, route := range []string{"a", "b"} {
		w.Upsert(routeIn("default", route))
	}
	service := func(gateway string) *config.RateLimitService {
		return w.config[config.ID{Kind: config.KindRateLimitService, Key: gateway}].GetRateLimitService()
	}
	const global = "rateLimit: {global: {rules: [{limit: {requests: 5, unit: Hour}}]}}"
	w.Upsert(trafficPolicyFor(t, "default", "local", 1, "a", "rateLimit: {local: {rules: [{limit: {requests: 5, unit: Hour}}]}}"))
	w.commit(t)
	if s := service("default/gw"); s != nil {
		t.Errorf("a Gateway without global limits has %v", s)
	}
	w.Upsert(trafficPolicyFor(t, "default", "global", 1, "b", global))
	w.commit(t)
	if s := service("default/gw"); s.GetAddress() != "192.0.2.9:6379" || s.Key != "default/gw" {
		t.Errorf("a Gateway with global limits has %v", s)
	}
	if s := service("default/other"); s != nil {
		t.Errorf("another Gateway has %v", s)
	}
	named := 0
	for _, r := range w.config {
		named += strings.Count(r.String(), "192.0.2.9")
	}
	if named != 1 {
		t.Errorf("the address is told %d times, want once", named)
	}
	w.Upsert(trafficPolicyFor(t, "default", "local", 1, "a", global))
	if r := w.commit(t); len(r.Config.Upserts) != 1 || r.Config.Upserts[0].GetRoute() == nil {
		t.Errorf("another limit changes %v", r.Config.Upserts)
	}
	b := routeIn("default", "b")
	b.Spec.ParentRefs = append(b.Spec.ParentRefs, gwv1.ParentReference{Name: "other"})
	w.Upsert(b)
	w.commit(t)
	if s := service("default/other"); s.GetKey() != "default/other" {
		t.Errorf("the other Gateway has global limits now, and %v", s)
	}
	for _, p := range []string{"global", "local"} {
		w.Delete(translate.KindBackendTrafficPolicy, "default", p)
	}
	w.commit(t)
	if a, o := service("default/gw"), service("default/other"); a != nil || o != nil {
		t.Errorf("without limits Gateways have %v and %v", a, o)
	}
}

// TestRedisAwayIsSaidOfPolicies: that proxies do not reach Redis is said of the policies with global limits at their Gateway, also of those at its listeners and routes.
func TestRedisAwayIsSaidOfPolicies(t *testing.T) {
	w := sharingWorld()
	const global, local = "rateLimit: {global: {rules: [{limit: {requests: 5, unit: Hour}}]}}", "rateLimit: {local: {rules: [{limit: {requests: 5, unit: Hour}}]}}"
	for _, route := range []string{"a", "b"} {
		w.Upsert(routeIn("default", route))
	}
	w.Upsert(trafficPolicyFor(t, "default", "of-gateway", 1, "", global))
	w.Upsert(trafficPolicyFor(t, "default", "of-route", 1, "a", global))
	w.Upsert(trafficPolicyFor(t, "default", "local", 1, "b", local))
	said := func() map[string]string {
		all := map[string]string{}
		for _, s := range w.statuses {
			if status, is := s.Status.(*gwv1.PolicyStatus); is {
				for _, c := range status.Ancestors[0].Conditions {
					if c.Type == "Degraded" {
						all[s.Object.Name] = c.Reason + " " + c.Message
					}
				}
			}
		}
		return all
	}
	w.SetRateLimitFault("default", "other", "of no concern")
	w.commit(t)
	if all := said(); len(all) != 0 {
		t.Errorf("while all is well: %v", all)
	}
	w.SetRateLimitFault("default", "gw", "It is away.")
	w.commit(t)
	want := "RedisUnavailable Global rate limits cannot be decided. It is away."
	if all := said(); len(all) != 2 || all["of-gateway"] != want || all["of-route"] != want {
		t.Errorf("while it is away: %v", all)
	}
	w.SetRateLimitFault("default", "gw", "")
	if w.commit(t); len(said()) != 0 {
		t.Errorf("when it is back: %v", said())
	}
}

// TestRedisOfSecret: the Secret that tells the address of a Gateway's Redis is requested in a cluster, the Gateway waits for it, and another address reaches the proxies of that
// Gateway alone, without an edit of anything else.
func TestRedisOfSecret(t *testing.T) {
	w := newWorldWith(clusterOptions)
	class := ownClass("moongate")
	class.Spec.ParametersRef = &gwv1.ParametersReference{Group: v1alpha1.GroupName, Kind: "GatewayParameters", Name: "own", Namespace: new(gwv1.Namespace("default"))}
	w.Upsert(class)
	gw := crowdGateway(1)
	w.Upsert(gw)
	parameters := &v1alpha1.GatewayParameters{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own"}}
	parameters.Spec.ClassOnly = &v1alpha1.ClassOnly{RateLimit: &v1alpha1.RateLimit{Redis: &v1alpha1.Redis{URLSecretRef: v1alpha1.SecretKeyReference{Name: "redis", Key: "url"}}}}
	w.Upsert(parameters)
	w.Upsert(routeIn("default", "a"))
	w.Upsert(trafficPolicyFor(t, "default", "p", 1, "a", "rateLimit: {global: {rules: [{limit: {requests: 5, unit: Hour}}]}}"))
	key := kind.Secret.Key("default", "redis")
	if r := w.commit(t); len(r.SecretRequests) != 1 || r.SecretRequests[0] != (translate.SecretRequest{Object: key, Needed: true}) {
		t.Errorf("requested: %v", r.SecretRequests)
	}
	if waiting := w.GatewaysWith(key); len(waiting) != 1 || waiting[0] != "default/gw" {
		t.Errorf("for the Secret wait %v", waiting)
	}
	failure := func() int32 {
		return int32(w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/a"}].GetRoute().GetRules()[0].GetFailure().GetStatus())
	}
	if failure() != 500 || w.accepted(t, "default", "p") == "" {
		t.Error("without the Secret the policy is carried out")
	}
	service := config.ID{Kind: config.KindRateLimitService, Key: "default/gw"}
	w.Fetched(key, &translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "redis"}})
	w.commit(t)
	if r := w.config[service]; r == nil || !r.Unread() || failure() != 0 || w.accepted(t, "default", "p") != "" || !strings.Contains(w.said("BackendTrafficPolicy"), "Secret default/redis, which has the address of Redis, could not be read") {
		t.Errorf("of a Secret that cannot be read proxies are sent %v, the rule answers %d, and the policy says %s", r, failure(), w.said("BackendTrafficPolicy"))
	}
	fetched := func(url string) {
		w.Fetched(key, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "redis"}, Data: map[string][]byte{"url": []byte(url)}})
	}
	fetched("redis://user:one@192.0.2.1/0\n")
	w.commit(t)
	if got := w.config[service].GetRateLimitService().GetAddress(); got != "redis://user:one@192.0.2.1/0" || failure() != 0 || w.accepted(t, "default", "p") != "" {
		t.Errorf("the address is %q, the rule answers %d, the policy says %q", got, failure(), w.accepted(t, "default", "p"))
	}
	fetched("redis://user:two@192.0.2.1/0")
	if r := w.commit(t); len(r.Config.Upserts) != 1 || r.Config.Upserts[0].GetRateLimitService().GetAddress() != "redis://user:two@192.0.2.1/0" || len(r.Statuses) != 0 {
		t.Errorf("another password changes %v and %v", r.Config.Upserts, r.Statuses)
	}
	fetched("redis://user:se cret@192.0.2.1/0")
	w.commit(t)
	if said := w.accepted(t, "default", "p"); w.config[service] != nil || !strings.Contains(said, "neither host:port nor a URL of Redis") || strings.Contains(said, "cret@") || failure() != 500 {
		t.Errorf("of an address that is none: %q", said)
	}
	parameters = parameters.DeepCopy()
	parameters.Spec.ClassOnly = nil
	w.Upsert(parameters)
	if r := w.commit(t); len(r.SecretRequests) != 1 || r.SecretRequests[0].Needed {
		t.Errorf("without the reference are requested: %v", r.SecretRequests)
	}
}

// TestRedisAddresses: what stands in a Secret is an address, or refused.
func TestRedisAddresses(t *testing.T) {
	for text, want := range map[string]bool{"192.0.2.1:6379": true, "[2001:db8::1]:6379": true, "redis.example:6379": true, "redis://redis.example": true, "rediss://user:p%40ss@[2001:db8::1]:1/3": true,
		"": false, "redis.example": false, ":6379": false, "redis.example:0": false, "redis.example:port": false, "http://redis.example:80": false, "redis://": false, "redis:///0": false,
		"unix:///run/redis.sock": false, "redis://h:6379/0?x=\xff": false, "\xff:6379": false, "redis://h:6379/x": false, "redis://h/0/1": false, "redis://h?dial_timeout=5": false, "s3cret@redis:6379": false,
		"redis://h/00": false, "redis://h/": false, "redis://" + strings.Repeat("h", 3000): false, "redis://h#x": false, "redis://user:a b@h:1": false} {
		w := newWorldWith(options)
		class := ownClass("moongate")
		class.Spec.ParametersRef = &gwv1.ParametersReference{Group: v1alpha1.GroupName, Kind: "GatewayParameters", Name: "own", Namespace: new(gwv1.Namespace("default"))}
		w.Upsert(class)
		gw := crowdGateway(1)
		w.Upsert(gw)
		parameters := &v1alpha1.GatewayParameters{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own"}}
		parameters.Spec.ClassOnly = &v1alpha1.ClassOnly{RateLimit: &v1alpha1.RateLimit{Redis: &v1alpha1.Redis{URLSecretRef: v1alpha1.SecretKeyReference{Name: "redis", Key: "url"}}}}
		w.Upsert(parameters)
		w.Upsert(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "redis"}, Data: map[string][]byte{"url": []byte(text)}})
		w.Upsert(routeIn("default", "a"))
		w.Upsert(trafficPolicyFor(t, "default", "p", 1, "a", "rateLimit: {global: {rules: [{limit: {requests: 5, unit: Hour}}]}}"))
		w.commit(t)
		if said := w.accepted(t, "default", "p"); (said == "") != want {
			t.Errorf("%q: %q", text, said)
		}
		if _, err := ratelimit.RedisOptions(text); want && err != nil {
			t.Errorf("the proxy refuses %q", text)
		}
	}
}
