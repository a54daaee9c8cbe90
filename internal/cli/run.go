package cli

import (
	"context"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/handover"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/reconcile"
)

// RunOptions are the flags of run; the zero value of a field is its default.
type RunOptions struct {
	Files        []string
	Class        string   // GatewayClass that is treated as Moongate's; "" for none
	Bind         []string // IP addresses for Gateways without spec.addresses; empty means all
	AdminAddress string   // host:port
	EngineFlags
	RateLimits rateLimitFlags
	SecretFile string // secret for keys that outlive the process; "" means a secret of this process

	Stdin        io.Reader // read for the path "-"; may be nil
	Stderr       io.Writer
	Replace      <-chan os.Signal // each value starts a successor; may be nil
	Program      string           // path of the program of a successor
	ProgramError error            // why Program is not known
	// Predecessor is the process that this one replaces; may be nil.
	Predecessor *handover.Predecessor
	// Ready is called once, when everything that is accepted is served; may be nil.
	Ready func(Running)
	// Delivered is called with the outcome of each change of the manifests; may be nil.
	Delivered func(reconcile.Outcome)
}

// Running describes a gateway that serves.
type Running struct {
	Admin string // address of the admin server
}

// Defaults of run; docs/defaults.md shows them.
const (
	defaultAccessLog     = "json"
	defaultRequestIDs    = "generate"
	defaultShutdownDelay = 0
	defaultDrainTimeout  = 30 * time.Second
)

func (o *RunOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Bind, "bind", nil,
		"IP address for Gateways without spec.addresses; repeat for more; 0.0.0.0 is all of IPv4, :: all of IPv6 (default: all addresses of both)")
	addressVar(flags, &o.AdminAddress, "admin-address", admin.DefaultAddress, "address for health checks, metrics, status and profiles")
	o.EngineFlags.add(cmd, defaultShutdownDelay)
	o.RateLimits.add(cmd)
	flags.StringVar(&o.SecretFile, "secret-file", "", secretFileText)
}

// bindAddresses reads --bind.
func bindAddresses(bind []string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, text := range bind {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, usage("--bind %q is not an IP address; write one as 127.0.0.1 or ::1, without a port", text)
		}
		addrs = append(addrs, addr.Unmap())
	}
	for i, addr := range addrs {
		for j, other := range addrs {
			if i != j && (addr == other || other.IsUnspecified() && addr.Is4() == other.Is4()) {
				return nil, usage("--bind %s covers --bind %s, and both cannot be bound; leave out the latter", other, addr)
			}
		}
	}
	return addrs, nil
}

func newRun(stdout, stderr io.Writer) *cobra.Command {
	o := RunOptions{EngineFlags: EngineFlags{Stdout: stdout}}
	cmd := &cobra.Command{
		Use:   "run PATH...",
		Short: "Serve the Gateways of your manifests",
		Long: `Reads manifests from files and folders, and serves all of their Gateways in this process. Changes of
the files take effect immediately, without losing a request. Paths may also be given with -f.

SIGTERM or SIGINT: /readyz fails; after --shutdown-delay /readyz?exclude=shutdown fails too, and the gateway stops accepting
connections, finishes requests in flight within --drain-timeout and exits with 0. A second signal makes it exit immediately.
SIGHUP reopens the access log. SIGUSR2 starts the program again with the same arguments, passes its listening sockets to the new
process once that serves everything, and exits; no connection is refused meanwhile. If the new process does not get that far, the
old one continues.`,
		Example: `  moongate run -f ./manifests
  moongate run -f gateway.yaml -f routes/ --bind 127.0.0.1 --access-log /var/log/moongate.log`,
		ValidArgsFunction: completeManifests,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Files = append(o.Files, args...)
			if err := needFiles(cmd, o.Files); err != nil {
				return err
			}
			o.Stdin = cmd.InOrStdin()
			replace := make(chan os.Signal, 1)
			signal.Notify(replace, syscall.SIGUSR2) // first, so that no signal is lost
			o.Replace = replace
			o.Program, o.ProgramError = handover.Program() // a process that cannot be replaced serves nevertheless
			var err error
			if o.Predecessor, err = handover.FromEnvironment(); err != nil {
				return usage("%w", err)
			}
			return serving(stderr, func(ctx context.Context, log *observe.ProcessLog, hangup <-chan os.Signal) error {
				o.Stderr, o.Hangup = log, hangup
				return Run(ctx, o)
			})
		},
	}
	filesFlag(cmd, &o.Files)
	classFlag(cmd, &o.Class)
	o.addFlags(cmd)
	return cmd
}
