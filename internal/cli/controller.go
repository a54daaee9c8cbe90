package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/controller"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/observe"
)

// ControllerOptions are the flags of controller.
type ControllerOptions struct {
	Kubeconfig      string // "" means the ServiceAccount of the pod
	Namespace       string
	Service         string
	Image           string
	ControllerName  string
	Identity        string
	DeliveryAddress string
	HealthAddress   string
	AdminAddress    string
	WatchNamespaces []string // empty means all
	LogLevel        string
	LogFormat       string // text or json; "" is text
	RateLimits      rateLimitFlags
	LeaderElection  bool

	Stdout, Stderr io.Writer
}

// Defaults of controller; docs/defaults.md shows them.
const (
	defaultDeliveryAddress = ":9443"
	defaultHealthAddress   = ":9902"
	defaultService         = "moongate-controller"
	namespaceFile          = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

func newController(stdout, stderr io.Writer) *cobra.Command {
	o := ControllerOptions{Stdout: stdout}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Manage the Gateways of a cluster",
		Long: `Watches the Gateway API objects of a Kubernetes cluster, runs a Deployment of proxies for each
Gateway, sends them their configuration, and writes statuses.

One of several replicas is the leader; the others watch the cluster and take over when it ends. Usually the
Helm chart runs this.`,
		Example: `  moongate controller --image ghcr.io/moongate-dev/moongate:v1
  moongate controller --kubeconfig ~/.kube/config --namespace moongate-system --leader-elect=false --image ...`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serving(stderr, func(ctx context.Context, log *observe.ProcessLog, _ <-chan os.Signal) error {
				o.Stderr = log
				return RunController(ctx, o)
			})
		},
	}
	o.RateLimits.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "how to reach the API server (default: as the pod's ServiceAccount)")
	flags.StringVar(&o.Namespace, "namespace", "", "the controller's own namespace (default: the pod's)")
	flags.StringVar(&o.Service, "service", defaultService, "name of the headless Service through which proxies find the controller")
	flags.StringVar(&o.Image, "image", "", "image of the proxies; usually the controller's own (required)")
	flags.StringVar(&o.ControllerName, "controller-name", controllerName, "spec.controllerName of the GatewayClasses to manage")
	flags.StringVar(&o.Identity, "identity", "", "unique name of this replica (default: the host name)")
	addressVar(flags, &o.DeliveryAddress, "delivery-address", defaultDeliveryAddress, "address for the streams of proxies")
	addressVar(flags, &o.HealthAddress, "health-address", defaultHealthAddress, "address for health checks and metrics")
	addressVar(flags, &o.AdminAddress, "admin-address", admin.DefaultAddress, "address for status and profiles")
	flags.StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.LogFormat, "log-format", defaultLogFormat, logFormatText+"; also for the logs of proxies")
	flags.StringSliceVar(&o.WatchNamespaces, "watch-namespaces", nil,
		"namespaces whose objects are read and whose Gateways are served, separated by commas (default: all)")
	flags.BoolVar(&o.LeaderElection, "leader-elect", true, "elect a leader among several replicas with a Lease; if false, this must be the only replica")
	return cmd
}

// complete sets the options that the pod's environment determines, and validates all.
func (o *ControllerOptions) complete() error {
	if o.Image == "" {
		return usage("no image for the proxies: name one, usually the controller's own, with --image")
	}
	if o.Namespace == "" {
		text, err := os.ReadFile(namespaceFile)
		if err != nil {
			return usage("not in a pod, so the controller's own namespace must be named with --namespace")
		}
		o.Namespace = strings.TrimSpace(string(text))
	}
	if o.Identity == "" {
		hostname, err := os.Hostname()
		if err != nil {
			return usage("this machine has no host name (%w): set a unique name with --identity", err)
		}
		o.Identity = hostname
	}
	for _, namespace := range o.WatchNamespaces {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return usage("--watch-namespaces: %q is not the name of a namespace; write names with commas between, such as shop,blog", namespace)
		}
	}
	o.DeliveryAddress = cmp.Or(o.DeliveryAddress, defaultDeliveryAddress)
	o.HealthAddress = cmp.Or(o.HealthAddress, defaultHealthAddress)
	o.ControllerName = cmp.Or(o.ControllerName, controllerName)
	o.Service = cmp.Or(o.Service, defaultService)
	return nil
}

func (o *ControllerOptions) config() (*rest.Config, error) {
	if o.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, usage("not in a pod: name a kubeconfig with --kubeconfig")
		}
		return config, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, usage("--kubeconfig: %w", err)
	}
	return config, nil
}

// RunController runs the controller of a cluster until ctx ends, and then returns nil.
func RunController(ctx context.Context, o ControllerOptions) error {
	if err := o.complete(); err != nil {
		return err
	}
	log, err := newLogger(o.Stderr, o.LogLevel, o.LogFormat)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)
	config, err := o.config()
	if err != nil {
		return err
	}
	b := readBuild()
	metrics := observe.NewMetrics(observe.MetricsOptions{Version: b.Version, Revision: b.Commit, ProcessLog: processLogOf(o.Stderr)})
	redis, err := o.RateLimits.service()
	if err != nil {
		return err
	}
	proxyFormat := ""
	if o.LogFormat == jsonLogFormat {
		proxyFormat = o.LogFormat
	}
	c, err := controller.New(controller.Options{
		LogFormat:  proxyFormat,
		RateLimits: redis,
		Config:     config, ControllerName: o.ControllerName, Namespace: o.Namespace, Identity: o.Identity,
		Namespaces: o.WatchNamespaces,
		Image:      o.Image, DeliveryAddress: o.DeliveryAddress, Service: o.Service,
		ReservedPorts:  reservedPorts,
		LeaderElection: o.LeaderElection, Version: b.Version,
		Translated: func(s incremental.Stats, d time.Duration) { metrics.Translated(s.RunsByName, d) },
		Panicked:   panicked(metrics, log),
		Logger:     log,
	})
	if err != nil {
		return &exitError{exitProblems, err}
	}
	metrics.SetUnreadKinds(c.UnreadKinds)
	metrics.SetProxies(c.Proxies)
	metrics.SetController(c.Stats)
	metrics.SetSourceProblems(c.SourceProblems)
	go newScavenger().forController().run(ctx)
	return serveController(ctx, o, c, metrics, log)
}

// Values of --log-format.
const (
	defaultLogFormat = "text"
	jsonLogFormat    = "json"
	logFormatText    = "format of the log on standard error: text or json"
)

// newLogger returns a logger with that level; format is text or json.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(cmp.Or(level, "info"))); err != nil {
		return nil, usage("--log-level %q is not a level; use debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	var handler func(io.Writer) slog.Handler
	switch cmp.Or(format, defaultLogFormat) {
	case defaultLogFormat:
		handler = func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, options) }
	case jsonLogFormat:
		// As in text, instead of a number of nanoseconds, which could be mistaken for seconds.
		options.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration {
				a.Value = slog.StringValue(a.Value.Duration().String())
			}
			return a
		}
		handler = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, options) }
	default:
		return nil, usage("--log-format %q is not a format; use text or json", format)
	}
	if log := processLogOf(w); log != nil {
		log.SetHandler(handler)
	}
	return slog.New(handler(w)), nil
}
