package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/translate"
)

const (
	controllerName = "moongate.dev/gateway-controller"
	// retryEvery is how often ports and addresses that could not be used are tried again.
	retryEvery = 3 * time.Second
	// accessLogFlush bounds how long the end waits for the access log's writer.
	accessLogFlush = 2 * time.Second
	// adminGrace bounds how long the end waits for requests to the admin server.
	adminGrace = time.Second
)

// gateway is source, translator, delivery and proxy in this process.
type gateway struct {
	o         RunOptions
	log       *slog.Logger
	accessLog *observe.AccessLog
	metrics   *observe.Metrics
	source    *files.Source
	proxy     *proxy.Proxy
	local     *deliver.Local
	objects   *shelf
	admin     *admin.Server
	// notReady is why /readyz fails: points to served once everything accepted is served.
	notReady atomic.Pointer[error]
	told     map[string]bool // problems of the manifests that were logged and are still there
}

var (
	errStarting = errors.New("starting: the manifests are not served yet")
	errStopping = errors.New("shutting down")
	served      error
)

// Run serves until ctx ends, then shuts down as SIGTERM asks and answers nil.
func Run(ctx context.Context, o RunOptions) error {
	g, err := newGateway(o)
	if err != nil {
		return err
	}
	return g.run(ctx)
}

// newGateway makes everything that can fail, so that a wrong flag is known before anything is served.
func newGateway(o RunOptions) (*gateway, error) {
	bind, err := o.bindAddresses()
	if err != nil {
		return nil, err
	}
	g := &gateway{o: o, log: slog.New(slog.NewTextHandler(o.Stderr, nil))}
	g.notReady.Store(&errStarting)
	if g.source, err = files.New(o.Files, files.Options{}); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if o.AccessLog == "" {
		o.AccessLog = defaultAccessLog
	}
	if g.accessLog, err = observe.OpenAccessLog(o.AccessLog, o.Stdout); err != nil {
		return nil, usage("%w; --access-log takes json, off or a file that can be written", err)
	}
	b := readBuild()
	g.metrics = observe.NewMetrics(observe.MetricsOptions{Version: b.Version, Revision: b.Commit, AccessLog: g.accessLog})
	g.admin, err = admin.Listen(admin.Options{
		Address:  o.AdminAddress,
		Version:  b.Version,
		Gatherer: g.metrics.Gatherer(),
		Ready:    func() error { return *g.notReady.Load() },
		Status:   func() admin.Status { return g.objects.status() },
		Config:   func() (any, error) { return g.local.Config() },
	})
	if err != nil {
		_ = g.accessLog.Close(accessLogFlush) // holds nothing yet
		return nil, &exitError{exitProblems, err}
	}
	g.objects = newShelf()
	g.proxy = proxy.New(proxy.Options{Bind: bind, AccessLog: g.accessLog, Metrics: g.metrics, Logger: g.log})
	g.local = deliver.NewLocal(deliver.LocalOptions{
		Translator: translate.New(translate.Options{ControllerName: controllerName, DefaultAddresses: statusAddresses(bind)}),
		Proxy:      g.proxy,
		Publish:    g.objects.publish,
		Translated: func(s incremental.Stats, d time.Duration) { g.metrics.Translated(s.RunsByName, d) },
		Logger:     g.log,
	})
	return g, nil
}

func (g *gateway) run(ctx context.Context) error {
	var background sync.WaitGroup
	inner, stop := context.WithCancel(context.Background())
	background.Go(func() {
		if err := g.admin.Serve(); err != nil {
			g.log.Error("the admin server ended", "error", err)
		}
	})
	background.Go(func() { g.tend(inner) })
	sourceEnded := make(chan error, 1)
	background.Go(func() { sourceEnded <- g.source.Run(inner, g.change) })

	var err error
	select {
	case <-ctx.Done():
		g.shutdown()
	case err = <-sourceEnded: // it cannot watch; serving what nobody can change is not what was asked for
		err = &exitError{exitProblems, fmt.Errorf("reading the manifests ended: %w", err)}
		g.shutdown()
	}
	stop()
	end, cancel := context.WithTimeout(context.Background(), adminGrace)
	defer cancel()
	_ = g.admin.Shutdown(end) // cuts what is left
	background.Wait()
	_ = g.accessLog.Close(accessLogFlush) // what could not be written was counted as dropped
	return err
}

// change carries one change of the manifests through; the source calls it for one at a time.
func (g *gateway) change(c files.Change) {
	g.objects.change(c)
	if c.ProblemsChanged {
		g.tellProblems(c.Problems)
	}
	delivery := g.local.Update(func(t *translate.Translator) {
		for _, id := range c.Deletes {
			t.Delete(translate.Kind(id.Kind), id.Namespace, id.Name)
		}
		for _, object := range c.Upserts {
			t.Upsert(object.Object)
		}
	})
	if g.o.Delivered != nil {
		g.o.Delivered(delivery)
	}
	if c.Full && g.notReady.CompareAndSwap(&errStarting, &served) {
		g.started()
	}
}

// started says once, for each listener, what is served now.
func (g *gateway) started() {
	bound := g.proxy.Bound()
	for _, l := range bound {
		hostname := l.Hostname
		if hostname == "" {
			hostname = "*"
		}
		g.log.Info("listening", "listener", l.Key, "protocol", strings.TrimPrefix(l.Protocol.String(), "PROTOCOL_"),
			"addresses", strings.Join(l.Addresses, ","), "hostname", hostname, "routes", l.Routes)
	}
	if len(bound) == 0 {
		g.log.Warn("no listener is served; moongate status and moongate check tell why", "files", strings.Join(g.o.Files, ","))
	}
	if g.o.Ready != nil {
		g.o.Ready(Running{Admin: g.admin.Addr().String()})
	}
	g.log.Info("ready", "admin", g.admin.Addr().String(), "version", readBuild().Version)
	// Reading everything leaves far more garbage than any later change will: the heap
	// need not stay as large as that made it.
	debug.FreeOSMemory()
}

// tellProblems logs each problem when it appears, and not again while it stays.
func (g *gateway) tellProblems(problems []files.Problem) {
	now := make(map[string]bool, len(problems))
	for _, p := range problems {
		text := p.String()
		now[text] = true
		if g.told[text] {
			continue
		}
		if p.Ignored {
			g.log.Info("ignored", "what", text)
		} else {
			g.log.Warn("cannot use", "what", text)
		}
	}
	g.told = now
}

// background work that no event drives: what could not be bound, and SIGHUP.
func (g *gateway) tend(ctx context.Context) {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
			g.local.Retry()
		case <-g.o.Hangup:
			if err := g.accessLog.Reopen(); err != nil {
				g.log.Error("the access log goes on in the old file", "error", err)
			}
		}
	}
}

// shutdown is what SIGTERM asks for: not ready, accept on for a while, then finish what is in flight.
func (g *gateway) shutdown() {
	g.notReady.Store(&errStopping)
	g.log.Info("shutting down", "shutdown-delay", g.o.ShutdownDelay, "drain-timeout", g.o.DrainTimeout)
	time.Sleep(g.o.ShutdownDelay) // a second signal ends the process meanwhile
	ctx, cancel := context.WithTimeout(context.Background(), g.o.DrainTimeout)
	defer cancel()
	if err := g.proxy.Shutdown(ctx); err != nil {
		g.log.Warn("requests that took longer than --drain-timeout were cut")
	}
}
