package cli

import (
	"context"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/admin"
)

func newBackends(stdout io.Writer) *cobra.Command {
	var address, format string
	cmd := &cobra.Command{
		Use:   "backends [TEXT]",
		Short: "Show the endpoints of a running gateway or proxy: health, weight, zone and load",
		Long: `Asks a running gateway, or a proxy in a cluster, for its backends, and prints a line for each
endpoint: whether it is healthy, or how long it is not used, its weight in load balancing, its zone, and its
current requests and connections. With TEXT, only backends are shown whose name contains it, or an address or zone of
whose endpoints does.

Each proxy determines health by its own requests and checks, so two proxies may differ.`,
		Example: "  moongate backends\n  moongate backends shop/cart\n  kubectl port-forward -n shop POD 15900 & moongate backends --admin-address 127.0.0.1:15900",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/backends"
			if len(args) == 1 {
				path += "?q=" + url.QueryEscape(args[0])
			}
			var all []admin.Backend
			if err := fetchAdmin(cmd.Context(), address, path, &all); err != nil {
				return &exitError{exitProblems, err}
			}
			if format != "table" {
				return printAs(stdout, format, all)
			}
			return admin.PrintBackends(stdout, all, time.Now())
		},
	}
	addressVar(cmd.Flags(), &address, "admin-address", admin.DefaultAddress, "where the admin server of the gateway or proxy listens")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		var all []admin.Backend
		if err := fetchAdmin(ctx, address, "/backends", &all); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, b := range all {
			names = append(names, b.Name)
		}
		slices.Sort(names)
		return startingWith(typed, slices.Compact(names)), cobra.ShellCompDirectiveNoFileComp
	}
	outputFlag(cmd, &format, "table", "json", "yaml")
	return cmd
}

// backends returns the backends of the proxy, for its admin server.
func (e *engine) backends() (all []admin.Backend) {
	zone := e.proxy.Zone()
	for _, b := range e.proxy.Backends() {
		shown := admin.Backend{Name: b.Key, Panic: b.Panic, ProxyZone: zone, Endpoints: []admin.Endpoint{}}
		for _, z := range b.Zones {
			shown.Zones = append(shown.Zones, admin.ZoneShare{Zone: z.Zone, Share: z.Share})
		}
		for _, at := range b.Endpoints {
			out := admin.Endpoint{Address: at.Address, Health: at.Health.String(), Terminating: at.Terminating, Weight: at.Weight, Zone: at.Zone,
				RequestsInFlight: at.InFlight, Connections: at.Open, Idle: at.Idle, ConnectErrors: at.ConnectErrors}
			if !at.Until.IsZero() {
				out.Until = &at.Until
			}
			shown.Endpoints = append(shown.Endpoints, out)
		}
		all = append(all, shown)
	}
	return all
}
