package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckBind: check and explain know which Gateways share a port, or exclude each other, where run has --bind.
func TestCheckBind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateways.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: everywhere, namespace: default}
spec:
  gatewayClassName: moongate
  listeners: [{name: http, port: 8080, protocol: HTTP, hostname: a.example.com}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: here, namespace: default}
spec:
  gatewayClassName: moongate
  addresses: [{value: 127.0.0.1}]
  listeners: [{name: http, port: 8080, protocol: HTTP, hostname: b.example.com}]
`), 0o644); err != nil {
		t.Fatal(err)
	}
	const conflict = "port 8080 cannot be bound beside"
	for args, want := range map[string]int{
		"check " + file:                                                       exitProblems,
		"check --bind 127.0.0.1 " + file:                                      exitOK, // they share it
		"check --bind 127.0.0.2 " + file:                                      exitOK,
		"check --bind 0.0.0.0 " + file:                                        exitProblems,
		"check --bind :: " + file:                                             exitOK,
		"check --bind here " + file:                                           exitUsage,
		"diff --bind here --from " + file + " " + file:                        exitUsage,
		"diff --bind :: --from " + file + " " + file:                          exitOK,
		"check --bind 127.0.0.1 --kube":                                       exitUsage,
		"explain http://b.example.com:8080/ -f " + file + " --bind 127.0.0.1": exitOK,
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(strings.Fields(args), &stdout, &stderr); code != want {
			t.Errorf("%s: exit code %d, want %d\n%s%s", args, code, want, stdout.String(), stderr.String())
		}
		if got := strings.Contains(stdout.String(), conflict); got != (want == exitProblems && strings.HasPrefix(args, "check")) {
			t.Errorf("%s: told of a conflict: %v\n%s", args, got, stdout.String())
		}
	}
}
