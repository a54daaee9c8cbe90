package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/explain"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/translate"
)

const (
	controllerName = "moongate.dev/gateway-controller"
	// retryEvery is the interval of attempts to open ports and addresses that could not be opened.
	retryEvery = 3 * time.Second
)

// gateway contains the source, the control loop, the delivery and the proxy of run.
type gateway struct {
	*engine
	o       RunOptions
	log     *slog.Logger
	source  *files.Source
	local   *deliver.Local
	loop    *reconcile.Standalone
	objects *objectStore
	// conditions logs the problems in statuses.
	conditions *conditionLog
	// begun is set when all manifests were read and delivered, announced when the gateway was logged to be ready.
	begun, announced atomic.Bool
	// checked is set when the predecessor may be told what this process serves; see awaitChecks.
	checked       atomic.Bool
	tickets       reconcile.Tickets
	scavenger     *scavenger
	problems      *problemLog
	secret        []byte     // from which keys are derived
	reporting     sync.Mutex // held while what is served is read and sent to the predecessor, so that an older state is not sent last
	handedSockets sync.Map   // set of the syscall.Conn that were passed to a successor
}

// Run serves until ctx ends, then shuts down as after SIGTERM and returns nil.
func Run(ctx context.Context, o RunOptions) error {
	g, err := newGateway(o)
	if err != nil {
		return err
	}
	return g.run(ctx)
}

// newGateway creates everything that can fail, so that a wrong flag is reported before anything is served.
func newGateway(o RunOptions) (*gateway, error) {
	bind, err := bindAddresses(o.Bind)
	if err != nil {
		return nil, err
	}
	redis, err := o.RateLimits.service()
	if err != nil {
		return nil, err
	}
	log, err := newLogger(o.Stderr, "", o.LogFormat)
	if err != nil {
		return nil, err
	}
	g := &gateway{o: o, log: log, objects: newObjectStore(controllerName), scavenger: newScavenger().forProxy()}
	if g.source, err = files.New(o.Files, files.Options{Stdin: o.Stdin}); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	g.engine, err = newEngine(engineOptions{EngineFlags: o.EngineFlags, Bind: bind, Log: g.log, ProcessLog: processLogOf(o.Stderr), Predecessor: o.Predecessor})
	if err != nil {
		return nil, err
	}
	g.secret, err = readSecret(o.SecretFile)
	if err != nil {
		g.discard()
		return nil, err
	}
	if o.SecretFile == "" && o.Predecessor != nil {
		if kept := o.Predecessor.Secret(); len(kept) >= secretSize {
			g.secret = kept
		}
	}
	g.unserved = g.objects.unserved
	g.metrics.SetSourceProblems(g.objects.problemsByKind)
	g.conditions = &conditionLog{log: g.log, objects: g.objects, source: g.source}
	g.problems = &problemLog{log: g.log, source: g.source}
	err = g.listen(admin.Options{
		Address: o.AdminAddress,
		Status:  g.status,
		Config:  func() (any, error) { return g.local.Config() },

		Backends: g.backends,

		ControllerName: controllerName,
		Certificates:   func() []admin.Certificate { return certificatesOf(g.local.Resources()) },
		Overrides:      func() map[string][]admin.Override { return overridesOf(g.local.Resources()) },
		Explain: func(q admin.Question) (*admin.Explanation, error) {
			return explained(g.world(), q)
		},
	})
	if err != nil {
		g.discard()
		return nil, err
	}
	g.tickets = reconcile.Tickets{Secret: func() ([]byte, error) { return g.secret, nil }, Logger: g.log}
	g.makeProxy()
	g.local = deliver.NewLocal(g.proxy)
	g.loop = reconcile.NewStandalone(reconcile.StandaloneOptions{
		Translator: translate.New(translate.Options{ControllerName: controllerName, DefaultAddresses: statusAddresses(bind), Bind: texts(bind),
			RateLimits: redis, Panicked: panicked(g.metrics, g.log)}),
		Delivery: g.local,
		Publish: func(changes []translate.StatusChange) {
			g.objects.publish(changes)
			g.conditions.publish(changes)
			g.announce()
			g.reportToPredecessor()
		},
		Bound: func() {
			g.logSockets(g.warnNoListener)
			g.reportToPredecessor()
		},
		Translated: func(s incremental.Stats, d time.Duration) { g.metrics.Translated(s.RunsByName, d) },
		Logger:     g.log,
	})
	return g, nil
}

func (g *gateway) run(ctx context.Context) error {
	inner := g.start()
	following, stopFollowing := context.WithCancel(inner)
	defer stopFollowing()
	g.background.Go(func() { g.retry(following) })
	g.background.Go(func() { g.tickets.Run(following, g.loop.Update) })
	g.scavenger.garbage = g.proxy.Released
	g.background.Go(func() { g.scavenger.run(inner) })
	if g.o.Predecessor != nil {
		g.background.Go(func() { g.awaitChecks(following) })
	}
	sourceEnded := make(chan error, 1)
	g.background.Go(func() { sourceEnded <- g.source.Run(following, g.change) })

	handedOver := make(chan struct{})
	replacing, stopReplacing := context.WithCancel(ctx)
	g.background.Go(func() { g.replaceOnSignal(replacing, handedOver) })

	var err error
	select {
	case <-handedOver: // the successor follows the manifests
		stopFollowing()
		g.drain()
		stopReplacing()
		g.close()
		return nil
	case <-ctx.Done():
	case <-g.unwanted(): // the predecessor continues to serve, and has the same sockets
		g.log.Info("shutting down: the process that this one should replace continues to serve")
	case err = <-sourceEnded: // it cannot watch the files, and must not serve what cannot be changed
		err = &exitError{exitProblems, fmt.Errorf("reading the manifests ended: %w", err)}
	}
	stopReplacing()
	g.shutdown()
	g.close()
	return err
}

// change applies one change of the manifests; the source calls it for one change at a time.
func (g *gateway) change(c files.Change) {
	if g.o.Class != "" {
		c = takeClassOf(c, g.o.Class)
	}
	logRemoved(g.log, c)
	g.objects.change(c)
	g.conditions.change(c)
	if c.ProblemsChanged {
		g.problems.change(c.Problems)
	}
	outcome := g.loop.Update(func(t *translate.Translator) {
		if c.Full { // what is served first must be complete
			t.SetTickets(g.tickets.Current())
		}
		for _, id := range c.Deletes {
			t.Delete(translate.Kind(id.Kind), id.Namespace, id.Name)
		}
		for _, object := range c.Upserts {
			t.Upsert(object.Object)
		}
	})
	if g.o.Delivered != nil {
		g.o.Delivered(outcome)
	}
	if c.Full && g.ready() {
		g.started()
	} else if c.ProblemsChanged {
		g.reportToPredecessor()
	}
}

// announce logs once that the gateway is ready: when it serves what it has at its start, which a port in use may delay.
func (g *gateway) announce() {
	if g.begun.Load() && g.unserved() == nil && g.announced.CompareAndSwap(false, true) {
		g.log.Info("ready", "admin", g.servers[0].Addr().String(), "version", readBuild().Version)
	}
}

// started logs once what is served now.
func (g *gateway) started() {
	if g.sockets.begin(g.proxy.Bound) == 0 {
		g.warnNoListener()
	}
	if g.o.Ready != nil {
		g.o.Ready(Running{Admin: g.servers[0].Addr().String()})
	}
	if err := g.unserved(); err != nil {
		g.log.Warn("not ready", "why", oneLine(err.Error()))
	}
	g.begun.Store(true)
	g.announce()
	if g.o.Predecessor == nil {
		notifySystemd(daemon.SdNotifyReady)
	}
	g.reportToPredecessor()
	// The scavenger frees the garbage of the start: to do it here would delay the first change.
	g.scavenger.started()
}

// warnNoListener logs that nothing is served, and where the reason is.
func (g *gateway) warnNoListener() {
	g.log.Warn("no listener is served; moongate status and moongate check report why", "files", strings.Join(g.o.Files, ","))
}

// world returns the world for explain.
func (g *gateway) world() explain.World {
	status := g.objects.status()
	w := explain.World{Resources: g.local.Resources(), Items: status.Items, ControllerName: controllerName, Zone: g.proxy.Zone(), Place: g.place, Suggest: g.conditions.rewrite}
	for _, p := range status.Problems {
		if p.Missing() {
			w.Refused = append(w.Refused, problemLine(p))
		}
	}
	return w
}

// status returns the content of /status.
func (g *gateway) status() admin.Status {
	s := g.objects.status()
	s.Others, s.ControllerName = g.conditions.others(), controllerName
	return s
}

// place returns the place of an object as file:line of its document.
func (g *gateway) place(kindName, namespace, name string) string {
	k := kind.Named(kindName)
	if k == nil {
		return ""
	}
	at, ok := g.source.Position(k.Key(namespace, name))
	if !ok {
		return ""
	}
	return at.String()
}

// retry retries to open sockets that could not be opened, until ctx ends.
func (g *gateway) retry(ctx context.Context) {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.loop.Retry()
		}
	}
}

// panicked returns a function that counts and logs a panic of a translate function.
func panicked(m *observe.Metrics, log *slog.Logger) func(function, key string, v any) {
	return func(function, key string, v any) {
		o := &observe.Observer{Metrics: m, Logger: log.With("function", function, "object", key)}
		o.Panicked("translate", v)
	}
}
