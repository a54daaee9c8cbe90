package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/admin"
)

// TestExposedAdminServer binds admin servers to loopback and to all addresses, as each verb does.
func TestExposedAdminServer(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
clusters: [{name: x, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: x, user: {}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for verb, begin := range map[string]func(address string, stderr io.Writer) error{
		"run": func(address string, stderr io.Writer) error {
			g, err := newGateway(RunOptions{Files: []string{dir}, AdminAddress: address, Stderr: stderr, EngineFlags: EngineFlags{AccessLog: "off", Stdout: io.Discard}})
			if err == nil {
				g.discard()
			}
			return err
		},
		"proxy": func(address string, stderr io.Writer) error {
			p, err := newRemoteProxy(ProxyOptions{Controller: "127.0.0.1:1", Gateway: "shop/web", AdminAddress: address, HealthAddress: "0.0.0.0:0", Stderr: stderr, EngineFlags: EngineFlags{AccessLog: "off", Stdout: io.Discard}})
			if err == nil {
				p.discard()
			}
			return err
		},
		"controller": func(address string, stderr io.Writer) error {
			ended, end := context.WithCancel(context.Background())
			end()
			return RunController(ended, ControllerOptions{Kubeconfig: kubeconfig, Namespace: "x", Image: "x", Identity: "x", DeliveryAddress: "127.0.0.1:0",
				HealthAddress: "0.0.0.0:0", AdminAddress: address, Stdout: io.Discard, Stderr: stderr})
		},
	} {
		for address, warned := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
			var log bytes.Buffer
			if err := begin(address, &log); err != nil {
				t.Fatalf("%s: %v", verb, err)
			}
			if got := strings.Count(log.String(), "level=WARN msg=\"the admin server has no authentication"); (got == 1) != warned || got > 1 {
				t.Errorf("%s with --admin-address %s warns %d times:\n%s", verb, address, got, &log)
			}
		}
	}
}

// TestHealthServerIsNotExposed checks that a server for health alone may be bound to any address.
func TestHealthServerIsNotExposed(t *testing.T) {
	var log bytes.Buffer
	s, err := listenAdmin(admin.Options{Address: "0.0.0.0:0", Paths: admin.HealthPaths}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if log.Len() > 0 {
		t.Errorf("it is warned about:\n%s", &log)
	}
}
