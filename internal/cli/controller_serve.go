package cli

import (
	"context"
	"log/slog"
	"sync"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/controller"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/provision"
)

// reservedPorts are those of its pod that a proxy keeps for itself.
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
		Status: func() admin.Status { return admin.Status{Items: c.Objects(), Problems: []admin.Problem{}} },
		Config: func() (any, error) { return c.Deliveries(), nil },
	}, log)
	if err != nil {
		shutdownAdmin(health)
		return err
	}
	log.Info("starting", "version", version, "namespace", o.Namespace, "controllerName", o.ControllerName, "identity", o.Identity)
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

// shutdownAdmin ends a server; what takes longer than adminGrace is cut.
func shutdownAdmin(s *admin.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), adminGrace)
	defer cancel()
	_ = s.Shutdown(ctx)
}
