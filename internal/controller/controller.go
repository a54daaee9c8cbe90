// Package controller is Moongate in a cluster: it connects the source, the control loop, delivery, provisioning and the status
// writer, and determines by a Lease which replica does the last three. It exists so that these connections are in one place.
//
// Nothing but cli may import it; it must not import proxy.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/deliver/auth"
	"github.com/moongate-dev/moongate/internal/event"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/provision"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/selector"
	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/status/writer"
	"github.com/moongate-dev/moongate/internal/translate"
)

// Options configure a controller; all are required except Namespaces, Translated, Logger and LeaderElection.
type Options struct {
	// Config is the connection to the API server.
	Config *rest.Config
	// ControllerName selects the GatewayClasses that are managed here.
	ControllerName string
	// Namespace is that of the controller, of its Lease and of the Secret of its authority.
	Namespace string
	// Namespaces are those whose objects are read and in which Gateways may run; empty means all.
	Namespaces []string
	// Identity identifies the replica: the name of its pod.
	Identity string
	// LogFormat is the format of the proxies' logs: "json", or "" for text.
	LogFormat string
	// Image is that of the proxies, unless GatewayParameters name another.
	Image string
	// DeliveryAddress is the host:port at which proxies are served.
	DeliveryAddress string
	// Service is the name of the headless Service in Namespace by which proxies find the controller.
	Service string
	// ReservedPorts are the ports of its pod that a proxy itself uses.
	ReservedPorts []int32
	// LeaderElection is false if this is the only controller.
	LeaderElection bool
	Version        string
	// RateLimits is translate.Options.RateLimits.
	RateLimits *config.RateLimitService
	// Panicked is translate.Options.Panicked.
	Panicked func(function, key string, v any)
	// Translated is called with the cost of each translation; may be nil.
	Translated func(incremental.Stats, time.Duration)
	Logger     *slog.Logger // nil discards
}

// watches reports whether the objects of a namespace are read.
func (o *Options) watches(namespace string) bool {
	return len(o.Namespaces) == 0 || slices.Contains(o.Namespaces, namespace)
}

// Controller is one replica.
type Controller struct {
	o           Options
	log         *slog.Logger
	clients     kubernetes.Interface
	source      *kube.Source
	remote      *deliver.Remote
	loop        *reconcile.Cluster
	provisioner *provision.Provisioner
	selectors   *selector.Keeper
	writer      *writer.Writer
	verifier    *auth.Verifier
	objects     *inventory
	tickets     reconcile.Tickets
	events      *event.Recorder

	// read is closed once everything except Secrets was read and translated for the first time, full once reading each Secret was
	// attempted as well, or after secretsLimit.
	read, full        chan struct{}
	mu                sync.Mutex             // guards the fields below
	leading           bool                   // for health and metrics
	inheritedMessages map[[2]string][]string // see inherit
	inheritedUntil    time.Time
	// authority is set once the API server has answered; nil before.
	authority *auth.Authority
	// authorityTrouble is why the authority cannot be read or created, "" if nothing is known to be wrong. Everything else waits for it.
	authorityTrouble string
}

// New creates everything that can fail without network access.
func New(o Options) (*Controller, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{o: o, log: o.Logger, objects: newInventory(), read: make(chan struct{}), full: make(chan struct{})}
	c.tickets = reconcile.Tickets{Secret: c.ticketSecret, Logger: c.log}
	var err error
	if c.clients, err = kubernetes.NewForConfig(o.Config); err != nil {
		return nil, err
	}
	if c.source, err = kube.New(kube.Options{Config: o.Config, Namespaces: o.Namespaces, Version: o.Version, Logger: o.Logger}); err != nil {
		return nil, err
	}
	if c.verifier, err = auth.NewVerifier(auth.VerifierOptions{Config: o.Config, Logger: o.Logger}); err != nil {
		return nil, err
	}
	c.writer, err = writer.New(writer.Options{
		Config: o.Config, ControllerName: gwv1.GatewayController(o.ControllerName),
		Objects: objectsOf{c.source}, Watched: o.watches, Unknown: c.parentUnknown, GatewaysUnread: c.gatewaysUnread, Version: c.objects.version, Logger: o.Logger,
		Unwritable: c.source.Unwritable, Written: c.noteStatus, Omitted: c.noteOmitted,
	})
	if err != nil {
		return nil, err
	}
	c.remote = deliver.NewRemote(deliver.RemoteOptions{Authenticate: c.authenticate, Logger: o.Logger})
	unlimited := rest.CopyConfig(o.Config)
	unlimited.QPS = -1 // else at most 5 Services a second
	services, err := kubernetes.NewForConfig(unlimited)
	if err != nil {
		return nil, err
	}
	// It does not use c.clients, which is rate-limited: Events must not delay the renewal of the Lease.
	c.events = event.New(event.Options{Client: services.EventsV1(), Controller: reportingController, Instance: o.Identity, Logger: o.Logger})
	c.selectors = selector.New(selector.Options{Client: services, ControllerName: o.ControllerName, Namespaces: o.Namespaces, Logger: o.Logger})
	c.loop = reconcile.NewCluster(reconcile.ClusterOptions{
		Translator: translate.New(translate.Options{
			ControllerName: o.ControllerName, Cluster: true, ReservedPorts: o.ReservedPorts, Namespaces: o.Namespaces, RateLimits: o.RateLimits, Panicked: o.Panicked,
		}),
		Publish:    c.publish,
		Provision:  func(changes []translate.ProxySpecChange) { c.provisioner.Update(changes) },
		Select:     func(changes []translate.SelectorChange) { c.selectors.Update(changes) },
		Unlisted:   func(namespace string) bool { return c.provisioner.Unlisted(namespace) },
		Fetch:      c.fetch,
		Current:    c.current,
		Delivery:   c.remote,
		Trouble:    c.noteTrouble,
		Translated: o.Translated,
		Logger:     o.Logger,
	})
	_, port, err := net.SplitHostPort(o.DeliveryAddress)
	if err != nil {
		return nil, fmt.Errorf("delivery address %q: %w", o.DeliveryAddress, err)
	}
	c.provisioner, err = provision.New(provision.Options{
		Config: o.Config, ControllerName: o.ControllerName, Image: o.Image, Namespaces: o.Namespaces,
		ControllerAddress: net.JoinHostPort(c.serviceName(), port), LogFormat: o.LogFormat,
		CAPEM: c.caPEM, Report: c.loop.SetInfrastructure, Pods: c.remote.SetPods, Zones: c.remote.SetZones, Unread: c.unread, Problem: c.noteProblem, Logger: o.Logger,
	})
	return c, err
}

// serviceName returns the name by which proxies connect, for which the controller's certificate is valid.
func (c *Controller) serviceName() string { return c.o.Service + "." + c.o.Namespace + ".svc" }

func (c *Controller) caPEM() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.authority.CAPEM()
}

// ticketSecret returns the secret from which all replicas derive the keys of TLS session tickets.
func (c *Controller) ticketSecret() ([]byte, error) {
	c.mu.Lock()
	authority := c.authority
	c.mu.Unlock()
	return authority.Secret("tickets")
}

// Run runs the controller until ctx ends, and leads when it has the Lease. It returns nil, or why it cannot continue.
func (c *Controller) Run(ctx context.Context) error {
	authority, err := c.waitForAuthority(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	c.mu.Lock()
	c.authority, c.authorityTrouble = authority, ""
	c.mu.Unlock()

	listener, err := net.Listen("tcp", c.o.DeliveryAddress)
	if err != nil {
		return fmt.Errorf("cannot serve proxies: %w; choose another --delivery-address", err)
	}
	server := grpc.NewServer(append(deliver.ServerOptions(),
		grpc.Creds(credentials.NewTLS(authority.ServerConfig(c.serviceName()))))...)
	c.remote.Serve(server)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	run := func(what string, f func(context.Context) error) {
		all.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	run("serving proxies", func(context.Context) error { return server.Serve(c.remote.Admit(listener)) })
	run("keeping the authority", authority.Run)
	run("keeping the tokens' keys", c.verifier.Run)
	run("watching proxies", c.provisioner.Watch)
	run("reading the cluster", func(ctx context.Context) error { return c.source.Run(ctx, c.change) })
	run("waiting for Secrets", func(ctx context.Context) error {
		select {
		case <-c.read:
			waitForSecrets(ctx, secretsLimit, c.loop.UnansweredSecrets, c.log)
			close(c.full)
		case <-ctx.Done():
		}
		return nil
	})
	run("rotating ticket keys", c.rotate)
	run("writing Events", c.events.Run)
	run("leading", c.elect)
	<-ctx.Done()
	c.loop.Close()
	server.Stop()
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// secretsLimit is how long a replica that starts waits for the first answers about Secrets before it may lead. It does not wait
// for Secrets that cannot be read: the Secret of one Gateway must not delay the others, and its proxies keep what they have.
const secretsLimit = 30 * time.Second

// waitForSecrets returns once no Secret is being read for the first time, after the limit, or with ctx.
func waitForSecrets(ctx context.Context, limit time.Duration, unanswered func() int, log *slog.Logger) {
	deadline := time.Now().Add(limit)
	for {
		n := unanswered()
		if n == 0 {
			return
		}
		if !time.Now().Before(deadline) {
			log.Warn("Secrets are still being read; continuing without them", "secrets", n)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// rotate keeps the secrets of TLS session tickets up to date; change sets the first ones.
func (c *Controller) rotate(ctx context.Context) error {
	select {
	case <-c.full:
		c.tickets.Run(ctx, c.loop.Update)
	case <-ctx.Done():
	}
	return nil
}

// waitForAuthority retries until the API server allows to read or create the authority.
func (c *Controller) waitForAuthority(ctx context.Context) (*auth.Authority, error) {
	for tries := 0; ; tries++ {
		a, err := auth.NewAuthority(ctx, auth.AuthorityOptions{
			Secrets: c.clients.CoreV1().Secrets(c.o.Namespace), Namespace: c.o.Namespace,
			Changed: c.provisioner.Refresh, Logger: c.log,
		})
		if err == nil || ctx.Err() != nil {
			return a, nil
		}
		c.mu.Lock()
		c.authorityTrouble = err.Error()
		c.mu.Unlock()
		if tries%authorityTriesLogged == 0 {
			c.log.Warn("the certificate authority cannot be read or created, trying again", "namespace", c.o.Namespace, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(authorityRetry):
		}
	}
}

const (
	authorityRetry       = 2 * time.Second
	authorityTriesLogged = 30 // every 30th attempt, once a minute, is logged
)

// authenticate returns the Gateway for which the caller of a stream may ask.
func (c *Controller) authenticate(ctx context.Context) (deliver.Caller, error) {
	id, err := c.verifier.Authenticate(ctx)
	if err != nil {
		return deliver.Caller{}, err
	}
	name, ok := c.provisioner.Gateway(id.Namespace, id.ServiceAccount, id.ServiceAccountUID)
	if !ok {
		return deliver.Caller{}, status.Errorf(codes.PermissionDenied, "ServiceAccount %s/%s is of no Gateway of this controller", id.Namespace, id.ServiceAccount)
	}
	return deliver.Caller{Gateway: config.GatewayKey(id.Namespace, name), Pod: id.Pod, PodUID: id.PodUID}, nil
}

// Ready returns nil once everything that a leader needs was read, else an error that names what is missing.
func (c *Controller) Ready() error {
	select {
	case <-c.full:
		select {
		case <-c.provisioner.Listed():
			if err := c.verifier.Ready(); err != nil {
				return fmt.Errorf("the tokens of proxies cannot be verified: %w", err)
			}
			return nil
		default:
		}
		if waiting := c.provisioner.Waiting(); len(waiting) > 0 {
			return fmt.Errorf("still reading what runs for Gateways: %s", waiting[0])
		}
		return errors.New("still reading what runs for Gateways")
	default:
	}
	c.mu.Lock()
	trouble := c.authorityTrouble
	c.mu.Unlock()
	if trouble != "" {
		return fmt.Errorf("the certificate authority cannot be read or created: %s", trouble)
	}
	if waiting := c.source.Waiting(); len(waiting) > 0 {
		return fmt.Errorf("still reading the cluster: %s", waiting[0])
	}
	select {
	case <-c.read:
		return errors.New("still reading Secrets for the first time")
	default:
	}
	return errors.New("still reading the cluster")
}

// Alive returns an error if the process cannot recover, because translation hangs.
func (c *Controller) Alive() error { return c.loop.Alive() }

// Leading reports whether this replica is leader.
func (c *Controller) Leading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leading
}

// UnreadKinds returns the kinds whose objects cannot be read, for metrics.
func (c *Controller) UnreadKinds() (kinds []string) {
	for _, u := range c.source.UnreadKinds() {
		kinds = append(kinds, u.Kind)
	}
	return kinds
}

// Proxies emits how many proxies of each Gateway serve the current configuration, while this replica is leader.
func (c *Controller) Proxies(emit func(observe.GatewayProxies)) {
	s := c.remote.Status()
	if !s.Leading {
		return
	}
	for _, g := range s.Gateways {
		n := observe.GatewayProxies{Gateway: g.Gateway}
		for _, p := range g.Proxies {
			if lagging(&p) {
				n.Lagging++
			} else {
				n.Current++
			}
		}
		emit(n)
	}
}

// lagging reports whether a proxy does not serve the current configuration, or cannot apply a part of it. One that refuses everything from
// its start is never ready, so that nothing waits for it, and it is not overdue.
func lagging(p *deliver.RemoteProxy) bool {
	return p.Overdue || p.Error != "" || len(p.Listeners)+len(p.Rejected) > 0
}

// Resources returns the configuration of the proxies of a Gateway ("<namespace>/<name>"), including private keys; it must not be
// modified.
func (c *Controller) Resources(gateway string) []*config.Resource { return c.remote.Resources(gateway) }

// Deliveries returns the state of all proxies, for the dashboard.
func (c *Controller) Deliveries() reconcile.Status { return c.loop.Status() }
