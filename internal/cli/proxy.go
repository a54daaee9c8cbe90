package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/client"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy"
)

// ProxyOptions are the flags of proxy; the zero value of an optional field means its default.
type ProxyOptions struct {
	Controller    string // host:port
	Gateway       string // "<namespace>/<name>"
	CAFile        string
	TokenFile     string
	StateDir      string // "" stores nothing
	HealthAddress string
	AdminAddress  string
	LogLevel      string
	EngineFlags

	Stderr io.Writer
	// Ready is called once, when a complete configuration is served; may be nil.
	Ready func(RunningProxy)
}

// RunningProxy describes a proxy that serves.
type RunningProxy struct {
	Health, Admin string // addresses of the two servers
}

// Defaults of proxy; docs/defaults.md shows them.
const (
	defaultCAFile             = "/var/run/moongate/ca/ca.crt"
	defaultTokenFile          = "/var/run/moongate/token/token"
	defaultStateDir           = "/var/run/moongate/state"
	defaultProxyHealthAddress = ":15901"
	defaultProxyAdminAddress  = "127.0.0.1:15900"
	defaultProxyDelay         = 5 * time.Second
)

// readyPoll is the interval in which a proxy without a configuration checks whether it has received one.
const readyPoll = 50 * time.Millisecond

func newProxy(stdout, stderr io.Writer) *cobra.Command {
	o := ProxyOptions{EngineFlags: EngineFlags{Stdout: stdout}}
	cmd := &cobra.Command{
		Use:   "proxy --controller HOST:PORT --gateway NAMESPACE/NAME",
		Short: "Serve one Gateway, configured by a controller",
		Long: `Serves the Gateway with the configuration that it receives from a controller, and needs nothing
else from the cluster. The last configuration is stored in --state-dir, so a restarted proxy serves
immediately, with or without the controller. Usually the controller deploys this.

SIGTERM or SIGINT: /readyz fails; after --shutdown-delay /readyz?exclude=shutdown fails too, and the proxy stops accepting
connections, finishes requests in flight within --drain-timeout and exits with 0; changes of the configuration
still take effect meanwhile. A second signal makes it exit immediately. SIGHUP reopens the access log.`,
		Example: "  moongate proxy --controller moongate-controller.moongate-system.svc:9443 --gateway shop/web",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serving(stderr, func(ctx context.Context, log *observe.ProcessLog, hangup <-chan os.Signal) error {
				o.Stderr, o.Hangup = log, hangup
				return RunProxy(ctx, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Controller, "controller", "", "host and port of the controller; its certificate must be for the host (required)")
	flags.StringVar(&o.Gateway, "gateway", "", "the Gateway, as NAMESPACE/NAME (required)")
	flags.StringVar(&o.CAFile, "ca-file", defaultCAFile, "PEM file with the CA certificates for the controller's certificate, read for each connection")
	flags.StringVar(&o.TokenFile, "token-file", defaultTokenFile, "file with the token that authenticates the proxy, read for each connection")
	flags.StringVar(&o.StateDir, "state-dir", defaultStateDir,
		"folder for the last good configuration, which includes private keys: use a volume in memory; if empty, it is not stored")
	addressVar(flags, &o.HealthAddress, "health-address", defaultProxyHealthAddress, "address for health checks and metrics")
	addressVar(flags, &o.AdminAddress, "admin-address", defaultProxyAdminAddress, "address for health checks, metrics, the configuration and profiles")
	flags.StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	o.EngineFlags.add(cmd, defaultProxyDelay)
	return cmd
}

// check validates the flags, and sets the defaults of those that were left out.
func (o *ProxyOptions) check() error {
	if host, port, err := net.SplitHostPort(o.Controller); err != nil || host == "" || port == "" {
		return usage("--controller %q is not a host and port; write it as moongate-controller.moongate-system.svc:9443", o.Controller)
	}
	namespace, name, ok := strings.Cut(o.Gateway, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return usage("--gateway %q is not a Gateway's namespace and name; write it as shop/web", o.Gateway)
	}
	o.CAFile = cmp.Or(o.CAFile, defaultCAFile)
	o.TokenFile = cmp.Or(o.TokenFile, defaultTokenFile)
	o.HealthAddress = cmp.Or(o.HealthAddress, defaultProxyHealthAddress)
	o.AdminAddress = cmp.Or(o.AdminAddress, defaultProxyAdminAddress)
	return nil
}

// remoteProxy is a proxy with a configuration from a controller.
type remoteProxy struct {
	*engine
	o      ProxyOptions
	log    *slog.Logger
	client *client.Client
	// idle is why no listener of the Gateway is served; it points to nil if one is, or if none should be.
	idle atomic.Pointer[error]
}

// RunProxy serves until ctx ends, then shuts down as after SIGTERM and returns nil.
func RunProxy(ctx context.Context, o ProxyOptions) error {
	p, err := newRemoteProxy(o)
	if err != nil {
		return err
	}
	inner := p.start()
	// The client outlives the shutdown, so that requests in flight use the newest configuration.
	p.background.Go(func() {
		if err := p.client.Run(inner); err != nil {
			p.log.Error("the delivery ended; the configuration is kept", "error", err)
		}
	})
	p.background.Go(func() { p.awaitConfig(inner) })
	memory := newScavenger().forProxy().limitGrowth()
	memory.garbage = p.proxy.Released
	p.background.Go(func() { memory.run(inner) })
	<-ctx.Done()
	p.shutdown()
	p.close()
	return nil
}

// newRemoteProxy creates everything that can fail, so that a wrong flag is reported at once.
func newRemoteProxy(o ProxyOptions) (*remoteProxy, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	log, err := newLogger(o.Stderr, o.LogLevel, o.LogFormat)
	if err != nil {
		return nil, err
	}
	p := &remoteProxy{o: o, log: log}
	p.engine, err = newEngine(engineOptions{EngineFlags: o.EngineFlags, Log: p.log, ProcessLog: processLogOf(o.Stderr)})
	if err != nil {
		return nil, err
	}
	p.idle.Store(&served)
	p.unserved = func() error { return *p.idle.Load() }
	err = p.listen(admin.Options{Address: o.HealthAddress, Flag: "--health-address", Paths: admin.HealthPaths})
	if err == nil {
		err = p.listen(admin.Options{Address: o.AdminAddress, Paths: admin.ProxyPaths,
			Config: func() (any, error) { return p.client.Config() }, Backends: p.backends})
	}
	if err != nil {
		p.discard()
		return nil, err
	}
	p.makeProxy()
	var deliveredZone func(string)
	if o.Zone == "" {
		deliveredZone = func(zone string) {
			p.log.Info("the proxy's zone is known", "zone", zone)
			p.proxy.SetZone(zone)
		}
	}
	p.client = client.New(client.Options{
		Controller: o.Controller, CAFile: o.CAFile, TokenFile: o.TokenFile, Gateway: o.Gateway, Version: readBuild().Version,
		StateDir: o.StateDir, Logger: p.log,
		Apply: p.apply,
		Rebind: func() proxy.Result {
			r := p.faults(p.proxy.Rebind())
			p.logSockets(p.warnNoListener)
			return r
		},
		Unavailable: p.proxy.Unavailable,
		Zone:        deliveredZone,
	})
	return p, nil
}

// apply applies an update and returns the result for the controller.
func (p *remoteProxy) apply(u *config.Update) proxy.Result {
	r := p.faults(p.proxy.Apply(u))
	if u.OfListeners() {
		p.logSockets(p.warnNoListener)
	}
	return r
}

// warnNoListener logs that nothing is served, and where the reason is.
func (p *remoteProxy) warnNoListener() {
	p.log.Warn("no listener of the Gateway is served; its status reports why", "gateway", p.o.Gateway)
}

// faults returns the result that is reported to the controller. A proxy that shuts down closes its ports: that is not a fault of the
// Gateway's listeners, which other proxies continue to serve.
func (p *remoteProxy) faults(r proxy.Result) proxy.Result {
	if p.ending() {
		r.Listeners = nil
	}
	var idle error
	if len(r.Listeners) > 0 && len(p.proxy.Bound()) == 0 {
		var lines []string
		for key, err := range r.Listeners {
			lines = append(lines, fmt.Sprintf("listener %s: %v", key, err))
		}
		slices.Sort(lines)
		idle = fmt.Errorf("no listener of Gateway %s is served: %s", p.o.Gateway, strings.Join(lines, "; "))
	}
	p.idle.Store(&idle)
	return r
}

// awaitConfig waits for the first configuration and logs what is served.
func (p *remoteProxy) awaitConfig(ctx context.Context) {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for !p.client.Ready() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	if !p.ready() {
		return // it is shutting down
	}
	if p.sockets.begin(p.proxy.Bound) == 0 {
		p.warnNoListener()
	}
	health, admin := p.servers[0].Addr().String(), p.servers[1].Addr().String()
	if p.o.Ready != nil {
		p.o.Ready(RunningProxy{Health: health, Admin: admin})
	}
	p.log.Info("ready", "gateway", p.o.Gateway, "health", health, "admin", admin, "version", readBuild().Version)
}
