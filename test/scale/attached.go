package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// measureAttached makes routes and deletes them, and waits for the listener to count them.
func measureAttached(ctx context.Context, w *world, s *settings, r *report) error {
	const namespace = "attached"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := w.namespace(ctx, namespace); err != nil {
		return err
	}
	gateway, err := w.watchGateway(ctx)
	if err != nil {
		return err
	}
	routes, err := w.watchRoutes(ctx, namespace)
	if err != nil {
		return err
	}

	setup, err := phase(ctx, gateway, s.attached, func() error {
		return each(ctx, s.attached, s.workers, func(ctx context.Context, i int) error {
			name := fmt.Sprintf("app-%d", i)
			if _, err := w.kube.CoreV1().Services(namespace).Create(ctx, service(namespace, name), metav1.CreateOptions{}); unlessThere(err) != nil {
				return err
			}
			path := fmt.Sprintf("/%d", rand.IntN(100000))
			_, err := w.gateways.GatewayV1().HTTPRoutes(namespace).Create(ctx, route(namespace, name, rule(path, name, 80)), metav1.CreateOptions{})
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := w.awaitStatuses(ctx, namespace); err != nil {
		return err
	}
	_, statuses, early, err := routes.counts()
	if err != nil {
		return err
	}
	setup.statuses, setup.early = statuses, early

	teardown, err := phase(ctx, gateway, 0, func() error {
		return each(ctx, s.attached, s.workers, func(ctx context.Context, i int) error {
			return w.gateways.GatewayV1().HTTPRoutes(namespace).Delete(ctx, fmt.Sprintf("app-%d", i), metav1.DeleteOptions{})
		})
	})
	if err != nil {
		return err
	}
	_, all, _, err := routes.counts()
	if err != nil {
		return err
	}
	teardown.statuses = all - statuses
	r.attached(s.attached, setup, teardown)
	return errors.Join(setup.wrong(s.attached), teardown.wrong(0))
}

// phaseResult is what making or deleting the routes came to.
type phaseResult struct {
	requests time.Duration // first to last request
	counted  time.Duration // from the answer to the last request to the right count
	writes   int           // of the Gateway's status
	statuses int           // writes of the routes' statuses
	early    int           // of them, from before a route's Service was seen
	start    int
	most     int
	faults   []string
}

// phase changes the number of routes and waits until the listener counts that many.
func phase(ctx context.Context, gateway *seen, target int, change func() error) (*phaseResult, error) {
	gateway.take()
	p := &phaseResult{start: gateway.count()}
	begin := time.Now()
	if err := change(); err != nil {
		return nil, err
	}
	done := time.Now()
	reached := gateway.await(target)
	p.requests = done.Sub(begin)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(patience):
		return nil, fmt.Errorf("the listener does not count %d routes after %s", target, patience)
	case at := <-reached:
		p.counted = max(0, at.Sub(done))
	}
	// What is written after the right count is one write too many, and may be a wrong count.
	if err := pause(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	p.writes, p.most, p.faults = gateway.take()
	if gateway.count() != target {
		p.faults = append(p.faults, fmt.Sprintf("the listener counts %d routes after %d", gateway.count(), target))
	}
	return p, nil
}

// wrong says what was said that was not so.
func (p *phaseResult) wrong(target int) error {
	var errs []error
	for _, f := range p.faults {
		errs = append(errs, errors.New(f))
	}
	if most := max(p.start, target); p.most > most {
		errs = append(errs, fmt.Errorf("the listener counted %d routes when there were at most %d", p.most, most))
	}
	if target > 0 && p.statuses-p.early != target {
		errs = append(errs, fmt.Errorf("the statuses of %d routes took %d writes, %d of them too early", target, p.statuses, p.early))
	}
	if target == 0 && p.statuses != 0 {
		errs = append(errs, fmt.Errorf("%d statuses of routes were written while they were deleted", p.statuses))
	}
	return errors.Join(errs...)
}
