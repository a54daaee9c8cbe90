package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/client"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

// vault answers reads of Secrets; those of hanging names wait until they are let go, or ctx ends.
type vault struct {
	t *testing.T

	mu      sync.Mutex
	hangs   map[string]chan struct{}
	secrets map[string]*corev1.Secret
	calls   []string
	present map[string]bool // what was said last of each
}

func newVault(t *testing.T) *vault {
	return &vault{t: t, hangs: map[string]chan struct{}{}, secrets: map[string]*corev1.Secret{}, present: map[string]bool{}}
}

// hang makes reads of a Secret wait, and returns what lets them go on.
func (v *vault) hang(name string) (goOn func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := make(chan struct{})
	v.hangs[name] = c
	return sync.OnceFunc(func() { close(c) })
}

func (v *vault) fetch(ctx context.Context, requests []translate.SecretRequest) (out []metav1.Object) {
	for _, r := range requests {
		name := r.Object.Name
		v.mu.Lock()
		v.calls = append(v.calls, fmt.Sprint(name, " ", r.Needed))
		v.present[name] = r.Needed
		hang := v.hangs[name]
		if v.secrets[name] == nil {
			v.secrets[name] = keyPair(v.t, r.Object.Namespace, name)
		}
		secret := v.secrets[name]
		v.mu.Unlock()
		if !r.Needed {
			continue
		}
		if hang != nil {
			select {
			case <-hang:
			case <-ctx.Done():
				return nil
			}
		}
		out = append(out, secret)
	}
	return out
}

func (v *vault) options(o *reconcile.ClusterOptions) { o.Fetch = v.fetch }

// secured is a Gateway with a listener for HTTP and one for HTTPS with each of these certificates.
func secured(name string, generation int64, secrets ...gwv1.ObjectName) *gwv1.Gateway {
	g := named(gateway(80), name)
	g.Generation = generation
	mode := gwv1.TLSModeTerminate
	for i, secret := range secrets {
		g.Spec.Listeners = append(g.Spec.Listeners, gwv1.Listener{Name: gwv1.SectionName("tls-" + string(secret)), Port: gwv1.PortNumber(443 + i), Protocol: gwv1.HTTPSProtocolType,
			TLS: &gwv1.ListenerTLSConfig{Mode: &mode, CertificateRefs: []gwv1.SecretObjectReference{{Name: secret}}}})
	}
	return g
}

// TestSecretThatHangs: a Secret whose read takes for ever delays what its own Gateway is sent, and nothing else: not the
// updates of others, not what the cluster says of them, and not the end of the leader.
func TestSecretThatHangs(t *testing.T) {
	v := newVault(t)
	c, p := started(t, 50*time.Millisecond, v.options)
	c.set(named(gateway(81), "other"))
	other := c.connect(t, "n/other", "pod-0")
	c.up("n/other", "pod-0")
	testkit.Eventually(t, "both are served", func() bool { return c.programmed("gw") && c.programmed("other") && c.acked("n/other", "pod-0") })
	c.set(secured("gw", 2, "quick"))
	testkit.Eventually(t, "the first certificate is served", func() bool {
		return p.has(config.KindCertificate, "Secret/n/quick") && c.published("Gateway", "gw").Generation == 2
	})

	goOn := v.hang("slow")
	defer goOn()
	within(t, "an Update with a Secret that cannot be read", func() { c.set(secured("gw", 3, "slow")) })
	within(t, "an Update of another Gateway", func() {
		g := named(gateway(82), "other")
		g.Generation = 2
		c.set(g)
	})
	testkit.Eventually(t, "the other Gateway is served", func() bool {
		return c.published("Gateway", "other").Generation == 2 && c.acked("n/other", "pod-0") && c.programmed("other")
	})
	within(t, "what the cluster says", func() { c.up("n/gw", "pod-0") })
	if !p.has(config.KindListener, "n/gw/tls-quick") || p.has(config.KindListener, "n/gw/tls-slow") {
		t.Errorf("the proxy has %v; it should keep what it had", p.ids())
	}
	if g := c.published("Gateway", "gw").Generation; g != 2 {
		t.Errorf("a status of generation %d was published, of which not everything is known", g)
	}
	if proxies := c.proxies("n/gw"); len(proxies) != 1 || proxies[0].Overdue {
		t.Errorf("the proxy is blamed: %+v", proxies)
	}

	within(t, "the end of the leader", c.Standby)
	if c.Status().Leading {
		t.Error("it leads on")
	}
	c.Lead("second")
	testkit.Eventually(t, "the proxy is back", func() bool { return c.proxies("n/gw")[0].Connected })
	goOn()
	testkit.Eventually(t, "the second certificate is served", func() bool {
		return p.has(config.KindCertificate, "Secret/n/slow") && !p.has(config.KindListener, "n/gw/tls-quick") &&
			c.published("Gateway", "gw").Generation == 3 && c.programmed("gw")
	})
	for _, s := range c.copyHistory() {
		if status, _ := s.Status.(*gwv1.GatewayStatus); status != nil && s.Generation > 1 {
			for _, l := range status.Listeners {
				if has(l.Conditions, "ResolvedRefs", metav1.ConditionFalse) {
					t.Errorf("generation %d was published with an unknown Secret as a missing one: %v", s.Generation, l)
				}
			}
		}
	}
	other.stop()
}

// within fails the test where f takes longer than a replica that loses its Lease has left until another one may lead.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(3 * time.Second): // the Lease lasts 10 s, and renewing it is given up after 7
		t.Fatalf("%s waits for a Secret that cannot be read", what)
	}
}

// TestFirstGenerationWaitsForSecrets: a controller that starts sends no proxy a configuration without its certificates.
func TestFirstGenerationWaitsForSecrets(t *testing.T) {
	v := newVault(t)
	goOn := v.hang("slow")
	defer goOn()
	c := newCluster(t, forever, v.options)
	c.set(class(), secured("gw", 1, "slow"), secured("other", 1, "quick"))
	c.Lead("first")
	p, other := c.connect(t, "n/gw", "pod-0"), c.connect(t, "n/other", "pod-0")
	testkit.Eventually(t, "the other Gateway is served with its certificate", func() bool {
		return c.acked("n/other", "pod-0") && other.has(config.KindCertificate, "Secret/n/quick")
	})
	if got := p.ids(); len(got) > 0 {
		t.Errorf("before its Secret is known, the proxy has %v", got)
	}
	goOn()
	testkit.Eventually(t, "it is served with its certificate", func() bool { return p.has(config.KindCertificate, "Secret/n/slow") })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.updates != 1 {
		t.Errorf("it was sent %d generations, want 1", p.updates)
	}
}

// TestFetchInOrder: of a Secret that is wanted, unwanted and wanted again, the last word is said last, and one that is
// no longer wanted is not waited for.
func TestFetchInOrder(t *testing.T) {
	v := newVault(t)
	goOn := v.hang("slow")
	defer goOn()
	c, p := started(t, forever, v.options)
	called := func(call string) func() bool {
		return func() bool {
			v.mu.Lock()
			defer v.mu.Unlock()
			return slices.Contains(v.calls, call)
		}
	}
	c.set(secured("gw", 2, "slow"))
	testkit.Eventually(t, "it is read", called("slow true"))
	c.set(secured("gw", 3))
	testkit.Eventually(t, "it is no longer wanted", called("slow false"))
	testkit.Eventually(t, "nobody waits for it", func() bool { return c.published("Gateway", "gw").Generation == 3 })
	for i := range 20 {
		c.set(secured("gw", int64(4+2*i), "slow"))
		c.set(secured("gw", int64(5+2*i)))
	}
	testkit.Eventually(t, "nobody waits for it", func() bool { return c.published("Gateway", "gw").Generation == 43 })
	testkit.Eventually(t, "the last word was that it is not wanted", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return !v.present["slow"]
	})
	c.set(secured("gw", 44, "slow"))
	goOn()
	testkit.Eventually(t, "it is served", func() bool { return p.has(config.KindCertificate, "Secret/n/slow") })
}

// TestNewerThanFetched: what was read is not put in the place of what an Update brought meanwhile.
func TestNewerThanFetched(t *testing.T) {
	v := newVault(t)
	goOn := v.hang("s")
	defer goOn()
	newer := keyPair(t, "n", "s")
	c, p := started(t, forever, v.options, func(o *reconcile.ClusterOptions) {
		o.Current = func(kind.ObjectKey) metav1.Object { return newer }
	})
	c.set(secured("gw", 2, "s"))
	c.set(newer)
	goOn()
	testkit.Eventually(t, "it is served", func() bool { return p.has(config.KindCertificate, "Secret/n/s") })
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.resources[config.ID{Kind: config.KindCertificate, Key: "Secret/n/s"}].GetCertificate()
	if string(got.ChainPem) != string(newer.Data[corev1.TLSCertKey]) {
		t.Error("the older one is served")
	}
}

// TestUnreadSecretsWithdrawNothing: a controller that begins to lead and cannot read a Secret, even because it is not allowed to, sends everything else at once. Proxies that have the
// certificate keep it, also through a restart of theirs and another leader, and others go without, until the Secret is read or known to be gone.
func TestUnreadSecretsWithdrawNothing(t *testing.T) {
	for _, forbidden := range []bool{false, true} {
		for _, gone := range []bool{false, true} {
			t.Run(fmt.Sprintf("forbidden=%v gone=%v", forbidden, gone), func(t *testing.T) {
				v := newVault(t)
				unread := &translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "kept"}, Forbidden: forbidden}
				var known atomic.Bool // of the Secret, to the first controller
				made := 0
				p := newPair(t, forever, v.options, func(o *reconcile.ClusterOptions) {
					if made++; made == 1 {
						o.Current = func(key kind.ObjectKey) metav1.Object {
							switch {
							case known.Load() && gone:
								return nil
							case known.Load() || key.Name != "kept":
								return v.secret(key.Name)
							}
							return unread
						}
					}
				})
				p.set(class(), secured("gw", 1, "kept", "quick"), edited("/one", 1))
				dir := t.TempDir()
				stored := func(o *client.Options) { o.StateDir = dir }
				leader := p.change()
				proxy := leader.connect(t, "n/gw", "pod-0", stored)
				testkit.Eventually(t, "the proxy has both certificates", func() bool {
					return leader.acked("n/gw", "pod-0") && certified(proxy, "kept") && certified(proxy, "quick")
				})
				p.up("n/gw", "pod-0")
				touched := proxy.count()

				leader = p.change() // who could not read it
				testkit.Eventually(t, "it is served by the new leader", func() bool { return leader.acked("n/gw", "pod-0") && leader.programmed("gw") })
				if got := proxy.count(); got != touched || !certified(proxy, "kept") {
					t.Errorf("%d resources were changed, and the proxy has %v", got-touched, proxy.ids())
				}
				testkit.Eventually(t, "the status says that it cannot be read, and is served", func() bool {
					s, _ := leader.published("Gateway", "gw").Status.(*gwv1.GatewayStatus)
					return s != nil && slices.ContainsFunc(s.Listeners, func(l gwv1.ListenerStatus) bool {
						return l.Name == "tls-kept" && has(l.Conditions, "ResolvedRefs", metav1.ConditionFalse) && has(l.Conditions, "Programmed", metav1.ConditionTrue)
					})
				})
				fresh := leader.connect(t, "n/gw", "pod-1")
				p.set(edited("/two", 2))
				testkit.Eventually(t, "an edit is served, and a proxy that has nothing to keep", func() bool {
					return proxy.route("/two") && fresh.route("/two") && fresh.has(config.KindListener, "n/gw/tls-kept") && certified(fresh, "quick")
				})
				if certified(fresh, "kept") || !certified(proxy, "kept") {
					t.Errorf("the proxies have %v and %v", fresh.ids(), proxy.ids())
				}
				proxy.stop()
				proxy = leader.connect(t, "n/gw", "pod-0", stored)
				testkit.Eventually(t, "it has restarted", func() bool { return leader.acked("n/gw", "pod-0") && proxy.route("/two") })
				if !certified(proxy, "kept") {
					t.Errorf("after a restart the proxy has %v", proxy.ids())
				}
				leader.Standby()
				leader.Lead("another-term")
				testkit.Eventually(t, "the leader of another term serves it", func() bool { return leader.acked("n/gw", "pod-0", "pod-1") })
				if !certified(proxy, "kept") {
					t.Errorf("under another leader the proxy has %v", proxy.ids())
				}

				touched = proxy.count()
				known.Store(true)
				if gone {
					leader.Update(func(t *translate.Translator) { t.Delete(translate.KindSecret, "n", "kept") })
					testkit.Eventually(t, "it is removed", func() bool { return !certified(proxy, "kept") && leader.acked("n/gw", "pod-0", "pod-1") })
					return
				}
				leader.set(v.secret("kept"))
				testkit.Eventually(t, "all have it", func() bool { return certified(fresh, "kept") && leader.acked("n/gw", "pod-0", "pod-1") })
				if got := proxy.count(); got != touched || !certified(proxy, "kept") {
					t.Errorf("%d resources of the proxy that had it were changed", got-touched)
				}
			})
		}
	}
}

// certified reports whether a proxy has the certificate of a Secret.
func certified(r *remote, secret string) bool {
	return r.has(config.KindCertificate, "Secret/n/"+secret)
}

// count returns how many resources a proxy was told of.
func (r *remote) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.touched
}

// TestAnUnreadNamespaceHoldsTheFirstGeneration: while nobody knows whether a Gateway may use a Secret of another namespace, because that cannot be
// read, proxies that have a configuration keep it, for however long, and the Gateway its status. Those that have none are served.
func TestAnUnreadNamespaceHoldsTheFirstGeneration(t *testing.T) {
	v := newVault(t)
	// A proxy that lost its stream is back well within the limit.
	c := newCluster(t, 2*time.Second, v.options)
	central := gwv1.Namespace("central")
	abroad := func(name string) *gwv1.Gateway {
		g := secured(name, 1, "s")
		g.Spec.Listeners[1].TLS.CertificateRefs[0].Namespace = &central
		return g
	}
	grant := &gwv1.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "central", Name: "g"}, Spec: gwv1.ReferenceGrantSpec{
		From: []gwv1.ReferenceGrantFrom{{Group: gwv1.GroupName, Kind: "Gateway", Namespace: "n"}}, To: []gwv1.ReferenceGrantTo{{Kind: "Secret"}}}}
	readable := func(is bool) {
		c.Update(func(t *translate.Translator) {
			i := translate.Installed{Kinds: []translate.Kind{translate.KindHTTPRoute}}
			if is {
				t.Upsert(grant)
			} else {
				t.Delete(translate.KindReferenceGrant, "central", "g")
				i.UnreadNamespaces = []string{"central"}
			}
			t.SetInstalled(i)
		})
	}
	certified := func(p *remote) func() bool {
		return func() bool { return p.has(config.KindCertificate, "Secret/central/s") }
	}
	route := edited("/one", 1)
	route.Spec.ParentRefs = append(route.Spec.ParentRefs, gwv1.ParentReference{Name: "other"})
	c.set(class(), abroad("gw"), secured("other", 1, "quick"), route, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "central"}})
	readable(true)
	c.Lead("zero")
	p, other := c.connect(t, "n/gw", "pod-0"), c.connect(t, "n/other", "pod-0")
	c.up("n/gw", "pod-0")
	c.up("n/other", "pod-0")
	testkit.Eventually(t, "both are served", func() bool {
		return certified(p)() && other.has(config.KindCertificate, "Secret/n/quick") && c.programmed("gw") && c.programmed("other") && c.routeGeneration() == 1
	})

	c.Standby()
	readable(false)
	c.Lead("first")
	testkit.Eventually(t, "the other Gateway is served", func() bool { return c.acked("n/other", "pod-0") })
	testkit.Eventually(t, "the proxy is connected", func() bool { return len(c.proxies("n/gw")) == 1 && c.proxies("n/gw")[0].Connected })
	route = edited("/two", 2)
	route.Spec.ParentRefs = append(route.Spec.ParentRefs, gwv1.ParentReference{Name: "other"})
	c.set(route)
	testkit.Eventually(t, "the route's status comes for the sake of its other parent", func() bool { return c.routeGeneration() == 2 })
	c.set(abroad("late"))
	c.connect(t, "n/late", "pod-0")
	testkit.Eventually(t, "a Gateway that has nothing to keep is served, and its status says what is wrong", func() bool {
		s, _ := c.published("Gateway", "late").Status.(*gwv1.GatewayStatus)
		return c.acked("n/late", "pod-0") && s != nil && slices.ContainsFunc(s.Listeners[1].Conditions, func(c metav1.Condition) bool {
			return c.Reason == string(gwv1.ListenerReasonRefNotPermitted) && strings.Contains(c.Message, "central")
		})
	})
	fresh := c.connect(t, "n/gw", "pod-1")
	testkit.Eventually(t, "a proxy that has nothing to keep is served", func() bool { return fresh.has(config.KindListener, "n/gw/l0") })
	if !certified(p)() || p.route("/two") {
		t.Errorf("before the namespace is read, the proxy has %v", p.ids())
	}
	if !c.programmed("gw") {
		t.Errorf("its status is %v", c.published("Gateway", "gw").Status)
	}
	readable(true)
	testkit.Eventually(t, "all are served with the certificate", func() bool {
		return certified(p)() && p.route("/two") && certified(fresh)() && c.acked("n/gw", "pod-0", "pod-1") && c.programmed("gw")
	})

	// A pod that is ready and does not connect holds nothing up for longer than at any other Gateway.
	c.up("n/other", "pod-0", "pod-1")
	testkit.Eventually(t, "the pod is overdue", func() bool {
		return c.programmed("other") && len(c.proxies("n/other")) == 2 && c.acked("n/other", "pod-0")
	})

	// What was sent once is not held back again.
	changed := secured("other", 2, "quick")
	changed.Spec.Listeners[1].TLS.CertificateRefs = append(changed.Spec.Listeners[1].TLS.CertificateRefs, gwv1.SecretObjectReference{Name: "s", Namespace: &central})
	readable(false)
	c.set(changed)
	c.set(named(gateway(83), "other"))
	testkit.Eventually(t, "a change is served", func() bool { return !other.has(config.KindCertificate, "Secret/n/quick") })
	changed = changed.DeepCopy()
	changed.Generation = 3
	c.set(changed)
	testkit.Eventually(t, "its status comes though one pod says nothing", func() bool { return c.published("Gateway", "other").Generation == 3 })
}

// secret is what was read of a name.
func (v *vault) secret(name string) *corev1.Secret {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.secrets[name]
}
