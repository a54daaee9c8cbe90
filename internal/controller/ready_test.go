package controller

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/provision"
	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

// TestReady: a replica that cannot lead, because it has not read what runs for Gateways, is not ready.
func TestReady(t *testing.T) {
	p, err := provision.New(provision.Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{full: make(chan struct{}), provisioner: p}
	close(c.full)
	if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "ConfigMap: not listed yet") {
		t.Errorf("it says %v", err)
	}
}

// TestReadyWithKeys: a replica that cannot fetch the keys by which proxies' tokens are verified is not ready, says why, and does not lead; once it has them it does.
func TestReadyWithKeys(t *testing.T) {
	s := apiserver.New()
	for resource, kind := range map[string]string{"serviceaccounts": "ServiceAccount", "configmaps": "ConfigMap", "services": "Service", "pods": "Pod"} {
		s.Serve(apiserver.Kind{Version: "v1", Resource: resource, Kind: kind})
	}
	s.Serve(apiserver.Kind{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"})
	s.Serve(apiserver.Kind{Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet"})
	s.Serve(apiserver.Kind{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget"})
	s.Serve(apiserver.Kind{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler"})
	var permitted atomic.Bool
	c, err := New(Options{Config: &rest.Config{Host: apiserver.WithKeys(t, s, permitted.Load), ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, ControllerName: "moongate.dev/gateway-controller",
		Namespace: "moongate-system", Identity: "a", Image: "image", DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller"})
	if err != nil {
		t.Fatal(err)
	}
	c.tickets.Secret = func() ([]byte, error) { return []byte("secret"), nil }
	c.change(kube.Change{Full: true})
	close(c.full)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); c.loop.Close(); all.Wait() })
	for _, run := range []func(context.Context) error{c.provisioner.Watch, c.verifier.Run, c.elect} {
		all.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, "it says why it is not ready", func() bool {
		err := c.Ready()
		return err != nil && strings.Contains(err.Error(), "/openid/v1/jwks is refused (403 Forbidden)")
	})
	if c.Leading() {
		t.Error("it leads without keys")
	}
	permitted.Store(true)
	testkit.Eventually(t, "it is ready and leads", func() bool { return c.Ready() == nil && c.Leading() })
}

// TestReadyWithAuthority: a replica that waits for its certificate authority, before it reads anything, says so.
func TestReadyWithAuthority(t *testing.T) {
	c, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, ControllerName: "moongate.dev/gateway-controller", Namespace: "moongate-system",
		Identity: "a", Image: "image", DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	all.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "it says what it waits for", func() bool {
		err := c.Ready()
		return err != nil && strings.Contains(err.Error(), "the certificate authority cannot be read or created: ") && strings.Contains(err.Error(), "connection refused")
	})
}

// TestLeaseLostMeanwhile: a replica that lost the Lease while it waited for a translation is on standby before it does anything else.
func TestLeaseLostMeanwhile(t *testing.T) {
	var c *Controller
	translated := 0
	c, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, ControllerName: "moongate.dev/gateway-controller", Namespace: "moongate-system",
		Identity: "a", Image: "image", DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller",
		Translated: func(incremental.Stats, time.Duration) {
			if c.loop.Status().Leading {
				translated++
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.loop.Close)
	c.tickets.Secret = func() ([]byte, error) { return []byte("secret"), nil }
	c.change(kube.Change{Full: true})
	ctx, lose := context.WithCancel(t.Context())
	lose()
	c.lead(ctx)
	if translated > 0 || c.loop.Status().Leading || c.Leading() {
		t.Errorf("%d translations as a leader without the Lease", translated)
	}
}

// TestLeaseLostInSweep: a replica that loses the Lease while its first sweep waits for a translation serves no proxy from then on. What
// ends that does not end the next time as leader.
func TestLeaseLostInSweep(t *testing.T) {
	var c *Controller
	var lose context.CancelFunc
	var ended bool
	c, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, ControllerName: "moongate.dev/gateway-controller", Namespace: "moongate-system",
		Identity: "a", Image: "image", DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller",
		Translated: func(incremental.Stats, time.Duration) {
			if lose == nil {
				return
			}
			lose()
			for until := time.Now().Add(5 * time.Second); c.loop.Status().Leading && time.Now().Before(until); {
				time.Sleep(time.Millisecond)
			}
			ended, lose = !c.loop.Status().Leading, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.loop.Close)
	c.tickets.Secret = func() ([]byte, error) { return []byte("secret"), nil }
	c.change(kube.Change{Full: true})
	ctx, cancel := context.WithCancel(t.Context())
	lose = cancel
	c.lead(ctx)
	if !ended || c.Leading() {
		t.Errorf("it was silent while the translation went on: %v; it leads: %v", ended, c.Leading())
	}
	ctx, end := context.WithCancel(t.Context())
	var leading sync.WaitGroup
	leading.Go(func() { c.lead(ctx) })
	for until := time.Now().Add(time.Minute); !c.loop.Status().Leading && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if !c.loop.Status().Leading {
		t.Error("it does not lead again")
	}
	end()
	leading.Wait()
}
