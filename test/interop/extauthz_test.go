package interop

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// authorization is a server made of the packages that Envoy's API is published as.
type authorization struct {
	asked atomic.Pointer[authv3.CheckRequest]
}

func (a *authorization) Check(_ context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	a.asked.Store(r)
	option := func(name, value string, appended bool) *corev3.HeaderValueOption {
		//lint:ignore SA1019 servers set the deprecated field, and it must not be passed over
		return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, Append: wrapperspb.Bool(appended)}
	}
	if r.GetAttributes().GetRequest().GetHttp().GetHeaders()["authorization"] == "" {
		return &authv3.CheckResponse{Status: &status.Status{Code: 16}, HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode_Unauthorized}, Body: "who are you?",
			Headers: []*corev3.HeaderValueOption{option("WWW-Authenticate", "Bearer", false)},
		}}}, nil
	}
	return &authv3.CheckResponse{Status: &status.Status{}, HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
		Headers:                 []*corev3.HeaderValueOption{option("x-user", "alice", false), option("x-group", "b", true)},
		HeadersToRemove:         []string{"authorization"},
		ResponseHeadersToAdd:    []*corev3.HeaderValueOption{option("x-checked", "yes", false)},
		QueryParametersToSet:    []*corev3.QueryParameter{{Key: "user", Value: "alice"}},
		QueryParametersToRemove: []string{"token"},
	}}}, nil
}

// TestExternalAuthorization: a gateway and a server that knows Envoy's own definition of the protocol understand each other, field by field.
func TestExternalAuthorization(t *testing.T) {
	listen := func() (net.Listener, int) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l, l.Addr().(*net.TCPAddr).Port
	}
	auth, server := &authorization{}, grpc.NewServer()
	authv3.RegisterAuthorizationServer(server, auth)
	authListener, authPort := listen()
	go server.Serve(authListener)
	t.Cleanup(server.Stop)
	appListener, appPort := listen()
	app := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %q %q %q", r.RequestURI, r.Header["X-User"], r.Header["X-Group"], r.Header["Authorization"])
	})}
	go app.Serve(appListener)
	t.Cleanup(func() { app.Close() })

	program := buildMoongate(t)
	manifests := filepath.Join(t.TempDir(), "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	port := freePorts(t, 1)[0]
	write(t, manifests, "gateway.yaml", []byte(fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: default}
spec:
  gatewayClassName: moongate
  listeners: [{name: http, protocol: HTTP, port: %d}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: default}
spec:
  parentRefs: [{name: web}]
  rules:
  - filters: [{type: ExternalAuth, externalAuth: {protocol: GRPC, backendRef: {name: auth, port: 50051}, grpc: {}, forwardBody: {maxSize: 1024}}}]
    backendRefs: [{name: app, port: 50051}]
`, port)+backend("app", appPort)+backend("auth", authPort)))
	start(t, program, "run", "-f", manifests, "--bind", "127.0.0.1", "--admin-address", "127.0.0.1:0", "--access-log", "off")
	waitFor(t, port)

	ask := func(authorization string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequest("POST", fmt.Sprintf("http://127.0.0.1:%d/orders?token=t&x=1", port), strings.NewReader("the body"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "shop.example.com"
		r.Header = http.Header{"X-User": {"root"}, "X-Group": {"a"}}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	if resp, body := ask(""); resp.StatusCode != 401 || body != "who are you?" || resp.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("denied: %s %v %q", resp.Status, resp.Header, body)
	}
	resp, body := ask("Bearer t")
	if want := `/orders?x=1&user=alice ["alice"] ["a" "b"] []`; resp.StatusCode != 200 || body != want || resp.Header.Get("X-Checked") != "yes" {
		t.Errorf("allowed: %s %v %s, want %s", resp.Status, resp.Header, body, want)
	}
	asked := auth.asked.Load()
	if unknown := len(asked.ProtoReflect().GetUnknown()); unknown != 0 {
		t.Errorf("%d bytes of the request are unknown", unknown)
	}
	h, source := asked.GetAttributes().GetRequest().GetHttp(), asked.GetAttributes().GetSource().GetAddress().GetSocketAddress()
	if h.Method != "POST" || h.Path != "/orders?token=t&x=1" || h.Host != "shop.example.com" || h.Scheme != "http" || h.Protocol != "HTTP/1.1" || h.Body != "the body" || h.Size != 8 ||
		h.Id == "" || h.Headers[":authority"] != "shop.example.com" || h.Headers["x-user"] != "root" || source.GetAddress() != "127.0.0.1" || source.GetPortValue() == 0 ||
		asked.GetAttributes().GetRequest().GetTime().AsTime().IsZero() {
		t.Errorf("the server was told %v", asked)
	}
}
