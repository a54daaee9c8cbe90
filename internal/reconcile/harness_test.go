package reconcile_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/deliver/client"
	"github.com/moongate-dev/moongate/internal/deliver/delivertest"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

// cluster is a Cluster whose Remote serves over TLS on loopback, and what it published and specified.
type cluster struct {
	*reconcile.Cluster
	remote    *deliver.Remote
	authority *testkit.Authority
	caFile    string
	address   string
	stop      func() // of the server

	mu       sync.Mutex
	statuses map[kind.ObjectKey]translate.StatusChange
	history  []translate.StatusChange
	specs    map[string]*translate.ProxySpec
}

// forever is a HoldLimit that no test reaches.
const forever = time.Hour

func newCluster(t *testing.T, limit time.Duration, change ...func(*reconcile.ClusterOptions)) *cluster {
	t.Helper()
	return newClusterAt(t, testkit.NewAuthority(t), "127.0.0.1:0", limit, change...)
}

func newClusterAt(t *testing.T, authority *testkit.Authority, address string, limit time.Duration, change ...func(*reconcile.ClusterOptions)) *cluster {
	t.Helper()
	c := &cluster{statuses: map[kind.ObjectKey]translate.StatusChange{}, specs: map[string]*translate.ProxySpec{},
		authority: authority, caFile: delivertest.CAFile(t, authority)}
	o := reconcile.ClusterOptions{
		Translator: translate.New(translate.Options{ControllerName: controller, Cluster: true}),
		Publish: func(changes []translate.StatusChange) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, s := range changes {
				c.statuses[s.Object] = s
				c.history = append(c.history, s)
			}
		},
		Provision: func(changes []translate.ProxySpecChange) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, p := range changes {
				c.specs[p.Namespace+"/"+p.Name] = p.Spec
			}
		},
		HoldLimit: limit,
	}
	for _, f := range change {
		f(&o)
	}
	c.remote = deliver.NewRemote(deliver.RemoteOptions{Authenticate: delivertest.Identity, AnswerLimit: o.HoldLimit, Logger: o.Logger})
	o.Delivery = c.remote
	c.Cluster = reconcile.NewCluster(o)
	c.address, c.stop = delivertest.Serve(t, authority, address, func(s *grpc.Server) { c.remote.Serve(s) }, deliver.ServerOptions()...)
	t.Cleanup(c.Close)
	return c
}

// remote is a client with an engine of the test's.
type remote struct {
	*client.Client
	stop func()

	mu        sync.Mutex
	resources map[config.ID]*config.Resource
	updates   int
	touched   int           // resources in updates
	gate      chan struct{} // closed: apply goes on
	listeners map[string]*proxy.ListenerError
	rejects   map[config.ID]error
}

func (r *remote) apply(u *config.Update) proxy.Result {
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	<-gate
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates++
	r.touched += len(u.Upserts) + len(u.Removals)
	rejected := map[config.ID]error{}
	for _, resource := range u.Upserts {
		if err := r.rejects[resource.ID()]; err != nil {
			rejected[resource.ID()] = err
			continue
		}
		r.resources[resource.ID()] = resource
	}
	for _, id := range u.Removals {
		delete(r.resources, id)
	}
	return proxy.Result{Generation: u.Generation, Listeners: maps.Clone(r.listeners), Rejected: rejected}
}

// failing is the failure of one listener.
func failing(key string, err error) map[string]*proxy.ListenerError {
	return map[string]*proxy.ListenerError{key: {Invalid: err}}
}

func (r *remote) rebind() proxy.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return proxy.Result{Listeners: maps.Clone(r.listeners)}
}

// block makes the next Apply wait for what is answered.
func (r *remote) block() (goOn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gate := make(chan struct{})
	r.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (r *remote) has(kind config.Kind, key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resources[config.ID{Kind: kind, Key: key}] != nil
}

func (r *remote) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for id := range r.resources {
		out = append(out, id.String())
	}
	slices.Sort(out)
	return out
}

func (r *remote) route(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	route := r.resources[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/n/r"}].GetRoute()
	return route != nil && route.Rules[0].Matches[0].Path.Value == path
}

// connect starts a proxy; change may change its Options before.
func (c *cluster) connect(t *testing.T, gateway, pod string, change ...func(*client.Options)) *remote {
	t.Helper()
	r := &remote{resources: map[config.ID]*config.Resource{}, gate: make(chan struct{})}
	close(r.gate)
	o := client.Options{
		Controller: strings.Replace(c.address, "127.0.0.1", delivertest.Host, 1), CAFile: c.caFile, Gateway: gateway, Version: "test",
		TokenFile: testkit.WriteFile(t, "token", []byte(delivertest.Token(gateway, pod))), Apply: r.apply, Rebind: r.rebind}
	for _, f := range change {
		f(&o)
	}
	r.Client = client.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	r.stop = func() { cancel(); <-done }
	t.Cleanup(r.stop)
	return r
}

func (c *cluster) set(objects ...metav1.Object) reconcile.Outcome {
	return c.Update(func(t *translate.Translator) {
		for _, o := range objects {
			t.Upsert(o)
		}
	})
}

// up says that the Gateway is reached and these pods of it are ready.
func (c *cluster) up(gateway string, pods ...string) {
	namespace, name, _ := strings.Cut(gateway, "/")
	kind := gwv1.IPAddressType
	c.SetInfrastructure(namespace, name, &translate.Infrastructure{Ready: len(pods) > 0,
		Addresses: []gwv1.GatewayStatusAddress{{Type: &kind, Value: "192.0.2.1"}}}, pods)
}

// published is the last status of an object, its zero value for none.
func (c *cluster) published(of, name string) translate.StatusChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: of, Namespace: "n", Name: name}]
}

// said is condition Programmed of a Gateway, as it was published last.
func (c *cluster) said(gateway string) (status metav1.ConditionStatus, message string) {
	s, _ := c.published("Gateway", gateway).Status.(*gwv1.GatewayStatus)
	if s == nil {
		return "", ""
	}
	for _, condition := range s.Conditions {
		if condition.Type == "Programmed" {
			return condition.Status, condition.Message
		}
	}
	return "", ""
}

func (c *cluster) programmed(gateway string) bool {
	status, _ := c.said(gateway)
	return status == metav1.ConditionTrue
}

// published generation of the route.
func (c *cluster) routeGeneration() int64 { return c.published("HTTPRoute", "r").Generation }

func (c *cluster) proxies(gateway string) []deliver.RemoteProxy {
	for _, g := range c.Status().Gateways {
		if g.Gateway == gateway {
			return g.Proxies
		}
	}
	return nil
}

// acked says that all these pods are connected and have acknowledged what is current.
func (c *cluster) acked(gateway string, pods ...string) bool {
	var current uint64
	for _, g := range c.Status().Gateways {
		if g.Gateway == gateway {
			current = g.Generation
		}
	}
	for _, pod := range pods {
		if !slices.ContainsFunc(c.proxies(gateway), func(p deliver.RemoteProxy) bool {
			return p.Pod == pod && p.Connected && p.Acked > 0 && p.Acked == current
		}) {
			return false
		}
	}
	return true
}

func edited(path string, generation int64) *gwv1.HTTPRoute {
	r := redirect(path)
	r.Generation = generation
	return r
}

func named(gw *gwv1.Gateway, name string) *gwv1.Gateway {
	gw.Name = name
	return gw
}

// started is a cluster with one Gateway and one ready proxy of it, all in order.
func started(t *testing.T, limit time.Duration, change ...func(*reconcile.ClusterOptions)) (*cluster, *remote) {
	t.Helper()
	c := newCluster(t, limit, change...)
	c.set(class(), gateway(80), edited("/one", 1))
	c.Lead("first")
	p := c.connect(t, "n/gw", "pod-0")
	testkit.Eventually(t, "the proxy is configured", func() bool { return c.acked("n/gw", "pod-0") })
	c.up("n/gw", "pod-0")
	testkit.Eventually(t, "the Gateway is programmed", func() bool { return c.programmed("gw") })
	return c, p
}

// keyPair is a Secret with a certificate of its own.
func keyPair(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	certificate, key := testkit.Certificate{Hosts: []string{"localhost"}}.PEM(t)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}}
}
