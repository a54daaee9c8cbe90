// Command kube is the Kubernetes of the test cluster: API server, controller
// manager, scheduler and service proxy in one binary, called by the name of the
// part as first argument. It exists because Kubernetes' own programs can be had
// from the module proxy as source only, and one binary links their common half once.
// It is a module of its own so that nobody else builds Kubernetes, and adds no
// behaviour: whatever the cluster does differently is in flags, not here.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Only the part asked for is constructed: each registers its feature gates and
// flags in process-wide registries.
var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kube kube-apiserver|kube-controller-manager|kube-proxy|kube-scheduler [flags]")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	os.Exit(cli.Run(parts[part]()))
}
