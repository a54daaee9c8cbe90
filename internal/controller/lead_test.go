package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// replica is one that campaigns; leading tells whether it leads now.
type replica struct {
	leading atomic.Bool
	terms   atomic.Int32
	stop    context.CancelFunc
	done    sync.WaitGroup
	away    atomic.Bool  // the API server, for this replica
	hangs   atomic.Bool  // likewise: requests end by their deadlines
	ending  atomic.Int64 // how long it takes to end, in nanoseconds
	log     testkit.Log
}

// startReplica campaigns until the test ends; together counts how many lead at a time.
func startReplica(t *testing.T, cluster *fake.Clientset, identity string, together *atomic.Int32) *replica {
	r := &replica{}
	// Each replica reaches the one cluster by a way of its own, which can be cut.
	clients := &fake.Clientset{}
	clients.AddReactor("*", "*", func(action clientgotesting.Action) (bool, runtime.Object, error) {
		if r.hangs.Load() {
			time.Sleep(renewDeadline)
			return true, nil, context.DeadlineExceeded
		}
		if r.away.Load() {
			return true, nil, errors.New("the API server is away")
		}
		object, err := cluster.Invokes(action, nil)
		return true, object, err
	})
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	e := election{leases: clients.CoordinationV1(), namespace: "n", identity: identity, controllerName: "example.org/x", log: slog.New(slog.NewTextHandler(&r.log, nil)),
		lead: func(ctx context.Context) {
			if together.Add(1) > 1 {
				t.Error("two lead at a time")
			}
			r.terms.Add(1)
			r.leading.Store(true)
			<-ctx.Done()
			time.Sleep(time.Duration(r.ending.Load()))
			r.leading.Store(false)
			together.Add(-1)
		}}
	r.done.Go(func() {
		if err := e.run(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestAnnotatedLease checks that the Lease names its controller, also one that was written without that.
func TestAnnotatedLease(t *testing.T) {
	for name, existing := range map[string][]runtime.Object{
		"none":                    nil,
		"one of an older version": {&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: LeaseName, Annotations: map[string]string{"a": "b"}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := fake.NewClientset(existing...)
			var together atomic.Int32
			a := startReplica(t, cluster, "a", &together)
			time.Sleep(time.Minute)
			lease, err := cluster.CoordinationV1().Leases("n").Get(t.Context(), LeaseName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if lease.Annotations[AnnotationController] != "example.org/x" || (existing != nil) != (lease.Annotations["a"] == "b") {
				t.Errorf("%s: annotations %v", name, lease.Annotations)
			}
			a.stop()
			a.done.Wait()
		})
	}
}

// TestElection checks that one of two leads, the other takes over when it ends, and that one
// which the API server is away from steps down in time, and leads again later.
func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset()
		var together atomic.Int32
		a := startReplica(t, cluster, "a", &together)
		time.Sleep(5 * time.Second)
		b := startReplica(t, cluster, "b", &together)
		time.Sleep(time.Minute)
		if !a.leading.Load() || b.leading.Load() || a.terms.Load() != 1 {
			t.Fatalf("a leads: %v, b leads: %v, terms of a: %d", a.leading.Load(), b.leading.Load(), a.terms.Load())
		}

		a.away.Store(true)
		time.Sleep(2 * leaseDuration)
		if a.leading.Load() || !b.leading.Load() {
			t.Fatalf("cut off from the API server, a leads: %v, b leads: %v", a.leading.Load(), b.leading.Load())
		}
		a.away.Store(false)
		time.Sleep(time.Minute)
		if a.leading.Load() || b.terms.Load() != 1 {
			t.Fatalf("back, a leads: %v, terms of b: %d", a.leading.Load(), b.terms.Load())
		}

		b.stop()
		b.done.Wait()
		if b.leading.Load() {
			t.Fatal("b leads after its end")
		}
		time.Sleep(3 * retryPeriod)
		if !a.leading.Load() || a.terms.Load() != 2 {
			t.Fatalf("3 tries after the end of b, a leads: %v, terms: %d", a.leading.Load(), a.terms.Load())
		}
		a.stop()
		a.done.Wait()
		if n, m := strings.Count(a.log.String(), "cannot be read or written"), strings.Count(a.log.String(), "can be read and written again"); n != 1 || m != 1 {
			t.Errorf("the API server was away once, and is said to be %d times, and back %d times:\n%s", n, m, &a.log)
		}
	})
}

// TestHangingServer checks that one whose requests hang has ended before another one leads.
func TestHangingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset()
		var together atomic.Int32 // startReplica fails the test where two lead
		a := startReplica(t, cluster, "a", &together)
		time.Sleep(5 * time.Second)
		b := startReplica(t, cluster, "b", &together)
		time.Sleep(time.Minute)
		a.hangs.Store(true)
		time.Sleep(leaseDuration + renewDeadline)
		if a.leading.Load() || !b.leading.Load() {
			t.Fatalf("while requests of a hang, a leads: %v, b leads: %v", a.leading.Load(), b.leading.Load())
		}
		a.hangs.Store(false)
		b.stop()
		b.done.Wait()
		time.Sleep(renewDeadline + 3*retryPeriod)
		if !a.leading.Load() {
			t.Fatal("a does not lead again")
		}
		a.stop()
		a.done.Wait()
	})
}

// TestLost checks that one which finds the Lease with another, as after having been stopped for a while, leads no
// moment longer, and campaigns on.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset()
		var together atomic.Int32
		a := startReplica(t, cluster, "a", &together)
		time.Sleep(time.Minute + retryPeriod/2) // between two renewals, of which the fake would take one after the other's
		leases := cluster.CoordinationV1().Leases("n")
		lease, err := leases.Get(t.Context(), LeaseName, metav1.GetOptions{})
		if err != nil || !a.leading.Load() {
			t.Fatalf("a leads: %v, error %v", a.leading.Load(), err)
		}
		other, now := "other", metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.ResourceVersion = &other, &now, ""
		// The fake takes any update; the API server would refuse one of the version before.
		var taken atomic.Bool
		cluster.PrependReactor("update", "leases", func(action clientgotesting.Action) (bool, runtime.Object, error) {
			if taken.Load() && time.Since(now.Time) < leaseDuration {
				return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, LeaseName, errors.New("it was changed"))
			}
			return false, nil, nil
		})
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		taken.Store(true)
		time.Sleep(2 * retryPeriod)
		if a.leading.Load() {
			t.Errorf("a leads on beside another one")
		}
		time.Sleep(3 * leaseDuration)
		if !a.leading.Load() || a.terms.Load() != 2 {
			t.Errorf("the other one is gone, a leads: %v, terms: %d", a.leading.Load(), a.terms.Load())
		}
		a.stop()
		a.done.Wait()
	})
}

// TestHandover checks that a leader that is told to end gives the Lease to another one when it has ended, and not before.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset()
		var together atomic.Int32
		a := startReplica(t, cluster, "a", &together)
		time.Sleep(5 * time.Second)
		b := startReplica(t, cluster, "b", &together)
		time.Sleep(time.Minute)
		a.ending.Store(int64(4 * retryPeriod))
		a.stop()
		time.Sleep(3 * retryPeriod)
		if !a.leading.Load() || b.leading.Load() {
			t.Errorf("while a ends, a leads: %v, b leads: %v", a.leading.Load(), b.leading.Load())
		}
		a.done.Wait()
		time.Sleep(3 * retryPeriod)
		if a.leading.Load() || !b.leading.Load() {
			t.Errorf("3 tries after the end of a, a leads: %v, b leads: %v", a.leading.Load(), b.leading.Load())
		}
		b.stop()
		b.done.Wait()
	})
}
