package controller

import (
	"context"
	"crypto/rand"
	"log/slog"
	"math"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// LeaseName is the name of the Lease by which replicas elect the leader, in the namespace of the controller.
const LeaseName = "moongate-controller"

// AnnotationController is the annotation of the Lease with the controller name of the replicas. The name of the Lease is the same for
// every installation of a cluster, and a controller name is no valid label value.
const AnnotationController = v1alpha1.GroupName + "/controller"

// How long the end of a leader goes unnoticed. Proxies continue to serve, so only changes are delayed; with shorter times a slow API
// server would change the leader.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = time.Second
)

// elect leads whenever this replica has the Lease, until ctx ends.
func (c *Controller) elect(ctx context.Context) error {
	// A leader that has not read all objects, and those that run for Gateways, would report that nothing runs. One that cannot
	// verify tokens would refuse the streams of proxies that another replica could serve.
	for _, seen := range []<-chan struct{}{c.full, c.provisioner.Listed(), c.verifier.Known()} {
		select {
		case <-seen:
		case <-ctx.Done():
			return nil
		}
	}
	if !c.o.LeaderElection {
		c.lead(ctx)
		return nil
	}
	e := election{leases: c.clients.CoordinationV1(), namespace: c.o.Namespace, identity: c.o.Identity, controllerName: c.o.ControllerName, lead: c.lead, log: c.log}
	return e.run(ctx)
}

// election is the participation of one replica in leader election.
type election struct {
	leases              coordinationv1.LeasesGetter
	namespace, identity string
	controllerName      string
	// lead is called when this replica has the Lease, and must return soon after its context ends. Calls do not overlap.
	lead func(context.Context)
	log  *slog.Logger
	// trouble is why the Lease cannot be read or written, as logged; "" while it can.
	trouble string
}

// run participates again and again until ctx ends: a replica that has lost the Lease keeps its state. When it returns, lead has
// returned.
func (e *election) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := e.term(ctx); err != nil {
			return err
		}
	}
	return nil
}

// term waits for the Lease, and leads until the Lease is lost or ctx ends.
func (e *election) term(ctx context.Context) error {
	// The elector calls OnStartedLeading in a separate goroutine, possibly only after it has ended.
	var (
		leading sync.WaitGroup
		mu      sync.Mutex
		begun   bool
		over    bool
	)
	ctx, end := context.WithCancel(ctx)
	defer end()
	// The elector releases the Lease when its context ends, and another replica may then lead at once: so it must end after lead.
	holding, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	context.AfterFunc(ctx, func() {
		mu.Lock()
		over = true
		mu.Unlock()
		leading.Wait()
		giveBack()
	})
	// The elector itself would continue for the rest of renewDeadline: a replica that was suspended for a while may resume when
	// another one already leads.
	lost := func() {
		mu.Lock()
		defer mu.Unlock()
		if begun {
			end()
		}
	}
	// The elector ends the term of a replica that cannot renew the Lease only after it has tried to release it, by a request that
	// may hang for another renewDeadline. Others take the Lease leaseDuration after it was last written, so the term must end before
	// that in any case.
	expiry := time.AfterFunc(math.MaxInt64, lost)
	defer expiry.Stop()
	kept := func(begin time.Time) { expiry.Reset(leaseDuration - retryPeriod - time.Since(begin)) }
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &notedLock{log: e.log, trouble: &e.trouble, lost: lost, kept: kept, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.namespace, Name: LeaseName},
			Client:     annotatedLeases{e.leases, e.controllerName},
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
		}},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Name:            LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				mu.Lock()
				if over {
					mu.Unlock()
					return
				}
				begun = true
				leading.Add(1)
				mu.Unlock()
				defer leading.Done()
				term, stop := context.WithCancel(ctx)
				defer stop()
				context.AfterFunc(held, stop)
				e.lead(term)
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { e.log.Info("the leader is", "identity", identity) },
		},
	})
	if err != nil {
		return err
	}
	elector.Run(klog.NewContext(holding, klog.Logger{})) // notedLock logs it, once
	end()
	<-holding.Done()
	return nil
}

// lead serves proxies, provisions them and writes statuses until ctx ends.
func (c *Controller) lead(ctx context.Context) {
	epoch := rand.Text()
	c.log.Info("leading", "epoch", epoch)
	c.setLeading(true)
	c.inherit()
	c.loop.Lead(epoch)
	// They end after Standby, so that nothing is passed to a part that has ended.
	parts, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	// Standby is called at once, whatever this function waits for: sweep waits for a translation.
	silent := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(silent)
		c.loop.Standby()
		end()
	})
	if ctx.Err() != nil { // the Lease was lost while Lead waited for a translation
		<-silent
	} else {
		c.sweep()
	}
	var all sync.WaitGroup
	for what, run := range map[string]func(context.Context) error{
		"provisioning": c.provisioner.Run, "writing statuses": c.writer.Run, "selecting endpoints": c.selectors.Run,
	} {
		all.Go(func() {
			if err := run(parts); err != nil && parts.Err() == nil {
				c.log.Error("a part of the leader ended", "part", what, "error", err)
			}
		})
	}
	<-silent // so that it cannot end the next term
	all.Wait()
	c.setLeading(false)
	c.log.Info("no longer leading")
}

func (c *Controller) setLeading(leading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading = leading
}
