package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// How often, on average, something changes, whatever the size of the load.
const (
	endpointEvery = 2 * time.Second
	routeEvery    = time.Second
)

func (s *settings) space(i int) string { return fmt.Sprintf("%s-%d", s.prefix, i) }

// measureLoad makes thousands of routes, each with a Service and an endpoint of its own, lets some
// of them change all the time, and looks at what that costs.
func measureLoad(ctx context.Context, w *world, s *settings, r *report) error {
	total := s.namespaces * s.perSpace
	begin := time.Now()
	if err := w.makeLoad(ctx, s); err != nil {
		return err
	}
	made := time.Since(begin)
	begin = time.Now()
	if err := errors.Join(w.awaitAttached(ctx, total), w.awaitStatuses(ctx, "")); err != nil {
		return err
	}
	r.loaded(total, made, time.Since(begin))
	if err := pause(ctx, s.settle); err != nil {
		return err
	}

	quiet, err := w.watchCost(ctx, s.window/4)
	if err != nil {
		return err
	}
	r.costs("nothing changes", quiet)
	churned, err := w.underChurn(ctx, s, func(ctx context.Context) error {
		cost, err := w.watchCost(ctx, s.window)
		r.costs("churn", cost)
		return err
	})
	if err != nil {
		return err
	}
	r.churned("churn", churned)

	var p *propagation
	_, err = w.underChurn(ctx, s, func(ctx context.Context) error {
		p, err = w.propagate(ctx, s.underChurn)
		return err
	})
	if err != nil {
		return err
	}
	r.propagation(fmt.Sprintf("beside %d that change", total), p)
	return errors.Join(churned.err(), p.err(), w.awaitAttached(ctx, total+s.underChurn), w.awaitStatuses(ctx, ""), w.clear(ctx))
}

func (w *world) makeLoad(ctx context.Context, s *settings) error {
	for i := range s.namespaces {
		if err := w.namespace(ctx, s.space(i)); err != nil {
			return err
		}
	}
	return each(ctx, s.namespaces*s.perSpace, s.workers, func(ctx context.Context, i int) error {
		namespace, name := s.space(i/s.perSpace), fmt.Sprintf("app-%d", i%s.perSpace)
		if err := w.makeService(ctx, namespace, name, slice(namespace, name, fakeAddress(i))); err != nil {
			return err
		}
		_, err := w.gateways.GatewayV1().HTTPRoutes(namespace).Create(ctx, route(namespace, name, randomRule(name)), metav1.CreateOptions{})
		return unlessThere(err)
	})
}

func randomRule(service string) gwv1.HTTPRouteRule {
	return rule(fmt.Sprintf("/%d", rand.IntN(1<<30)), service, 80)
}

// churn is what changed, and which writes followed.
type churn struct {
	endpoints, routes int
	specs, statuses   int // writes of routes
	gateway           int // writes of the Gateway's status
	wrong             []string
}

// err: each change of a route is answered by at most one status, a change of an endpoint by none.
func (c *churn) err() error {
	switch {
	case c.specs != c.routes || c.statuses > c.routes:
		return fmt.Errorf("%d changes of routes were seen as %d, and took %d writes of their statuses", c.routes, c.specs, c.statuses)
	case c.gateway > 0:
		return fmt.Errorf("the Gateway's status was written %d times although no route came or went", c.gateway)
	case len(c.wrong) > 0:
		return errors.New(c.wrong[0])
	}
	return nil
}

// underChurn lets endpoints and routes change while do works.
func (w *world) underChurn(ctx context.Context, s *settings, do func(context.Context) error) (*churn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gateway, err := w.watchGateway(ctx)
	if err != nil {
		return nil, err
	}
	c := &churn{}
	routes, err := w.watchLoad(ctx, s)
	if err != nil {
		return nil, err
	}
	changing, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	var errs [2]error
	all.Go(func() {
		errs[0] = repeat(changing, endpointEvery, func() error { c.endpoints++; return w.changeEndpoint(ctx, s) })
	})
	all.Go(func() {
		errs[1] = repeat(changing, routeEvery, func() error { c.routes++; return w.changeRoute(ctx, s) })
	})
	err = do(ctx)
	stop()
	all.Wait()
	if err = errors.Join(err, errs[0], errs[1]); err != nil {
		return nil, err
	}
	if err := w.awaitStatuses(ctx, ""); err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Second); err != nil { // for writes that are too many
		return nil, err
	}
	c.gateway, _, c.wrong = gateway.take()
	for _, t := range routes {
		specs, statuses, _, err := t.counts()
		if err != nil {
			return nil, err
		}
		c.specs, c.statuses = c.specs+specs, c.statuses+statuses
	}
	return c, nil
}

// watchLoad follows the routes of the load, and no others.
func (w *world) watchLoad(ctx context.Context, s *settings) ([]*tally, error) {
	var out []*tally
	for i := range s.namespaces {
		t, err := w.watchRoutes(ctx, s.space(i))
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// repeat calls change until ctx ends, with jitter, so that what changes does not fall together.
func repeat(ctx context.Context, every time.Duration, change func() error) error {
	for {
		wait := time.Duration(float64(every) * max(0, 1+rand.NormFloat64()/5))
		if pause(ctx, wait) != nil {
			return nil
		}
		if err := change(); err != nil {
			return err
		}
	}
}

// changeEndpoint gives a Service's endpoint another address, as a pod that is replaced would.
func (w *world) changeEndpoint(ctx context.Context, s *settings) error {
	namespace, _, name := s.any()
	_, err := w.kube.DiscoveryV1().EndpointSlices(namespace).Update(ctx, slice(namespace, name, fakeAddress(rand.Int())), metav1.UpdateOptions{})
	return err
}

func (w *world) changeRoute(ctx context.Context, s *settings) error {
	namespace, name, service := s.any()
	return w.setRules(ctx, namespace, name, randomRule(service))
}

// any is a route, and its Service.
func (s *settings) any() (namespace, route, service string) {
	i := rand.IntN(s.perSpace)
	return s.space(rand.IntN(s.namespaces)), fmt.Sprintf("app-%d", i), fmt.Sprintf("app-%d", i/s.perService)
}
