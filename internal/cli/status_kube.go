package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/controller"
	"github.com/moongate-dev/moongate/internal/status/listing"
)

// clusterTimeout limits all queries to an API server, which may have thousands of objects.
const clusterTimeout = time.Minute

// leaderlessAfter is how long there must have been no leader before that is a problem: usually another controller takes over sooner,
// and clocks of hosts may differ.
const leaderlessAfter = time.Minute

// clusterFlags select a cluster and its namespaces.
type clusterFlags struct {
	use                            bool
	kubeconfig, context, namespace string
	allNamespaces                  bool
	controller                     string // the controllerName of its GatewayClasses, "" for the default; see manages
}

// addConnection adds the flags that select the cluster.
func (f *clusterFlags) addConnection(cmd *cobra.Command, use string) {
	flags := cmd.Flags()
	flags.BoolVar(&f.use, "kube", false, use)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "with --kube: the kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "with --kube: the context of the kubeconfig (default: the current one)")
}

// addController adds the flag that names the controller, for verbs that judge the objects of a cluster.
func (f *clusterFlags) addController(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.controller, "controller-name", "", "with --kube: the --controller-name of the controller, whose GatewayClasses count as Moongate's (default: "+controllerName+")")
}

// manages returns the controllerName of the GatewayClasses that count as Moongate's.
func (f *clusterFlags) manages() string { return cmp.Or(f.controller, controllerName) }

// add adds all flags.
func (f *clusterFlags) add(cmd *cobra.Command) {
	f.addConnection(cmd, "read the objects of the cluster of your kubeconfig instead")
	f.addController(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "only objects of this namespace, and those without a namespace, such as GatewayClasses")
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "objects of all namespaces (default)")
	cmd.MarkFlagsMutuallyExclusive("kube", "admin-address")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// check rejects flags that would have no effect.
func (f *clusterFlags) check(cmd *cobra.Command) error {
	for _, name := range []string{"kubeconfig", "context", "controller-name"} {
		if !f.use && cmd.Flags().Changed(name) {
			return usage("--%s is about a cluster: add --kube", name)
		}
	}
	return nil
}

func (f *clusterFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	rules.WarnIfAllMissing = false // the error explains it better
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, usage("no kubeconfig: name a file with --kubeconfig or in KUBECONFIG")
	case err != nil:
		return nil, usage("the kubeconfig cannot be used: %w; see kubectl config view, or name another with --kubeconfig or --context", err)
	}
	config.UserAgent = "moongate/" + readBuild().Version
	return config, nil
}

// clusterStatus returns the status of a cluster, like fetchStatus of a gateway.
func clusterStatus(ctx context.Context, f clusterFlags) (*admin.Status, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	items, problems, err := listing.List(ctx, config, f.namespace)
	if err != nil {
		return nil, &exitError{exitProblems, clusterError(err, config.Host)}
	}
	s := &admin.Status{Items: []any{}, Problems: []admin.Problem{}, ControllerName: f.manages()}
	for _, i := range items {
		s.Items = append(s.Items, i)
	}
	for _, p := range problems {
		s.Problems = append(s.Problems, admin.Problem{Object: p.Kind, Message: "cannot be listed: " + p.Message, Remedy: p.Remedy})
	}
	if lease, at := listing.LastRenewed(ctx, config, controller.LeaseName, controller.AnnotationController, f.manages()); !at.IsZero() && time.Since(at) > leaderlessAfter {
		s.Problems = append(s.Problems, admin.Problem{
			Object:  lease.String(),
			Message: "no controller has renewed it since " + at.UTC().Format(time.RFC3339) + ": unless one runs without leader election, statuses may be out of date, and changes have no effect",
			Remedy:  "check that the controller runs, with kubectl get pods -n " + lease.Namespace,
		})
	}
	return s, nil
}

// clusterError adds a remedy to an error of a cluster.
func clusterError(err error, host string) error {
	var answered apierrors.APIStatus
	switch {
	case errors.Is(err, listing.ErrNotInstalled):
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s does not know you (%w); log in again, or choose another --context", host, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server at %s forbids to list what is installed (%w); ask for the ClusterRole system:discovery", host, err)
	case errors.As(err, &answered):
		return fmt.Errorf("the API server at %s answers: %w; try again", host, err)
	}
	return fmt.Errorf("no API server answers at %s (%w); check that the cluster runs, or choose another --context", host, err)
}
