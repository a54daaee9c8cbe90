package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/controller"
	"github.com/moongate-dev/moongate/internal/explain"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/provision"
	"github.com/moongate-dev/moongate/internal/reconcile"
)

// reservedPorts are the ports of its pod that a proxy itself uses.
var reservedPorts = []int32{provision.AdminPort, provision.HealthPort}

// serveController runs the controller with its admin and health servers.
func serveController(ctx context.Context, o ControllerOptions, c *controller.Controller, metrics *observe.Metrics, log *slog.Logger) error {
	version := readBuild().Version
	health, err := listenAdmin(admin.Options{Address: o.HealthAddress, Version: version, Gatherer: metrics.Gatherer(), Ready: c.Ready, Alive: c.Alive,
		Paths: admin.HealthPaths, Flag: "--health-address"}, log)
	if err != nil {
		return err
	}
	inner, err := listenAdmin(admin.Options{
		Address: o.AdminAddress, Version: version, Gatherer: metrics.Gatherer(), Ready: c.Ready, Alive: c.Alive,
		Status: func() admin.Status {
			return admin.Status{Items: c.Objects(), Problems: []admin.Problem{}, ControllerName: o.ControllerName}
		},
		Config: func() (any, error) { return c.Deliveries(), nil },

		Backends:       func() []admin.Backend { return backendsOf(allResources(c)) },
		ControllerName: o.ControllerName, Uncounted: true,
		Note: func() string { return noteOf(c.Deliveries().Leading) },
		Proxies: func() map[string][]admin.GatewayProxy {
			d := c.Deliveries()
			if !d.Leading { // its information about proxies is from when it was leader
				return nil
			}
			return proxiesOf(d.Gateways)
		},
		Certificates: func() []admin.Certificate { return certificatesOf(allResources(c)) },
		Overrides:    func() map[string][]admin.Override { return overridesOf(allResources(c)) },
		Explain: func(q admin.Question) (*admin.Explanation, error) {
			return explainFor(c.Deliveries(), c.Resources, c.Objects, o.ControllerName, q)
		},
	}, log)
	if err != nil {
		shutdownAdmin(health)
		return err
	}
	log.Info("starting", "version", version, "namespace", o.Namespace, "controller-name", o.ControllerName, "identity", o.Identity)
	var servers sync.WaitGroup
	for _, s := range []*admin.Server{health, inner} {
		servers.Go(func() {
			if err := s.Serve(); err != nil {
				log.Error("a server ended", "error", err)
			}
		})
	}
	err = c.Run(ctx)
	shutdownAdmin(health)
	shutdownAdmin(inner)
	servers.Wait()
	if err != nil {
		return &exitError{exitProblems, err}
	}
	return nil
}

// shutdownAdmin stops a server; requests that take longer than adminGrace are aborted.
func shutdownAdmin(s *admin.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), adminGrace)
	defer cancel()
	_ = s.Shutdown(ctx)
}

// allResources returns the configuration of the proxies of all Gateways; a Resource that several need is included once for each.
func allResources(c *controller.Controller) (all []*config.Resource) {
	for _, g := range c.Deliveries().Gateways {
		all = append(all, c.Resources(g.Gateway)...)
	}
	return all
}

// noteOf returns a note for the dashboard about what this controller does not know.
func noteOf(leading bool) string {
	if !leading {
		return "This replica of the controller stands by. It knows the objects and their statuses; proxies, certificates and explanations are known to the replica that leads, " +
			"which the Lease of the controller names."
	}
	return fmt.Sprintf("This is the controller. Requests are counted, and the health of endpoints is judged, by the proxies: forward port %d of a proxy's pod and see /backends, "+
		"or scrape its /metrics on port %d.", provision.AdminPort, provision.HealthPort)
}

// explainFor answers a question from the configuration of the proxies of one Gateway: different Gateways do not share ports, unless
// they are merged.
func explainFor(d reconcile.Status, resources func(gateway string) []*config.Resource, objects func() []any, controllerName string, q admin.Question) (*admin.Explanation, error) {
	if !d.Leading {
		return nil, errors.New("this replica of the controller is not the leader; ask the leader, which the Lease of the controller names")
	}
	proxies := map[string]string{} // of each Gateway; merged Gateways share them
	for _, g := range d.Gateways {
		served := g.Merged
		if len(served) == 0 && g.Resources > 0 {
			served = []string{g.Gateway}
		}
		for _, name := range served {
			if proxies[name] == "" || len(g.Merged) > 0 { // its own proxies may not have terminated yet
				proxies[name] = g.Gateway
			}
		}
	}
	names := slices.Sorted(maps.Keys(proxies))
	gateway := q.Gateway
	switch {
	case len(names) == 0:
		return nil, errors.New("no Gateway has a configuration yet")
	case gateway == "" && len(names) == 1:
		gateway = names[0]
	case gateway == "":
		return nil, fmt.Errorf("each Gateway has its own proxies: name the Gateway that receives the request, such as %s", names[0])
	case !slices.Contains(names, gateway):
		return nil, fmt.Errorf("there is no Gateway %q with a configuration; there is %s", gateway, names[0])
	}
	return explained(explain.World{Resources: resources(proxies[gateway]), Gateway: gateway, Items: objects(), ControllerName: controllerName, Place: noPlace}, q)
}
