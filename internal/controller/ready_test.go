package controller

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/provision"
	"github.com/moongate-dev/moongate/internal/source/kube"
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
