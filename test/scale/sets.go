package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	routesPerSet = 16
	setSecret    = "ns-cert"
	served       = "served" // Service of a namespace that leads to the backend
)

// measureSets makes thousands of ListenerSets, each with a listener of HTTPS and 16 routes, and looks at what that costs.
func measureSets(ctx context.Context, w *world, s *settings, r *report) error {
	l := *s // the same changes as in the test load, of these routes
	l.prefix, l.namespaces, l.perSpace, l.perService = "sets", s.setSpaces, s.setsPerSpace*routesPerSet, routesPerSet
	sets := s.setSpaces * s.setsPerSpace
	address, err := w.backendAddress(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	for i := range l.namespaces {
		if err := w.makeSetSpace(ctx, l.space(i), address); err != nil {
			return err
		}
	}
	if err := each(ctx, sets, s.workers, func(ctx context.Context, i int) error {
		return w.makeSet(ctx, &l, i)
	}); err != nil {
		return err
	}
	made := time.Since(begin)
	begin = time.Now()
	for i := range l.namespaces {
		if err := errors.Join(w.awaitStatuses(ctx, l.space(i)), w.awaitSets(ctx, l.space(i))); err != nil {
			return err
		}
	}
	if err := w.awaitAttachedSets(ctx, sets); err != nil {
		return err
	}
	r.sets(sets, sets*routesPerSet, made, time.Since(begin))
	if err := each(ctx, sets, s.workers, func(ctx context.Context, i int) error { return w.askSet(ctx, &l, i) }); err != nil {
		return err
	}
	if err := pause(ctx, s.settle); err != nil {
		return err
	}

	quiet, err := w.watchCost(ctx, s.window/4)
	if err != nil {
		return err
	}
	r.costs("ListenerSets, nothing changes", quiet)
	churned, err := w.underChurn(ctx, &l, func(ctx context.Context) error {
		cost, err := w.watchCost(ctx, s.window)
		r.costs("ListenerSets, churn", cost)
		return err
	})
	if err != nil {
		return err
	}
	r.churned("churn of routes on ListenerSets", churned)
	return errors.Join(churned.err(), w.awaitAttachedSets(ctx, sets))
}

// backendAddress is that of the backend's pod.
func (w *world) backendAddress(ctx context.Context) (string, error) {
	pods, err := w.kube.CoreV1().Pods(home).List(ctx, metav1.ListOptions{LabelSelector: "app=" + backend})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		if ip := pods.Items[i].Status.PodIP; ip != "" {
			return ip, nil
		}
	}
	return "", errors.New("the backend has no pod with an address")
}

// makeSetSpace makes a namespace with the certificate of all its listeners, and a Service that leads to the backend.
func (w *world) makeSetSpace(ctx context.Context, namespace, backend string) error {
	if err := w.namespace(ctx, namespace); err != nil {
		return err
	}
	certificate, key, err := selfSigned("*." + namespace + ".example.com")
	if err != nil {
		return err
	}
	_, err = w.kube.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: setSecret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	if unlessThere(err) != nil {
		return err
	}
	endpoint := slice(namespace, served, backend)
	*endpoint.Ports[0].Port = backendPort
	return w.makeService(ctx, namespace, served, endpoint)
}

func (w *world) makeService(ctx context.Context, namespace, name string, endpoint *discoveryv1.EndpointSlice) error {
	_, err := w.kube.CoreV1().Services(namespace).Create(ctx, service(namespace, name), metav1.CreateOptions{})
	if unlessThere(err) != nil {
		return err
	}
	_, err = w.kube.DiscoveryV1().EndpointSlices(namespace).Create(ctx, endpoint, metav1.CreateOptions{})
	return unlessThere(err)
}

// makeSet makes the i-th ListenerSet, with a Service and routes of its own. The first route leads to the backend besides.
func (w *world) makeSet(ctx context.Context, s *settings, i int) error {
	namespace, set := s.space(i/s.setsPerSpace), i%s.setsPerSpace
	name := fmt.Sprintf("app-%d", set)
	if err := w.makeService(ctx, namespace, name, slice(namespace, name, fakeAddress(i))); err != nil {
		return err
	}
	_, err := w.gateways.GatewayV1().ListenerSets(namespace).Create(ctx, listenerSet(namespace, name), metav1.CreateOptions{})
	if unlessThere(err) != nil {
		return err
	}
	for k := range routesPerSet {
		route := setRoute(namespace, name, fmt.Sprintf("app-%d", set*routesPerSet+k))
		route.Spec.Rules = []gwv1.HTTPRouteRule{randomRule(name)}
		if k == 0 {
			route.Spec.Rules = append(route.Spec.Rules, rule("/served", served, 80))
		}
		if _, err := w.gateways.GatewayV1().HTTPRoutes(namespace).Create(ctx, route, metav1.CreateOptions{}); unlessThere(err) != nil {
			return err
		}
	}
	return nil
}

// listenerSet has one listener of HTTPS, with a host name of its own.
func listenerSet(namespace, name string) *gwv1.ListenerSet {
	to := gwv1.Namespace(home)
	hostname := gwv1.Hostname(host(namespace, name))
	return &gwv1.ListenerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: gwv1.ListenerSetSpec{
			ParentRef: gwv1.ParentGatewayReference{Namespace: &to, Name: home},
			Listeners: []gwv1.ListenerEntry{{
				Name: "https", Port: 443, Protocol: gwv1.HTTPSProtocolType, Hostname: &hostname,
				TLS: &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{{Name: setSecret}}},
			}},
		},
	}
}

// setRoute is attached to a ListenerSet of its namespace, whose host name it has.
func setRoute(namespace, set, name string) *gwv1.HTTPRoute {
	r := route(namespace, name)
	kind := gwv1.Kind("ListenerSet")
	r.Spec.ParentRefs = []gwv1.ParentReference{{Kind: &kind, Name: gwv1.ObjectName(set)}}
	r.Spec.Hostnames = []gwv1.Hostname{gwv1.Hostname(host(namespace, set))}
	return r
}

// awaitSets waits until each ListenerSet of a namespace is programmed, and its listener counts its routes.
func (w *world) awaitSets(ctx context.Context, namespace string) error {
	return eventually(ctx, func() error {
		list, err := w.gateways.GatewayV1().ListenerSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := checkSet(&list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func checkSet(set *gwv1.ListenerSet) error {
	name := set.Namespace + "/" + set.Name
	for _, want := range []gwv1.ListenerSetConditionType{gwv1.ListenerSetConditionAccepted, gwv1.ListenerSetConditionProgrammed} {
		if !meta.IsStatusConditionTrue(set.Status.Conditions, string(want)) {
			return fmt.Errorf("ListenerSet %s is not %s: %+v", name, want, set.Status.Conditions)
		}
	}
	if n := len(set.Status.Listeners); n != 1 || set.Status.Listeners[0].AttachedRoutes != routesPerSet {
		return fmt.Errorf("ListenerSet %s does not count %d routes on one listener: %+v", name, routesPerSet, set.Status.Listeners)
	}
	return nil
}

// awaitAttachedSets waits until the Gateway counts so many ListenerSets.
func (w *world) awaitAttachedSets(ctx context.Context, want int) error {
	return eventually(ctx, func() error {
		gw, err := w.gateway(ctx)
		if err != nil {
			return err
		}
		if n := gw.Status.AttachedListenerSets; n == nil || int(*n) != want {
			return fmt.Errorf("the Gateway does not count %d ListenerSets: %+v", want, gw.Status)
		}
		return nil
	})
}

// askSet sends a request to a ListenerSet, which must show the certificate of its namespace and lead to the backend.
func (w *world) askSet(ctx context.Context, s *settings, i int) error {
	namespace := s.space(i / s.setsPerSpace)
	name := host(namespace, fmt.Sprintf("app-%d", i%s.setsPerSpace))
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{ServerName: name, InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, net.JoinHostPort(w.address, "443"))
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/served", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	shown := response.TLS.PeerCertificates[0].DNSNames
	if response.StatusCode != http.StatusOK || len(shown) != 1 || shown[0] != "*."+namespace+".example.com" {
		return fmt.Errorf("%s answers %d with the certificate of %s", name, response.StatusCode, shown)
	}
	return nil
}
