package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// pollEvery is how often a route that is not served yet is asked for.
const pollEvery = 5 * time.Millisecond

// propagation is how soon new routes were served.
type propagation struct {
	// served are the times from the API server's answer to the route's first 200; created those of
	// the requests that created them, which come before.
	served, created []time.Duration
	// wrong are answers other than 404 before and 200 afterwards.
	wrong int
	first string // of them
}

// measurePropagation makes routes one after another, each when the one before is served.
func measurePropagation(ctx context.Context, w *world, s *settings, r *report) error {
	p, err := w.propagate(ctx, s.routes)
	if err != nil {
		return err
	}
	r.propagation("routes one after another", p)
	if err := w.awaitAttached(ctx, s.routes); err != nil {
		return err
	}
	if err := errors.Join(p.err(), w.awaitStatuses(ctx, home)); err != nil {
		return err
	}
	return w.clear(ctx)
}

// propagate makes so many routes; afterwards each of them is asked for once more.
func (w *world) propagate(ctx context.Context, routes int) (*propagation, error) {
	p := &propagation{}
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for i := range routes {
		name := fmt.Sprintf("%d-route", i)
		made := route(home, name,
			rule(fmt.Sprintf("/%d", i), backend, 80, addHeader(gwv1.HTTPRouteFilterRequestHeaderModifier), addHeader(gwv1.HTTPRouteFilterResponseHeaderModifier)),
			rule("/", "invalid-backend", 80, addHeader(gwv1.HTTPRouteFilterRequestHeaderModifier), addHeader(gwv1.HTTPRouteFilterResponseHeaderModifier)))
		begin := time.Now()
		if _, err := w.gateways.GatewayV1().HTTPRoutes(home).Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		answered := time.Now()
		if err := p.await(ctx, client, fmt.Sprintf("http://%s/%d", w.address, i), host(home, name)); err != nil {
			return nil, err
		}
		p.served, p.created = append(p.served, time.Since(answered)), append(p.created, answered.Sub(begin))
	}
	for i := range routes {
		code, err := ask(ctx, client, fmt.Sprintf("http://%s/%d", w.address, i), host(home, fmt.Sprintf("%d-route", i)))
		p.count(code, err, http.StatusOK)
	}
	return p, ctx.Err()
}

// await asks until the answer is 200.
func (p *propagation) await(ctx context.Context, client *http.Client, url, host string) error {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		code, err := ask(ctx, client, url, host)
		if err == nil && code == http.StatusOK {
			return nil
		}
		p.count(code, err, http.StatusNotFound)
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is not served after %s", host, patience)
}

// count takes an answer that must have this code.
func (p *propagation) count(code int, err error, want int) {
	if err == nil && code == want {
		return
	}
	if p.wrong++; p.first == "" {
		p.first = fmt.Sprintf("code %d (%v) instead of %d", code, err, want)
	}
}

func (p *propagation) err() error {
	if p.wrong > 0 {
		return fmt.Errorf("%d wrong answers, the first: %s", p.wrong, p.first)
	}
	return nil
}

func ask(ctx context.Context, client *http.Client, url, host string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	request.Host = host
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
