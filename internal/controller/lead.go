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
)

// LeaseName is the name of the Lease by which replicas agree who leads, in the namespace of the controller.
const LeaseName = "moongate-controller"

// How long the end of a leader goes unnoticed. Proxies serve meanwhile, so all that
// waits are changes; shorter would make a slow API server change the leader.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = time.Second
)

// elect leads whenever it is this replica's turn, until ctx ends.
func (c *Controller) elect(ctx context.Context) error {
	// A replica that has not seen what there is, and what runs, would say as leader that nothing does.
	for _, seen := range []<-chan struct{}{c.full, c.provisioner.Listed()} {
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
	e := election{leases: c.clients.CoordinationV1(), namespace: c.o.Namespace, identity: c.o.Identity, lead: c.lead, log: c.log}
	return e.run(ctx)
}

// election is one replica's part in choosing the leader.
type election struct {
	leases              coordinationv1.LeasesGetter
	namespace, identity string
	// lead is called when it is this replica's turn, and ends soon after its context. Calls do not overlap.
	lead func(context.Context)
	log  *slog.Logger
	// trouble is why the Lease cannot be had, as it was logged; "" while it can.
	trouble string
}

// run campaigns again and again until ctx ends: a replica that lost the Lease goes on with all that it
// knows. Nobody leads any more when it returns.
func (e *election) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := e.term(ctx); err != nil {
			return err
		}
	}
	return nil
}

// term campaigns, and leads until the Lease is lost or ctx ends.
func (e *election) term(ctx context.Context) error {
	// The elector starts us on a goroutine of its own, maybe only after it has ended.
	var (
		leading sync.WaitGroup
		mu      sync.Mutex
		begun   bool
		over    bool
	)
	ctx, end := context.WithCancel(ctx)
	defer end()
	// The elector gives the Lease back when its context ends, and another replica may lead in the same moment: so it
	// ends after lead has.
	holding, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	context.AfterFunc(ctx, func() {
		mu.Lock()
		over = true
		mu.Unlock()
		leading.Wait()
		giveBack()
	})
	// The elector would go on for the rest of renewDeadline: one that was stopped for a while comes back
	// to find another one leading.
	lost := func() {
		mu.Lock()
		defer mu.Unlock()
		if begun {
			end()
		}
	}
	// The elector ends the term of a replica that cannot renew the Lease only after it has tried to give it back, by a request that may hang for
	// another renewDeadline. Others take the Lease leaseDuration after it was last written, so the term ends before that in any case.
	expiry := time.AfterFunc(math.MaxInt64, lost)
	defer expiry.Stop()
	kept := func(begin time.Time) { expiry.Reset(leaseDuration - retryPeriod - time.Since(begin)) }
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &notedLock{log: e.log, trouble: &e.trouble, lost: lost, kept: kept, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.namespace, Name: LeaseName},
			Client:     e.leases,
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
	elector.Run(klog.NewContext(holding, klog.Logger{})) // notedLock says it, and once
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
	// They end after Standby, so that nothing is handed to one that has ended.
	parts, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	// At once, whatever this waits for: sweep waits for a translation.
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
	<-silent // so that it cannot end the next time as leader
	all.Wait()
	c.setLeading(false)
	c.log.Info("no longer leading")
}

func (c *Controller) setLeading(leading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading = leading
}
