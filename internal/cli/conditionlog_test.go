package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestConditionLog: run logs what turns bad, with where it is written, once, and that it is over.
func TestConditionLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.yaml")
	port := fmt.Sprint(freePort(t))
	write := func(backend string) {
		text := `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: moongate, listeners: [{name: http, protocol: HTTP, port: ` + port + `}]}
---
apiVersion: v1
kind: Service
metadata: {name: app}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: web}]
  rules:
  - backendRefs:
    - name: ` + backend + `
      port: 80
`
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("ap")
	log := &testkit.Log{}
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, RunOptions{Files: []string{path}, Bind: []string{"127.0.0.1"}, AdminAddress: "127.0.0.1:0", Stderr: log, Ready: func(Running) { close(ready) }, EngineFlags: EngineFlags{AccessLog: "off", RequestIDs: defaultRequestIDs, Stdout: log}})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-ready
	bad := func() int { return strings.Count(log.String(), "BackendNotFound") }
	testkit.Eventually(t, "the mistake is logged", func() bool { return bad() == 1 })
	for _, want := range []string{"level=WARN msg=condition object=\"HTTPRoute default/shop\"", "at=" + path + ":16 ", "field=spec.rules[0].backendRefs[0].name", "reason=BackendNotFound", "Service default/ap does not exist; did you mean app? Else create it"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
	write("app")
	testkit.Eventually(t, "its end is logged", func() bool {
		return strings.Contains(log.String(), "level=INFO msg=condition object=\"HTTPRoute default/shop\" message=\"the problem is resolved\"")
	})
	write("ap")
	testkit.Eventually(t, "it is logged again", func() bool { return bad() == 2 })
	if n := strings.Count(log.String(), "Gateway default/web"); n != 0 {
		t.Errorf("a Gateway of which nothing is wrong is logged\n%s", log)
	}
}

// TestReadyWhenReady: run says that it is ready when what it has is served, not while a port is taken.
func TestReadyWhenReady(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	path := testkit.WriteFile(t, "all.yaml", []byte(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: moongate, listeners: [{name: http, protocol: HTTP, port: `+port+`}]}
`))
	log := &testkit.Log{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, RunOptions{Files: []string{path}, Bind: []string{"127.0.0.1"}, AdminAddress: "127.0.0.1:0", Stderr: log, EngineFlags: EngineFlags{AccessLog: "off", RequestIDs: defaultRequestIDs, Stdout: log}})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	testkit.Eventually(t, "it says that it is not ready", func() bool {
		return strings.Contains(log.String(), `level=WARN msg="not ready" why="Gateway default/web is not served: listener http: spec.listeners[0].port: port `)
	})
	if strings.Contains(log.String(), "msg=ready") {
		t.Errorf("it is ready while its port is taken:\n%s", log)
	}
	l.Close()
	testkit.Eventually(t, "it says that it is ready", func() bool { return strings.Count(log.String(), "msg=ready ") == 1 })
}
