package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/handover"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const (
	// accessLogFlush limits how long shutdown waits for the writer of the access log.
	accessLogFlush = 2 * time.Second
	// adminGrace limits how long shutdown waits for requests to the admin servers.
	adminGrace = time.Second
	// stopMargin is how long systemd waits for the end of the process beyond the delay and the timeout of shutdown.
	stopMargin = 5 * time.Second
)

// plainIOText explains the flag --plain-io of run and proxy.
const plainIOText = "for diagnosis: use only portable socket calls, which need more CPU; what is served is the same"

// connectionFlags limit the connections of clients; see proxy.Options.
type connectionFlags struct{ Max, PerClient int }

func (c *connectionFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&c.Max, "max-connections", 0,
		"maximum number of client connections, and WebSockets over HTTP/2; 0 means half of the descriptors that the process may have, negative means no limit")
	flags.IntVar(&c.PerClient, "max-connections-per-client", 0,
		"maximum number of these for one client address (for IPv6 the first 64 bits); 0 means a quarter of --max-connections, negative means no limit")
}

// dnsFlags name the DNS servers that resolve external hostnames.
type dnsFlags struct{ Servers []string }

func (d *dnsFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&d.Servers, "dns-server", nil,
		"DNS server for the addresses of XBackends that are hostnames, as address or address:port; repeat for more, which are asked in this order; without it those of /etc/resolv.conf")
}

// addresses returns the servers; none means those of the system.
func (d *dnsFlags) addresses() (all []netip.AddrPort, _ error) {
	for _, text := range d.Servers {
		if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
			all = append(all, netip.AddrPortFrom(ip, dnsPort))
			continue
		}
		at, err := netip.ParseAddrPort(text)
		if err != nil || at.Port() == 0 {
			return nil, usage("--dns-server %q is not an address; write one such as 192.0.2.53 or [2001:db8::53]:53", text)
		}
		all = append(all, at)
	}
	return all, nil
}

const dnsPort = 53

// zoneText explains the flag --zone of run and proxy.
const zoneText = "zone of the proxy, as in topology.kubernetes.io/zone, for backends whose load balancer prefers the proxy's zone; without it no zone is preferred"

// requestIDsText explains the flag --request-ids of run and proxy.
const requestIDsText = "generate: each request gets an X-Request-Id, which replaces one that the client sent; preserve: the client's is kept"

// preserves reports whether --request-ids is preserve.
func preserves(requestIDs string) (bool, error) {
	switch requestIDs {
	case "", defaultRequestIDs:
		return false, nil
	case "preserve":
		return true, nil
	}
	return false, usage("--request-ids %q is not known; use generate or preserve", requestIDs)
}

// EngineFlags are the flags that run and proxy have in common; the zero value of a field is its default.
type EngineFlags struct {
	AccessLog     string // "json" or "stdout" (both are stdout), "off", a file or the URL of a collector; "" means json
	LogLines      accessLogFlags
	LogFormat     string        // text or json; "" means text
	ShutdownDelay time.Duration // how long to accept connections after the first signal
	DrainTimeout  time.Duration // how long requests in flight may take after that
	PlainIO       bool          // see proxy.Options
	// Connections limits the connections of clients.
	Connections connectionFlags
	DNS         dnsFlags
	Zone        string
	RequestIDs  string // generate or preserve; "" means generate

	Stdout io.Writer
	Hangup <-chan os.Signal // each value reopens the access log; may be nil
}

// add adds the flags to a command, whose default of --shutdown-delay is delay.
func (f *EngineFlags) add(cmd *cobra.Command, delay time.Duration) {
	flags := cmd.Flags()
	flags.StringVar(&f.LogFormat, "log-format", defaultLogFormat, logFormatText)
	flags.StringVar(&f.AccessLog, "access-log", defaultAccessLog, accessLogText)
	f.LogLines.add(cmd)
	durationVar(flags, &f.ShutdownDelay, "shutdown-delay", delay,
		"after SIGTERM, how long to be not ready but still accept connections, so that load balancers notice")
	durationVar(flags, &f.DrainTimeout, "drain-timeout", defaultDrainTimeout,
		"after that, how long requests in flight may take before they are aborted")
	flags.BoolVar(&f.PlainIO, "plain-io", false, plainIOText)
	f.Connections.add(cmd)
	f.DNS.add(cmd)
	flags.StringVar(&f.Zone, "zone", "", zoneText)
	flags.StringVar(&f.RequestIDs, "request-ids", defaultRequestIDs, requestIDsText)
}

// engineOptions are those of an engine.
type engineOptions struct {
	EngineFlags
	Bind        []netip.Addr // empty means all
	Log         *slog.Logger
	ProcessLog  *observe.ProcessLog   // the log that Log writes to, if it can drop lines; or nil
	Predecessor *handover.Predecessor // the process whose sockets are taken over; may be nil
}

// engine is a proxy with the parts that do not depend on the source of its configuration: the access log, the metrics, the admin
// servers, and shutdown.
type engine struct {
	o              engineOptions
	keepRequestIDs bool
	dnsServers     []netip.AddrPort
	accessLog      *observe.AccessLog
	metrics        *observe.Metrics
	proxy          *proxy.Proxy
	servers        []*admin.Server
	sockets        *socketLog
	// notReady is why /readyz fails; it points to served once everything that is accepted is served.
	notReady atomic.Pointer[error]
	// unserved returns which accepted Gateway is not served and why, or nil; it is called once notReady is &served.
	unserved func() error

	background sync.WaitGroup
	stop       context.CancelFunc // stops background work
}

var (
	errStarting = errors.New("starting: there is no configuration to serve yet")
	errStopping = admin.ErrShutdown // during --shutdown-delay
	errDraining = errors.New("shutting down: no new connections are accepted")
	served      error
)

// newEngine returns an engine without a proxy; discard or close must be called at the end.
func newEngine(o engineOptions) (*engine, error) {
	e := &engine{o: o, sockets: &socketLog{log: o.Log}, unserved: func() error { return nil }}
	e.notReady.Store(&errStarting)
	var err error
	if e.keepRequestIDs, err = preserves(o.RequestIDs); err != nil {
		return nil, err
	}
	if e.dnsServers, err = o.DNS.addresses(); err != nil {
		return nil, err
	}
	if err = o.LogLines.check(); err != nil {
		return nil, err
	}
	if e.accessLog, err = observe.OpenAccessLog(cmp.Or(o.AccessLog, defaultAccessLog), o.Stdout, o.LogLines.options()); err != nil {
		return nil, usage("%w; --access-log takes stdout, off, a file that can be written or the URL of a collector", err)
	}
	e.accessLog.SetLogger(o.Log)
	b := readBuild()
	e.metrics = observe.NewMetrics(observe.MetricsOptions{Version: b.Version, Revision: b.Commit, AccessLog: e.accessLog, ProcessLog: o.ProcessLog})
	return e, nil
}

// listen opens an admin server for /readyz, /metrics and what o configures.
func (e *engine) listen(o admin.Options) error {
	o.Version = readBuild().Version
	o.Gatherer = e.metrics.Gatherer()
	o.Ready = func() error {
		if err := *e.notReady.Load(); err != nil {
			return err
		}
		return e.unserved()
	}
	o.Listener = e.inheritAdmin(cmp.Or(o.Address, admin.DefaultAddress))
	server, err := listenAdmin(o, e.o.Log)
	if err != nil {
		return err
	}
	e.servers = append(e.servers, server)
	return nil
}

// listenAdmin opens an admin server, and warns if it can be reached from other hosts.
func listenAdmin(o admin.Options, log *slog.Logger) (*admin.Server, error) {
	server, err := admin.Listen(o)
	if err != nil {
		return nil, &exitError{exitProblems, err}
	}
	if server.Exposed() {
		log.Warn("the admin server has no authentication, and its configuration and profiles can be read from other hosts; "+
			"bind it to 127.0.0.1 with --admin-address, or keep others away by a firewall", "address", server.Addr().String())
	}
	return server, nil
}

// discard closes what an engine has opened that was never started.
func (e *engine) discard() {
	for _, s := range e.servers {
		_ = s.Shutdown(context.Background()) // there are no requests yet
	}
	_ = e.accessLog.Close(accessLogFlush) // it is empty
}

// makeProxy creates the proxy, after everything that can fail; shutdown stops it.
func (e *engine) makeProxy() {
	var from listen.Predecessor
	if e.o.Predecessor != nil {
		from = e.o.Predecessor
	}
	e.proxy = proxy.New(proxy.Options{Predecessor: from, Bind: e.o.Bind, AccessLog: e.accessLog, Metrics: e.metrics, KeepRequestIDs: e.keepRequestIDs, Logger: e.o.Log, PlainIO: e.o.PlainIO, DNSServers: e.dnsServers, Zone: e.o.Zone,
		MemoryLimit: memoryLimit(), MaxConnections: e.o.Connections.Max, MaxConnectionsPerClient: e.o.Connections.PerClient, Upstream: upstream.Options{Output: e.o.Stdout}})
}

// start serves the admin servers. It returns the context of background work, which close cancels.
func (e *engine) start() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	for _, s := range e.servers {
		e.background.Go(func() {
			if e.o.Predecessor != nil {
				select {
				case <-e.o.Predecessor.Done():
				case <-ctx.Done():
					return
				}
			}
			if err := s.Serve(); err != nil {
				e.o.Log.Error("an admin server ended", "error", err)
			}
		})
	}
	e.background.Go(func() { e.reopenOnHangup(ctx) })
	return ctx
}

func (e *engine) reopenOnHangup(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.o.Hangup:
			if err := e.accessLog.Reopen(); err != nil {
				e.o.Log.Error("the access log stays in the old file", "error", err)
			}
		}
	}
}

// ready records that a complete configuration is in force, unless shutdown has begun; it reports whether that changed.
func (e *engine) ready() bool { return e.notReady.CompareAndSwap(&errStarting, &served) }

// ending reports whether shutdown has begun.
func (e *engine) ending() bool {
	why := e.notReady.Load()
	return why == &errStopping || why == &errDraining
}

// shutdown handles SIGTERM: it makes /readyz fail, continues to accept connections for a while, and then finishes requests in
// flight.
func (e *engine) shutdown() {
	e.notReady.Store(&errStopping)
	// The unit has a time limit that does not depend on flags. This only extends it.
	limit := e.o.ShutdownDelay + e.o.DrainTimeout + stopMargin
	notifySystemd(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, limit.Microseconds()))
	e.o.Log.Info("shutting down", "shutdown-delay", e.o.ShutdownDelay, "drain-timeout", e.o.DrainTimeout)
	time.Sleep(e.o.ShutdownDelay) // a second signal would end the process
	e.notReady.Store(&errDraining)
	e.drain()
}

// drain stops accepting connections and finishes requests in flight.
func (e *engine) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), e.o.DrainTimeout)
	defer cancel()
	if err := e.proxy.Shutdown(ctx); err != nil {
		e.o.Log.Warn("connections that were still open after --drain-timeout were closed, and requests on them aborted")
	}
}

// close stops background work, the admin servers last.
func (e *engine) close() {
	e.stop()
	end, cancel := context.WithTimeout(context.Background(), adminGrace)
	defer cancel()
	for _, s := range e.servers {
		_ = s.Shutdown(end) // aborts what is left
	}
	e.background.Wait()
	if err := e.accessLog.Close(accessLogFlush); err != nil {
		e.o.Log.Warn("lines of the access log were dropped", "error", err)
	}
}

// logSockets logs which sockets were bound or closed. warn is called if no listener is served any more.
func (e *engine) logSockets(warn func()) {
	if e.sockets.update(e.proxy.Bound) && !e.ending() { // during shutdown this is expected
		warn()
	}
}
