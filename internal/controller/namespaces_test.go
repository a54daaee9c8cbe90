package controller

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

// read are the kinds that a controller reads.
var read = []apiserver.Kind{
	{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
	{Version: "v1", Resource: "namespaces", Kind: "Namespace", ClusterScoped: true},
	{Version: "v1", Resource: "pods", Kind: "Pod"},
	{Version: "v1", Resource: "secrets", Kind: "Secret"},
	{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount"},
	{Version: "v1", Resource: "services", Kind: "Service"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition", ClusterScoped: true},
	{Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet"},
	{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"},
	{Group: gatewayAPI, Version: "v1", Resource: "backendtlspolicies", Kind: "BackendTLSPolicy"},
	{Group: gatewayAPI, Version: "v1", Resource: "gatewayclasses", Kind: "GatewayClass", ClusterScoped: true},
	{Group: gatewayAPI, Version: "v1", Resource: "gateways", Kind: "Gateway"},
	{Group: gatewayAPI, Version: "v1", Resource: "grpcroutes", Kind: "GRPCRoute"},
	{Group: gatewayAPI, Version: "v1", Resource: "httproutes", Kind: "HTTPRoute"},
	{Group: gatewayAPI, Version: "v1", Resource: "listenersets", Kind: "ListenerSet"},
	{Group: gatewayAPI, Version: "v1", Resource: "referencegrants", Kind: "ReferenceGrant"},
	{Group: gatewayAPI, Version: "v1", Resource: "tcproutes", Kind: "TCPRoute"},
	{Group: gatewayAPI, Version: "v1", Resource: "tlsroutes", Kind: "TLSRoute"},
	{Group: gatewayAPI, Version: "v1", Resource: "udproutes", Kind: "UDPRoute"},
	{Group: "moongate.dev", Version: "v1alpha1", Resource: "gatewayparameters", Kind: "GatewayParameters"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget"},
}

// TestNamespaces checks that every part of a controller keeps to the namespaces that it is given: what is read and
// watched, and what is said of a reference to another one.
func TestNamespaces(t *testing.T) {
	for _, test := range []struct {
		name               string
		namespaces, scopes []string
		message            string
	}{
		{"all", nil, []string{""}, "does not exist"},
		{"some", []string{"shop", "blog"}, []string{"blog", "shop"}, "namespace other is not watched"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := apiserver.New(read...)
			class := apiserver.Ref{Group: gatewayAPI, Resource: "gatewayclasses", Name: "c"}
			s.Put(class, map[string]any{
				"metadata": map[string]any{"generation": 1},
				"spec": map[string]any{"controllerName": "example.org/x",
					"parametersRef": map[string]any{"group": "moongate.dev", "kind": "GatewayParameters", "namespace": "other", "name": "p"}},
			})
			var mu sync.Mutex
			requests := map[string]bool{} // "list <namespace>/<resource>" and "watch <namespace>/<resource>", without a namespace for all
			s.Intercept = func(r *apiserver.Request) *metav1.Status {
				mu.Lock()
				defer mu.Unlock()
				if r.Verb == "list" || r.Verb == "watch" && r.Query.Get("sendInitialEvents") == "" {
					requests[r.Verb+" "+r.Namespace+"/"+r.Resource] = true
				}
				return nil
			}
			want := map[string]bool{"list /nodes": true} // which this API server does not have, so that no watch follows
			for _, k := range read {
				scopes := test.scopes
				if k.ClusterScoped {
					scopes = []string{""}
				}
				for _, scope := range scopes {
					want["list "+scope+"/"+k.Resource], want["watch "+scope+"/"+k.Resource] = true, true
				}
			}

			var log testkit.Log
			c, err := New(Options{
				Config:         &rest.Config{Host: apiserver.WithKeys(t, s, func() bool { return true }), ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
				ControllerName: "example.org/x", Namespace: "moongate-system", Namespaces: test.namespaces, Identity: "a", Image: "image",
				DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller", Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()

			status := func() string {
				text, _ := json.Marshal(s.Get(class)["status"])
				return string(text)
			}
			testkit.Eventually(t, "everything is read, and the class has a status", func() bool {
				mu.Lock()
				defer mu.Unlock()
				for request := range want {
					if !requests[request] {
						return false
					}
				}
				return strings.Contains(status(), "conditions")
			})
			end()
			if err := <-done; err != nil {
				t.Error(err)
			}
			mu.Lock() // the server may not have noticed yet that a request has ended
			defer mu.Unlock()
			for request := range requests {
				if !want[request] {
					t.Errorf("%s, which it was not to ask for", request)
				}
			}
			if !strings.Contains(status(), test.message) {
				t.Errorf("the class's status lacks %q:\n%s", test.message, status())
			}
			if t.Failed() {
				t.Logf("log:\n%s", &log)
			}
		})
	}
}
