package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// apiServer is as much of an API server as a Controller needs to read a cluster that has nothing but a GatewayClass.
type apiServer struct {
	*httptest.Server
	class map[string]any

	mu       sync.Mutex
	requests map[string]bool // "list <namespace>/<resource>" and "watch <namespace>/<resource>", without a namespace for all
	secrets  map[string]map[string]any
	statuses []string // what was patched
}

// resources are the kinds that a controller reads, by the path of their API; discovery tells the same.
var resources = map[string]map[string]string{
	"/api/v1": {"configmaps": "ConfigMap", "namespaces": "Namespace", "pods": "Pod", "secrets": "Secret",
		"serviceaccounts": "ServiceAccount", "services": "Service"},
	"/apis/apiextensions.k8s.io/v1": {"customresourcedefinitions": "CustomResourceDefinition"},
	"/apis/apps/v1":                 {"deployments": "Deployment"},
	"/apis/autoscaling/v2":          {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
	"/apis/discovery.k8s.io/v1":     {"endpointslices": "EndpointSlice"},
	"/apis/gateway.networking.k8s.io/v1": {"backendtlspolicies": "BackendTLSPolicy", "gatewayclasses": "GatewayClass", "gateways": "Gateway",
		"grpcroutes": "GRPCRoute", "httproutes": "HTTPRoute", "listenersets": "ListenerSet", "referencegrants": "ReferenceGrant",
		"tcproutes": "TCPRoute", "tlsroutes": "TLSRoute", "udproutes": "UDPRoute"},
	"/apis/moongate.dev/v1alpha1": {"gatewayparameters": "GatewayParameters"},
	"/apis/policy/v1":             {"poddisruptionbudgets": "PodDisruptionBudget"},
}

// clusterWide are the resources that are in no namespace.
var clusterWide = []string{"customresourcedefinitions", "gatewayclasses", "namespaces"}

func newAPIServer(t *testing.T, class map[string]any) *apiServer {
	s := &apiServer{class: class, requests: map[string]bool{}, secrets: map[string]map[string]any{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	n := 3 // of the API's path: "", "api", the version
	if parts[1] == "apis" {
		n = 4
	}
	if len(parts) < n {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	api, rest, namespace := strings.Join(parts[:n], "/"), parts[n:], ""
	apiVersion := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(api, "/apis"), "/api"), "/")
	if len(rest) > 2 && rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	partial := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(rest) == 0 && resources[api] != nil:
		list := metav1.APIResourceList{GroupVersion: apiVersion}
		for resource, kind := range resources[api] {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Kind: kind})
		}
		answer(w, list)
	case len(rest) == 0 || resources[api][rest[0]] == "":
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPatch:
		var patch struct{ Status map[string]any }
		body := new(bytes.Buffer)
		_, _ = body.ReadFrom(r.Body)
		_ = json.Unmarshal(body.Bytes(), &patch)
		s.statuses = append(s.statuses, body.String())
		patched, metadata := maps.Clone(s.class), maps.Clone(s.class["metadata"].(map[string]any))
		metadata["resourceVersion"] = "2"
		patched["metadata"], patched["status"] = metadata, patch.Status
		answer(w, patched)
	case r.Method == http.MethodPost:
		var created map[string]any
		_ = json.NewDecoder(r.Body).Decode(&created)
		s.secrets[namespace+"/"+created["metadata"].(map[string]any)["name"].(string)] = created
		answer(w, created)
	case len(rest) == 2 && s.secrets[namespace+"/"+rest[1]] != nil:
		answer(w, s.secrets[namespace+"/"+rest[1]])
	case len(rest) == 2:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.URL.Query().Get("sendInitialEvents") != "":
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid) // it can only list
	case r.URL.Query().Get("watch") != "":
		s.requests["watch "+namespace+"/"+rest[0]] = true
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
	default:
		s.requests["list "+namespace+"/"+rest[0]] = true
		list := map[string]any{"apiVersion": apiVersion, "kind": resources[api][rest[0]] + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}}
		if partial {
			list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
		}
		if rest[0] == "gatewayclasses" {
			list["items"] = []any{s.class}
		}
		answer(w, list)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "test: " + string(reason)})
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
			s := newAPIServer(t, map[string]any{
				"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
				"metadata": map[string]any{"name": "c", "resourceVersion": "1", "generation": 1},
				"spec": map[string]any{"controllerName": "example.org/x",
					"parametersRef": map[string]any{"group": "moongate.dev", "kind": "GatewayParameters", "namespace": "other", "name": "p"}},
			})
			want := map[string]bool{}
			for _, kinds := range resources {
				for resource := range kinds {
					scopes := test.scopes
					if slices.Contains(clusterWide, resource) {
						scopes = []string{""}
					}
					for _, scope := range scopes {
						want["list "+scope+"/"+resource], want["watch "+scope+"/"+resource] = true, true
					}
				}
			}

			var log bytes.Buffer
			c, err := New(Options{
				Config:         &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
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

			complete := func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for request := range want {
					if !s.requests[request] {
						return false
					}
				}
				return len(s.statuses) > 0
			}
			deadline := time.Now().Add(time.Minute)
			for !complete() && time.Now().Before(deadline) {
				time.Sleep(5 * time.Millisecond)
			}
			end()
			if err := <-done; err != nil {
				t.Error(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for request := range want {
				if !s.requests[request] {
					t.Errorf("no %s", request)
				}
			}
			for request := range s.requests {
				if !want[request] {
					t.Errorf("%s, which it was not to ask for", request)
				}
			}
			if all := strings.Join(s.statuses, "\n"); !strings.Contains(all, test.message) {
				t.Errorf("the class's status lacks %q:\n%s", test.message, all)
			}
			if t.Failed() {
				t.Logf("log:\n%s", &log)
			}
		})
	}
}
