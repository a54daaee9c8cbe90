package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/controller"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

// TestDashboardOfController has a controller lead a cluster with two Gateways, and asks its dashboard about both.
func TestDashboardOfController(t *testing.T) {
	const gatewayAPI = "gateway.networking.k8s.io"
	s := apiserver.New(
		apiserver.Kind{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
		apiserver.Kind{Version: "v1", Resource: "events", Kind: "Event"},
		apiserver.Kind{Version: "v1", Resource: "namespaces", Kind: "Namespace", ClusterScoped: true},
		apiserver.Kind{Version: "v1", Resource: "nodes", Kind: "Node", ClusterScoped: true},
		apiserver.Kind{Version: "v1", Resource: "pods", Kind: "Pod"},
		apiserver.Kind{Version: "v1", Resource: "secrets", Kind: "Secret"},
		apiserver.Kind{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount"},
		apiserver.Kind{Version: "v1", Resource: "services", Kind: "Service"},
		apiserver.Kind{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition", ClusterScoped: true},
		apiserver.Kind{Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet"},
		apiserver.Kind{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"},
		apiserver.Kind{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler"},
		apiserver.Kind{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease"},
		apiserver.Kind{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"},
		apiserver.Kind{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "gatewayclasses", Kind: "GatewayClass", ClusterScoped: true},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "gateways", Kind: "Gateway"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "grpcroutes", Kind: "GRPCRoute"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "httproutes", Kind: "HTTPRoute"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "listenersets", Kind: "ListenerSet"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "referencegrants", Kind: "ReferenceGrant"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "tlsroutes", Kind: "TLSRoute"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "backendtlspolicies", Kind: "BackendTLSPolicy"})
	put := func(ref apiserver.Ref, metadata map[string]any, fields map[string]any) {
		metadata["generation"] = 1
		fields["metadata"] = metadata
		s.Put(ref, fields)
	}
	put(apiserver.Ref{Resource: "namespaces", Name: "shop"}, map[string]any{}, map[string]any{})
	put(apiserver.Ref{Group: gatewayAPI, Resource: "gatewayclasses", Name: "moongate"}, map[string]any{}, map[string]any{"spec": map[string]any{"controllerName": controllerName}})
	put(apiserver.Ref{Resource: "services", Namespace: "shop", Name: "app"}, map[string]any{}, map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": 80}}}})
	put(apiserver.Ref{Group: "discovery.k8s.io", Resource: "endpointslices", Namespace: "shop", Name: "app-1"}, map[string]any{"labels": map[string]any{"kubernetes.io/service-name": "app"}},
		map[string]any{"addressType": "IPv4", "ports": []any{map[string]any{"port": 8080}}, "endpoints": []any{map[string]any{"addresses": []any{"192.0.2.7"}}}})
	for _, name := range []string{"one", "two"} {
		put(apiserver.Ref{Group: gatewayAPI, Resource: "gateways", Namespace: "shop", Name: name}, map[string]any{"uid": "uid-" + name}, map[string]any{"spec": map[string]any{"gatewayClassName": "moongate",
			"listeners": []any{map[string]any{"name": "http", "port": 80, "protocol": "HTTP"}}}})
		put(apiserver.Ref{Group: gatewayAPI, Resource: "httproutes", Namespace: "shop", Name: "to-" + name}, map[string]any{}, map[string]any{"spec": map[string]any{
			"parentRefs": []any{map[string]any{"group": gatewayAPI, "kind": "Gateway", "name": name}}, "rules": []any{map[string]any{"backendRefs": []any{map[string]any{"kind": "Service", "name": "app", "port": 80, "weight": 1}}}}}})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	var text testkit.Log
	log := slog.New(slog.NewTextHandler(&text, nil))
	c, err := controller.New(controller.Options{Config: &rest.Config{Host: apiserver.WithKeys(t, s, func() bool { return true }), ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, ControllerName: controllerName,
		Namespace: "moongate-system", Identity: "a", Image: "image", DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serveController(ctx, ControllerOptions{ControllerName: controllerName, HealthAddress: "127.0.0.1:0", AdminAddress: address}, c, observe.NewMetrics(observe.MetricsOptions{}), log)
	}()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil || t.Failed() {
			t.Errorf("%v\n%s", err, text.String())
		}
	})
	get := func(path string) (int, string) {
		r, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, ""
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body) // what is missing is not found below
		return r.StatusCode, string(body)
	}
	explained := func(gateway string) (int, string) {
		return get("/explain?format=text&url=" + url.QueryEscape("http://a.test/") + "&gateway=" + gateway)
	}
	testkit.Eventually(t, "both Gateways explained", func() bool {
		one, _ := explained("shop/one")
		two, _ := explained("shop/two")
		return one == 200 && two == 200
	})
	for _, name := range []string{"one", "two"} {
		if _, text := explained("shop/" + name); !strings.Contains(text, "listener   shop/"+name+"/http") || !strings.Contains(text, "HTTPRoute shop/to-"+name) || !strings.Contains(text, "192.0.2.7:8080") {
			t.Errorf("of Gateway %s:\n%s", name, text)
		}
	}
	if status, text := explained(""); status != 400 || !strings.Contains(text, "each Gateway has its own proxies") {
		t.Errorf("without a Gateway: %d %s", status, text)
	}
	_, body := get("/topology")
	var top struct {
		Note     string
		Counted  bool
		Gateways []struct{ Name string }
		Routes   []struct {
			Name  string
			Rules []struct {
				Backends []struct {
					Pools []struct {
						Endpoints []struct{ Address, Health string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Gateways) != 2 || len(top.Routes) != 2 || top.Counted || !strings.HasPrefix(top.Note, "This is the controller. Requests are counted") {
		t.Fatalf("%+v", top)
	}
	if got := fmt.Sprintf("%+v", top.Routes[0].Rules); !strings.Contains(got, "192.0.2.7:8080 Health:judged by each proxy") {
		t.Errorf("%s", got)
	}
	if _, page := get("/"); !strings.Contains(page, "shop/one") || !strings.Contains(page, "shop/two") || !strings.Contains(page, "This is the controller.") {
		t.Errorf("the page does not show both Gateways, or not whose it is:\n%s", page)
	}
}
