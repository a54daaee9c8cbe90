package reconcile_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestAlive asks whether a Cluster is alive while it translates a cluster for the first time, which
// takes longer than a limit of a nanosecond and less than the default.
func TestAlive(t *testing.T) {
	remote := func(limit time.Duration) *reconcile.Cluster {
		r := reconcile.NewCluster(reconcile.ClusterOptions{
			Delivery:    deliver.NewRemote(deliver.RemoteOptions{}),
			Translator:  translate.New(translate.Options{ControllerName: "moongate.dev/gateway-controller", Cluster: true}),
			Publish:     func([]translate.StatusChange) {},
			Provision:   func([]translate.ProxySpecChange) {},
			CommitLimit: limit,
		})
		t.Cleanup(r.Close)
		return r
	}
	// dead says whether it ever was not alive until the update was done.
	dead := func(r *reconcile.Cluster) (once bool) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Update(func(t *translate.Translator) {
				for i := range 2000 {
					route := &gwv1.HTTPRoute{}
					route.Namespace, route.Name = "default", fmt.Sprint("r", i)
					t.Upsert(route)
				}
			})
		}()
		for {
			select {
			case <-done:
				return once
			default:
				once = once || r.Alive() != nil
				runtime.Gosched()
			}
		}
	}
	r := remote(time.Nanosecond)
	if err := r.Alive(); err != nil {
		t.Errorf("before anything is translated: %v", err)
	}
	if !dead(r) {
		t.Error("alive although a Commit takes longer than the limit")
	}
	if err := r.Alive(); err != nil {
		t.Errorf("after it: %v", err)
	}
	if dead(remote(0)) {
		t.Error("not alive within the default limit")
	}
}
